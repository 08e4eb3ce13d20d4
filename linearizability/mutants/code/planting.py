"""Runs a Python program with one change of the code in it; the source files stay as they are."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import CodeType, ModuleType
from typing import Any

from linearizability.mutants.code.changes import all_changes, changes_of, module_path


class UnknownChange(KeyError):
    """No change has this name."""

    def __str__(self) -> str:
        return f"{self.args[0]!r} is no change of the code; `list` shows them"


class _Changed(importlib.machinery.SourceFileLoader):
    """Compiles the module with the change; what was compiled before is not used, and nothing is stored."""

    def __init__(self, fullname: str, name: str) -> None:
        super().__init__(fullname, str(module_path(fullname)))
        self._change = name

    def get_code(self, fullname: str) -> CodeType:
        tree, changes = changes_of(fullname)
        next(change for change in changes if change.name == self._change).apply()
        return compile(tree, self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname != self._module:
            return None
        loader = _Changed(fullname, self._name)
        return importlib.machinery.ModuleSpec(fullname, loader, origin=loader.path)


def plant(name: str) -> None:
    """From now on this process imports the module with the change. Errors: UnknownChange; the module is imported already."""
    if name not in all_changes():
        raise UnknownChange(name)
    module = all_changes()[name].module
    if module in sys.modules:
        raise ImportError(f"{module} is imported already: a change is planted before")
    sys.meta_path.insert(0, _Finder(module, name))
