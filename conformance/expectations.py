"""Expected failures: a file with one line each, with a last day and a reason.

    # id    until       reason
    PRD-05  2027-03-01  our producer path checks no CRC yet: issue 812

A requirement in the file may fail until that day, and must not pass: a line for a passing requirement fails the run. After
the day the line excuses nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path


@dataclass(frozen=True)
class Expectation:
    """One line of the file."""

    id: str
    until: date
    reason: str

    def expired(self, today: date | None = None) -> bool:
        """Whether the day has passed (UTC)."""
        return (today or datetime.now(UTC).date()) > self.until

    def __str__(self) -> str:
        return f"expected until {self.until}: {self.reason}"


def read(path: Path, known: Collection[str]) -> list[Expectation]:
    """The lines of a file. Errors: ValueError, which names the line, for an unknown id, no date, or no reason."""
    found: list[Expectation] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split(maxsplit=2)
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 3 or words[0] not in known:
            problem = (
                "no such requirement" if words[0] not in known else "an id, a day (2027-03-01) and a reason are needed"
            )
            raise ValueError(f"{path}, line {number}: {words[0]}: {problem}")
        try:
            until = date.fromisoformat(words[1])
        except ValueError:
            raise ValueError(f"{path}, line {number}: {words[1]!r} is no day, as 2027-03-01") from None
        if any(one.id == words[0] for one in found):
            raise ValueError(f"{path}, line {number}: {words[0]} is there already")
        found.append(Expectation(words[0], until, words[2].strip()))
    return found
