"""How a member moves from its current to its target assignment, so that no partition ever has two owners (CGH-09).

The target assignment changes at once, each member's assignment with its own heartbeats. A heartbeat moves a member by this
table:

| state | condition | result |
| --- | --- | --- |
| STABLE | its epoch is the target's | no change |
| STABLE | its epoch is older | next assignment |
| UNREVOKED_PARTITIONS | it reports a partition that it must revoke, or does not report what it owns | no change |
| UNREVOKED_PARTITIONS | it reports none of these | next assignment |
| UNRELEASED_PARTITIONS | always | next assignment |

Even where the table says "no change", a heartbeat that changes the subscription takes away partitions of topics that the member
no longer subscribes to.

The *next assignment*: the member first revokes partitions that are not in its target. Until it confirms that, it keeps its epoch
(UNREVOKED_PARTITIONS). Then it moves to the target's epoch and gets the partitions that no other member holds. It gets the others
with a later heartbeat, when they are free (UNRELEASED_PARTITIONS).

A member in an unknown state, which a later version wrote, is fenced unless it reports that it owns nothing.
Source: KIP-848; modern.consumer.CurrentAssignmentBuilder.
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
    """A member's target assignment, and which partitions of it the member may have now."""

    epoch: MemberEpoch
    partitions: Assignment
    is_subscribed: Callable[[TopicId], bool]
    """Whether the member subscribes to a topic now; a target may be older than the subscription."""
    is_free: Callable[[TopicIdPartition], bool]
    """Whether no member of the group holds a partition, assigned or to be revoked."""


def reconcile(
    member: ConsumerMember, target: Target, owned: Assignment | None, subscription_changed: bool
) -> ConsumerMember:
    """The member after a heartbeat; `owned` is the partitions that it reports, None where it reports nothing.

    Errors: KafkaError FENCED_MEMBER_EPOCH for a member in an unknown state that does not report an empty `owned`.
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
    """Whether a member may still consume from a partition to be revoked; it may where the heartbeat reports no partitions."""
    return bool(revoked) and (owned is None or not owned.isdisjoint(revoked))


def _without_unsubscribed(member: ConsumerMember, target: Target, owned: Assignment | None) -> ConsumerMember:
    """The member without the partitions of topics that it no longer subscribes to; the target may still have them."""
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
