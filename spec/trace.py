"""Checks traces of brokers against the specification, many in one run of TLC.

A trace has the steps of one partition in one cluster: a file of JSON lines, in the order in which the steps happened. The first
line is Begin, each other line is one step of ACTIONS.md, written before the step's effects leave the node:

    {"action": "Begin", "brokers": [1, 2, 3], "minIsr": 2,
     "partition": {"leader": 1, "leaderEpoch": 0, "partitionEpoch": 0, "isr": [1, 2, 3], "elr": []}}
    {"node": 1, "seq": 7, "action": "AnswerFetch", "args": {"leader": 1, "follower": 2, "end": 4},
     "leo": 5, "hw": 3, "leaderEpoch": 0, "isr": [1, 2, 3], "cause": [2, 6]}
    {"node": 0, "seq": 3, "action": "FenceBroker", "args": {"broker": 1}, "partition": {"leader": 2, …}}

A controller's step carries the partition's record after it, whatever its `node` is. All others carry the node's log end
offset, high watermark and leader epoch (-1 before it has replayed one). `isr`, the committed ISR that a leader uses, may be left
out, as may `seq` and `cause`. In Produce and Retry `end` is the log end offset after the batch; in Acknowledge and Consume
it is the offset after the last record that was acknowledged or read. A trace that begins in the middle of an incarnation has the
first state in Begin: `"logs": {"1": [[epoch, end offset], …]}`, as runs of one epoch, `"highWatermarks": {"1": 7}`, and
`"fenced": [2]`, the fenced brokers. If the partition is reassigned, `brokers` are all that ever have a replica, and records of
the partition has `"replicas"`, `"adding"` and `"removing"`; otherwise all brokers are replicas.

Traces of consumer groups, of transactional ids, of the metadata quorum and of partitions of a cluster with ZooKeeper have other
forms: `group_trace.py`, `transaction_trace.py`, `quorum_trace.py`, `changing_voters_trace.py`, `zookeeper_trace.py`.

Nodes themselves (`tidegauge.trace.file`), or a simulation, write one file for each node or one for all, with the rows of all
partitions. The files of one folder, or of its folders `node-…`, are one cluster's. Their rows are merged into one order
(`merging.py`) and become one trace for each partition (`cluster_trace.py`), group and transactional id (`shard_trace.py`), and
one for the quorum.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from spec import changing_voters_trace, group_trace, quorum_trace, replication_trace, transaction_trace, zookeeper_trace
from spec.changing_voters_trace import ChangingVotersTrace, changing_voters_traces
from spec.checker import SHORT_RUN, Job, Outcome, Verdict
from spec.cluster_trace import begins_incarnation, partition_traces
from spec.engine import LOCAL, Engine
from spec.killed_steps import with_killed_steps
from spec.merging import merged
from spec.models import SPEC
from spec.quorum_trace import QuorumTrace, quorum_traces
from spec.replication_trace import Trace
from spec.shard_trace import group_traces, transaction_traces
from spec.trace_form import Event, ShardTrace, TraceError
from spec.zookeeper_trace import ZooKeeperTrace, is_of_zookeeper, zookeeper_traces

AnyTrace = Trace | ShardTrace | QuorumTrace | ChangingVotersTrace | ZooKeeperTrace

State = dict[str, Any]
"""Variable -> value, of the book that a trace is checked against, in TLC's order."""

BOOKS = {
    "replication": replication_trace,
    "quorum": quorum_trace,
    "groups": group_trace,
    "transactions": transaction_trace,
    "historical": zookeeper_trace,
    "changing voters": changing_voters_trace,
}
"""Book -> the module that reads its traces and writes them as TLA+."""

BEGINS = {
    "group": group_trace,
    "transactionalId": transaction_trace,
    "voters": quorum_trace,
    "firstVoters": changing_voters_trace,
    "zookeeper": zookeeper_trace,
}
"""Field of Begin -> the module of the trace's book. A trace with none of these fields is a partition's."""


SHORT_NAMES = {"groups": group_trace.short_names, "transactions": transaction_trace.short_names}
"""Book whose states have short names of members and partitions -> function for their meanings."""


@dataclass(frozen=True)
class TraceVerdict:
    """Whether a trace was accepted; for a rejection that was looked up, the rejected event and the states around it."""

    name: str
    accepted: bool
    events: int
    looked_up: bool = True
    """False if it is not known at which event a trace was rejected."""
    event: Event | None = None
    """The rejected event."""
    place: int = 0
    """The rejected event's number, from 1; 0 if the first state is rejected, or if it is not known."""
    reason: str = ""
    before: State = field(default_factory=dict[str, Any])
    after: State = field(default_factory=dict[str, Any])
    """The state that breaks a promise; empty if no action allows the event."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """What the states' short names stand for (`m1`: a member, `p1`: a partition)."""


