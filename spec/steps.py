"""The steps of all books, as their modules define them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spec.models import SPEC

BOOKS = ("replication", "quorum", "transactions", "groups", "historical")
"""The folders of the specification; two books may have steps of one name."""


@dataclass(frozen=True)
class Step:
    """One step's definition."""

    name: str
    book: str
    module: str
    """The file that defines it, from the root of the project."""
    text: str
    """The definition with the comment above it."""


def steps_called(name: str) -> list[Step]:
    """All steps of this name, in the order of the books."""
    return [step for book in BOOKS for step in _defined(name, book)]


def _defined(name: str, book: str) -> list[Step]:
    """The definitions of this name in a book that record it as a step (`Step("…")`)."""
    pattern = re.compile(rf"^((?:\\\*.*\n)*{re.escape(name)}(?:\(.*?\))? ==\n?(?:.*\S.*\n)+)", re.M)
    found: list[Step] = []
    for path in sorted((SPEC / book).glob("*.tla")):
        defined = pattern.search(path.read_text())
        if defined and f'Step("{name}"' in defined[1]:
            found.append(Step(name, book, f"spec/{book}/{path.name}", defined[1].rstrip()))
    return found
