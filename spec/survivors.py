"""Why each mutant that no model noticed is no fault: read one by one, and kept in the `survivors.toml` of each book.

A reason names mutants by how their names begin, and holds for each of them; the tests see that each has a survivor. Where it says
that another rule implies the one that was changed, the models that the mutant met have the same states and steps with it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from spec.mutants import MUTATED


@cache
def reasons() -> dict[str, str]:
    """How the mutants' names begin, and the reason."""
    books = [tomllib.loads(files("spec").joinpath(folder, "survivors.toml").read_text()) for folder in MUTATED]
    return {begins: row["reason"] for book in books for row in book["reasons"] for begins in row["mutants"]}


def reason_of(mutant: str) -> str:
    """The reason of the longest beginning that fits; empty where there is none."""
    found = [begins for begins in reasons() if mutant.startswith(begins)]
    return reasons()[max(found, key=len)] if found else ""
