"""Members of consumer groups that speak the classic protocol (KIP-848, online migration; CGH-17).

To such a member the group looks like a classic group with another member as leader. The generation is its member epoch.
It rebalances when it has to move towards its target assignment, and SyncGroup returns its assignment. Its subscription
in JoinGroup lists the partitions that it owns. Source: GroupMetadataManager.classicGroupJoinToConsumerGroup and its
like of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reference.coordinator.assignment import Assignment
from reference.coordinator.classic_member import Client
from reference.coordinator.classic_rebalances import join_refused
from reference.coordinator.consumer_group import ConsumerGroup, target_of
from reference.coordinator.consumer_groups import ConsumerGroups
from reference.coordinator.consumer_heartbeat import Heartbeat
from reference.coordinator.consumer_heartbeat_check import check_instance
from reference.coordinator.consumer_member import ClassicMember, ConsumerMember, MemberState
from reference.coordinator.consumer_protocol import (
    CONSUMER,
    Subscription,
    encode_assignment,
    subscription_of,
    version_of,
)
from reference.coordinator.group import Say, Token
from reference.protocol.codec import CodecError
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from reference.protocol.primitives import TimestampMs

FIRST_JOIN_WITH_REQUIRED_MEMBER_ID = 4
FIRST_LEAVE_OF_SEVERAL = 3


class ClassicMembers:
    """Handles the requests of classic members of consumer groups."""

    def __init__(self, consumer: ConsumerGroups, say: Say) -> None:
        self._consumer = consumer
        self._timers = consumer.timers
        self._say = say

    # ---- joining

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        version: int,
        client: Client,
        token: Token,
        now: TimestampMs,
    ) -> None:
        """JoinGroup: answer with the member's epoch as its generation; no member is the leader."""
        try:
            self._say(token, self._join(group, request, version, client, now))
        except KafkaError as error:
            self._say(token, join_refused("", error.code))

    def _join(
        self, group: ConsumerGroup, request: JoinGroupRequest, version: int, client: Client, now: TimestampMs
    ) -> JoinGroupResponse:
        protocols = tuple((each.name, bytes(each.metadata)) for each in request.protocols)
        self._check_join(group, request, [name for name, _ in protocols])
        member_id = request.member_id or self._consumer.new_member_id()
        if (
            not request.member_id
            and request.group_instance_id is None
            and version >= FIRST_JOIN_WITH_REQUIRED_MEMBER_ID
        ):
            return join_refused(member_id, ErrorCode.MEMBER_ID_REQUIRED)
        consumer = self._consumer
        beat = Heartbeat(group, consumer.topics, consumer.hashes, consumer.settings_of(group.id), now)
        before = _joining(beat, request, member_id)
        subscription = self._subscription(protocols)
        said = _as_said(before, request, subscription, client, ClassicMember(request.session_timeout_ms, protocols))
        replaced = group.static_member(request.group_instance_id) if request.group_instance_id is not None else None
        if replaced is not None and consumer.may_become_classic(group, replaced):
            return self._join_last(beat, before, said, subscription.owned)
        member = beat.advance(before, said, subscription.owned)
        consumer.carry_out(beat, member)
        self._timers.joined(group.id, member, now)
        return _joined(member)

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest, names: Sequence[str]) -> None:
        """Errors: KafkaError INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED."""
        if not self._consumer.settings_of(group.id).may_mix:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._consumer.check_room(group, request.member_id, request.group_instance_id)
        known = [{name for name, _ in each.classic.protocols} for each in group.members.values() if each.classic]
        is_common = any(all(name in each for each in known) for name in names)
        if request.protocol_type != CONSUMER or not is_common:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _subscription(self, protocols: Sequence[tuple[str, bytes]]) -> Subscription:
        """The subscription in the member's most preferred protocol. Errors: KafkaError UNKNOWN_SERVER_ERROR."""
        try:
            return subscription_of(protocols[0][1], self._consumer.topics)
        except CodecError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    def _join_last(
        self, beat: Heartbeat, before: ConsumerMember, said: ConsumerMember, owned: Assignment
    ) -> JoinGroupResponse:
        """A static member replaces the last member of the new protocol: the group becomes a classic one.

        If the target assignment is out of date, the answer has the member's epoch from before this join, 0 for a new
        member id.
        """
        group = beat.group
        is_changed = beat.take_up(before, said)
        is_stale = group.assignment_epoch < beat.epoch
        if not is_stale:
            said = beat.move(said, group.assignment_epoch, target_of(group, said), owned, is_changed)
        self._consumer.make_classic(group, [*beat.members.values()], is_stale=is_stale, now=beat.now)
        return _joined(said)

    # ---- syncing and living

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, token: Token, now: TimestampMs) -> None:
        """SyncGroup: answered with the member's present assignment."""
        try:
            self._say(token, self._sync(group, request, now))
        except KafkaError as error:
            self._say(token, SyncGroupResponse(error_code=error.code))

    def _sync(self, group: ConsumerGroup, request: SyncGroupRequest, now: TimestampMs) -> SyncGroupResponse:
        member, classic = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        protocol, metadata = classic.protocols[0]
        for said, known in ((request.protocol_type, CONSUMER), (request.protocol_name, protocol)):
            if said is not None and said != known:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.called(group.id, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.synced(group.id, member)
        self._timers.received(group.id, member, now)
        assignment = encode_assignment(frozenset(member.assigned), self._consumer.topics, version_of(metadata))
        return SyncGroupResponse(
            protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment
        )

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, now: TimestampMs) -> HeartbeatResponse:
        """Heartbeat: REBALANCE_IN_PROGRESS while joining again would bring the member closer to its target."""
        try:
            member, _ = _classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
        except KafkaError as error:
            return HeartbeatResponse(error_code=error.code)
        self._timers.received(group.id, member, now)
        if not _is_to_join(group, member):
            return HeartbeatResponse()
        self._timers.called(group.id, member, now)
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)

    # ---- leaving

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, version: int, now: TimestampMs
    ) -> LeaveGroupResponse:
        """LeaveGroup: remove members of either protocol, each with its own error. Errors: KafkaError of the write."""
        leaving = request.members
        if version < FIRST_LEAVE_OF_SEVERAL:
            leaving = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        gone: dict[str, ConsumerMember] = {}
        results: list[LeaveGroupResponse.MemberResponse] = []
        for each in leaving:
            result = LeaveGroupResponse.MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id
            )
            try:
                member = _leaving(group, each.member_id, each.group_instance_id)
                gone[member.id] = member
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        if gone:
            self._consumer.fence(group, [*gone.values()], now)
        if version < FIRST_LEAVE_OF_SEVERAL:
            return LeaveGroupResponse(error_code=results[0].error_code)
        return LeaveGroupResponse(members=results)