@dataclass(frozen=True)
class Validation:
    """The result of checking a set of traces."""

    verdicts: tuple[TraceVerdict, ...]
    outcome: Outcome
    seconds: float
    judging_cpu_seconds: float
    """CPU time of the runs that judge all traces."""
    look_up_cpu_seconds: float = 0
    """CPU time of the further runs, for the rejections that were looked up."""

    @property
    def rejected(self) -> tuple[TraceVerdict, ...]:
        return tuple(verdict for verdict in self.verdicts if not verdict.accepted)

    @property
    def events(self) -> int:
        return sum(verdict.events for verdict in self.verdicts)

    @property
    def events_per_cpu_second(self) -> int:
        """Events of all traces for each CPU second of the runs that judge them; 0 if there were none."""
        return round(self.events / self.judging_cpu_seconds) if self.judging_cpu_seconds else 0


# ---- reading


def read_traces(paths: Iterable[Path]) -> list[AnyTrace]:
    """The traces in files and in all `*.jsonl` of folders; files of a cluster's nodes are merged. Errors: TraceError, OSError."""
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
        rows = _in_one_order(nodes)
        found += [trace_of(events, f"{folder}/{name}") for name, events in cluster_traces(rows).items()]
    return found


def _in_one_order(nodes: Sequence[list[Event]]) -> list[Event]:
    """The rows of a cluster's nodes in one order; with ZooKeeper by time, because `zookeeper_trace` orders them by zxid later."""
    if any(is_of_zookeeper(rows) for rows in nodes):
        return sorted((row for rows in nodes for row in rows), key=lambda row: row.get("at", 0))
    whole = [with_killed_steps(rows) for rows in nodes]
    return merged(whole) if len(whole) > 1 else whole[0]


def cluster_traces(rows: Sequence[Event]) -> dict[str, list[Event]]:
    """The traces of all partitions, groups and transactional ids of a cluster, and of its quorum."""
    others = group_traces(rows) | transaction_traces(rows) | quorum_traces(rows) | changing_voters_traces(rows)
    return partition_traces(rows) | zookeeper_traces(rows) | others


def _home(file: Path) -> Path:
    """The folder of a node's cluster: a node's file may be in a folder of the node, `node-1` and so on."""
    return file.parent.parent if file.parent.name.startswith("node-") else file.parent


def is_of_nodes(rows: Sequence[Event]) -> bool:
    """Whether rows are of nodes, for many partitions, and not a trace: a trace's first line is Begin."""
    return bool(rows) and "brokers" not in rows[0] and (begins_incarnation(rows[0]) or is_of_zookeeper(rows))


