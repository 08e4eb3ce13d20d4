"""One partition's trace as the module TraceReplication reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from spec import trace_form
from spec.actions import ACTIONS
from spec.trace_form import Event, TraceError, data_module, events_of, lacking_arguments, record

MODULE = "TraceReplication"
CONTROLLER = "controller"
CONTROLLERS = {action.name for action in ACTIONS if action.actor == CONTROLLER}
ARGUMENTS = {action.name: action.trace_arguments for action in ACTIONS}
NO_BROKER_EPOCH = -1
"""The value where a row has no broker epoch."""
STATE_FIELDS = ("leo", "hw", "leaderEpoch")


@dataclass(frozen=True)
class Trace:
    """One partition's trace."""

    name: str
    brokers: tuple[int, ...]
    min_isr: int
    first: dict[str, Any]
    events: tuple[Event, ...]
    logs: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    """Broker -> runs (leader epoch, end offset) of its first log; a broker without an entry has an empty log."""
    high_watermarks: dict[int, int] = field(default_factory=dict[int, int])
    fenced: tuple[int, ...] = ()
    unseen: tuple[int, ...] = ()
    """Brokers that trace nothing: TLC searches for their steps."""

    book = "replication"

    @property
    def run(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Traces in which this is equal may share a run of TLC."""
        return self.brokers, self.unseen


def trace_of(rows: Sequence[Event], name: str) -> Trace:
    """The trace of a partition's rows. Errors: TraceError."""
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
        unseen = tuple(int(broker) for broker in begin.get("unseen", ()))
        filled = _Filling(brokers, int(begin["minIsr"]))
        first, events = filled.record(begin["partition"]), tuple(filled.events(with_incarnations(rows[1:])))
        return Trace(name, brokers, int(begin["minIsr"]), first, events, logs, marks, fenced, unseen)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{name}:1: Begin lacks {error}") from error


class _Filling:
    """Fills in fields that a trace may omit: replicas without reassignments, min.insync.replicas without changes of it."""

    def __init__(self, brokers: Sequence[int], min_isr: int) -> None:
        self._left_out = {"replicas": list(brokers), "minIsr": min_isr}

    def record(self, partition: dict[str, Any]) -> dict[str, Any]:
        return self._left_out | partition

    def events(self, rows: Iterable[Event]) -> Iterator[Event]:
        for row in rows:
            if row["action"] == "ChangeMinIsr":
                self._left_out["minIsr"] = int(row["args"]["minIsr"])
            yield row | {"partition": self.record(row["partition"])} if row["action"] in CONTROLLERS else row


def with_incarnations(rows: Sequence[Event]) -> Iterator[Event]:
    """The rows; each AnswerFetch gets the number of the follower's incarnation: 1, plus one for each of its registrations.

    A leader traces the broker epoch in the follower's fetch, the controller those that it assigned. A fetch without a broker
    epoch, or of a follower with a registration that lacks it, is not changed.
    """
    given: dict[int, list[int]] = {}
    for row in rows:
        if row["action"] == "RegisterBroker":
            given.setdefault(row["args"]["broker"], []).append(row["args"].get("brokerEpoch", NO_BROKER_EPOCH))
    for row in rows:
        epoch = row["args"].get("brokerEpoch", NO_BROKER_EPOCH) if row["action"] == "AnswerFetch" else NO_BROKER_EPOCH
        known = given.get(row["args"]["follower"], []) if epoch != NO_BROKER_EPOCH else []
        if epoch == NO_BROKER_EPOCH or NO_BROKER_EPOCH in known:
            yield row
        else:
            yield row | {"incarnation": 1 + sum(each <= epoch for each in known)}


def _check_event(event: Event, where: str) -> None:
    missing = lacking_arguments(event, ARGUMENTS, where)
    action = event["action"]
    if "node" not in event:
        missing.append("node")
    needed = ("partition",) if action in CONTROLLERS else STATE_FIELDS
    missing += [name for name in needed if name not in event]
    if missing:
        raise TraceError(f"{where}: {action} lacks {', '.join(missing)}")


def _tla(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(_tla(item) for item in cast("Sequence[object]", value)) + "}"
    raise TraceError(f"{value!r} is no value of a trace")


def _broker(number: int) -> str:
    """A broker's name in the module. It is a string because node 0 is a broker, too, and model values cannot be numbers."""
    return f'"n{number}"'


def _brokers(numbers: Iterable[int]) -> str:
    return "{" + ", ".join(_broker(number) for number in numbers) + "}"


def _partition(row: dict[str, Any]) -> str:
    """The partition's record in TLA+. Epochs are one more than Kafka's: 0 is for a broker that has replayed nothing."""
    leader = row["leader"]
    return record(
        {
            "leader": "None" if leader in (-1, None) else _broker(leader),
            "leaderEpoch": str(row["leaderEpoch"] + 1),
            "partitionEpoch": str(row["partitionEpoch"] + 1),
            "minIsr": str(row["minIsr"]),
        }
        | {name: _brokers(row.get(name) or []) for name in ("isr", "elr", "replicas", "adding", "removing")}
    )


EPOCHS = {"leaderEpoch", "partitionEpoch"}
PEOPLE = {"broker", "leader", "follower"}


def _argument(name: str, value: Any) -> str:
    if name in PEOPLE:
        return _broker(value)
    if name == "replicas":
        return _brokers(value)
    return _tla(value + 1 if name in EPOCHS else value)


def _event(event: Event) -> str:
    action, arguments = event["action"], event.get("args", {})
    is_controllers = action in CONTROLLERS
    fields = {"node": _tla(CONTROLLER) if is_controllers else _broker(event["node"]), "action": _tla(action)}
    fields |= {name: _argument(name, arguments[name]) for name in ARGUMENTS[action]}
    if is_controllers:
        fields["partition"] = _partition(event["partition"])
    else:
        fields |= {"leo": str(event["leo"]), "hw": str(event["hw"]), "currentEpoch": str(event["leaderEpoch"] + 1)}
        if "isr" in event:
            fields["members"] = _brokers(event["isr"])
        fields |= {name: str(event[name]) for name in ("minIsr", "incarnation") if name in event}
    return record(fields)


def _logs(trace: Trace) -> str:
    """The first logs as a TLA+ function from brokers to runs."""
    runs = {
        broker: ", ".join(f"[epoch |-> {epoch + 1}, end |-> {end}]" for epoch, end in trace.logs.get(broker, []))
        for broker in trace.brokers
    }
    return _function({broker: f"<<{text}>>" for broker, text in runs.items()})


def _high_watermarks(trace: Trace) -> str:
    return _function({broker: str(trace.high_watermarks.get(broker, 0)) for broker in trace.brokers})


def _function(values: dict[int, str]) -> str:
    return " @@ ".join(f"({_broker(broker)} :> {value})" for broker, value in values.items())


def modules(traces: Sequence[Trace], deadlock: bool) -> tuple[str, str]:
    """The module TraceData, and the configuration that goes with it."""
    return traces_module(traces), configuration(traces[0].brokers, deadlock, unseen=traces[0].unseen)


def traces_module(traces: Sequence[Trace]) -> str:
    """The module TraceData."""
    return data_module("Cluster", [], [_trace(trace) for trace in traces])


def _trace(trace: Trace) -> str:
    return record(
        {
            "first": _partition(trace.first),
            "logs": _logs(trace),
            "highWatermarks": _high_watermarks(trace),
            "fenced": _brokers(trace.fenced),
            "events": events_of(_event(event) for event in trace.events),
        }
    )


RATIONS = (
    "Records = 0", "Reads = 0", 'Acks = {"zero", "one", "all"}', "Idempotent = FALSE", "UncleanElection = TRUE",
    "MayLoseTail = TRUE", "Faults = {}", "RecordSteps = FALSE",
)  # fmt: skip
INSTEAD = {
    "Spend": "Free",
    "MayLose": "TraceMayLose",
    "HasReplayed": "TraceHasReplayed",
    "Learnt": "TraceLearnt",
    "EndOffset": "RunEndOffset",
    "Prefix": "RunPrefix",
    "LastEpoch": "RunLastEpoch",
    "StartOffsetOf": "RunStartOffsetOf",
    "MayFetch": "LateMayFetch",
    "FetchedLog": "LateFetchedLog",
    "FetchedHighWatermarks": "LateFetchedHighWatermarks",
    "FetchesOf": "LateFetchesOf",
    "WasRefused": "LateWasRefused",
}
"""Operator -> the operator that replaces it, for run-length logs, late messages, and unlimited faults."""


def configuration(
    brokers: Sequence[int], deadlock: bool = False, bugs: Sequence[str] = (), unseen: Sequence[int] = ()
) -> str:
    """TraceReplication's configuration. Its `MinIsr` is not used: each trace has its own min.insync.replicas."""
    constants = [
        "None = None",
        f"Brokers = {_brokers(brokers)}",
        f"Unseen = {_brokers(unseen)}",
        "MinIsr = 1",
        *RATIONS,
    ]
    constants.append("Bugs = {" + ", ".join(f'"{bug}"' for bug in bugs) + "}")
    constants += [f"{name} <- {other}" for name, other in INSTEAD.items()]
    return trace_form.configuration("TraceReplication: traces of brokers", constants, deadlock)
