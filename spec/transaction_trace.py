"""A transactional id's trace as the module TraceTransactions reads it.

A trace of a transactional id is a file of JSON lines. The first is Begin, before the second session or the first write; each
other is a step of `spec/transactions/Transactions.tla`. A coordinator's step carries the coordinator's state after it:

    {"action": "Begin", "transactionalId": "payments"}
    {"action": "AddPartitions", "args": {"partitions": ["t-0"]}, "state": "Ongoing", "producerEpoch": 0, "partitions": ["t-0"]}
    {"action": "AppendWrite", "args": {"partition": "t-0", "epoch": 0}}
    {"action": "EndTransaction", "args": {"committed": true, "bumps": true}, "state": "PrepareCommit", "producerEpoch": 1, …}
    {"action": "AppendMarker", "args": {"partition": "t-0", "epoch": 1, "marker": "commit"}}
    {"action": "WriteMarker", "args": {"partition": "t-0"}, "state": "PrepareCommit", "producerEpoch": 1, "partitions": []}

The partition leader traces the two appends, which are in its log. TimeOut, NewSession, CompleteTransaction and TakeOver have no
arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from spec.trace_form import (
    Event,
    PartitionNames,
    ShardTrace,
    TraceError,
    configuration,
    data_module,
    events_of,
    lacking_arguments,
    names_of,
    record,
)

MODULE = "TraceTransactions"

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "AddPartitions": ("partitions",),
    "EndTransaction": ("committed", "bumps"),
    "TimeOut": (),
    "NewSession": (),
    "WriteMarker": ("partition",),
    "CompleteTransaction": (),
    "TakeOver": (),
    "AppendWrite": ("partition", "epoch"),
    "AppendMarker": ("partition", "epoch", "marker"),
}
"""Step -> its arguments, all required."""

APPENDS = ("AppendWrite", "AppendMarker")
"""The partition leaders' steps; all others are the coordinator's."""

STATE = ("state", "producerEpoch", "partitions")
"""The coordinator's state after each of its steps."""

STATES: dict[str, tuple[str, str]] = {
    "Empty": ("empty", ""),
    "Ongoing": ("ongoing", ""),
    "PrepareCommit": ("prepared", "commit"),
    "PrepareAbort": ("prepared", "abort"),
    "CompleteCommit": ("empty", ""),
    "CompleteAbort": ("empty", ""),
}
"""Kafka's state -> the specification's state and decision. A complete transaction is empty in the specification."""


def trace_of(rows: Sequence[Event], name: str) -> ShardTrace:
    """The trace of a transactional id's rows. Errors: TraceError."""
    for number, row in enumerate(rows[1:], 2):
        lacks = lacking_arguments(row, ARGUMENTS, f"{name}:{number}", " of transactions")
        lacks += [field for field in STATE if row["action"] not in APPENDS and field not in row]
        if lacks:
            raise TraceError(f"{name}:{number}: {row['action']} lacks {', '.join(lacks)}")
        if row.get("state", "Empty") not in STATES:
            raise TraceError(f"{name}:{number}: there is no state {row['state']!r}")
    return ShardTrace(name, tuple(rows[1:]), "transactions")


def _event(event: Event, partitions: PartitionNames) -> str:
    action, arguments = event["action"], event["args"]
    fields = {"action": f'"{action}"'}
    if "partition" in arguments:
        fields["partition"] = f'"{partitions.short(arguments["partition"])}"'
    if action == "AddPartitions":
        fields["added"] = partitions.shorts(arguments["partitions"])
    if action == "EndTransaction":
        fields["marker"] = '"commit"' if arguments["committed"] else '"abort"'
        fields["bumps"] = "TRUE" if arguments["bumps"] else "FALSE"
    if action in APPENDS:
        fields["epoch"] = str(arguments["epoch"])
    if action == "AppendMarker":
        fields["marker"] = f'"{arguments["marker"]}"'
    if action not in APPENDS:
        state, decides = STATES[event["state"]]
        fields |= {"state": f'"{state}"', "decides": f'"{decides}"', "producerEpoch": str(event["producerEpoch"])}
        fields["partitions"] = partitions.shorts(event["partitions"])
    return record(fields)


def short_names(trace: ShardTrace, place: int) -> dict[str, str]:
    """The meanings of the short names in the states before and after event number `place`, which counts from 1."""
    partitions = PartitionNames()
    for event in trace.events[:place]:
        _event(event, partitions)
    return partitions.long()


def modules(traces: Sequence[ShardTrace], deadlock: bool) -> tuple[str, str]:
    """The module TraceData, and the configuration that goes with it."""
    texts: list[str] = []
    most = 1
    for trace in traces:
        partitions = PartitionNames()
        texts.append(events_of([_event(event, partitions) for event in trace.events]))
        most = max(most, len(partitions))
    rations = ("Transactions = 1", "Timeouts = 0", "Sessions = 0", "TakeOvers = 0")
    constants = [f"Partitions = {names_of('p', most)}", *rations, "RecordSteps = FALSE", "Bugs = {}"]
    return (
        data_module("Integers, Sequences", [], texts),
        configuration("TraceTransactions: traces of transactional ids", constants, deadlock),
    )
