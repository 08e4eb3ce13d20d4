"""The requests of classic members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A JoinGroup is answered when its generation is formed, a SyncGroup when the assignment is written. Both come with a
token, and the response is sent through `say`. Heartbeats and leaves are answered at once. Source: requirements GRP-01
to GRP-24; KIP-345, KIP-394, KIP-814; org.apache.kafka.coordinator.group.GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable

from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_member import Client, Member, member_of, terms_of
from reference.coordinator.classic_rebalances import Rebalances, join_refused, synced
from reference.coordinator.classic_state import State
from reference.coordinator.group import Group, KeyValue, Say, Token, Write
from reference.coordinator.group_records import group_record
from reference.coordinator.group_settings import GroupSettings
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.group_metadata_record import GroupMetadataValue
from reference.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from reference.protocol.primitives import GroupId, TimestampMs

FIRST_JOIN_WITH_REQUIRED_MEMBER_ID = 4
FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT = 9
FIRST_LEAVE_OF_SEVERAL = 3
FIRST_SYNC_WITH_PROTOCOL = 5

NewMemberId = Callable[[str], str]
"""Makes a new, unused member id that begins with the given text."""


class ClassicGroups:
    """Handles the requests of members of a shard's classic groups."""

    def __init__(
        self,
        groups: dict[GroupId, Group],
        settings: GroupSettings,
        write: Write,
        say: Say,
        new_member_id: NewMemberId,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._write = write
        self._say = say
        self._new_member_id = new_member_id
        self.rebalances = Rebalances(self.find, settings, write, say)

    def find(self, id: GroupId) -> ClassicGroup | None:
        """The classic group of that id, if there is one."""
        group = self._groups.get(id)
        return group if isinstance(group, ClassicGroup) else None

    def _get(self, id: GroupId) -> ClassicGroup:
        """Errors: KafkaError UNKNOWN_MEMBER_ID: a group that does not exist has no members."""
        group = self.find(id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # ---- joining

    def join(self, request: JoinGroupRequest, version: int, client: Client, token: Token, now: TimestampMs) -> None:
        """JoinGroup: add a member, or let a member join again (GRP-01 to GRP-09, GRP-16, GRP-20 to GRP-22)."""
        try:
            self._join(request, version, client, token, now)
        except KafkaError as error:
            self._say(token, join_refused(request.member_id, error.code))

    def _join(self, request: JoinGroupRequest, version: int, client: Client, token: Token, now: TimestampMs) -> None:
        group = self._group_to_join(request, now)
        if not self._has_room(group, request.member_id):
            # Members that wait for this one alone go on waiting, until another joins or the time is over, as in Kafka.
            self.rebalances.remove(group, request.member_id)
            self._say(token, join_refused("", ErrorCode.GROUP_MAX_SIZE_REACHED))
            return
        if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id:
            self._join_unknown(group, request, version, client, token, now)
        elif request.member_id in group.pending_members:
            self._join_pending(group, request, client, token, now)
        else:
            member = group.check_member(request.member_id, request.group_instance_id)
            self._join_again(group, member, request, token, now)

    def _group_to_join(self, request: JoinGroupRequest, now: TimestampMs) -> ClassicGroup:
        """The group. It is created for its first member, and may replace an empty consumer group (KIP-848).

        Errors: KafkaError UNKNOWN_MEMBER_ID, INCONSISTENT_GROUP_PROTOCOL; the write's error if the new group cannot be
        written.
        """
        found = self._groups.get(request.group_id)
        if isinstance(found, ClassicGroup):
            return found
        if found is not None and not found.is_empty:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        former = found.tombstones() if found is not None else []
        self._write([*former, _new_group_record(request.group_id, now)], now)
        return self._get(request.group_id)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether one more member fits; during PreparingRebalance only members that have joined count (GRP-22)."""
        if group.is_empty or len(group.members) < self._settings.max_size:
            return True
        if group.state is State.PREPARING_REBALANCE:
            joined = sum(member.joining is not None for member in group.members.values())
            member = group.members.get(member_id)
            return (member is not None and member.joining is not None) or joined < self._settings.max_size
        return member_id in group.members

    def _join_unknown(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        version: int,
        client: Client,
        token: Token,
        now: TimestampMs,
    ) -> None:
        """Make a member id. A static member joins with it at once; since version 4 a dynamic one has to join again with it."""
        if request.group_instance_id is not None:
            id = self._new_member_id(request.group_instance_id)
            current = group.static_members.get(request.group_instance_id)
            if current is not None:
                self._replace_static(group, group.members[current], id, request, version, token, now)
            else:
                self.rebalances.admit(group, member_of(request, id, client, token), now)
            return
        id = self._new_member_id(client.id)
        if version < FIRST_JOIN_WITH_REQUIRED_MEMBER_ID:
            self.rebalances.admit(group, member_of(request, id, client, token), now)
        else:
            self.rebalances.expect(group, id, request.session_timeout_ms, now)
            self._say(token, join_refused(id, ErrorCode.MEMBER_ID_REQUIRED))

    def _join_pending(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, token: Token, now: TimestampMs
    ) -> None:
        if request.group_instance_id is not None:  # the id was given to a dynamic member
            self._say(token, join_refused("", ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self.rebalances.admit(group, member_of(request, request.member_id, client, token), now)

    def _join_again(
        self, group: ClassicGroup, member: Member, request: JoinGroupRequest, token: Token, now: TimestampMs
    ) -> None:
        """Let a member join again (GRP-16). One with unchanged protocols gets the present generation. The leader of a
        stable group instead starts a rebalance."""
        stands = group.state is State.COMPLETING_REBALANCE or (
            group.state is State.STABLE and member.id != group.leader
        )
        if stands and member.protocols == terms_of(request).protocols:
            self._say(token, group.joined(member))
            return
        self.rebalances.answer_join(member, join_refused(member.id, ErrorCode.REBALANCE_IN_PROGRESS))
        group.update(member, terms_of(request))
        member.joining = token
        self.rebalances.rebalance(group, now)

    # ---- static members

    def _replace_static(
        self,
        group: ClassicGroup,
        member: Member,
        new_id: str,
        request: JoinGroupRequest,
        version: int,
        token: Token,
        now: TimestampMs,
    ) -> None:
        """A static member restarts: it replaces its former incarnation under a new member id (KIP-345, GRP-20)."""
        former_id, former_leader, former_terms = member.id, group.leader, member.terms
        self.rebalances.rename(group, member, new_id, now)
        group.update(member, terms_of(request))
        member.joining = token
        if group.state is State.COMPLETING_REBALANCE:
            self.rebalances.prepare(group, now)
        elif group.state is not State.STABLE or group.select_protocol() != group.protocol:
            self.rebalances.rebalance(group, now)
        else:
            subscribed = group.subscribed
            try:
                self._write([group.record(group.assignments())], now)
            except KafkaError as error:
                self.rebalances.answer_join(member, join_refused("", error.code))
                group.update(member, former_terms)
                self.rebalances.rename(group, member, former_id, now)
            else:
                group.subscribed = subscribed
                self.rebalances.answer_join(member, _rejoined(group, member, former_leader, version))

    # ---- syncing

    def sync(self, request: SyncGroupRequest, token: Token, now: TimestampMs) -> None:
        """SyncGroup: take the leader's assignment, and answer with the member's part of it (GRP-10 to GRP-15)."""
        try:
            self._sync(request, token, now)
        except KafkaError as error:
            self._say(token, SyncGroupResponse(error_code=error.code))

    def _sync(self, request: SyncGroupRequest, token: Token, now: TimestampMs) -> None:
        group = self._get(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        reported = (request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol)
        for said, known in reported:
            if said is not None and known is not None and said != known:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is State.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self.rebalances.has_synced(group, member)
        if group.state is State.STABLE:
            self._say(token, synced(group, member))
            return
        self.rebalances.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = token
        if member.id == group.leader:
            given = {each.member_id: bytes(each.assignment) for each in request.assignments}
            self.rebalances.assign(group, given, now)

    # ---- living and leaving

    def heartbeat(self, request: HeartbeatRequest, now: TimestampMs) -> HeartbeatResponse:
        """Heartbeat: renew the session; the response reports a rebalance in progress (GRP-12, GRP-14)."""
        try:
            group = self._get(request.group_id)
            member = group.check_member(request.member_id, request.group_instance_id)
            group.check_generation(request.generation_id)
        except KafkaError as error:
            return HeartbeatResponse(error_code=error.code)
        self.rebalances.touch(group, member, now)
        is_called = group.state is State.PREPARING_REBALANCE
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if is_called else ErrorCode.NONE)

    def leave(self, request: LeaveGroupRequest, version: int, now: TimestampMs) -> LeaveGroupResponse:
        """LeaveGroup: remove one member, or several, each with its own error (GRP-19)."""
        group = self.find(request.group_id)
        leaving = request.members
        if version < FIRST_LEAVE_OF_SEVERAL:
            leaving = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        results = [
            LeaveGroupResponse.MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=self._leave_one(group, each.member_id, each.group_instance_id),
            )
            for each in leaving
        ]
        if group is not None and any(each.error_code == ErrorCode.NONE for each in results):
            self.rebalances.go_on(group, now)
        if version < FIRST_LEAVE_OF_SEVERAL:
            return LeaveGroupResponse(error_code=results[0].error_code)
        return LeaveGroupResponse(members=results)

    def _leave_one(self, group: ClassicGroup | None, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove one member. An administrator may name a static member by its instance id alone."""
        try:
            if group is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if not member_id and instance_id is not None:
                member_id, instance_id = group.static_members.get(instance_id, ""), None
            if member_id not in group.pending_members:
                group.check_member(member_id, instance_id)
        except KafkaError as error:
            return error.code
        self.rebalances.remove(group, member_id)
        return ErrorCode.NONE

    # ---- offsets

    def committed(self, id: GroupId, member_id: str, now: TimestampMs) -> None:
        """Renew the session of a member that has committed offsets, as a heartbeat does."""
        group = self.find(id)
        member = group.members.get(member_id) if group is not None else None
        if group is not None and member is not None:
            self.rebalances.touch(group, member, now)

    # ---- coming and going

    def replay(self, id: GroupId, value: GroupMetadataValue | None) -> None:
        """Replay a record; a tombstone removes the group."""
        group = self.find(id)
        if value is None:
            if group is not None:
                self.rebalances.forget(group)
                del self._groups[id]
            return
        if group is None:
            self._groups[id] = group = ClassicGroup(id)
        group.replay(value)

    def loaded(self, now: TimestampMs) -> None:
        """Start the members' sessions after all records were replayed."""
        for group in [*self._groups.values()]:
            if isinstance(group, ClassicGroup):
                self.rebalances.loaded(group, now)

    def unload(self) -> None:
        """Fail all pending JoinGroup and SyncGroup requests: another node is the coordinator now."""
        for group in self._groups.values():
            for member in group.members.values() if isinstance(group, ClassicGroup) else ():
                self.rebalances.refuse_waiting(member, ErrorCode.NOT_COORDINATOR)


def check_group_id(id: GroupId) -> None:
    """Check that the group id is not empty (GRP-01). Errors: KafkaError INVALID_GROUP_ID."""
    if not id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def check_join(request: JoinGroupRequest, settings: GroupSettings) -> None:
    """Check a JoinGroup by itself (GRP-01, GRP-02). Errors: KafkaError INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT."""
    check_group_id(request.group_id)
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)


def check_sync(request: SyncGroupRequest, version: int) -> None:
    """Check a SyncGroup by itself, before its group is looked up (GRP-01, GRP-13).

    Errors: KafkaError INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID.
    """
    if version >= FIRST_SYNC_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    check_group_id(request.group_id)


def _new_group_record(id: GroupId, now: TimestampMs) -> KeyValue:
    return group_record(id, GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=now))


def _rejoined(group: ClassicGroup, member: Member, former_leader: str | None, version: int) -> JoinGroupResponse:
    """The answer to a static member that replaces its former incarnation without a rebalance. Since version 9 it has
    skip_assignment for the leader (KIP-814). Before, it names the leader's former member id, so that the member does
    not see itself as the leader."""
    if version >= FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT:
        return group.joined(member, skip_assignment=member.id == group.leader)
    response = group.joined(member)
    response.leader, response.members = former_leader or "", []
    return response
