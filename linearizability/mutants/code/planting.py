"""Makes this process import the code with one change, or with marks that record reached blocks; source files are not changed."""

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
    """Compiles a module from a changed tree, without reading or writing a compiled file."""

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
            raise ImportError(f"{module} is imported already: plant the change before the import")
    sys.meta_path.insert(0, _Finder(trees, names))


def plant(name: str) -> None:
    """Make later imports load the module with the change. Errors: UnknownChange; ImportError if it is imported already."""
    if name not in all_changes():
        raise UnknownChange(name)
    module = all_changes()[name].module

    def tree() -> ast.Module:
        changed, changes = changes_of(module)
        next(change for change in changes if change.name == name).apply()
        return changed

    _import_from({module: tree}, {})


def plant_marks(reached: set[str]) -> list[str]:
    """Make later imports load the modules with marks, which add each reached block to `reached`; return the modules."""
    modules = sorted({change.module for change in all_changes().values()})
    _import_from({module: partial(marked, module) for module in modules}, {MARK: reached.add})
    return modules
