"""The steps of consumer groups, traced under the action names of the specification (spec/groups/Groups.tla).

One request may be several steps: a member joins, the assignor runs, the heartbeat is handled. Each is a row with the
state after it. Rows are written with their records, before any response leaves the node. `BEYOND` marks a step outside
the specification: members of the classic protocol, static members that leave temporarily, patterns, and changed
subscriptions. Without a trace nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reference.coordinator.assignment import Assignment, MemberEpoch, TopicIdPartition
from reference.coordinator.consumer_group import ConsumerGroup
from reference.coordinator.consumer_member import ConsumerMember
from reference.protocol.primitives import GroupId
from reference.replication.replica import Trace

BEYOND = "Beyond"
"""The action after which the specification does not follow the group."""

Steps = list[tuple[str, dict[str, Any]]]
"""Action and arguments of steps that are decided and not written yet."""


class GroupTracing:
    """Traces the steps of all groups of a shard."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def trace_step(self, action: str, group: GroupId, **arguments: Any) -> None:
        """Write one row: the step, with its arguments and results."""
        self._trace(action, {"group": group, "args": arguments})

    def trace_steps(self, group: ConsumerGroup, steps: Steps) -> None:
        """Write the steps of a heartbeat, in order."""
        for action, arguments in steps:
            self.trace_step(action, group.id, **arguments)


def heartbeat_arguments(member: ConsumerMember, received: MemberEpoch, owned: Assignment | None) -> dict[str, Any]:
    """A heartbeat's request, and the member's state after it."""
    return {
        "member": member.id,
        "received": received,
        "owned": None if owned is None else named(owned),
        "epoch": member.epoch,
        "assigned": named(member.assigned),
        "revoking": named(member.pending_revocation),
    }


def targets_of(targets: Mapping[str, Assignment]) -> dict[str, list[str]]:
    """Each member's target."""
    return {member: named(target) for member, target in targets.items()}


def named(partitions: Iterable[TopicIdPartition]) -> list[str]:
    """Partitions by topic id and number, in order."""
    return [f"{topic}:{index}" for topic, index in sorted(partitions)]
