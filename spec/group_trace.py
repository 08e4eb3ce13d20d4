"""A consumer group's trace as the module TraceGroups reads it.

A trace of a group is a file of JSON lines. The first is Begin, each other is a step of `spec/groups/Groups.tla`:

    {"action": "Begin", "group": "readers"}
    {"action": "JoinGroup", "args": {"member": "a", "groupEpoch": 2}}
    {"action": "UpdateTarget", "args": {"groupEpoch": 2, "target": {"a": ["t:0", "t:1"]}}}
    {"action": "Heartbeat", "args": {"member": "a", "received": 0, "owned": [], "epoch": 2, "assigned": ["t:0"], "revoking": []}}

`received` (a member epoch) and `owned` (null if absent) are from the member's request; `epoch`, `assigned` and `revoking` are the
member's state after it. LeaveGroup and LoseMember are traced like JoinGroup, RaiseGroupEpoch with `groupEpoch` alone. Groups may
have any number of members over time: the module gives each member a short name (`m1`, `m2`, …) and reuses it when it has left.
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
    strings,
)

MODULE = "TraceGroups"

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "JoinGroup": ("member", "groupEpoch"),
    "LeaveGroup": ("member", "groupEpoch"),
    "LoseMember": ("member", "groupEpoch"),
    "RaiseGroupEpoch": ("groupEpoch",),
    "UpdateTarget": ("groupEpoch", "target"),
    "Heartbeat": ("member", "received", "owned", "epoch", "assigned", "revoking"),
}
"""Step -> its arguments, all required."""


class _Names:
    """Short names for members, which are reused when a member leaves, and for partitions, which are not."""

    def __init__(self) -> None:
        self.partitions = PartitionNames()
        self._members: dict[str, str] = {}
        self.most_members = 0

    def joins(self, id: str) -> str:
        place = next(
            name for number in range(1, len(self._members) + 2) if (name := f"m{number}") not in self._members.values()
        )
        self._members[id] = place
        self.most_members = max(self.most_members, int(place[1:]))
        return place

    def member(self, id: str) -> str:
        """A member's short name; "stranger" if it has not joined."""
        return self._members.get(id, "stranger")

    def leaves(self, id: str) -> str:
        return self._members.pop(id, "stranger")

    def long(self) -> dict[str, str]:
        """Short name -> name of each present member and each partition."""
        return {place: id for id, place in self._members.items()} | self.partitions.long()

    def target(self, targets: dict[str, list[str]]) -> tuple[str, str]:
        """The members with a target as a TLA+ set, and the function from partition to member, both as text."""
        owners = {self.partitions.short(each): self.member(id) for id, owned in targets.items() for each in owned}
        members = strings(self.member(id) for id in targets)
        return members, " @@ ".join(f'("{partition}" :> "{owner}")' for partition, owner in owners.items())


def trace_of(rows: Sequence[Event], name: str) -> ShardTrace:
    """The trace of a group's rows. Errors: TraceError."""
    for number, row in enumerate(rows[1:], 2):
        lacks = lacking_arguments(row, ARGUMENTS, f"{name}:{number}", " of groups")
        if lacks:
            raise TraceError(f"{name}:{number}: {row['action']} lacks {', '.join(lacks)}")
    return ShardTrace(name, tuple(rows[1:]), "groups")


def _event(event: Event, names: _Names) -> str:
    action, arguments = event["action"], event["args"]
    fields = {"action": f'"{action}"'}
    if "groupEpoch" in arguments:
        fields["groupEpoch"] = str(arguments["groupEpoch"])
    match action:
        case "JoinGroup":
            fields["member"] = f'"{names.joins(arguments["member"])}"'
        case "LeaveGroup" | "LoseMember":
            fields["member"] = f'"{names.leaves(arguments["member"])}"'
        case "UpdateTarget":
            fields["members"], target = names.target(arguments["target"])
            fields["target"] = f"({target}) @@ NoTarget" if target else "NoTarget"
        case "Heartbeat":
            fields["member"] = f'"{names.member(arguments["member"])}"'
            fields |= {name: str(arguments[name]) for name in ("received", "epoch")}
            fields |= {
                name: names.partitions.shorts(arguments[name] or ()) for name in ("owned", "assigned", "revoking")
            }
            fields["says"] = "FALSE" if arguments["owned"] is None else "TRUE"
        case _:
            pass
    return record(fields)


def short_names(trace: ShardTrace, place: int) -> dict[str, str]:
    """The meanings of the short names in the states before and after event number `place`, which counts from 1."""
    names, found = _Names(), dict[str, str]()
    for event in trace.events[:place]:
        found = names.long()
        _event(event, names)
    return found | names.long()


def modules(traces: Sequence[ShardTrace], deadlock: bool) -> tuple[str, str]:
    """The module TraceData, and the configuration that goes with it."""
    texts: list[str] = []
    members = partitions = 1
    for trace in traces:
        names = _Names()
        texts.append(events_of([_event(event, names) for event in trace.events]))
        members, partitions = max(members, names.most_members), max(partitions, len(names.partitions))
    all_partitions = names_of("p", partitions)
    constants = [
        f"Members = {names_of('m', members, 'stranger')}",
        f"Partitions = {all_partitions}",
        "Changes = 0",
        "Losses = 0",
        "RecordSteps = FALSE",
        "Bugs = {}",
    ]
    no_target = f'NoTarget == [p \\in {all_partitions} |-> "none"]'
    return (
        data_module("Integers, Sequences, TLC", [no_target], texts),
        configuration("TraceGroups: traces of group coordinators", constants, deadlock),
    )
