"""How a classic group moves from one generation to the next.

`prepare` starts a rebalance: each member has to join again. When all have joined (`try_complete_join`), or the longest
rebalance timeout has passed, the members that have joined form the next generation and wait for the leader's
assignment. The first rebalance of an empty group is delayed, so that a starting application does not rebalance once per
member.

A member without a request during its session timeout is removed. So is a member of a new generation that does not send
SyncGroup. A member with a pending request cannot send heartbeats, so its session does not expire.

Source: requirements GRP-08, GRP-09, GRP-17, GRP-18; KIP-134, KIP-394, KIP-559;
org.apache.kafka.coordinator.group.GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_member import Member
from reference.coordinator.classic_state import State
from reference.coordinator.group import Say, Token, Write
from reference.coordinator.group_settings import GroupSettings
from reference.coordinator.timers import Timers
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.join_group import JoinGroupResponse
from reference.protocol.messages.sync_group import SyncGroupResponse
from reference.protocol.primitives import GroupId, TimestampMs

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a new member's JoinGroup may wait for its first generation (KAFKA-7610)."""

RETRY_MS = 1_000
"""The interval between attempts to write the record of an empty group."""


class Timer(Enum):
    """The timers of a group and of its members."""

    MEMBER = auto()
    """A member's session: the time until its next request."""
    DELAY = auto()
    """The delay of a first rebalance, for more members."""
    JOIN = auto()
    """The rebalance timeout: the time for all members to join."""
    SYNC = auto()
    """The time for all members of the generation to send SyncGroup."""


TimerKey = tuple[GroupId, Timer, str]
"""Group, timer, and for a member's timer the member id."""


