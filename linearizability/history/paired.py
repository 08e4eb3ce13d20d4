"""Foreign histories: events without numbered lines, whose operations are paired by process, one at a time each.

Other tools' files come here by way of `importers/`. The *neutral* form is read here: one whole history a line,
`{"id": …, "history": [event, …], "options": {"contract": {…}}, "defects": […]}`; a line is one JSON document, so a history
of this form has to fit into memory, and a file of any number of them does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import ValidationError
from pydantic_core import from_json

from linearizability.history.contract import NOTHING_GIVEN, Contract
from linearizability.history.derivation import Derivation
from linearizability.history.event_fields import BadEvent
from linearizability.history.facts import FactsBuilder
from linearizability.history.files import (
    CLOCK,
    CONTRACT,
    MISSING,
    UNREADABLE,
    Contradiction,
    Defect,
    HistoryError,
    numbered_lines,
    reason,
)
from linearizability.history.operations import COMPLETIONS, INVOKE, MARKS
from linearizability.history.streams import ROWS_A_BATCH, Event, FileSummary, History, agreed, finish, history_of, risen

Lines = Callable[[], Iterable[tuple[int, Event]]]
"""Yields a file's events from the start at each call, each with the number of its line (0 where it has none)."""

NEMESIS = "nemesis"
FOREIGN_PROCESSES = 1 << 30
"""Processes that are no small numbers in a foreign history are numbered from here."""
EVERY_TYPE = frozenset((INVOKE, *COMPLETIONS))


class Declaration(NamedTuple):
    """The contract that a history declares, and where."""

    contract: Any = None
    """As parsed JSON; None where none is declared."""
    file: str = ""
    line: int = 0


class EventStream:
    """One file's events, folded into facts once: iterate for record batches; `summary` is complete when that ends.

    `timed` are the types of events whose time was read from the clock, in the order of the file: of these it may not step
    back. What is not there stays missing: the stream stops at the first event that cannot be right. That lines are missing,
    doubled or in another order shows by the events' `index`, which counts all of them where they are `counted`, by the
    numbers of the operations, or, where there are neither, by a process whose time steps back. Errors: Contradiction.
    """

    def __init__(
        self,
        identifier: str,
        lines: Lines,
        declared: Declaration = Declaration(),
        *,
        timed: Collection[str] = EVERY_TYPE,
        counted: bool = False,
        given: Contract = NOTHING_GIVEN,
    ) -> None:
        contract, file, line = declared
        self.summary = FileSummary(file, identifier)
        self._lines, self._timed, self._counted = lines, timed, counted
        try:
            kept = Contract.from_json(contract)
        except ValidationError as error:
            self.summary.defects.append(Defect(CONTRACT, reason(error), file, line))
            kept = Contract()
        self.summary.contract = agreed(kept, given, file, line)
        self._builder = FactsBuilder(identifier)
        self._derivation = Derivation(self._builder, self.summary.contract)
        self._open: dict[Any, int] = {}
        self._processes: dict[Any, int] = {}
        self._begun: dict[int, int] = {}
        self._last_number: dict[Any, int] = {}
        self._last_time: int | None = None
        self._last_time_of: dict[Any, int] = {}

    def events(self) -> Iterator[Event]:
        """The events again, up to the first unreadable one, which the reading of facts has reported."""
        try:
            for _, event in self._lines():
                yield event
        except (HistoryError, *UNREADABLE):
            return

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        index = line = 0
        complete = False
        try:
            for index, (line, event) in enumerate(self._lines()):
                self._event(event, index, line)
                if len(self._builder) >= ROWS_A_BATCH:
                    yield self._builder.take()
            complete = True
        except UNREADABLE as error:
            self._defect(MISSING, f"event {index}: {reason(error)}", line)
        except HistoryError as error:
            # One file in the order of time: the marks of all events read so far come before this place.
            self.summary.defects.append(replace(error.defect, marks=False))
        finish(self._derivation, self._begun, complete, self.summary)
        yield self._builder.take()

    def _event(self, event: Event, index: int, line: int) -> None:
        event = event | {"time": event["time"] if event.get("time") is not None else index}
        who, kind = event.get("process"), event.get("type")
        if self._counted and event.get("index", index) != index:
            raise BadEvent(f"index {event['index']!r} where {index} must be: events are missing, doubled or reordered")
        if event.get("index") is None and event.get("operation") is None:
            self._look_at_order(who, event["time"])
        if kind in self._timed or kind not in EVERY_TYPE:
            self._look_at_clock(event["time"], index, line)
        if event.get("f") in MARKS or who == NEMESIS:
            self.summary.mark(event)
            return
        process = self._processes.setdefault(who, process_number(who, len(self._processes)))
        if kind not in EVERY_TYPE:
            raise BadEvent(f"{kind!r} is no type of event")
        number = self._number(event, who, process, index)
        if kind == INVOKE:
            self._derivation.invoke(number, process, event)
            self._begun[number] = line
        else:
            self._derivation.complete(number, process, event)
            del self._begun[number]

    def _number(self, event: Event, who: Any, process: int, index: int) -> int:
        """The operation's number: the event's own, for a process may have several open at once, or its process' open one."""
        named = event.get("operation")
        if event["type"] != INVOKE:
            if named is not None:
                return process << 32 | risen(named, -1)
            if who not in self._open:
                raise BadEvent(f"process {who} completes an operation that it did not invoke")
            return self._open.pop(who)
        if named is None and who in self._open:
            raise BadEvent(f"process {who} invokes while its last operation is open")
        number = named if named is not None else event["index"] if event.get("index") is not None else index
        self._last_number[who] = risen(number, self._last_number.get(who, -1))
        if named is None:
            self._open[who] = process << 32 | number
        return process << 32 | number

    def _look_at_order(self, who: Any, time: int) -> None:
        if time < self._last_time_of.get(who, time):
            raise BadEvent(f"the time of process {who} steps back, and nothing else shows the order of its events")
        self._last_time_of[who] = time

    def _look_at_clock(self, time: Any, index: int, line: int) -> None:
        back = 0 if self._last_time is None else self._last_time - time
        if back > 0 and not any(defect.kind == CLOCK for defect in self.summary.defects):
            self._defect(CLOCK, f"event {index}: the clock steps back by {back} ns", line)
        self._last_time = time

    def _defect(self, kind: str, text: str, line: int) -> None:
        self.summary.defects.append(Defect(kind, text, self.summary.file, line))


