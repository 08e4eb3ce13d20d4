"""The part of a native history that concerns some offsets of one partition: small enough to keep, and judged like the whole.

It keeps sends of values that any client saw at these offsets; reads and replicas' contents, with the records at these offsets;
bounds of final reads, listed offsets and logs, limited to these offsets; and faults. It leaves out all else, also the groups'
commits. So an excerpt is about these offsets, and shows nothing about others.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from linearizability.history.files import UNREADABLE, HistoryError, numbered_lines, reason
from linearizability.history.native import history_files

Event = dict[str, Any]

LEFT_OUT = frozenset({"commit", "committed", "assign", "subscribe", "seek"})
"""Micro-operations without information about the records at some offsets."""


def excerpt(history: Path, target: Path, key: str, first: int, last: int) -> int:
    """Write the excerpt's files into the new folder `target`, packed; returns the number of events kept.

    Errors: ValueError where the history has no record of the key at these offsets; HistoryError where a line is no event.
    """
    files = {path.name: _events(path) for path in history_files(history)}
    window = Window(key, first, last)
    values = {value for events in files.values() for event in events for value in window.values(event)}
    if not values:
        raise ValueError(f"{history} has no record of {key} at the offsets {first} to {last}")
    target.mkdir(parents=True)
    kept = 0
    for name, events in files.items():
        chosen = _renumbered(_whole([window.cut(event, values) for event in events], events))
        kept += len(chosen)
        if any(event["type"] not in ("header", "end") for event in chosen):
            lines = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in chosen)
            (target / f"{name.removesuffix('.gz')}.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    return kept


def _events(path: Path) -> list[Event]:
    events = []
    for number, line, _ in numbered_lines(path):
        try:
            event = from_json(line)
            if event["type"] not in ("header", "end", "mark"):
                _ = event["process"], event["operation"], event["f"]
        except UNREADABLE as error:
            raise HistoryError(path, number, reason(error)) from error
        events.append(event)
    return events


class Window:
    """Some offsets of one partition."""

    def __init__(self, key: str, first: int, last: int) -> None:
        self.key, self.first, self.last = key, first, last

    def __contains__(self, offset: Any) -> bool:
        return isinstance(offset, int) and self.first <= offset <= self.last

    def values(self, event: Event) -> Iterator[Any]:
        """The values that an event saw in the window."""
        for operation in event.get("mops", ()):
            if operation.get("key") == self.key and operation.get("offset") in self:
                yield operation["value"]
            yield from (record[1] for record in self._records(operation) if record[0] in self)

    def cut(self, event: Event, values: set[Any]) -> Event | None:
        """The event without the parts outside of the window; None where nothing is left of an operation."""
        if "mops" not in event:
            return event
        mops = [cut for operation in event["mops"] if (cut := self._cut(operation, values)) is not None]
        return {**event, "mops": mops} if mops else None

    def _cut(self, operation: Event, values: set[Any]) -> Event | None:
        kind = operation["op"]
        if kind in LEFT_OUT or operation.get("key", self.key) != self.key:
            return None
        if kind == "send":
            return operation if operation["value"] in values else None
        if kind == "poll" and "records" in operation:
            records = [record for record in self._records(operation) if record[0] in self]
            return {"op": "poll", "records": {self.key: records}} if records else None
        if kind == "replica":
            records = [record for record in self._records(operation) if record[0] in self]
            return {**operation, "records": records, "high_watermark": self._within(operation.get("high_watermark"))}
        return {name: self._within(value) if name in ENDS else value for name, value in operation.items()}

    def _records(self, operation: Event) -> Iterable[list[Any]]:
        records = operation.get("records") or ()
        return (
            records.get(self.key, ())
            if isinstance(records, dict)
            else records
            if operation.get("key") == self.key
            else ()
        )

    def _within(self, offset: Any) -> Any:
        """An offset, limited to the window as if the log began and ended with it."""
        return min(max(offset, self.first), self.last + 1) if isinstance(offset, int) and offset >= 0 else offset


ENDS = frozenset({"start", "end", "position", "hw", "lso", "log_start", "high_watermark"})


def _whole(cut: list[Event | None], events: list[Event]) -> list[Event]:
    """Operations as a whole: where the invocation or the completion is left out, so is the other."""
    gone = {_operation(event) for event, left in zip(events, cut, strict=True) if left is None or _says_nothing(event)}
    return [left for left in cut if left is not None and _operation(left) not in gone]


def _operation(event: Event) -> tuple[int, int] | None:
    return (event["process"], event["operation"]) if "operation" in event else None


def _says_nothing(event: Event) -> bool:
    return "operation" in event and event["f"] in LEFT_OUT


def _renumbered(events: Iterable[Event]) -> list[Event]:
    """The events with new line numbers; the header names no list, for an excerpt need not have all files of its run."""
    kept = ({name: value for name, value in event.items() if name != "listed"} for event in events)
    return [{**event, "n": number} if "n" in event else event for number, event in enumerate(kept)]
