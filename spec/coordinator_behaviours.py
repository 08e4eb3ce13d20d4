"""Behaviours of the coordinators' chapters (`transactions/`, `groups/`) as lines of steps (`behaviours.py` has the form).

Each event has the names of the specification (`p1`, `m1`) and, for a group, the assignment that the coordinator must have made:

    {"action": "Begin", "partitions": ["p1", "p2"], "bugs": ["BeforeKip890"]}
    {"action": "AppendWrite", "args": {"partition": "p1", "transaction": 1}}
    {"action": "EndTransaction", "args": {"marker": "abort"}}

    {"action": "Begin", "partitions": ["p1", "p2"], "members": ["m1", "m2", "m3"], "bugs": []}
    {"action": "UpdateTarget", "args": {"target": {"m1": ["p1"], "m2": ["p2"]}}}
    {"action": "Heartbeat", "args": {"member": "m1", "epoch": 3, "given": ["p1"]}}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from spec.checker import TraceStep

State = Any
"""A state as `values.parse_state` reads it: sets are tuples, functions and records mappings."""

WRITES = frozenset({"SendWrite", "AddPartitions", "AppendWrite", "DropWrite"})


def coordinator_events(folder: str, behaviour: Sequence[TraceStep], bugs: Sequence[str]) -> list[dict[str, Any]]:
    """The events of a behaviour; `folder` is one of CHAPTERS."""
    begin, arguments = CHAPTERS[folder]
    first: State = behaviour[0].state
    events: list[dict[str, Any]] = [{"action": "Begin", **begin(first), "bugs": [*bugs]}]
    for before, after in pairwise(step.state for step in behaviour):
        step: Any = after["step"]
        events.append({"action": step["action"], "args": arguments(step, before, after)})
    return events


# ---- transactions


def _of_transactions(first: State) -> dict[str, Any]:
    return {"partitions": sorted(first["log"])}


def _transaction_step(step: State, before: State, after: State) -> dict[str, Any]:
    action = step["action"]
    if action == "SendWrite":
        return {"partition": step["to"], "transaction": before["producer"]["transaction"]}
    if action in WRITES:
        write = _write_of(step, before, after)
        return {"partition": write["partition"], "transaction": write["transaction"]}
    if action == "AppendMarker":
        return {"partition": step["to"], "marker": after["log"][step["to"]][-1]["kind"]}
    if action == "WriteMarker":
        return {"partition": step["from"]}
    return {"marker": step["marker"]} if action == "EndTransaction" else {}


def _write_of(step: State, before: State, after: State) -> State:
    """The write that the step takes from the network, or the one whose partition it adds to the transaction."""
    gone = [write for write in before["network"] if write not in after["network"]]
    place = step["from"]
    joining = (each for each in before["network"] if (each["partition"], each["epoch"]) == (place, step["epoch"]))
    return gone[0] if gone else next(joining)


# ---- groups


def _of_groups(first: State) -> dict[str, Any]:
    return {"partitions": sorted(first["target"]), "members": sorted(first["given"])}


def _group_step(step: State, before: State, after: State) -> dict[str, Any]:
    action = step["action"]
    if action == "UpdateTarget":
        target: dict[str, list[str]] = {member: [] for member in sorted(after["joined"])}
        for partition, member in sorted(after["target"].items()):
            target[member].append(partition)
        return {"target": target}
    if action == "RaiseGroupEpoch":
        return {}
    if action == "LoseMember":
        return {"member": next(member for member in before["joined"] if member not in after["joined"])}
    member = step["to"] if action in ("TakeAnswer", "LoseAnswer") else step["from"]
    if action == "Heartbeat":
        return {"member": member, "epoch": after["epoch"][member], "given": sorted(after["given"][member])}
    return {"member": member}


CHAPTERS: dict[str, tuple[Callable[[State], dict[str, Any]], Callable[[State, State, State], dict[str, Any]]]] = {
    "transactions": (_of_transactions, _transaction_step),
    "groups": (_of_groups, _group_step),
}
"""Folder -> the first line of a behaviour, and the fields of its steps."""
