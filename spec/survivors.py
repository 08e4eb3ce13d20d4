"""The reasons why surviving mutants need no new promise: written by hand, in the `survivors.toml` of each book.

A reason lists prefixes of mutants' names and holds for each such mutant; tests check that each prefix has a survivor. Where a
reason is that another rule implies the changed one, the mutant has the same states and steps as the clean models that ran it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from spec.mutants import MUTATED


@cache
def reasons() -> dict[str, str]:
    """Prefix of mutants' names -> the reason."""
    books = [tomllib.loads(files("spec").joinpath(folder, "survivors.toml").read_text()) for folder in MUTATED]
    return {begins: row["reason"] for book in books for row in book["reasons"] for begins in row["mutants"]}


def reason_of(mutant: str) -> str:
    """The reason of the longest prefix that fits the mutant's name; "" if there is none."""
    found = [begins for begins in reasons() if mutant.startswith(begins)]
    return reasons()[max(found, key=len)] if found else ""
