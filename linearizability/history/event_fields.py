"""Checked reading of an event's fields: an event of a foreign file may hold anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from linearizability.history.facts import MAX_OFFSET, UNKNOWN
from linearizability.history.keys import NEVER


class BadEvent(ValueError):
    """An event that cannot be part of a history; the reader adds the file and the line."""


def process_of(value: Any) -> int:
    """The number of a process. Errors: BadEvent where it is none."""
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise BadEvent(f"{value!r} is no process")
    return value


def time_of(event: dict[str, Any]) -> int:
    """The time of an event in nanoseconds. Errors: BadEvent where it is no such number."""
    time = event.get("time")
    if type(time) is not int or not -NEVER < time < NEVER:
        raise BadEvent(f"time {time!r} is no number of nanoseconds")
    return time


def offset_of(value: Any) -> int:
    if value is None:
        return UNKNOWN
    if type(value) is not int or not UNKNOWN <= value <= MAX_OFFSET:
        raise BadEvent(f"{value!r} is no offset")
    return value


def place_of(value: Any) -> int:
    """The offset of a record, which cannot be unknown."""
    offset = offset_of(value)
    if offset < 0:
        raise BadEvent(f"a record at offset {value!r}")
    return offset


def number_of(value: Any, what: str) -> int:
    """An epoch, a generation or a node; -1 where it is not known."""
    if type(value) is not int or not UNKNOWN <= value < 1 << 31:
        raise BadEvent(f"{value!r} is no {what}")
    return value


def check_same_sends(invoked: list[dict[str, Any]], completed: list[dict[str, Any]]) -> None:
    """A completion repeats its invocation's sends; another list would make records appear that no client sent."""
    before = [(str(m["key"]), m["value"]) for m in invoked if m.get("op") == "send"]
    after = [(str(m["key"]), m["value"]) for m in completed if m.get("op") == "send"]
    if before != after:
        raise BadEvent("the completion names other sends than the invocation")


def lacks_records(invoked: list[dict[str, Any]], completed: list[dict[str, Any]]) -> bool:
    """Whether a completion lacks the records of some of the invoked polls."""
    said = sum(m.get("op") == "poll" and m.get("records") is not None for m in completed)
    return said < sum(m.get("op") == "poll" for m in invoked)


def records_of(records: Any) -> Iterable[tuple[str | int, Any, Any, int]]:
    """The records of a poll, as written by the recorder (lists a partition) or in the neutral form (one list)."""
    if not records:
        return
    if isinstance(records, dict):
        for key, pairs in records.items():
            for offset, value, *epoch in pairs:
                yield key, offset, value, number_of(epoch[0], "epoch") if epoch else UNKNOWN
        return
    for record in records:
        yield record["key"], record.get("offset"), record["value"], number_of(record.get("epoch", UNKNOWN), "epoch")
