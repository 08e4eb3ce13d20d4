"""All models and all switches, book by book: `models.toml` and `switches.toml` of each book's folder.

`[model]` has the fields that differ from the defaults of `models.Model`. `[model.switches.name]` is a known bug (`KnownBugs` of
the modules): an error that authors of a replicated log made, or are likely to make. `switches.toml` has changes of a definition's
text, for the rules and promises that no known bug concerns. They show that a rule is needed, or that a promise can be broken, and
do not lengthen the modules. There `[model.switch]` has the promise that breaks, the definition, its text before and after the
change, and the story.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from spec.models import Case, Edit, Model, Switch, cases

BOOKS = ("replication", "quorum", "transactions", "groups", "historical")
EDITED = "found by mutating the specification"


def _table(folder: str, name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads(files("spec").joinpath(folder, name).read_text())


def _models(folder: str) -> Iterator[Model]:
    models, edited = _table(folder, "models.toml"), _table(folder, "switches.toml")
    if strangers := edited.keys() - models.keys():
        raise ValueError(f"spec/{folder}/switches.toml: {', '.join(strangers)} is no model of models.toml")
    for name, row in models.items():
        known = [_switch(switch, each) for switch, each in row.pop("switches", {}).items()]
        changes = [_switch(switch, each) for switch, each in edited.get(name, {}).items()]
        yield Model(name, folder, (*known, *changes), **row)


def _switch(name: str, row: dict[str, Any]) -> Switch:
    edit = Edit(row.pop("definition"), row.pop("was"), row.pop("becomes")) if "definition" in row else None
    return Switch(name, row.pop("breaks"), row.pop("source", EDITED), edit=edit, **row)


MODELS: tuple[Model, ...] = tuple(model for folder in BOOKS for model in _models(folder))


def all_cases() -> dict[str, Case]:
    """Every case by its name; names are unique."""
    found = {case.name: case for case in cases(MODELS)}
    if len(found) != sum(1 for _ in cases(MODELS)):
        raise ValueError("two cases have one name")
    return found
