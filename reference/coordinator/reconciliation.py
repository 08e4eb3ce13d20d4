"""How a member comes from what it owns to what it shall own, so that no partition ever has two owners (CGH-09).

Targets change at once, owners one step at a time. A heartbeat moves a member by this table:

| state | and | then |
| --- | --- | --- |
| STABLE | its epoch is the target's | it stays; a changed subscription takes partitions away at once |
| STABLE | its epoch is older | next assignment |
| UNREVOKED_PARTITIONS | it still owns some of what it was to give up, or does not say | it stays |
| UNREVOKED_PARTITIONS | it owns none of that | next assignment |
| UNRELEASED_PARTITIONS | | next assignment |

The *next assignment*: what it shall not own any more it must first give up, and until it says so it stays in its epoch
(UNREVOKED_PARTITIONS); then it comes to the target's epoch and gets all that is free; is some of it not, it asks again with
every heartbeat (UNRELEASED_PARTITIONS). Source: KIP-848; modern.consumer.CurrentAssignmentBuilder.
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
