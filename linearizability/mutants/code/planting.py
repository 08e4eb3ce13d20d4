"""Runs a Python program with one change of the code, or with marks that show what is reached; the source files stay."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from types import CodeType, ModuleType
from typing import Any

from linearizability.mutants.code.changes import all_changes, changes_of, module_path
from linearizability.mutants.code.reaching import MARK, marked


class UnknownChange(KeyError):
    """No change has this name."""

    def __str__(self) -> str:
        return f"{self.args[0]!r} is no change of the code; `list` shows them"


class _Changed(importlib.machinery.SourceFileLoader):
    """Compiles the module as it is to be; what was compiled before is not used, and nothing is stored."""

    def __init__(self, fullname: str, tree: ast.Module, names: dict[str, Any]) -> None:
        super().__init__(fullname, str(module_path(fullname)))
        self._tree, self._names = tree, names

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self._names)
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, trees: dict[str, Callable[[], ast.Module]], names: dict[str, Any]) -> None:
        self._trees, self._names = trees, names

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname not in self._trees:
            return None
        loader = _Changed(fullname, self._trees[fullname](), self._names)
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)


def _import_from(trees: dict[str, Callable[[], ast.Module]], names: dict[str, Any]) -> None:
    for module in trees:
        if module in sys.modules:
            raise ImportError(f"{module} is imported already: a change is planted before")
    sys.meta_path.insert(0, _Finder(trees, names))


def plant(name: str) -> None:
    """From now on this process imports the module with the change. Errors: UnknownChange; the module is imported already."""
    if name not in all_changes():
        raise UnknownChange(name)
    module = all_changes()[name].module

    def tree() -> ast.Module:
        changed, changes = changes_of(module)
        next(change for change in changes if change.name == name).apply()
        return changed

    _import_from({module: tree}, {})


def plant_marks(reached: set[str]) -> list[str]:
    """From now on this process notes in `reached` which blocks of these modules it reaches."""
    modules = sorted({change.module for change in all_changes().values()})
    _import_from({module: partial(marked, module) for module in modules}, {MARK: reached.add})
    return modules
