"""What is stored of a requirement: its verdict on each release of Apache Kafka, and on brokers that others wrote."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import conformance
from conformance.releases import NOT_MEASURED, RELEASES, Matrix, is_owed
from conformance.requirement import Entry

STRANGERS = Path(conformance.__path__[0]) / "strangers"
NOT_OWED = "not owed"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One verdict."""

    verdict: str
    reason: str = ""
    outdated: bool = False
    """The requirement's test has changed since."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A stored run on a broker that others wrote."""

    target: str
    day: str
    verdicts: dict[str, str]
    """Requirement id -> verdict."""


@cache
def strangers() -> tuple[Stranger, ...]:
    """All stored runs, by the name of their target."""
    stored = [json.loads(path.read_text()) for path in sorted(STRANGERS.glob("*.json"))]
    return tuple(
        Stranger(
            run["target"], run["date"][:10], {id: name for name, ids in run["verdicts"].items() for id in ids.split()}
        )
        for run in stored
    )


@cache
def _matrix() -> Matrix:
    return Matrix.read()


def on_releases(entry: Entry) -> dict[str, Evidence]:
    """Release -> what is stored of the requirement, the oldest release first."""
    return {version: _on_release(entry, version) for version in RELEASES}


def _on_release(entry: Entry, version: str) -> Evidence:
    if not is_owed(entry, version):
        return Evidence(NOT_OWED)
    if entry.test is None:
        return Evidence("untestable")
    cell = _matrix().cells.get((version, entry.requirement.id))
    if cell is None:
        return Evidence(NOT_MEASURED)
    return Evidence(cell.verdict, cell.reason, outdated=_matrix().current(version, entry) is None)


def grouped(entry: Entry) -> dict[Evidence, list[str]]:
    """The same evidence is one row: what it is, and the releases that have it."""
    rows: dict[Evidence, list[str]] = defaultdict(list)
    for version, evidence in on_releases(entry).items():
        rows[evidence].append(version)
    return rows
