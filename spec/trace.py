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
and `"fenced": [2]`, the brokers that were.

What nodes write by themselves (`tidegauge.trace.file`, or a simulated world) is one file a node or one for all of them, with
the rows of all partitions: the files of one folder, or of its folders `node-…`, are one cluster's. They are put in one order
(`merging.py`) and become one trace for each partition (`cluster_trace.py`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spec.actions import ACTIONS
from spec.checker import SHORT_RUN, Job, Outcome, Verdict, check
from spec.cluster_trace import begins_life, partition_traces
from spec.merging import merged
from spec.models import SPEC

FOLDER = SPEC / "replication"
NAMES = {action.name for action in ACTIONS}
CONTROLLER = "controller"
CONTROLLERS = {action.name for action in ACTIONS if action.actor == CONTROLLER}

Event = dict[str, Any]


class TraceError(ValueError):
    """The file is no trace; the message names line and reason."""


@dataclass(frozen=True)
class Trace:
    """One partition's life."""

    name: str
    brokers: tuple[int, ...]
    min_isr: int
    first: dict[str, Any]
    events: tuple[Event, ...]
    logs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Runs of one epoch and the offset at which each ends; a broker that is not named has none."""
    high_watermarks: dict[int, int] = field(default_factory=dict)
    fenced: tuple[int, ...] = ()


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


def read_traces(paths: Iterable[Path]) -> list[Trace]:
    """Files, and all `*.jsonl` of folders; nodes' files are put together. Errors: TraceError, OSError."""
    found: list[Trace] = []
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
        found += [trace_of(events, f"{folder}/{name}") for name, events in partition_traces(rows).items()]
    return found


def _home(file: Path) -> Path:
    """The folder of a node's cluster: nodes may have folders of their own, `node-1` and so on."""
    return file.parent.parent if file.parent.name.startswith("node-") else file.parent


def is_of_nodes(rows: Sequence[Event]) -> bool:
    """Whether rows are what nodes wrote, not yet one partition's trace: a trace begins with its brokers."""
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


def read_trace(lines: Sequence[str], name: str) -> Trace:
    """One file's lines. Errors: TraceError."""
    return trace_of(read_rows(lines, name), name)


def trace_of(rows: Sequence[Event], name: str) -> Trace:
    """A partition's rows. Errors: TraceError."""
    if not rows or rows[0].get("action") != "Begin":
        raise TraceError(f"{name}:1: a trace begins with the action Begin")
    for number, row in enumerate(rows[1:], 2):
        _check_event(row, f"{name}:{number}")
    try:
        begin = rows[0]
        logs = {
            int(broker): [(int(epoch), int(end)) for epoch, end in runs]
            for broker, runs in begin.get("logs", {}).items()
        }
        brokers = tuple(int(broker) for broker in begin["brokers"])
        marks = {int(broker): int(mark) for broker, mark in begin.get("highWatermarks", {}).items()}
        fenced = tuple(int(broker) for broker in begin.get("fenced", ()))
        return Trace(
            name, brokers, int(begin["minIsr"]), dict(begin["partition"]), tuple(rows[1:]), logs, marks, fenced
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{name}:1: Begin lacks {error}") from error


ARGUMENTS = {action.name: action.trace_arguments for action in ACTIONS}
STATE_FIELDS = ("leo", "hw", "leaderEpoch")


def _check_event(event: Event, where: str) -> None:
    action = event.get("action")
    if action not in NAMES:
        raise TraceError(f"{where}: no action is called {action!r}")
    missing = [name for name in ARGUMENTS[action] if name not in event.get("args", {})]
    if "node" not in event:
        missing.append("node")
    needed = ("partition",) if action in CONTROLLERS else STATE_FIELDS
    missing += [name for name in needed if name not in event]
    if missing:
        raise TraceError(f"{where}: {action} lacks {', '.join(missing)}")


# ---- the module that holds the traces


def _tla(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(_tla(item) for item in value) + "}"
    raise TraceError(f"{value!r} cannot stand in a trace")


def _broker(number: int) -> str:
    """A broker's name in the module: 0 is a node's number, too, and no number is a word."""
    return f'"n{number}"'


def _brokers(numbers: Iterable[int]) -> str:
    return "{" + ", ".join(_broker(number) for number in numbers) + "}"


def _record(fields: dict[str, str]) -> str:
    return "[" + ", ".join(f"{name} |-> {value}" for name, value in fields.items()) + "]"


def _partition(record: dict[str, Any]) -> str:
    """Kafka's epochs count from 0, the specification's from 1: 0 is for a broker that has replayed nothing."""
    leader = record["leader"]
    return _record(
        {
            "leader": "None" if leader in (-1, None) else _broker(leader),
            "leaderEpoch": str(record["leaderEpoch"] + 1),
            "partitionEpoch": str(record["partitionEpoch"] + 1),
            "isr": _brokers(record["isr"]),
            "elr": _brokers(record.get("elr") or []),
        }
    )


EPOCHS = {"leaderEpoch", "partitionEpoch"}
PEOPLE = {"broker", "leader", "follower"}


def _argument(name: str, value: Any) -> str:
    if name in PEOPLE:
        return _broker(value)
    return _tla(value + 1 if name in EPOCHS else value)


def _event(event: Event) -> str:
    action, arguments = event["action"], event.get("args", {})
    is_controllers = action in CONTROLLERS
    fields = {"node": _tla(CONTROLLER) if is_controllers else _broker(event["node"]), "action": _tla(action)}
    fields |= {name: _argument(name, arguments[name]) for name in ARGUMENTS[action]}
    if is_controllers:
        fields["partition"] = _partition(event["partition"])
    else:
        fields |= {"leo": str(event["leo"]), "hw": str(event["hw"]), "reign": str(event["leaderEpoch"] + 1)}
        if "isr" in event:
            fields["members"] = _brokers(event["isr"])
    return _record(fields)


def _logs(trace: Trace) -> str:
    """The first logs: a function from brokers to runs."""
    runs = {
        broker: ", ".join(f"[epoch |-> {epoch + 1}, end |-> {end}]" for epoch, end in trace.logs.get(broker, []))
        for broker in trace.brokers
    }
    return _function({broker: f"<<{text}>>" for broker, text in runs.items()})


def _high_watermarks(trace: Trace) -> str:
    return _function({broker: str(trace.high_watermarks.get(broker, 0)) for broker in trace.brokers})


def _function(values: dict[int, str]) -> str:
    return " @@ ".join(f"({_broker(broker)} :> {value})" for broker, value in values.items())


def data_module(traces: Sequence[Trace]) -> str:
    """The module TraceData: each trace a definition of its own, so that none is too long for the parser's stack."""
    lines = ["---- MODULE TraceData ----", "EXTENDS Cluster", ""]
    for number, trace in enumerate(traces, 1):
        events = ",\n  ".join(_event(event) for event in trace.events)
        first = f"first |-> {_partition(trace.first)}, logs |-> {_logs(trace)}, highWatermarks |-> {_high_watermarks(trace)}"
        first += f", fenced |-> {_brokers(trace.fenced)}"
        lines.append(f"Trace{number} == [{first}, events |-> <<\n  {events}>>]")
    names = ", ".join(f"Trace{number}" for number in range(1, len(traces) + 1))
    return "\n".join([*lines, f"Traces == <<{names}>>", "===="]) + "\n"


def configuration(brokers: Sequence[int], min_isr: int, deadlock: bool = False, bugs: Sequence[str] = ()) -> str:
    """TraceReplication's configuration: run-length logs, late messages, faults without a ration."""
    return f"""\\* TraceReplication: traces of brokers
SPECIFICATION TraceSpec
CONSTANTS
  None = None
  Brokers = {_brokers(brokers)}
  MinIsr = {min_isr}
  Records = 0
  Reads = 0
  Acks = {{"zero", "one", "all"}}
  Idempotent = FALSE
  UncleanElection = TRUE
  MayLoseTail = TRUE
  Faults = {{}}
  RecordSteps = FALSE
  Guarded = {"FALSE" if deadlock else "TRUE"}
  Bugs = {{{", ".join(f'"{bug}"' for bug in bugs)}}}
  Spend <- Free
  MayLose <- TraceMayLose
  HasReplayed <- TraceHasReplayed
  EndOffset <- RunEndOffset
  Prefix <- RunPrefix
  LastEpoch <- RunLastEpoch
  StartOffsetOf <- RunStartOffsetOf
  Hears <- LateHears
  HeardLog <- LateHeardLog
  HeardHighWatermarks <- LateHeardHighWatermarks
  ToldBy <- LateToldBy
  WasRefused <- LateWasRefused
CHECK_DEADLOCK {"TRUE" if deadlock else "FALSE"}
INVARIANTS {"KeepsPromises" if deadlock else "Accepted"}
"""


# ---- checking

REJECTIONS_SHOWN = 10
"""For so many rejected traces the event and the state before it are looked up, a run of TLC for each."""


def check_traces(traces: Sequence[Trace], budget_s: float = 600, memory_mb: int = 3000) -> Validation:
    """All traces; those of one cluster size and one min.insync.replicas share a run of TLC."""
    groups: dict[tuple[tuple[int, ...], int], list[Trace]] = {}
    for trace in traces:
        groups.setdefault((trace.brokers, trace.min_isr), []).append(trace)
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


def _job(traces: Sequence[Trace], deadlock: bool, budget_s: float, memory_mb: int) -> Job:
    first = traces[0]
    return Job(
        folder=FOLDER,
        module="TraceReplication",
        configuration=configuration(first.brokers, first.min_isr, deadlock),
        budget_s=budget_s,
        memory_mb=memory_mb,
        jvm=SHORT_RUN,
        modules={"TraceData": data_module(traces)},
    )


def _check_group(traces: list[Trace], budget_s: float, memory_mb: int) -> tuple[set[str], Outcome]:
    """Names of the accepted traces."""
    outcome = check(_job(traces, False, budget_s, memory_mb))
    numbers = {int(number) for number in re.findall(r'<<"accepted", (\d+)>>', outcome.output)}
    return {traces[number - 1].name for number in numbers}, outcome


def _explain(trace: Trace, budget_s: float, memory_mb: int) -> TraceVerdict:
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
