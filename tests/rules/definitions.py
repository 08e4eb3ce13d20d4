"""The rules once more, as their definitions read: slow, over plain events, by quantifiers. The checks must agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass
class Sent:
    """One record sent."""

    operation: int
    process: int
    key: str
    value: Any
    offset: int | None
    outcome: str
    invoked: int
    completed: float
    position: int
    operation_keys: frozenset[str] = frozenset()
    transactional: bool = False


@dataclass
class Seen:
    """One record polled."""

    operation: int
    process: int
    key: str
    value: Any
    offset: int
    outcome: str
    completed: float


@dataclass
class Plain:
    """A history as lists."""

    sent: list[Sent] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    events: list[tuple[str, int, int, Any]] = field(default_factory=list)
    """(`poll` or `assign`, process, operation, outcome or keys) in the order of completion."""


def plain(events: list[dict[str, Any]]) -> Plain:
    """Pairs the events of a neutral history by process."""
    history, open_by_process = Plain(), {}
    for event in [*events, *[{"type": "never", "process": p} for p in {e["process"] for e in events}]]:
        who = event["process"]
        if event["type"] == "invoke":
            open_by_process[who] = event
            continue
        begun = open_by_process.pop(who, None)
        if begun is None:
            continue
        outcome = "info" if event["type"] == "never" else event["type"]
        completed = float("inf") if event["type"] == "never" else event["time"]
        number = begun["index"]
        mops = event.get("mops") or [m for m in begun.get("mops") or [] if m["op"] == "send"]
        if begun["f"] in ("assign", "subscribe") and outcome != "fail":
            history.events.append(("assign", who, number, {str(key) for key in begun["keys"]}))
        keys = frozenset(str(m["key"]) for m in mops if m["op"] == "send")
        polled = False
        for position, mop in enumerate(mops):
            if mop["op"] == "send":
                history.sent.append(
                    Sent(
                        number,
                        who,
                        str(mop["key"]),
                        mop["value"],
                        mop.get("offset"),
                        outcome,
                        begun["time"],
                        completed,
                        position,
                        keys,
                        begun["f"] == "txn",
                    )
                )
            for record in mop.get("records") or []:
                polled = True
                history.seen.append(
                    Seen(number, who, str(record["key"]), record["value"], record["offset"], outcome, completed)
                )
        if polled:
            history.events.append(("poll", who, number, outcome))
    return history


def anomalies(events: list[dict[str, Any]]) -> Counter[str]:
    """How many anomalies of each type a history has, by the definitions."""
    history = plain(events)
    counts: Counter[str] = Counter()
    keys = {s.key for s in history.sent} | {s.key for s in history.seen}
    shown = [
        s
        for s in history.sent
        if s.outcome == "info"
        and any(o.key == s.key and o.value == s.value and o.outcome == "ok" for o in history.seen)
    ]
    proven = {s.operation for s in shown if s.transactional}
    for key in keys:
        sent = [s for s in history.sent if s.key == key]
        seen = [o for o in history.seen if o.key == key]
        happened = [s for s in sent if s.outcome == "ok" or s.operation in proven or s in shown]
        undecided = {s.value for s in sent if s.transactional and s.outcome == "info" and s.operation not in proven}
        counts.update(_of_partition(sent, seen, happened, undecided, history, key))
    return +counts


def _of_partition(
    sent: list[Sent], seen: list[Seen], happened: list[Sent], undecided: set[Any], history: Plain, key: str
) -> Counter[str]:
    counts: Counter[str] = Counter()
    log = {(s.offset, s.value) for s in happened if s.offset is not None} | {(o.offset, o.value) for o in seen}
    read = {o.value for o in seen}
    offsets = {offset for offset, _ in log}
    writer = {s.value: s for s in sent}

    named = {(s.offset, s.value) for s in sent if s.outcome == "info"}
    torn = {offset for offset in offsets if len({v for o, v in log if o == offset}) > 1}
    torn |= {o.offset for o in seen if any(offset == o.offset and value != o.value for offset, value in named)}
    counts["inconsistent-offsets"] = len(torn)
    counts["duplicate"] = sum(len({o for o, v in log if v == value}) > 1 for value in {v for _, v in log})
    counts["phantom-read"] = len({o.value for o in seen if o.value not in writer})
    highest = max((o.offset for o in seen), default=-1)
    lost = [s for s in happened if s.value not in read and s.offset is not None and s.offset <= highest]
    counts["lost-write"] = len(lost)
    counts["unseen"] = sum(s.outcome == "ok" and s.value not in read and s not in lost for s in happened)
    known = [o for o in seen if o.value in writer]
    counts["G1a"] = sum(writer[o.value].outcome == "fail" for o in known)
    counts["precommitted-read"] = sum(writer[o.value].operation == o.operation for o in known)
    counts["future-read"] = sum(o.completed < writer[o.value].invoked for o in known)
    claims = Counter(s.offset for s in sent if s.outcome == "ok" and s.offset is not None)
    counts["offset-reuse"] = sum(count > 1 for count in claims.values())

    aborted = {o.offset for o in seen if o.value in writer and writer[o.value].outcome == "fail"}
    must = offsets - aborted - {o.offset for o in seen if o.value in undecided}

    def jumps(before: int, after: int) -> tuple[bool, bool]:
        return after <= before, any(before < offset < after for offset in must)

    by_operation: dict[int, list[Seen]] = defaultdict(list)
    for o in seen:
        by_operation[o.operation].append(o)
    for records in by_operation.values():
        for a, b in pairwise(records):
            back, skip = jumps(a.offset, b.offset)
            counts["int-nonmonotonic-poll"] += back
            counts["int-poll-skip"] += skip
    last: dict[int, list[int]] = {}
    for kind, process, operation, what in history.events:
        if kind == "assign":
            if key not in what:
                last.pop(process, None)
            continue
        records = by_operation.get(operation, [])
        if not records:
            continue
        if process in last:
            first, starts = records[0].offset, last[process]
            nearest = max((start for start in starts if start < first), default=starts[0])
            counts["nonmonotonic-poll"] += jumps(starts[0], first)[0]
            counts["poll-skip"] += jumps(nearest, first)[1]
        if what == "ok":
            last[process] = [records[-1].offset]
        elif what == "info" and process in last:
            last[process].append(records[-1].offset)
    _sends(counts, sent, seen, happened, offsets)
    return counts


def _sends(counts: Counter[str], sent: list[Sent], seen: list[Seen], happened: list[Sent], offsets: set[int]) -> None:
    """Rules on the order of sends; a record's place is its own acknowledged offset, or the first at which it was seen."""
    order = {id(o): (o.process << 32 | o.operation) for o in seen}
    observed: dict[Any, int] = {}
    for o in sorted(seen, key=lambda o: order[id(o)]):
        observed.setdefault(o.value, o.offset)

    def place(s: Sent) -> int | None:
        return s.offset if s in happened and s.offset is not None else observed.get(s.value)

    by_operation: dict[int, list[Sent]] = defaultdict(list)
    for s in sent:
        by_operation[s.operation].append(s)
    for records in by_operation.values():
        for a, b in pairwise(records):
            first, second = place(a), place(b)
            if first is None or second is None:
                continue
            counts["int-nonmonotonic-send"] += second <= first
            counts["int-send-skip"] += any(first < offset < second for offset in offsets)
    placed = [(s, at) for s in sent if (at := place(s)) is not None]
    for process in {s.process for s in sent}:
        mine = [(s, at) for s, at in placed if s.process == process and s.outcome != "fail"]
        mine.sort(key=lambda each: (each[0].operation, each[0].position))
        firsts: set[int] = set()
        for i, (s, at) in enumerate(mine):
            if s.operation not in firsts:
                firsts.add(s.operation)
                earlier = (before for e, before in mine[:i] if e.operation != s.operation)
                counts["nonmonotonic-send"] += any(at <= before for before in earlier)
    for s, at in placed:
        counts["realtime-order"] += any(
            behind > at and t.outcome == "ok" and t.completed < s.invoked for t, behind in placed
        )


COMPARED = (
    *("inconsistent-offsets", "duplicate", "phantom-read", "lost-write", "unseen", "offset-reuse"),
    *("G1a", "precommitted-read", "future-read", "realtime-order"),
    *("int-nonmonotonic-poll", "int-poll-skip", "nonmonotonic-poll", "poll-skip"),
    *("int-nonmonotonic-send", "int-send-skip", "nonmonotonic-send"),
)
"""The rules that are defined here."""
