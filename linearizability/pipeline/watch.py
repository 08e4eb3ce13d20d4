"""A history judged while it grows: the last stretch of time, again and again, in bounded memory.

What is there shows in a part as in the whole, so a rule that does not rest on absence may accuse (`tidegauge history rules` says
of each rule whether it is watched). Lost and undelivered records, torn transactions and the like show at the end only: a watch
that found nothing says nothing, and `tidegauge history check` judges the whole.

The window holds operations that ended in it or are open, whole transactions, and all faults and excuses. What an anomaly needs
must lie in one window: a record stored twice an hour later is found by the check of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from linearizability.history.contract import Contract
from linearizability.history.derivation import Derivation
from linearizability.history.event_fields import process_of, time_of
from linearizability.history.facts import FactsBuilder
from linearizability.history.files import MISSING, UNREADABLE, Defect, HistoryError, open_text, reason
from linearizability.history.native import history_files
from linearizability.history.operations import COMPLETIONS, INVOKE
from linearizability.history.recorder import FORMAT
from linearizability.history.streams import FileSummary, History, merged_contract, unify
from linearizability.pipeline.engine import judge_history
from linearizability.rules import RULES
from linearizability.rules.rule import Anomaly, Rule, RunRule, Weight

NS_A_S = 1_000_000_000
MAX_REPORTED = 100_000
"""Anomalies that are remembered, so that each is reported once."""
WATCHED = "yes: a part of a history shows it"
NOT_WATCHED = "no: what is missing from a part may explain it"


def is_watched(rule: Rule | RunRule) -> bool:
    """Whether a part of a history can break it."""
    return rule.weight is Weight.VIOLATION and not rule.rests_on_absence and not rule.optional


@dataclass
class WatchedFile:
    """What one process recorded lately."""

    name: str
    summary: FileSummary | None = None
    """Of its header; None until that is read."""
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ended: bool = False
    defect: Defect | None = None
    """Its first line that is no event: the file is not read on."""
    _transactions: dict[int, str] = field(default_factory=dict[int, str])
    """Of operations in `events` that belong to one."""
    _lines: int = 0

    def feed(self, line: bytes) -> int:
        """Take the next whole line; gives its time in nanoseconds, 0 where it has none."""
        self._lines += 1
        if self.ended or self.defect is not None:
            return 0
        try:
            event = from_json(line)
            if self.summary is None:
                if event["type"] != "header" or event["format"] != FORMAT:
                    raise ValueError(f"not the header of a {FORMAT} file")
                contract = Contract.from_json(event.get("contract"))
                self.summary = FileSummary(
                    self.name, str(event.get("run") or ""), process_of(event["process"]), contract=contract
                )
                return 0
            if event["type"] == "end":
                self.ended = True
                return 0
            if event["type"] == "mark":
                self.summary.mark(event)
                return time_of(event)
            if event["type"] not in (INVOKE, *COMPLETIONS):
                raise ValueError(f"{event['type']!r} is no type of event")
            if "txn" in event:
                self._transactions[event["operation"]] = event["txn"]
            self.events.append(event)
            return time_of(event)
        except UNREADABLE as error:
            self.defect = Defect(MISSING, reason(error), self.name, self._lines)
            return 0

    def forget(self, before: int) -> None:
        """Leave out what was over before that time."""
        over: dict[int, int] = {}
        for event in self.events:
            over[event["operation"]] = 1 << 63 if event["type"] == INVOKE else event["time"]
        last: dict[str, int] = {}
        for operation, name in self._transactions.items():
            last[name] = max(last.get(name, 0), over.get(operation, 0))
        kept = {
            number
            for number, time in over.items()
            if max(time, last.get(self._transactions.get(number, ""), 0)) >= before
        }
        if len(kept) < len(over):
            self.events = [event for event in self.events if event["operation"] in kept]
            self._transactions = {number: name for number, name in self._transactions.items() if number in kept}

    def derive(self, builder: FactsBuilder, history: History) -> None:
        """Its part of the window, into a history."""
        assert self.summary is not None
        derivation = Derivation(builder, self.summary.contract, self.summary.process << 32)
        try:
            for event in self.events:
                if event["type"] == INVOKE:
                    derivation.invoke(event["operation"], event["process"], event)
                else:
                    derivation.complete(event["operation"], event["process"], event)
            for number in list(derivation.open_operations()):
                derivation.never_answered(number)
        except UNREADABLE as error:
            self.defect = Defect(MISSING, reason(error), self.name)
        derivation.finish(complete=False)
        history.tally.add(derivation.tally)
        history.names.update(derivation.names)
        history.marks += self.summary.marks


@dataclass
class Watch:
    """The window over all files of one run."""

    window_s: float
    files: dict[str, WatchedFile] = field(default_factory=dict[str, WatchedFile])
    looks: int = 0
    now: int = 0
    """The latest time in any file, in nanoseconds."""
    _reported: dict[tuple[str, str, int, int, int], None] = field(
        default_factory=dict[tuple[str, str, int, int, int], None]
    )

    def feed(self, name: str, line: bytes) -> None:
        """The next line of a file."""
        self.now = max(self.now, self.files.setdefault(name, WatchedFile(name)).feed(line))

    @property
    def ended(self) -> bool:
        """Whether all files that are there have their closing line."""
        return bool(self.files) and all(each.ended or each.defect is not None for each in self.files.values())

    @property
    def defects(self) -> list[Defect]:
        return [each.defect for each in self.files.values() if each.defect is not None]

    @property
    def held(self) -> int:
        """Events in the window."""
        return sum(len(each.events) for each in self.files.values())

    def look(self) -> list[Anomaly]:
        """What the window shows and was not reported before. Errors: HistoryError for files of several runs."""
        self.looks += 1
        known = [each for each in self.files.values() if each.summary is not None]
        summaries = [each.summary for each in known if each.summary is not None]
        if not summaries:
            return []
        if len(runs := {summary.run for summary in summaries}) > 1:
            raise HistoryError(summaries[0].file, 0, f"one run is watched, and here are {', '.join(sorted(runs))}")
        builder = FactsBuilder(summaries[0].run)
        history = History(summaries[0].run, merged_contract(summaries), defects=[Defect(MISSING, "a part is watched")])
        for each in known:
            each.forget(self.now - int(self.window_s * NS_A_S))
            each.derive(builder, history)
        history.facts = unify([builder.take()])
        history.marks.sort(key=lambda mark: mark["time"])
        rules = [rule for rule in RULES.values() if is_watched(rule)]
        found = [item for item in judge_history(history, rules).findings if not item.permitted]
        fresh = [anomaly for item in found for anomaly in item.anomalies if self._is_new(anomaly)]
        while len(self._reported) > MAX_REPORTED:
            del self._reported[next(iter(self._reported))]
        return fresh

    def _is_new(self, anomaly: Anomaly) -> bool:
        key = (anomaly.rule, anomaly.topic, anomaly.partition, anomaly.offset, anomaly.value)
        is_new = key not in self._reported
        self._reported[key] = None
        return is_new


class GrowingFolder:
    """The files of a folder, read on from where they were read up to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, int] = {}

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """What is new: the name of a file and a whole line of it. Errors: OSError."""
        for path in history_files(self.folder):
            with open_text(path) as stream:
                stream.seek(self._read.get(path, 0))
                for line in stream:
                    if not line.endswith(b"\n"):
                        break  # it is being written
                    self._read[path] = self._read.get(path, 0) + len(line)
                    yield path.name, line


class GrowingTopic:
    """The lines of a history topic, read on from where its partitions were read up to."""

    def __init__(self, text: str) -> None:
        from linearizability.history.topic import HistoryTopic

        self.topic = HistoryTopic.parse(text)
        self._read: dict[int, int] = {}

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """What is new: the key (RUN/FILE) and the line. Errors: TopicError."""
        from dataclasses import replace

        from linearizability.history.topic import read_stretch, stretches

        for stretch in stretches(self.topic):
            start = max(stretch.start, self._read.get(stretch.partition, stretch.start))
            for offset, key, line in read_stretch(self.topic, replace(stretch, start=start)):
                self._read[stretch.partition] = offset + 1
                yield key, line
