"""How a member moves from its current to its target assignment, so that no partition ever has two owners (CGH-09).

The target assignment changes in one step, ownership one heartbeat at a time. A heartbeat moves a member by this table:

| state | condition | result |
| --- | --- | --- |
| STABLE | its epoch is the target's | no change |
| STABLE | its epoch is older | next assignment |
| UNREVOKED_PARTITIONS | it reports a partition that it must revoke, or does not report what it owns | no change |
| UNREVOKED_PARTITIONS | it reports none of these | next assignment |
| UNRELEASED_PARTITIONS | always | next assignment |

Where nothing changes, partitions of topics that the member no longer subscribes to are taken away at once.

The *next assignment*: the member first revokes partitions that are not in its target. Until it confirms that, it keeps its epoch
(UNREVOKED_PARTITIONS). Then it moves to the target's epoch and gets the partitions that no other member holds. While some are not
free, it gets them with a later heartbeat (UNRELEASED_PARTITIONS). Source: KIP-848; modern.consumer.CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reference.coordinator.assignment import Assignment, MemberEpoch, Owned, TopicIdPartition, with_epoch
from reference.coordinator.consumer_member import ConsumerMember, MemberState
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import TopicId


@dataclass(frozen=True, slots=True)
class Target:
    """Where a member is going."""

    epoch: MemberEpoch
    partitions: Assignment
    is_subscribed: Callable[[TopicId], bool]
    """Whether the member subscribes to a topic now: a target may be older than its subscription."""
    is_free: Callable[[TopicIdPartition], bool]
    """Whether no member of the group holds a partition."""


def reconcile(
    member: ConsumerMember, target: Target, owned: Assignment | None, subscription_changed: bool
) -> ConsumerMember:
    """The member after a heartbeat in which it says what it owns; `owned` is None where it does not.

    Errors: KafkaError FENCED_MEMBER_EPOCH for a member in a state that this software does not know and that owns something.
    """
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
            )
        return _next_assignment(member, target.epoch, target, owned)
    if _waits(member, target, owned):
        return _without_unsubscribed(member, target, owned) if subscription_changed else member
    return _next_assignment(member, member.epoch, target, owned)


def _waits(member: ConsumerMember, target: Target, owned: Assignment | None) -> bool:
    if member.state is MemberState.STABLE:
        return member.epoch == target.epoch
    return member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(owned, member.pending_revocation)


def _still_owns(owned: Assignment | None, revoked: Owned) -> bool:
    """Whether a member may still consume from any of the partitions: silence means that it may."""
    return bool(revoked) and (owned is None or not owned.isdisjoint(revoked))


def _without_unsubscribed(member: ConsumerMember, target: Target, owned: Assignment | None) -> ConsumerMember:
    """Take away what the member does not subscribe to any more, before there is a new target."""
    kept = {each: epoch for each, epoch in member.assigned.items() if target.is_subscribed(each[0])}
    if len(kept) == len(member.assigned):
        return member
    revoked = {**member.pending_revocation, **{each: member.assigned[each] for each in member.assigned.keys() - kept}}
    if _still_owns(owned, revoked):
        return member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    return member.moved_to(member.epoch, member.state, kept, member.pending_revocation)


def _next_assignment(
    member: ConsumerMember, epoch: MemberEpoch, target: Target, owned: Assignment | None
) -> ConsumerMember:
    wanted = {each for each in target.partitions if target.is_subscribed(each[0])}
    kept = {each: since for each, since in member.assigned.items() if each in wanted}
    revoked = {each: since for each, since in member.assigned.items() if each not in wanted}
    if _still_owns(owned, revoked):
        return member.moved_to(epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    missing = wanted - kept.keys()
    given = {each for each in missing if target.is_free(each) or each in member.pending_revocation}
    state = MemberState.UNRELEASED_PARTITIONS if given != missing else MemberState.STABLE
    return member.moved_to(target.epoch, state, {**kept, **with_epoch(given, target.epoch)}, {})
