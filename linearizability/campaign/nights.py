"""The table of a campaign: one row for each run of a series, in a file of JSON lines that later nights continue."""

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
    """The number of runs whose verdict rests on an excuse."""
    messages: int
    acknowledged: int
    cpu_seconds: float
    seconds: float
    to_first: int | None
    """For a planted bug: the number of runs up to the find, in this row and in the rows since the last find."""
    pairs: tuple[str, ...]
    """The pairs of consecutive steps of the specification on one partition."""
    violations: tuple[tuple[int, str, str], ...]
    """Seed, broken promise, and the folder of the small schedule that repeats it (empty where none was kept)."""
    undecided: tuple[int, ...] = ()
    """The seeds of undecided runs. Tables from before 2026-11-28 lack the field."""

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
    ):  # the last one is empty, or incomplete because the machine stopped during the write
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
    """Append a row, after removing an incomplete last line. Errors: OSError."""
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
    """The seconds that a series has run in a night, and the number of finds of its planted bug."""
    some = [row for row in rows if (row.night, row.kind) == (night, kind)]
    return sum(row.seconds for row in some), sum(row.to_first is not None for row in some)


def runs_without_find(kind: Kind, rows: Sequence[Row]) -> int:
    """The number of runs since a planted bug was last found."""
    count = 0
    for row in reversed([row for row in rows if row.kind == kind]):
        if row.to_first is not None:
            break
        count += row.schedules
    return count
