"""A run of the suite on a target: opens it, judges the chosen requirements (`session`), and sums up."""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

from conformance import baseline
from conformance.expectations import Expectation
from conformance.host import Host, TargetBroke
from conformance.known_bugs import known_bugs
from conformance.plan import Group
from conformance.requirement import Entry
from conformance.results import INTERRUPTED, Judgement, Run, TargetRecord, Verdict, printable
from conformance.session import Interrupted, Session
from conformance.waits import Wait, reported
from linearizability.results import suite_version

JOBS = 6
"""The number of requirements that are judged in parallel. Most of them wait most of the time."""
STARTS = 3
"""The number of starts of a target that are judged at the same time, where the target supports it (`Target.several`)."""
STREAM_NAME = "verdicts.jsonl"
"""The file of judgements in the order in which they became final, without exchanges. Where an id comes twice, the last
counts."""


class Listener(Protocol):
    """Receives the progress of a run, for the status on the terminal or a stream of verdicts."""

    def starting(self, group: Group, number: int, groups: int) -> None:
        """The target starts for a group of requirements."""

    def judging(self, entry: Entry) -> None:
        """A requirement's test begins."""

    def judged(self, judgement: Judgement) -> None:
        """A requirement's judgement is final."""

    def waiting(self, waits: list[Wait]) -> None:
        """The run's present waits, the longest first. Called every second from a separate thread."""


@dataclass
class Plan:
    """A run's target, requirements, and options."""

    spec: str
    entries: list[Entry]
    folder: Path
    selection: str = ""
    kafka_version: str = ""
    """Empty: guessed from the target's version ranges."""
    expected_failures: Collection[Expectation] = ()
    baseline: Run | None = None
    """An earlier run: requirements that failed in it may fail, a worse verdict fails the run."""
    listener: Listener | None = None
    open_target: Callable[..., Any] | None = None
    """A function in place of `linearizability.targets.open_target`."""
    jobs: int = JOBS
    starts: int = STARTS
    topics: list[str] = field(default_factory=list[str])
    """Existing empty topics, for a target on which none can be created."""


def run(chosen: Plan) -> Run:
    """Judge a target. A broken target raises no error: the run's verdict is then unknown.

    SIGINT and SIGTERM end the run early: the remaining requirements are not judged, and the verdict is unknown or fail.
    """
    started = time.monotonic()
    report = Run(
        suite_version=suite_version(),
        target=TargetRecord(spec=chosen.spec),
        selection=chosen.selection,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    host = Host(
        spec=chosen.spec,
        folder=chosen.folder,
        record=report.target,
        asked_version=chosen.kafka_version,
        open_target=chosen.open_target,
        given_topics=chosen.topics,
    )
    broke = ""
    with (chosen.folder / STREAM_NAME).open("wb", buffering=0) as stream:
        add = _Collector(chosen, report, stream).add
        session = Session(host, chosen.entries, chosen.jobs, add, starts=chosen.starts, waits=host.waits)
        waiting: AbstractContextManager[None] = nullcontext()
        if chosen.listener:
            session.starting, session.judging = chosen.listener.starting, chosen.listener.judging
            waiting = reported(session.waits, chosen.listener.waiting)
        try:
            with interruptible(session.stop), waiting:
                session.run()
        except TargetBroke as error:
            broke = printable(str(error))
        except Interrupted:
            broke = INTERRUPTED
        host.close()
        fill_gaps(chosen, report, broke, add)
    report.unexplained_deaths = session.unexplained
    if chosen.baseline:
        report.baseline = f"{chosen.baseline.target.spec}, {chosen.baseline.started_at}"
        report.worse, report.better = baseline.compare(report, baseline.verdicts(chosen.baseline))
    report.seconds = round(time.monotonic() - started, 2)
    report.sum_up(target_broke=broke)
    return report


LEAST_FREE_BYTES = 1 << 20
"""With less free space a broker on the same disk cannot work."""


@dataclass
class _Collector:
    """Adds judgements to the report, the stream and the listener, and compares them with the expected failures."""

    chosen: Plan
    report: Run
    stream: FileIO | None
    """None once the disk is full, so that the file holds only whole lines."""
    length: int = 0

    def __post_init__(self) -> None:
        self.expectations = {one.id: one for one in self.chosen.expected_failures}
        self.before = baseline.verdicts(self.chosen.baseline) if self.chosen.baseline else {}

    def add(self, judgement: Judgement) -> None:
        id = judgement.requirement.id
        self.report.judgements = [one for one in self.report.judgements if one.requirement.id != id]
        bug = known_bugs(self.chosen.spec).get(id)
        expectation, failed = self.expectations.get(id), judgement.verdict is Verdict.FAIL
        listed = expectation is not None and not expectation.expired()
        explained = failed and bug is not None and bug.shows in judgement.reason
        judgement.expected = failed and (listed or explained or baseline.excused(judgement, self.before.get(id)))
        if failed and expectation:
            judgement.reason = f"{expectation}{'' if listed else ' (that day has passed)'}; {judgement.reason}"
        if judgement.verdict is Verdict.PASS and (bug.strict if bug else listed):
            self.report.unexpected_passes.append(id)
        if bug and explained:
            judgement.reason = f"Kafka's own bug {bug.reference}: {bug.what}; {judgement.reason}"
        if failed and self._took_its_disk():
            judgement.verdict = Verdict.ENGINE_ERROR
            judgement.reason = f"the disk of {self.chosen.folder} is full, with the target's data; {judgement.reason}"
        self.report.judgements.append(judgement)
        self._write(judgement)
        if self.chosen.listener:
            self.chosen.listener.judged(judgement)

    def _took_its_disk(self) -> bool:
        """Whether a target that the suite started may have failed because the disk of the results folder is full."""
        if self.chosen.spec.startswith("addr:"):
            return False
        return shutil.disk_usage(self.chosen.folder).free < LEAST_FREE_BYTES

    def _write(self, judgement: Judgement) -> None:
        """Add a line to the stream. A full disk does not end the run; the command reports it when it cannot write the
        report."""
        content = judgement.model_dump(mode="json", exclude={"exchanges", "requirement"}, exclude_defaults=True)
        line = json.dumps({"id": judgement.requirement.id} | content).encode() + b"\n"
        if self.stream is None:
            return
        try:
            written = self.stream.write(line)
            if written < len(line):
                self.stream.truncate(self.length)
                self.stream = None
            self.length += written
        except OSError:
            self.stream = None


@contextmanager
def interruptible(stop: threading.Event) -> Generator[None]:
    """Let SIGINT and SIGTERM set `stop` within the block. Does nothing outside the main thread, which alone can catch them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def caught(*_: object) -> None:
        stop.set()

    before = {number: signal.signal(number, caught) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def fill_gaps(chosen: Plan, report: Run, broke: str, add: Callable[[Judgement], None]) -> None:
    """Add a judgement for each requirement without one: untestable ones, and those after a broken target or an interruption."""
    judged = {judgement.requirement.id for judgement in report.judgements}
    for entry in chosen.entries:
        record = entry.requirement
        if record.id in judged:
            continue
        if entry.test is None:
            add(Judgement(requirement=record, verdict=Verdict.UNTESTABLE, reason=record.untestable))
        else:
            reason = in_one_line(broke or "the run ended before it")
            add(Judgement(requirement=record, verdict=Verdict.NOT_JUDGED, reason=reason, unreached=True))
    report.judgements.sort(key=lambda judgement: judgement.requirement.order)


def in_one_line(text: str) -> str:
    """The first and the last line of a text: the run reports the whole text once, each requirement only this."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:1] + lines[1:][-1:])
