"""A history judged while it grows: the last stretch of time, again and again, in bounded memory.

Present events show in a part as in the whole, so a rule that does not rest on absence may accuse (`tidegauge history rules` says
of each rule whether it is watched). Lost and undelivered records, torn transactions and the like show at the end only: a watch
that found nothing says nothing, and `tidegauge history check` judges the whole.

The window holds operations that ended in it or are open, whole transactions, and all faults and excuses; of older operations
those that say where a consumer reads on. What an anomaly needs must lie in one window: a record stored twice an hour later is
found by the check of the whole. Nothing is judged before all that was recorded by then is known: a fault that is read later than
what clients saw of it would be missing where it excuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import from_json

from linearizability.history.contract import Contract
from linearizability.history.derivation import Derivation
from linearizability.history.event_fields import lacks_records, process_of, time_of
from linearizability.history.facts import FactsBuilder
from linearizability.history.files import CLOCK, MISSING, UNREADABLE, Defect, HistoryError, reason
from linearizability.history.operations import COMPLETIONS, INFO, INVOKE
from linearizability.history.recorder import FORMAT
from linearizability.history.streams import FileSummary, History, merged_contract, unify
from linearizability.pipeline.engine import judge_history
from linearizability.pipeline.verdict import Judgement
from linearizability.rules import RULES
from linearizability.rules.rule import Anomaly, Rule, RunRule, Weight

NS_A_S = 1_000_000_000
MAX_REPORTED = 100_000
"""Anomalies that are remembered, so that each is reported once."""
WATCHED = "yes: a part of a history shows it"
NOT_WATCHED = "no: it accuses no broker, or what is missing from a part may explain it"


def is_watched(rule: Rule | RunRule) -> bool:
    """Whether a part of a history can break it."""
    return rule.weight is Weight.VIOLATION and not rule.rests_on_absence and not rule.optional


@dataclass
class WatchedFile:
    """The recent events of one process."""

    name: str
    summary: FileSummary | None = None
    """The data of its header; None until that is read."""
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ended: bool = False
    defect: Defect | None = None
    """Its first line that is no event: the file is not read on."""
    _transactions: dict[int, str] = field(default_factory=dict[int, str])
    """Operation -> transaction, of operations in `events` that belong to one."""
    now: int = 0
    """The latest time in it, in nanoseconds."""
    _lines: int = 0

    @property
    def is_over(self) -> bool:
        return self.ended or self.defect is not None

    def feed(self, line: bytes) -> None:
        """Take the next whole line."""
        self._lines += 1
        if self.is_over:
            return
        try:
            event = from_json(line)
            if self.summary is None:
                if event["type"] != "header" or event["format"] != FORMAT:
                    raise ValueError(f"not the header of a {FORMAT} file")
                contract = Contract.from_json(event.get("contract"))
                self.summary = FileSummary(
                    self.name, str(event.get("run") or ""), process_of(event["process"]), contract=contract
                )
            elif event["type"] == "end":
                self.ended = True
            else:
                self.take(event, self.summary)
        except UNREADABLE as error:
            self.defect = Defect(MISSING, reason(error), self.name, self._lines)

    def take(self, event: dict[str, Any], summary: FileSummary) -> None:
        """Add an event. Errors: those of UNREADABLE where it is none."""
        time = time_of(event)
        if time < self.now and not summary.defects:
            summary.defects.append(
                Defect(CLOCK, f"the clock steps back by {self.now - time} ns", self.name, self._lines)
            )
        self.now = max(self.now, time)
        if event["type"] == "mark":
            summary.mark(event)
            return
        if event["type"] not in (INVOKE, *COMPLETIONS):
            raise ValueError(f"{event['type']!r} is no type of event")
        if "txn" in event:
            self._transactions[event["operation"]] = event["txn"]
        self.events.append(event)

    def forget(self, before: int) -> None:
        """Drop the operations that were over before that time."""
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
        if kept or not self.is_over:
            kept |= self._standing()
        if len(kept) < len(over):
            self.events = [event for event in self.events if event["operation"] in kept]
            self._transactions = {number: name for number, name in self._transactions.items() if number in kept}

    def _standing(self) -> set[int]:
        """Of each process its last assignment, one seek of a kind, and one poll whose records are not known: their effect lasts,
        however old they are."""
        last: dict[tuple[Any, ...], int] = {}
        polls: dict[int, list[dict[str, Any]]] = {}
        for event in self.events:
            f, process = event.get("f"), event["process"]
            if f in ("assign", "subscribe"):
                last[process, "assign"] = event["operation"]
            elif f == "seek":
                last[process, str(event.get("keys")), event.get("to")] = event["operation"]
            elif event["type"] == INFO and lacks_records(polls.get(event["operation"], []), event.get("mops") or []):
                last[process, "poll"] = event["operation"]
            elif event["type"] == INVOKE:
                polls[event["operation"]] = event.get("mops") or []
        return set(last.values())

    def derive(self, builder: FactsBuilder, history: History, until: int) -> None:
        """Add its events up to that time to a history, as facts."""
        assert self.summary is not None
        derivation = Derivation(builder, self.summary.contract, self.summary.process << 32)
        try:
            for event in (event for event in self.events if event["time"] <= until):
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
        history.defects += self.summary.defects


@dataclass
class Watch:
    """The window over all files of one run."""

    window_ns: int
    in_order: bool = True
    """Whether all lines of a time are known by the look after the first that has one; else each file waits for the others."""
    files: dict[str, WatchedFile] = field(default_factory=dict[str, WatchedFile])
    looks: int = 0
    _known_until: int = 0
    """The latest time that the last look had."""
    _reported: dict[tuple[str, str, int, int, int], None] = field(
        default_factory=dict[tuple[str, str, int, int, int], None]
    )

    def feed(self, name: str, line: bytes) -> None:
        """Add the next line of a file."""
        self.files.setdefault(name, WatchedFile(name)).feed(line)

    @property
    def ended(self) -> bool:
        """Whether all files that are there have their closing line."""
        return bool(self.files) and all(each.is_over for each in self.files.values())

    @property
    def defects(self) -> list[Defect]:
        return [each.defect for each in self.files.values() if each.defect is not None]

    @property
    def held(self) -> int:
        """Events in the window."""
        return sum(len(each.events) for each in self.files.values())

    def look(self) -> list[Anomaly]:
        """The anomalies in the window that were not reported before. Errors: HistoryError for files of several runs."""
        self.looks += 1
        latest = max((each.now for each in self.files.values()), default=0)
        until = latest if self.ended else self._known_until
        if not self.ended and not self.in_order:
            until = min([until, *(each.now for each in self.files.values() if not each.is_over)])
        self._known_until = latest
        rules = [rule for rule in RULES.values() if is_watched(rule)]
        judgement = self.judge(until, rules)
        if judgement is None or judgement.history is None:
            return []
        is_timed = not any(defect.kind == CLOCK for defect in judgement.history.defects)
        found = [
            each
            for each in judgement.findings
            if not each.permitted and (is_timed or not RULES[each.rule].rests_on_time)
        ]
        fresh = [anomaly for item in found for anomaly in item.anomalies if self._is_new(anomaly)]
        while len(self._reported) > MAX_REPORTED:
            del self._reported[next(iter(self._reported))]
        return fresh

    def judge(self, until: int, rules: Iterable[Rule | RunRule]) -> Judgement | None:
        """The judgement by these rules on the window that ends then; None before any file has begun. Errors: as `look`."""
        known = [each for each in self.files.values() if each.summary is not None]
        summaries = [each.summary for each in known if each.summary is not None]
        if not summaries:
            return None
        if len(runs := {summary.run for summary in summaries}) > 1:
            raise HistoryError(summaries[0].file, 0, f"one run is watched, and here are {', '.join(sorted(runs))}")
        builder = FactsBuilder(summaries[0].run)
        history = History(summaries[0].run, merged_contract(summaries), defects=[Defect(MISSING, "a part is watched")])
        history.defects += [replace(each.defect, marks=True) for each in self.files.values() if each.defect is not None]
        for each in known:
            each.forget(until - self.window_ns)
            each.derive(builder, history, until)
        history.facts = unify([builder.take()])
        history.marks.sort(key=lambda mark: mark["time"])
        return judge_history(history, rules)

    def _is_new(self, anomaly: Anomaly) -> bool:
        key = (anomaly.rule, anomaly.topic, anomaly.partition, anomaly.offset, anomaly.value)
        is_new = key not in self._reported
        self._reported[key] = None
        return is_new
