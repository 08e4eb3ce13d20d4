"""The steps of consumer groups, traced by the names that the specification has for them (spec/groups/Groups.tla).

One request may be several steps: a member joins, the assignor runs, the heartbeat is taken. Each is a row with the state
after it; all rows are written when their records are, before any response leaves the node. `BEYOND` is what the
specification does not know: members of the classic protocol, static members that leave for now, patterns, and subscriptions
that change. Nothing is computed without a trace.
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
"""Here the specification's knowledge of the group ends."""

Steps = list[tuple[str, dict[str, Any]]]
"""Steps that were decided and are not written yet: action and arguments."""


class GroupTracing:
    """Reports all groups of a shard."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def trace_step(self, action: str, group: GroupId, **arguments: Any) -> None:
        """One row: the step, and what it was given or left behind."""
        self._trace(action, {"group": group, "args": arguments})

    def trace_steps(self, group: ConsumerGroup, steps: Steps) -> None:
        """The steps of a heartbeat, in order."""
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
