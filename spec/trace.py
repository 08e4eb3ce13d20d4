"""Traces of brokers, checked against the specification in one run of TLC.

A trace is one partition's life in one cluster: a file of JSON lines, in the order in which the steps happened. The first
line begins it, each other line is one step of ACTIONS.md, written before the step's effects leave the node:

    {"action": "Begin", "brokers": [1, 2, 3], "minIsr": 2,
     "partition": {"leader": 1, "leaderEpoch": 0, "partitionEpoch": 0, "isr": [1, 2, 3], "elr": []}}
    {"node": 1, "seq": 7, "action": "AnswerFetch", "args": {"leader": 1, "follower": 2, "end": 4},
     "leo": 5, "hw": 3, "leaderEpoch": 0, "isr": [1, 2, 3], "cause": [2, 6]}
    {"node": 0, "seq": 3, "action": "FenceBroker", "args": {"broker": 1}, "partition": {"leader": 2, …}}

The controller's steps tell the partition's record afterwards, whatever their `node` says; all others tell the node's log end
offset, high watermark and leader epoch (-1 where it has replayed nothing). `isr` is the committed ISR that a leader acts by,
and may be left out, as may `seq` and `cause`. Produce and Retry carry `end`, the log end offset after the batch; Acknowledge
and Consume carry `end`, the offset after the last record that was promised or read. A trace that begins in the middle of a
life says in Begin what there was: `"logs": {"1": [[epoch, end offset], …]}`, as runs of one epoch, `"highWatermarks": {"1": 7}`,
and `"fenced": [2]`, the brokers that were. Where a partition is given other replicas, `brokers` are all that ever have one, and
each partition's record says `"replicas"`, `"adding"` and `"removing"`; otherwise all brokers are replicas.

Traces of consumer groups and of transactional ids have forms of their own: `group_trace.py`, `transaction_trace.py`.

What nodes write by themselves (`tidegauge.trace.file`, or a simulated world) is one file a node or one for all of them, with
the rows of all partitions: the files of one folder, or of its folders `node-…`, are one cluster's. They are put in one order
(`merging.py`) and become one trace for each partition (`cluster_trace.py`), group and transactional id (`shard_trace.py`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spec import group_trace, replication_trace, transaction_trace
from spec.checker import SHORT_RUN, Job, Outcome, Verdict, check
from spec.cluster_trace import begins_life, partition_traces
from spec.merging import merged
from spec.models import SPEC
from spec.replication_trace import Trace
from spec.shard_trace import group_traces, transaction_traces
from spec.trace_form import Event, ShardTrace, TraceError

AnyTrace = Trace | ShardTrace

BOOKS = {"replication": replication_trace, "groups": group_trace, "transactions": transaction_trace}
"""By folder of the specification: how its traces are read, and made a module."""

BEGINS = {"group": group_trace, "transactionalId": transaction_trace}
"""By what their first line names: the other traces are partitions'."""


@dataclass(frozen=True)
class TraceVerdict:
    """Was a trace accepted; if not, which event no action allows, and the state before it."""

    name: str
    accepted: bool
    events: int
    event: Event | None = None
    place: int = 0
    """The rejected event's number, from 1."""
    reason: str = ""
    before: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Validation:
    """What came out of a set of traces."""

    verdicts: tuple[TraceVerdict, ...]
    outcome: Outcome
    seconds: float
    cpu_seconds: float

    @property
    def rejected(self) -> tuple[TraceVerdict, ...]:
        return tuple(verdict for verdict in self.verdicts if not verdict.accepted)

    @property
    def events(self) -> int:
        return sum(verdict.events for verdict in self.verdicts)


# ---- reading


def read_traces(paths: Iterable[Path]) -> list[AnyTrace]:
    """Files, and all `*.jsonl` of folders; nodes' files are put together. Errors: TraceError, OSError."""
    found: list[AnyTrace] = []
    clusters: dict[Path, list[list[Event]]] = {}
    for path in paths:
        for file in sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]:
            rows = read_rows(file.read_text().splitlines(), str(file))
            if is_of_nodes(rows):
                clusters.setdefault(_home(file), []).append(rows)
            else:
                found.append(trace_of(rows, str(file)))
    for folder, nodes in clusters.items():
        rows = merged(nodes) if len(nodes) > 1 else nodes[0]
        found += [trace_of(events, f"{folder}/{name}") for name, events in cluster_traces(rows).items()]
    return found


def cluster_traces(rows: Sequence[Event]) -> dict[str, list[Event]]:
    """The traces of all partitions, groups and transactional ids of a cluster."""
    return partition_traces(rows) | group_traces(rows) | transaction_traces(rows)


