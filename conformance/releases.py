"""The matrix of Apache Kafka's releases: the verdict of each requirement on each, stored in `requirements/releases.json`.

A line of the file is a requirement: the fingerprint of its test, then the releases of each verdict. Verdicts under another
fingerprint than the test's present one are stale; `tidegauge releases measure` replaces them. The fingerprint covers the test
and the record's needs, not the helpers: after a change of these, `--again` measures all. A release is measured only by the
requirements that it owes (`since` and `until`).
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from conformance.plan import Group
from conformance.requirement import Entry, catalogue, owed_by, version_key
from conformance.results import Judgement, Verdict
from conformance.waits import Reminder, Wait

STORE = Path(__file__).parent / "requirements" / "releases.json"
RELEASES = (
    "0.10.2.2", "0.11.0.0", "1.0.2", "1.1.0", "2.0.1", "2.1.1", "2.4.1", "2.8.2", "3.0.2", "3.3.2", "3.6.2", "3.9.2",
    "3.9.2-zk", "4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0",
)  # fmt: skip
"""The releases of the matrix: one of each line in which the protocol or its behaviour changed."""
BY_ZOOKEEPER = "-zk"
"""The suffix of a release that was started with ZooKeeper, although it also supports KRaft."""
OWN_BUG = "Kafka's own bug"
"""The beginning of a failure's reason where `known_bugs` has the failure, and the matrix's verdict for it."""
NOT_MEASURED = "not measured"
LONGEST_REASON = 160
Stored = dict[str, dict[str, dict[str, dict[str, str]]]]
"""Requirement -> fingerprint -> verdict -> reason -> releases, separated by spaces."""


def order(version: str) -> tuple[tuple[int, ...], str]:
    """The sort key of a release."""
    return version_key(version), version


@dataclass(frozen=True, slots=True)
class Cell:
    """One requirement on one release."""

    fingerprint: str
    verdict: str
    """A `Verdict`, or OWN_BUG."""
    reason: str = ""


@dataclass
class Matrix:
    """All cells, by release and requirement."""

    cells: dict[tuple[str, str], Cell] = field(default_factory=dict[tuple[str, str], Cell])

    @classmethod
    def read(cls, path: Path = STORE) -> Matrix:
        """The stored matrix; empty where there is no file."""
        content: Stored = json.loads(path.read_text()) if path.exists() else {}
        found = cls()
        for id, by_fingerprint in content.items():
            for fingerprint, by_verdict in by_fingerprint.items():
                for verdict, by_reason in by_verdict.items():
                    for reason, versions in by_reason.items():
                        for version in versions.split():
                            found.cells[version, id] = Cell(fingerprint, verdict, reason)
        return found

    def write(self, path: Path = STORE) -> None:
        """Store the matrix with one line for each requirement, atomically."""
        lines: Stored = {}
        for (version, id), cell in sorted(self.cells.items(), key=lambda item: (item[0][1], order(item[0][0]))):
            place = lines.setdefault(id, {}).setdefault(cell.fingerprint, {}).setdefault(cell.verdict, {})
            place[cell.reason] = f"{place[cell.reason]} {version}" if cell.reason in place else version
        body = ",\n".join(f"{json.dumps(id)}: {json.dumps(line)}" for id, line in lines.items())
        temporary = path.with_suffix(".new")
        temporary.write_text(f"{{\n{body}\n}}\n" if body else "{}\n")
        temporary.replace(path)

    def versions(self) -> list[str]:
        """The releases with stored cells, the oldest first."""
        return sorted({version for version, _ in self.cells}, key=order)

    def current(self, version: str, entry: Entry) -> Cell | None:
        """The cell of a requirement; None where its test has changed since."""
        cell = self.cells.get((version, entry.requirement.id))
        return cell if cell and cell.fingerprint == fingerprint(entry) else None

    def lacking(self, version: str, entries: Iterable[Entry], *, again: bool = False, nodes: int = 1) -> list[Entry]:
        """The requirements to measure on a release: those without a current cell, and those that were blocked or had an
        engine error.

        With several nodes only requirements that need more than one, and also those that had too few.
        """

        def known(entry: Entry) -> bool:
            cell = self.current(version, entry)
            too_few = nodes > 1 and cell is not None and re.match(r"needs \d+ nodes", cell.reason)
            return cell is not None and not too_few and cell.verdict not in (Verdict.BLOCKED, Verdict.ENGINE_ERROR)

        judged = [entry for entry in entries if entry.test]
        for entry in judged:
            _source(entry.test)  # cache the source of every loaded test; a later release may owe more of them
        owed = [entry for entry in judged if is_owed(entry, version)]
        asked = [entry for entry in owed if nodes == 1 or 1 < entry.requirement.needs.nodes <= nodes]
        return [entry for entry in asked if again or not known(entry)]

    def keep(self, version: str, entry: Entry, judgement: Judgement) -> None:
        """Set the cell of a requirement from its judgement."""
        self.cells[version, entry.requirement.id] = cell_of(entry, judgement)


def spec_of(version: str, nodes: int = 1) -> str:
    """The target specification of a release."""
    kind = "kafka-zk" if version.endswith(BY_ZOOKEEPER) else "kafka"
    number = version.removesuffix(BY_ZOOKEEPER)
    return f"{kind}:{number}:{nodes}" if nodes > 1 else f"{kind}:{number}"


def is_owed(entry: Entry, version: str) -> bool:
    return owed_by(entry.requirement, version, by_zookeeper=version.endswith(BY_ZOOKEEPER))


def fingerprint(entry: Entry) -> str:
    """A hash of a requirement's test and its record's needs, independent of the installation folder."""
    text = _source(entry.test) + entry.requirement.needs.model_dump_json().replace(str(Path(__file__).parent), "")
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@cache
def _source(test: Callable[..., Any] | None) -> str:
    """The source of a loaded test. Read once, because the file may be edited during a long run."""
    assert test is not None
    source = inspect.getsource(test)
    return source[source.index("def ") :]


def cell_of(entry: Entry, judgement: Judgement) -> Cell:
    """The cell of a judgement: its reason is cut, and lacks the release's number and generated names."""
    reason = "" if judgement.verdict is Verdict.PASS else judgement.reason
    own_bug = reason.startswith(OWN_BUG)
    reason = re.sub(r"; the target is judged as Kafka [\d.]+( with ZooKeeper)?$", "", reason)
    reason = re.sub(r"\btg-[\w-]+", "…", " ".join(reason.split()))
    return Cell(fingerprint(entry), OWN_BUG if own_bug else str(judgement.verdict), reason[:LONGEST_REASON])


