"""The table of a campaign: a row for each time that a series ran, in a file of JSON lines that later nights continue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Kind = tuple[str, int, str, str]
"""Coordination, nodes, workload and mutant."""
TABLE = "nights.jsonl"


class BadTable(Exception):
    """The table cannot be continued; the text names the line."""


@dataclass(frozen=True)
class Row:
    """A series in one night, or the part of it that ran before an interrupt."""

    night: str
    tidegauge: str
    coordination: str
    nodes: int
    workload: str
    mutant: str
    first_seed: int
    schedules: int
    valid: int
    invalid: int
    unknown: int
    excused: int
    """Runs of which the verdict rests on an excuse."""
    messages: int
    acknowledged: int
    cpu_seconds: float
    seconds: float
    to_first: int | None
    """A planted bug: how many runs it took to find it, of this row and of those right before it that did not find it."""
    pairs: tuple[str, ...]
    """Which steps of the specification followed which, on one partition."""
    violations: tuple[tuple[int, str, str], ...]
    """Seed, broken promise, and the folder of the small schedule that repeats it (empty where none was kept)."""
    undecided: tuple[int, ...] = ()
    """The seeds of unknown runs that show something. Tables of before 2026-11-28 have none."""

    @property
    def kind(self) -> Kind:
        return self.coordination, self.nodes, self.workload, self.mutant

    @property
    def next_seed(self) -> int:
        return self.first_seed + self.schedules


def read_rows(store: Path) -> list[Row]:
    """All rows in the order in which they were written. Errors: BadTable."""
    path = store / TABLE
    if not path.exists():
        return []
    rows: list[Row] = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(
        lines[:-1], 1
    ):  # the last has no end of line: it was being written when the machine stopped
        try:
            given: dict[str, Any] = json.loads(line)
            given["pairs"] = tuple(given["pairs"])
            given["violations"] = tuple((seed, rule, folder) for seed, rule, folder in given["violations"])
            given["undecided"] = tuple(given.get("undecided", ()))
            rows.append(Row(**given))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadTable(f"{path}, line {number}, is no row of a campaign: {error}") from None
    return rows


def add(row: Row, store: Path) -> None:
    """Errors: OSError."""
    path = store / TABLE
    whole = path.read_bytes().rpartition(b"\n") if path.exists() else (b"", b"", b"")
    if whole[2]:
        path.write_bytes(whole[0] + whole[1])
    with path.open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def next_seed(kind: Kind, rows: Iterable[Row]) -> int:
    """The first seed that no row of this series has reached."""
    return max((row.next_seed for row in rows if row.kind == kind), default=0)


def spent(night: str, kind: Kind, rows: Iterable[Row]) -> tuple[float, int]:
    """The seconds of a series in a night, and how many times its planted bug was found."""
    some = [row for row in rows if (row.night, row.kind) == (night, kind)]
    return sum(row.seconds for row in some), sum(row.to_first is not None for row in some)


def runs_without_find(kind: Kind, rows: Sequence[Row]) -> int:
    """Of a planted bug: the runs since it was found last."""
    count = 0
    for row in reversed([row for row in rows if row.kind == kind]):
        if row.to_first is not None:
            break
        count += row.schedules
    return count