def _home(file: Path) -> Path:
    """The folder of a node's cluster: nodes may have folders of their own, `node-1` and so on."""
    return file.parent.parent if file.parent.name.startswith("node-") else file.parent


def is_of_nodes(rows: Sequence[Event]) -> bool:
    """Whether rows are what nodes wrote, not yet a trace: what a trace is of stands in its first line."""
    return bool(rows) and "brokers" not in rows[0] and begins_life(rows[0])


def read_rows(lines: Sequence[str], name: str) -> list[Event]:
    """A file of JSON objects. Errors: TraceError."""
    rows: list[Event] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise TraceError(f"{name}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TraceError(f"{name}:{number}: not an object")
        rows.append(row)
    return rows


def read_trace(lines: Sequence[str], name: str) -> AnyTrace:
    """One file's lines. Errors: TraceError."""
    return trace_of(read_rows(lines, name), name)


def trace_of(rows: Sequence[Event], name: str) -> AnyTrace:
    """The rows of a partition, a group or a transactional id. Errors: TraceError."""
    if not rows or rows[0].get("action") != "Begin":
        raise TraceError(f"{name}:1: a trace begins with the action Begin")
    return next((book for key, book in BEGINS.items() if key in rows[0]), replication_trace).trace_of(rows, name)


# ---- checking

REJECTIONS_SHOWN = 10
"""For so many rejected traces the event and the state before it are looked up, a run of TLC for each."""


def check_traces(traces: Sequence[AnyTrace], budget_s: float = 600, memory_mb: int = 3000) -> Validation:
    """All traces; those that may share a run of TLC do (of partitions: one cluster size and min.insync.replicas)."""
    groups: dict[tuple[Any, ...], list[AnyTrace]] = {}
    for trace in traces:
        groups.setdefault((trace.book, *trace.run), []).append(trace)
    start, cpu, verdicts = time.monotonic(), 0.0, {}
    outcome = Outcome(Verdict.HOLDS)
    for group in groups.values():
        accepted, outcome = _check_group(group, budget_s, memory_mb)
        cpu += outcome.cpu_seconds
        if outcome.verdict != Verdict.HOLDS:
            break
        for trace in group:
            if trace.name in accepted:
                verdicts[trace.name] = TraceVerdict(trace.name, True, len(trace.events))
            elif sum(not verdict.accepted for verdict in verdicts.values()) < REJECTIONS_SHOWN:
                verdicts[trace.name] = _explain(trace, budget_s, memory_mb)
            else:
                verdicts[trace.name] = TraceVerdict(trace.name, False, len(trace.events))
    found = tuple(verdicts[trace.name] for trace in traces if trace.name in verdicts)
    return Validation(found, outcome, time.monotonic() - start, cpu)


def _job(traces: Sequence[AnyTrace], deadlock: bool, budget_s: float, memory_mb: int) -> Job:
    book: Any = BOOKS[traces[0].book]
    data, configuration = book.modules(traces, deadlock)
    return Job(
        folder=SPEC / traces[0].book,
        module=book.MODULE,
        configuration=configuration,
        budget_s=budget_s,
        memory_mb=memory_mb,
        jvm=SHORT_RUN,
        modules={"TraceData": data},
    )


def _check_group(traces: list[AnyTrace], budget_s: float, memory_mb: int) -> tuple[set[str], Outcome]:
    """Names of the accepted traces."""
    outcome = check(_job(traces, False, budget_s, memory_mb))
    numbers = {int(number) for number in re.findall(r'<<"accepted", (\d+)>>', outcome.output)}
    return {traces[number - 1].name for number in numbers}, outcome


def _explain(trace: AnyTrace, budget_s: float, memory_mb: int) -> TraceVerdict:
    """The first event that no action allows, or that leads to a broken promise."""
    outcome = check(_job([trace], True, budget_s, memory_mb))
    last = outcome.trace[-1].state if outcome.trace else {}
    place = int(str(last.get("at", 0)))
    if outcome.verdict == Verdict.VIOLATED:
        place, reason = place - 1, f"leads to a state that breaks {outcome.violated}"
    elif outcome.verdict == Verdict.DEADLOCK:
        reason = "no action of the specification allows it in this state, or it ends otherwise than the node says"
    else:
        reason = f"{outcome.verdict}: {outcome.reason}"
    event = trace.events[place - 1] if 0 < place <= len(trace.events) else None
    return TraceVerdict(trace.name, False, len(trace.events), event, place, reason, last)