def _joining(beat: Heartbeat, request: JoinGroupRequest, member_id: str) -> ConsumerMember:
    """The member before it joins. Errors: KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if request.group_instance_id is None:
        return beat.join_group(member_id)
    existing = beat.group.static_member(request.group_instance_id)
    if not request.member_id:
        return beat.joining_static(existing, member_id)
    return check_instance(existing, member_id, request.group_instance_id)


def _as_said(
    member: ConsumerMember,
    request: JoinGroupRequest,
    subscription: Subscription,
    client: Client,
    classic: ClassicMember,
) -> ConsumerMember:
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id if request.group_instance_id is not None else member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=timeout_ms if timeout_ms != -1 else member.rebalance_timeout_ms,
        topics=subscription.topics,
        regex="",
        client_id=client.id,
        client_host=client.host,
        classic=classic,
    )


def _joined(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None, "it has just joined by the classic protocol"
    return JoinGroupResponse(
        member_id=member.id,
        generation_id=member.epoch,
        protocol_type=CONSUMER,
        protocol_name=member.classic.protocols[0][0],
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMember]:
    """Errors: KafkaError UNKNOWN_MEMBER_ID, also for a member of the new protocol; FENCED_INSTANCE_ID."""
    member = group.member(member_id) if instance_id is None else _static(group, member_id, instance_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member, member.classic


def _static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    return check_instance(group.static_member(instance_id), member_id, instance_id)


def _leaving(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member that leaves. An administrator may name a static member by its instance id alone."""
    if instance_id is None:
        return group.member(member_id)
    existing = group.static_member(instance_id)
    if existing is not None and not member_id:
        return existing
    return check_instance(existing, member_id, instance_id)


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _is_to_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    missing = group.targets.get(member.id, frozenset()) - member.assigned.keys()
    return any(not group.is_free(partition) for partition in missing)
