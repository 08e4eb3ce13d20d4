"""The metadata quorum's trace as the module TraceQuorum reads it.

A trace of the quorum is a file of JSON lines. The first is Begin, before any voter has an epoch or a record; each other is a
step of `spec/quorum/Quorum.tla`, with the state of the voter `node` after it:

    {"action": "Begin", "voters": [1, 2, 3]}
    {"action": "GrantVote", "node": 2, "from": 2, "to": 1, "epoch": 1, "leo": 0, "lastEpoch": 0, "highWatermark": 0}
    {"action": "AnswerFetch", "node": 1, "from": 3, "to": 1, "end": 4, "epoch": 1, "leo": 5, "lastEpoch": 1, "highWatermark": 4}

`from` and `to` are as in the specification, `end` is the log end offset of a fetch, and an ApplyFetch of a whole snapshot has
`"snapshot": true`. LeaveEpoch is a step of `LateQuorum`: the leader of an epoch moves to the next epoch.

Observers trace the same steps; a trace leaves them out, because observers decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spec import trace_form
from spec.cluster_trace import METADATA, Row, begins_incarnation
from spec.trace_form import Event, TraceError, data_module, events_of, lacking_arguments, record

MODULE = "TraceQuorum"
BORROWED = {"RunLengthLog": "replication/RunLengthLog.tla"}
"""Modules of other folders that this one needs."""

STATE = ("epoch", "leo", "lastEpoch", "highWatermark")
"""The state of the voter, in each row."""

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "BecomeProspective": (),
    "GrantPreVote": ("from",),
    "BecomeCandidate": (),
    "GrantVote": ("to",),
    "BecomeLeader": (),
    "LearnEpoch": ("from",),
    "LeaveEpoch": (),
    "AppendRecord": (),
    "AnswerFetch": ("from", "end"),
    "ApplyFetch": ("from",),
    "AdvanceHighWatermark": (),
    "Restart": (),
}
"""Step -> its further fields, all required."""


@dataclass(frozen=True)
class QuorumTrace:
    """The trace of one quorum."""

    name: str
    voters: tuple[int, ...]
    events: tuple[Event, ...]

    book = "quorum"

    @property
    def run(self) -> tuple[tuple[int, ...]]:
        """Traces in which this is equal may share a run of TLC."""
        return (self.voters,)


def quorum_traces(rows: Sequence[Row]) -> dict[str, list[Event]]:
    """The trace of the quorum among the rows of a cluster.

    Empty if a voter had an epoch before its first row, or if the voters are in the log (KIP-853): such a trace has another form
    (`changing_voters_trace.py`).
    """
    own = [row for row in rows if row.get("partition") == METADATA]
    voters = next((row["voters"] for row in own if begins_incarnation(row) and "voters" in row), ())
    events = [row for row in own if row["node"] in voters]
    first = {row["node"]: row for row in reversed(events)}
    if not events or any(row["action"] != "Restart" or row["epoch"] or row["leo"] for row in first.values()):
        return {}
    left_out = ("partition", "voters")
    shares = [{name: value for name, value in row.items() if name not in left_out} for row in events]
    return {"metadata quorum": [{"action": "Begin", "voters": list(voters)}, *shares]}


def trace_of(rows: Sequence[Event], name: str) -> QuorumTrace:
    """The trace of a quorum's rows. Errors: TraceError."""
    try:
        voters = tuple(int(voter) for voter in rows[0]["voters"])
    except (TypeError, ValueError) as error:
        raise TraceError(f"{name}:1: Begin has no voters: {error}") from error
    for number, row in enumerate(rows[1:], 2):
        where = f"{name}:{number}"
        lacks = lacking_arguments(row | {"args": row}, ARGUMENTS, where, " of the quorum")
        lacks += [field for field in ("node", *STATE) if field not in row]
        if lacks:
            raise TraceError(f"{where}: {row['action']} lacks {', '.join(lacks)}")
        strangers = {row[field] for field in ("node", *ARGUMENTS[row["action"]]) if field != "end"} - {*voters}
        if strangers:
            raise TraceError(f"{where}: no voter is called {sorted(strangers, key=str)[0]}")
    return QuorumTrace(name, voters, tuple(rows[1:]))


def _voter(number: int) -> str:
    return f'"n{number}"'


def event_of(event: Event) -> str:
    """One event as a TLA+ record."""
    action = event["action"]
    fields = {"action": f'"{action}"', "node": _voter(event["node"])}
    fields |= {name: str(event[name]) if name == "end" else _voter(event[name]) for name in ARGUMENTS[action]}
    if action == "ApplyFetch":
        fields["isSnapshot"] = "TRUE" if event.get("snapshot") else "FALSE"
    return record(fields | {name: str(event[name]) for name in STATE})


INSTEAD = {
    "EndOffset": "RunEndOffset",
    "LastEpoch": "RunLastEpoch",
    "Prefix": "RunPrefix",
    "Extend": "RunExtend",
    "Ends": "RunEnds",
    "StillAsked": "AllAsked",
}
"""Operator -> the operator that replaces it, for run-length logs and late votes."""

RATIONS = ("Records = 0", "Epochs = 0", "Crashes = 0", "RecordSteps = FALSE", "Bugs = {}")
"""Constants that limit models, and do not limit traces."""


def modules(traces: Sequence[QuorumTrace], deadlock: bool) -> tuple[str, str]:
    """The module TraceData, and the configuration that goes with it."""
    texts = [events_of(event_of(event) for event in trace.events) for trace in traces]
    voters = "{" + ", ".join(_voter(voter) for voter in traces[0].voters) + "}"
    constants = [f"Voters = {voters}", "None = None", *RATIONS]
    constants += [f"{name} <- {other}" for name, other in INSTEAD.items()]
    return (
        data_module("Integers, Sequences", [], texts),
        trace_form.configuration("TraceQuorum: traces of the metadata quorum", constants, deadlock),
    )