def read_rows(lines: Sequence[str], name: str) -> list[Event]:
    """The JSON objects of a file, one a line. Errors: TraceError."""
    rows: list[Event] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise TraceError(f"{name}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise TraceError(f"{name}:{number}: not an object")
        rows.append(cast("Event", row))
    return rows


def read_trace(lines: Sequence[str], name: str) -> AnyTrace:
    """The trace in the lines of one file. Errors: TraceError."""
    return trace_of(read_rows(lines, name), name)


def trace_of(rows: Sequence[Event], name: str) -> AnyTrace:
    """The trace in these rows, of the book that Begin names. Errors: TraceError."""
    if not rows or rows[0].get("action") != "Begin":
        raise TraceError(f"{name}:1: a trace begins with the action Begin")
    return next((book for key, book in BEGINS.items() if key in rows[0]), replication_trace).trace_of(rows, name)


# ---- checking

LOOK_UPS = 10
"""The number of rejected traces whose event and states are looked up, with a run of TLC for each."""


NOT_FOUND = "TLC found no steps of the unseen nodes (those that trace nothing) after which this event is allowed"

EVENTS_A_RUN = 40_000
"""The largest number of events in one run of TLC: 67,000 took 27 CPU seconds, 123,000 over 300, because memory was short."""


def check_traces(
    traces: Sequence[AnyTrace],
    budget_s: float = 600,
    memory_mb: int = 3000,
    look_ups: int = LOOK_UPS,
    engine: Engine = LOCAL,
) -> Validation:
    """Check all traces. Those of one book with the same `run` (for partitions: the brokers) share runs, up to EVENTS_A_RUN.

    Errors: those of the engine.
    """
    groups: dict[tuple[Any, ...], list[AnyTrace]] = {}
    for trace in traces:
        groups.setdefault((trace.book, *trace.run), []).append(trace)
    runs = TraceRuns(engine, budget_s, memory_mb)
    start, judging, looking_up = time.monotonic(), 0.0, 0.0
    accepted: dict[str, bool] = {}
    outcome = Outcome(Verdict.HOLDS)
    with closing(engine.each(runs.accepted, [batch for group in groups.values() for batch in _batches(group)])) as done:
        for batch, (names, outcome) in done:
            judging += outcome.cpu_seconds
            if outcome.verdict != Verdict.HOLDS:
                break
            accepted |= {trace.name: trace.name in names for trace in batch}
    verdicts = {
        trace.name: TraceVerdict(trace.name, accepted[trace.name], len(trace.events), accepted[trace.name])
        for group in groups.values()
        for trace in group
        if trace.name in accepted
    }
    rejected = [trace for group in groups.values() for trace in group if accepted.get(trace.name) is False]
    for trace, (verdict, spent) in engine.each(runs.look_up, rejected[:look_ups]):
        looking_up += spent
        verdicts[trace.name] = verdict
    found = tuple(verdicts[trace.name] for trace in traces if trace.name in verdicts)
    return Validation(found, outcome, time.monotonic() - start, judging, looking_up)


def _batches(traces: Sequence[AnyTrace]) -> Iterator[list[AnyTrace]]:
    """The traces in their order, in batches of at most EVENTS_A_RUN events; a longer trace is a batch alone."""
    batch: list[AnyTrace] = []
    events = 0
    for trace in traces:
        if batch and events + len(trace.events) > EVENTS_A_RUN:
            yield batch
            batch, events = [], 0
        batch.append(trace)
        events += len(trace.events)
    if batch:
        yield batch


def _job(traces: Sequence[AnyTrace], deadlock: bool, budget_s: float, memory_mb: int) -> Job:
    book: Any = BOOKS[traces[0].book]
    data, configuration = book.modules(traces, deadlock)
    return Job(
        folder=SPEC / getattr(book, "FOLDER", traces[0].book),
        module=book.MODULE,
        configuration=configuration,
        budget_s=budget_s,
        memory_mb=memory_mb,
        jvm=SHORT_RUN,
        modules={"TraceData": data} | _borrowed(book),
    )


def _borrowed(book: Any) -> dict[str, str]:
    """Modules of other folders that a book needs."""
    return {name: (SPEC / path).read_text() for name, path in getattr(book, "BORROWED", {}).items()}


@dataclass(frozen=True)
class TraceRuns:
    """Runs of TLC on traces."""

    engine: Engine
    budget_s: float
    memory_mb: int

    def accepted(self, traces: Sequence[AnyTrace]) -> tuple[set[str], Outcome]:
        """The names of the accepted traces, and TLC's outcome."""
        outcome = self._check(traces, deadlock=False)
        numbers = {int(number) for number in re.findall(r'<<"accepted", (\d+)>>', outcome.output)}
        return {traces[number - 1].name for number in numbers}, outcome

    def look_up(self, trace: AnyTrace) -> tuple[TraceVerdict, float]:
        """The verdict of a rejected trace with the event that is rejected, and the CPU seconds of the search."""
        return self._look_up_unseen(trace) if isinstance(trace, Trace) and trace.unseen else self._look_up(trace)

    def _look_up_unseen(self, trace: Trace) -> tuple[TraceVerdict, float]:
        """Find, by bisection, the first event for which TLC finds no steps of the unseen nodes that lead to it."""
        accepted, refused, spent = 0, len(trace.events), 0.0
        while refused - accepted > 1:
            middle = (accepted + refused) // 2
            names, outcome = self.accepted([replace(trace, events=trace.events[:middle])])
            spent += outcome.cpu_seconds
            if outcome.verdict != Verdict.HOLDS:
                return _not_found_out(trace, outcome), spent
            accepted, refused = (middle, refused) if names else (accepted, middle)
        event = trace.events[refused - 1]
        return TraceVerdict(trace.name, False, len(trace.events), True, event, refused, NOT_FOUND), spent

    def _look_up(self, trace: AnyTrace) -> tuple[TraceVerdict, float]:
        """The first event that no action allows, or that leads to a broken promise."""
        outcome = self._check([trace], deadlock=True)
        states: list[State] = [step.state for step in outcome.trace]
        before, after = states[-1] if states else {}, {}
        match outcome.verdict:
            case Verdict.VIOLATED:
                before, after = states[-2] if len(states) > 1 else {}, before
                reason = f"{'leads to' if before else 'the trace begins in'} a state that breaks {outcome.violated}"
            case Verdict.DEADLOCK:
                reason = (
                    "no action of the specification allows it in this state, or the node traced another state after it"
                )
            case _:
                return _not_found_out(trace, outcome), outcome.cpu_seconds
        place = int(before.get("at", 0))
        event = trace.events[place - 1] if place else None
        names = SHORT_NAMES[trace.book](trace, place) if isinstance(trace, ShardTrace) else {}
        around = _own(before), _own(after), names
        verdict = TraceVerdict(trace.name, False, len(trace.events), True, event, place, reason, *around)
        return verdict, outcome.cpu_seconds

    def _check(self, traces: Sequence[AnyTrace], deadlock: bool) -> Outcome:
        return self.engine.check(_job(traces, deadlock, self.budget_s, self.memory_mb))


def _not_found_out(trace: AnyTrace, outcome: Outcome) -> TraceVerdict:
    reason = f"the search for the event failed: {outcome.verdict}: {outcome.reason}"
    return TraceVerdict(trace.name, False, len(trace.events), looked_up=False, reason=reason)


OF_THE_CHECK = {"trace", "at", "step", "faults"}
"""Variables that are not shown: the trace's number, the position in it, and those that only models use."""


def _own(state: State) -> State:
    return {name: value for name, value in state.items() if name not in OF_THE_CHECK}