class Keeper:
    """A listener that stores each verdict at once, so that an interrupted measurement continues from there."""

    def __init__(self, version: str, path: Path = STORE, reported: Callable[[str], None] = lambda _: None) -> None:
        self.version, self.path, self.reported = version, path, reported
        self.reminder = Reminder()

    def starting(self, group: Group, number: int, groups: int) -> None:
        self.reported(f"{spec_of(self.version)}: start {number} of {groups}")

    def judging(self, entry: Entry) -> None:
        """Nothing is stored before the verdict."""

    def waiting(self, waits: list[Wait]) -> None:
        if text := self.reminder.text(waits):
            self.reported(f"{spec_of(self.version)}: {text}")

    def judged(self, judgement: Judgement) -> None:
        id = judgement.requirement.id
        if judgement.unreached:
            return
        with _locked(self.path.parent):  # several releases may be measured at once
            matrix = Matrix.read(self.path)
            matrix.keep(self.version, catalogue()[id], judgement)
            matrix.write(self.path)
        if judgement.verdict not in (Verdict.PASS, Verdict.NOT_JUDGED):
            self.reported(f"{spec_of(self.version)}: {id} {judgement.verdict}: {judgement.reason[:LONGEST_REASON]}")


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Hold an exclusive lock on a folder, against other processes and threads."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def measure(
    keeper: Keeper,
    entries: Iterable[Entry],
    folder: Path,
    *,
    nodes: int = 1,
    again: bool = False,
    open_target: Callable[..., Any] | None = None,
) -> int:
    """Judge the keeper's release by the requirements that its matrix lacks, and return their number.

    `open_target` replaces `linearizability.targets.open_target`. Errors: KeyboardInterrupt where a signal ended the run;
    verdicts until then are stored.
    """
    from conformance.runner import Plan, run

    wanted = Matrix.read(keeper.path).lacking(keeper.version, entries, again=again, nodes=nodes)
    spec = spec_of(keeper.version, nodes)
    if wanted:
        plan = Plan(
            spec=spec,
            entries=wanted,
            folder=folder,
            listener=keeper,
            starts=1,
            open_target=open_target,
        )
        if run(plan).was_interrupted:
            raise KeyboardInterrupt
    return len(wanted)


def counts(matrix: Matrix, version: str, level: str = "") -> dict[str, int]:
    """Verdict -> the number of requirements (of a level) on a release. `not measured` ones have no current cell; `not owed`
    ones begin with a later release, or end with an earlier one."""
    found: dict[str, int] = {}
    for entry in catalogue().values():
        if entry.test and level in ("", entry.requirement.level):
            cell = matrix.current(version, entry)
            verdict = cell.verdict if cell else NOT_MEASURED
            if not is_owed(entry, version):
                verdict = "not owed"
            found[verdict] = found.get(verdict, 0) + 1
    return found


def failures(matrix: Matrix, version: str) -> Iterator[tuple[Entry, Cell]]:
    """The requirements that failed on a release, by a known bug, by a plain failure or by an engine error."""
    for entry in catalogue().values():
        owed = entry.test and is_owed(entry, version)
        cell = matrix.current(version, entry) if owed else None
        if cell and cell.verdict in (OWN_BUG, Verdict.FAIL, Verdict.ENGINE_ERROR):
            yield entry, cell
