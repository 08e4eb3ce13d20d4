"""Switches that are changes of a definition's text: each rule, and each promise, that no bug of the modules has to do with.

The modules' own switches (`KnownBugs`) are the errors that were made, or might well be made, by those who build a log. These
show that a rule is needed, and that a promise can be broken: they are kept out of the reader's way, in the `switches.toml` of
each book. There `[model.switch]` has the promise that breaks, the definition, what is there, what instead, and the story.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from spec.models import Edit, Switch

SOURCE = "found by mutating the specification"


@cache
def _book(folder: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Model -> switch -> its row."""
    return tomllib.loads(files("spec").joinpath(folder, "switches.toml").read_text())


def edited_switches(folder: str, model: str) -> tuple[Switch, ...]:
    """The switches of a model that are changes of the text."""
    return tuple(
        Switch(name, row["breaks"], SOURCE, row["story"], edit=Edit(row["definition"], row["was"], row["becomes"]))
        for name, row in _book(folder).get(model, {}).items()
    )
