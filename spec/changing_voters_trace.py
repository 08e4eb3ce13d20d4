"""The trace of a metadata quorum whose voters are in its log (KIP-853), as the module TraceChangingVoters reads it.

It is like the trace of a quorum (`quorum_trace.py`), but of all nodes: each may become a voter. Its first line names the nodes
and the first voters. A step AppendVoters names the voters from then on; its `leo` is the offset after their VotersRecord:

    {"action": "Begin", "nodes": [1, 2, 3, 4], "firstVoters": [1, 2, 3]}
    {"action": "AppendVoters", "node": 2, "epoch": 3, "leo": 41, "lastEpoch": 3, "highWatermark": 40, "voters": [2, 3]}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spec import quorum_trace, trace_form
from spec.cluster_trace import METADATA, Row, begins_incarnation
from spec.quorum_trace import STATE
from spec.trace_form import Event, TraceError, data_module, events_of, lacking_arguments, record

MODULE = "TraceChangingVoters"
FOLDER = "quorum"
BORROWED = quorum_trace.BORROWED
CHANGE = "AppendVoters"
ARGUMENTS = quorum_trace.ARGUMENTS | {CHANGE: ("voters",)}
NODES = ("node", "from", "to")


@dataclass(frozen=True)
class ChangingVotersTrace:
    """The trace of one quorum."""

    name: str
    nodes: tuple[int, ...]
    first: tuple[int, ...]
    events: tuple[Event, ...]

    book = "changing voters"

    @property
    def run(self) -> tuple[tuple[int, ...]]:
        """Traces in which this is equal may share a run of TLC."""
        return (self.nodes,)


def changing_voters_traces(rows: Sequence[Row]) -> dict[str, list[Event]]:
    """The quorum's trace from the rows of a cluster whose voters change; none if the quorum is older than the rows."""
    events = [row for row in rows if row.get("partition") == METADATA]
    first = {row["node"]: row for row in reversed(events)}
    begun = [row for row in first.values() if begins_incarnation(row) and "firstVoters" in row]
    if not begun or len(begun) < len(first) or any(row["epoch"] or row["leo"] for row in begun):
        return {}
    voters = sorted({voter for row in begun for voter in row["firstVoters"]})
    left_out = ("partition", "firstVoters")
    shares = [{name: value for name, value in row.items() if name not in left_out} for row in events]
    begin = {"action": "Begin", "nodes": sorted(first), "firstVoters": voters}
    return {"changing metadata quorum": [begin, *shares]}


def trace_of(rows: Sequence[Event], name: str) -> ChangingVotersTrace:
    """The trace of a quorum's rows. Errors: TraceError."""
    try:
        nodes, first = (tuple(int(node) for node in rows[0][field]) for field in ("nodes", "firstVoters"))
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{name}:1: Begin has no valid nodes and firstVoters: {error}") from error
    for number, row in enumerate(rows[1:], 2):
        where = f"{name}:{number}"
        lacks = lacking_arguments(row | {"args": row}, ARGUMENTS, where, " of a quorum whose voters change")
        lacks += [field for field in ("node", *STATE) if field not in row]
        if lacks:
            raise TraceError(f"{where}: {row['action']} lacks {', '.join(lacks)}")
        named = {
            row[field] for field in NODES if field in ("node", *ARGUMENTS[row["action"]]) and not _is_bootstrap(row)
        }
        if strangers := (named | {*row.get("voters", ())}) - {*nodes}:
            raise TraceError(f"{where}: no node is called {sorted(strangers, key=str)[0]}")
    return ChangingVotersTrace(name, nodes, first, tuple(rows[1:]))


def _set(nodes: Sequence[int]) -> str:
    return trace_form.strings(f"n{node}" for node in nodes)


def _is_bootstrap(row: Event) -> bool:
    """Whether an epoch was learned from a server of controller.quorum.bootstrap.servers, whose node id is unknown."""
    return row["action"] == "LearnEpoch" and row["from"] < 0


def _event(event: Event) -> str:
    fields = {"action": f'"{event["action"]}"', "node": f'"n{event["node"]}"'}
    if _is_bootstrap(event):
        fields["action"] = '"LearnFromAnyone"'
    elif event["action"] == CHANGE:
        fields["voters"] = _set(event["voters"])
    else:
        return quorum_trace.event_of(event)
    return record(fields | {name: str(event[name]) for name in STATE})


def _changes(trace: ChangingVotersTrace) -> str:
    changes = [
        record({"epoch": str(event["epoch"]), "end": str(event["leo"]), "voters": _set(event["voters"])})
        for event in trace.events
        if event["action"] == CHANGE
    ]
    return "{" + ", ".join(changes) + "}"


def modules(traces: Sequence[ChangingVotersTrace], deadlock: bool) -> tuple[str, str]:
    """The module TraceData, and the configuration that goes with it."""
    texts = [events_of(_event(event) for event in trace.events) for trace in traces]
    own = [
        f"Changes == <<{', '.join(map(_changes, traces))}>>",
        f"FirstVoters == <<{', '.join(_set(trace.first) for trace in traces)}>>",
    ]
    instead = quorum_trace.INSTEAD | {"Majority": "Unjudged"}
    constants = [f"Voters = {_set(traces[0].nodes)}", "None = None", *quorum_trace.RATIONS]
    constants += [f"{name} <- {other}" for name, other in instead.items()]
    return (
        data_module("Integers, Sequences", own, texts),
        trace_form.configuration(
            f"{MODULE}: traces of quorums whose voters change", constants, deadlock, "ChangingSpec"
        ),
    )