def process_number(who: Any, known: int) -> int:
    """The number of a process that a foreign history names `who`, after `known` others."""
    return who if isinstance(who, int) and 0 <= who < FOREIGN_PROCESSES else FOREIGN_PROCESSES + known


def derive_events(
    identifier: str,
    events: Iterable[Event],
    declared: Declaration = Declaration(),
    given: Contract = NOTHING_GIVEN,
) -> History:
    """A history in memory from events in memory."""
    kept = list(events)
    stream = EventStream(identifier, lambda: ((declared.line, e) for e in kept), declared, counted=True, given=given)
    return from_streams(identifier, [stream])


def from_streams(identifier: str, streams: list[EventStream]) -> History:
    """A history in memory whose events can be read again, by time."""
    history = history_of(identifier, streams)
    history.events = lambda: (event for stream in streams for event in stream.events())
    return history


def read_neutral(path: Path, given: Contract = NOTHING_GIVEN) -> Iterator[History | Contradiction]:
    """The histories of a neutral file, one a line; one that contradicts what is given yields that."""
    with closing(numbered_lines(path)) as lines:
        for number, line, _ in lines:
            if not line.strip():
                continue
            try:
                document = from_json(line)
                identifier, events = str(document["id"]), document["history"]
                if not isinstance(events, list):
                    raise ValueError("'history' is no list")
                declared = (document.get("options") or {}).get("contract")
                labels = document.get("anomalies")
                if labels is not None and not all(isinstance(label, str) for label in labels):
                    raise ValueError("'anomalies' is no list of names")
                known = [_reported(defect) for defect in document.get("defects") or []]
            except UNREADABLE as error:
                raise HistoryError(path, number, reason(error)) from error
            try:
                history = derive_events(identifier, events, Declaration(declared, str(path), number), given)
            except Contradiction as error:
                yield error
                continue
            history.labels, history.defects = labels, [*known, *history.defects]
            yield history


def _reported(defect: dict[str, Any]) -> Defect:
    """A defect of the history from which this one was written."""
    if defect["kind"] not in (MISSING, CLOCK, CONTRACT):
        raise ValueError(f"{defect['kind']!r} is no kind of defect")
    place = str(defect.get("file", "")), int(defect.get("line", 0))
    return Defect(defect["kind"], str(defect["text"]), *place, marks=defect.get("marks") is True)