class Rebalances:
    """The rebalances of a shard's classic groups, and their timers."""

    def __init__(
        self,
        find: Callable[[GroupId], ClassicGroup | None],
        settings: GroupSettings,
        write: Write,
        say: Say,
    ) -> None:
        self._find = find
        self._settings = settings
        self._write = write
        self._say = say
        self._timers: Timers[TimerKey] = Timers()
        self._delay_left_ms: dict[GroupId, int] = {}
        """How much longer each first rebalance may be delayed."""
        self._on_timer = {
            Timer.MEMBER: self._member_expired,
            Timer.DELAY: self._delay_passed,
            Timer.JOIN: self._join_time_is_over,
            Timer.SYNC: self._sync_time_is_over,
        }

    # ---- members

    def admit(self, group: ClassicGroup, member: Member, now: TimestampMs) -> None:
        """Add a new member, and rebalance."""
        if group.is_first_rebalance:
            group.was_joined_since_delay = True
        group.add(member)
        self._timers.schedule((group.id, Timer.MEMBER, member.id), now + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.rebalance(group, now)

    def expect(self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now: TimestampMs) -> None:
        """Wait for a member to join with an id that was returned to it (KIP-394)."""
        group.pending_members.add(member_id)
        self._timers.schedule((group.id, Timer.MEMBER, member_id), now + session_timeout_ms)

    def touch(self, group: ClassicGroup, member: Member, now: TimestampMs) -> None:
        """Restart the member's session."""
        self._timers.schedule((group.id, Timer.MEMBER, member.id), now + member.session_timeout_ms)

    def remove(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member and fail its waiting requests. The caller calls `go_on` afterwards."""
        self._timers.cancel((group.id, Timer.MEMBER, member_id))
        member = group.remove(member_id)
        if member is not None:
            self.answer_join(member, join_refused("", ErrorCode.UNKNOWN_MEMBER_ID))
            self.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    def rename(self, group: ClassicGroup, member: Member, new_id: str, now: TimestampMs) -> None:
        """Give a static member another member id, and fence the requests that wait under the old one (GRP-21)."""
        self._timers.cancel((group.id, Timer.MEMBER, member.id))
        self.refuse_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        group.rename(member, new_id)
        member.is_new = False
        self.touch(group, member, now)

    def refuse_waiting(self, member: Member, error: ErrorCode) -> None:
        """Fail the member's pending JoinGroup and SyncGroup."""
        self.answer_join(member, join_refused(member.id, error))
        self.answer_sync(member, SyncGroupResponse(error_code=error))

    def forget(self, group: ClassicGroup) -> None:
        """Cancel all timers of a removed group."""
        for id in (*group.members, *group.pending_members):
            self._timers.cancel((group.id, Timer.MEMBER, id))
        for timer in (Timer.DELAY, Timer.JOIN, Timer.SYNC):
            self._timers.cancel((group.id, timer, ""))
        self._delay_left_ms.pop(group.id, None)

    def answer_join(self, member: Member, response: JoinGroupResponse) -> None:
        token, member.joining = member.joining, None
        self._answer(token, response)

    def answer_sync(self, member: Member, response: SyncGroupResponse) -> None:
        token, member.syncing = member.syncing, None
        self._answer(token, response)

    def _answer(self, token: Token | None, response: JoinGroupResponse | SyncGroupResponse) -> None:
        if token is not None:
            self._say(token, response)

    # ---- the call to join

    def rebalance(self, group: ClassicGroup, now: TimestampMs) -> None:
        """Begin a rebalance because a new generation is needed, or complete the present one if all have joined."""
        if group.state is State.PREPARING_REBALANCE:
            self.try_complete_join(group, now)
        else:
            self.prepare(group, now)

    def go_on(self, group: ClassicGroup, now: TimestampMs) -> None:
        """Rebalance the rest of the group after a member has left."""
        if not group.is_empty:
            self.rebalance(group, now)

    def prepare(self, group: ClassicGroup, now: TimestampMs) -> None:
        """Begin a rebalance: all members have to join; waiting SyncGroups fail (GRP-15)."""
        if group.state is State.COMPLETING_REBALANCE:
            self._withdraw_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.pending_syncs.clear()
        self._timers.cancel((group.id, Timer.SYNC, ""))
        group.move_to(State.PREPARING_REBALANCE, now)
        if group.is_first_rebalance:
            self._begin_delay(group, now)
        elif group.have_all_joined:
            self._complete_join(group, now)
        else:
            self._await_joins(group, now)

    def _withdraw_assignment(self, group: ClassicGroup, error: ErrorCode, now: TimestampMs) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.syncing is not None:
                self.answer_sync(member, SyncGroupResponse(error_code=error))
                self.touch(member=member, group=group, now=now)

    def _await_joins(self, group: ClassicGroup, now: TimestampMs) -> None:
        self._timers.schedule((group.id, Timer.JOIN, ""), now + max(group.rebalance_timeout_ms, 1))

    def _begin_delay(self, group: ClassicGroup, now: TimestampMs) -> None:
        delay_ms = self._settings.initial_rebalance_delay_ms
        self._delay_left_ms[group.id] = max(group.rebalance_timeout_ms - delay_ms, 0)
        self._timers.schedule((group.id, Timer.DELAY, ""), now + delay_ms)

    def try_complete_join(self, group: ClassicGroup, now: TimestampMs) -> None:
        """Form the generation if all members have joined; a first rebalance waits for its delay."""
        if group.state is State.PREPARING_REBALANCE and not group.is_first_rebalance and group.have_all_joined:
            self._complete_join(group, now)

    def _complete_join(self, group: ClassicGroup, now: TimestampMs) -> None:
        """Form the next generation from the members that have joined; static members are kept until their session expires."""
        self._timers.cancel((group.id, Timer.JOIN, ""))
        self._timers.cancel((group.id, Timer.DELAY, ""))
        self._delay_left_ms.pop(group.id, None)
        for late in [member for member in group.members.values() if member.joining is None and not member.is_static]:
            self.remove(group, late.id)
        if not group.members:
            self._become_empty(group, now)
        elif not group.elect_joined_leader():
            self._await_joins(group, now)
        else:
            self._begin_generation(group, now)

    def _become_empty(self, group: ClassicGroup, now: TimestampMs) -> None:
        try:
            self._write([group.empty_record(now)], now)
        except KafkaError:
            self._timers.schedule((group.id, Timer.JOIN, ""), now + RETRY_MS)

    def _begin_generation(self, group: ClassicGroup, now: TimestampMs) -> None:
        group.begin_generation(now)
        for member in group.members.values():
            member.is_new = False
            self.answer_join(member, group.joined(member))
            self.touch(group, member, now)
        self._timers.schedule((group.id, Timer.SYNC, ""), now + group.rebalance_timeout_ms)

    # ---- the assignment

    def assign(self, group: ClassicGroup, assignments: dict[str, bytes], now: TimestampMs) -> None:
        """Write the leader's assignment, then answer each pending SyncGroup with the member's part (GRP-10)."""
        try:
            self._write([group.record(assignments)], now)
        except KafkaError as error:
            self._withdraw_assignment(group, error.code, now)
            self.prepare(group, now)
            return
        group.state_since = now
        for member in group.members.values():
            if member.syncing is not None:
                self.answer_sync(member, synced(group, member))
                self.touch(group, member, now)

    def has_synced(self, group: ClassicGroup, member: Member) -> None:
        """Note that a member of the generation has sent SyncGroup."""
        group.pending_syncs.discard(member.id)
        if not group.pending_syncs:
            self._timers.cancel((group.id, Timer.SYNC, ""))

    # ---- time

    def loaded(self, group: ClassicGroup, now: TimestampMs) -> None:
        """Start the sessions of a replayed group's members; a group that is too large rebalances to shrink (GRP-22)."""
        for member in group.members.values():
            self.touch(group, member, now)
        if len(group.members) > self._settings.max_size:
            self.prepare(group, now)

    def tick(self, now: TimestampMs) -> None:
        """Handle the timers that are due; those that become due meanwhile wait for the next tick."""
        for _ in range(len(self._timers)):
            key = self._timers.take_due(now)
            if key is None:
                return
            group_id, timer, member_id = key
            group = self._find(group_id)
            if group is not None:
                self._on_timer[timer](group, member_id, now)

    def next_deadline(self) -> TimestampMs | None:
        return self._timers.next_deadline()

    def _member_expired(self, group: ClassicGroup, member_id: str, now: TimestampMs) -> None:
        member = group.members.get(member_id)
        if member is not None and member.is_waiting:
            return
        self.remove(group, member_id)
        if group.state is State.PREPARING_REBALANCE and group.have_all_joined:
            self._complete_join(group, now)
        elif group.state is not State.PREPARING_REBALANCE and member is not None:
            self.go_on(group, now)

    def _delay_passed(self, group: ClassicGroup, _: str, now: TimestampMs) -> None:
        left_ms = self._delay_left_ms.get(group.id, 0)
        if not group.was_joined_since_delay or left_ms == 0:
            self._complete_join(group, now)
            return
        delay_ms = min(self._settings.initial_rebalance_delay_ms, left_ms)
        group.was_joined_since_delay = False
        self._delay_left_ms[group.id] = left_ms - delay_ms
        self._timers.schedule((group.id, Timer.DELAY, ""), now + delay_ms)

    def _join_time_is_over(self, group: ClassicGroup, _: str, now: TimestampMs) -> None:
        if group.state is State.PREPARING_REBALANCE:
            self._complete_join(group, now)

    def _sync_time_is_over(self, group: ClassicGroup, _: str, now: TimestampMs) -> None:
        for member_id in sorted(group.pending_syncs):
            self.remove(group, member_id)
        self.prepare(group, now)


def join_refused(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """The error response to a JoinGroup."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """The member's part of the leader's assignment, byte for byte (GRP-10, GRP-23)."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
