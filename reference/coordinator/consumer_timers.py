"""The timers of a consumer group.

| timer | duration | when it expires |
| --- | --- | --- |
| SESSION | session timeout, from each request of the member | the member is fenced |
| REVOCATION | rebalance timeout, from being asked to give up partitions | the member is fenced, if it is still in that epoch |
| JOIN | rebalance timeout, from asking a classic member to join again | the member is fenced |
| SYNC | rebalance timeout, from a classic member's join | the member is fenced |
| PATTERNS | none | patterns are matched against all topics |
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from reference.coordinator.consumer_member import ConsumerMember, MemberState
from reference.coordinator.timers import Timers
from reference.protocol.primitives import GroupId, TimestampMs

RETRY_MS = 500
"""The delay before a timer's records are tried again after a failed write."""


class Wait(Enum):
    SESSION = "session"
    REVOCATION = "revocation"
    JOIN = "join"
    SYNC = "sync"
    PATTERNS = "patterns"


class Due(NamedTuple):
    """A timer that has expired; `member` is empty for the group's patterns."""

    wait: Wait
    group: GroupId
    member: str


class ConsumerTimers:
    """The timers of all consumer groups of a shard."""

    def __init__(self, session_timeout_ms: Callable[[GroupId], int]) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._timers: Timers[Due] = Timers()
        self._revoking: dict[tuple[GroupId, str], int] = {}
        """The epoch in which a member has to revoke partitions."""

    def received(self, group: GroupId, member: ConsumerMember, now: TimestampMs) -> None:
        """Restart a member's session after a request."""
        classic = member.classic
        timeout_ms = self._session_timeout_ms(group) if classic is None else classic.session_timeout_ms
        self._timers.schedule(Due(Wait.SESSION, group, member.id), now + timeout_ms)

    def loaded(self, group: GroupId, member: ConsumerMember, now: TimestampMs) -> None:
        """Start a session on a new coordinator, and the revocation timer of a member that has to give up partitions.

        Members of the classic protocol are no exceptions here: they have the group's session timeout, and a revocation timer.
        """
        self._timers.schedule(Due(Wait.SESSION, group, member.id), now + self._session_timeout_ms(group))
        self._time_revocation(group, member, now)

    def moved(self, group: GroupId, member: ConsumerMember, now: TimestampMs) -> None:
        """Start or cancel the revocation timer, by the member's new state. A member of the classic protocol has JOIN and SYNC
        instead; a revocation timer that it has since the group was loaded goes on."""
        if member.classic is None:
            self._time_revocation(group, member, now)

    def _time_revocation(self, group: GroupId, member: ConsumerMember, now: TimestampMs) -> None:
        due = Due(Wait.REVOCATION, group, member.id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._timers.schedule(due, now + member.rebalance_timeout_ms)
            self._revoking[group, member.id] = member.epoch
        else:
            self._timers.cancel(due)
            self._revoking.pop((group, member.id), None)

    def called(self, group: GroupId, member: ConsumerMember, now: TimestampMs) -> None:
        """Start the timer for a classic member to join again, if it does not run yet."""
        due = Due(Wait.JOIN, group, member.id)
        if self._timers.deadline_of(due) is None:
            self._timers.schedule(due, now + member.rebalance_timeout_ms)

    def joined(self, group: GroupId, member: ConsumerMember, now: TimestampMs) -> None:
        """Start the timer for a SyncGroup of a classic member that has joined."""
        self._timers.cancel(Due(Wait.JOIN, group, member.id))
        self._timers.schedule(Due(Wait.SYNC, group, member.id), now + member.rebalance_timeout_ms)

    def synced(self, group: GroupId, member: ConsumerMember) -> None:
        """Cancel the timer for a classic member's SyncGroup."""
        self._timers.cancel(Due(Wait.SYNC, group, member.id))

    def match_patterns(self, group: GroupId, now: TimestampMs) -> None:
        """Make the match of the group's patterns due at once."""
        self._timers.schedule(Due(Wait.PATTERNS, group, ""), now)

    def are_patterns_due(self, group: GroupId) -> bool:
        return self._timers.deadline_of(Due(Wait.PATTERNS, group, "")) is not None

    def forget(self, group: GroupId, member: str) -> None:
        """Cancel all timers of a removed member."""
        for wait in Wait:
            self._timers.cancel(Due(wait, group, member))
        self._revoking.pop((group, member), None)

    def again(self, due: Due, now: TimestampMs) -> None:
        """Schedule an expired timer again, after its records could not be written."""
        self._timers.schedule(due, now + RETRY_MS)

    def is_over(self, due: Due, member: ConsumerMember) -> bool:
        """Whether an expired timer still applies to the member."""
        return due.wait is not Wait.REVOCATION or self._revoking.get((due.group, due.member)) == member.epoch

    def take_due(self, now: TimestampMs) -> Due | None:
        return self._timers.take_due(now)

    def next_deadline(self) -> TimestampMs | None:
        return self._timers.next_deadline()

    def __len__(self) -> int:
        return len(self._timers)
