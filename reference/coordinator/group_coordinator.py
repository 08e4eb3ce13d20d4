"""The coordinator of the classic groups and of the offsets that groups commit.

A node coordinates the groups whose partition of `__consumer_offsets` it leads. Requests come with a token; answers go
out through `take_answers`, together with the records that must be in the log before they may be sent: the caller appends
the records first. Source: requirements COO-*, GRP-*, OFF-*; org.apache.kafka.coordinator.group.GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from reference.coordinator.classic_group import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    ClassicGroup,
    Member,
    State,
    Token,
    join_refused,
    protocols_of,
)
from reference.coordinator.group_records import (
    KeyValue,
    decode_record,
    group_record,
    group_tombstone,
    offset_record,
    restore_group,
)
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.group_metadata_key import GroupMetadataKey
from reference.protocol.messages.group_metadata_value import GroupMetadataValue
from reference.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.messages.offset_commit_key import OffsetCommitKey
from reference.protocol.messages.offset_commit_value import OffsetCommitValue
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from reference.protocol.primitives import Buffer, GroupId, TimestampMs, TopicName
from reference.protocol.schema import Message

OffsetKey = tuple[TopicName, int]

MAX_GROUPS = 100_000
"""Limit on the groups that one node keeps."""


class Chance(Protocol):
    def getrandbits(self, k: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings that groups are held to, in milliseconds and bytes."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int
    max_metadata_bytes: int


@dataclass(frozen=True, slots=True)
class Client:
    """Who sent a request."""

    id: str
    host: str


@dataclass(slots=True)
class Answer:
    """A response that may be sent when `records` are in the log of the group's partition."""

    group: GroupId
    token: Token
    response: Message
    records: list[KeyValue]


class GroupCoordinator:
    """All groups that this node coordinates."""

    def __init__(self, settings: GroupSettings, chance: Chance) -> None:
        self.settings = settings
        self.chance = chance
        self.groups: dict[GroupId, ClassicGroup] = {}
        self.offsets: dict[GroupId, dict[OffsetKey, OffsetCommitValue]] = {}
        self._answers: list[Answer] = []

    # ---- membership

    def join(self, request: JoinGroupRequest, version: int, client: Client, token: Token, now: TimestampMs) -> None:
        """JoinGroup: validate, then become a member or call the group to rejoin (GRP-01 to GRP-09)."""
        refusal = self._refuse_join(request)
        group = self.groups.get(request.group_id)
        if refusal is None and group is None:
            if request.member_id:
                refusal = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                group = self.groups[request.group_id] = ClassicGroup(request.group_id)
        if refusal is not None or group is None:
            self._answer(request.group_id, token, join_refused(request.member_id, refusal or ErrorCode.NONE))
            return
        if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
            self._answer(group.id, token, join_refused(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif request.member_id in group.members:
            member = group.members[request.member_id]
            group.touch(member, now)
            group.rejoin(member, protocols_of(request), token, now)
        elif not request.member_id and version >= 4 and request.group_instance_id is None:
            id = self._new_member_id(client)
            group.pending_members[id] = now + request.session_timeout_ms
            self._answer(group.id, token, join_refused(id, ErrorCode.MEMBER_ID_REQUIRED))
        elif request.member_id and request.member_id not in group.pending_members:
            self._answer(group.id, token, join_refused(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        elif len(group.members) >= self.settings.max_size:
            group.pending_members.pop(request.member_id, None)
            self._answer(group.id, token, join_refused(request.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED))
        else:
            self._admit(group, request, client, token, now)
        self._collect(group, now)

    def refuse_join(self, request: JoinGroupRequest, token: Token, error: ErrorCode) -> None:
        """Answer a JoinGroup that the caller must refuse (it is not this node's to serve)."""
        self._answer(request.group_id, token, join_refused(request.member_id, error))

    def _refuse_join(self, request: JoinGroupRequest) -> ErrorCode | None:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        lowest, highest = self.settings.min_session_timeout_ms, self.settings.max_session_timeout_ms
        if not lowest <= request.session_timeout_ms <= highest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.group_id not in self.groups and len(self.groups) >= MAX_GROUPS:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None

    def _new_member_id(self, client: Client) -> str:
        bits = f"{self.chance.getrandbits(128):032x}"
        return f"{client.id}-{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"

    def _admit(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, token: Token, now: TimestampMs
    ) -> None:
        rebalance_timeout_ms = request.rebalance_timeout_ms
        member = Member(
            id=request.member_id or self._new_member_id(client),
            client_id=client.id,
            client_host=client.host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms if rebalance_timeout_ms >= 0 else request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols_of(request),
            deadline=now + NEW_MEMBER_JOIN_TIMEOUT_MS,
            joining=token,
        )
        group.add(member, now, self.settings.initial_rebalance_delay_ms)

    def sync(self, request: SyncGroupRequest, token: Token, now: TimestampMs) -> None:
        """SyncGroup: bring or fetch the assignment of the generation (GRP-10 to GRP-15)."""
        error, group, member = self._find(request.group_id, request.member_id, request.generation_id)
        if error is None and group is not None and not self._same_protocol(group, request):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is not None or group is None or member is None:
            self._answer(request.group_id, token, SyncGroupResponse(error_code=error or ErrorCode.UNKNOWN_MEMBER_ID))
            return
        group.touch(member, now)
        group.sync(member, request, token, now)
        self._collect(group, now)

    def _same_protocol(self, group: ClassicGroup, request: SyncGroupRequest) -> bool:
        return request.protocol_type in (None, group.protocol_type) and request.protocol_name in (None, group.protocol)

    def heartbeat(self, request: HeartbeatRequest, token: Token, now: TimestampMs) -> None:
        """Heartbeat: still there (GRP-12, GRP-14)."""
        error, group, member = self._find(request.group_id, request.member_id, request.generation_id)
        if group is not None and member is not None and error is None:
            group.touch(member, now)
            if group.state is State.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self._answer(request.group_id, token, HeartbeatResponse(error_code=error or ErrorCode.NONE))

    def _find(
        self, group_id: GroupId, member_id: str, generation: int
    ) -> tuple[ErrorCode | None, ClassicGroup | None, Member | None]:
        """The group and its member, or the error that stands in their way: group id, member, generation, in that order."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, None, None
        group = self.groups.get(group_id)
        member = group.members.get(member_id) if group else None
        if group is None or member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, group, None
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION, group, member
        return None, group, member

    def leave(self, request: LeaveGroupRequest, version: int, token: Token, now: TimestampMs) -> None:
        """LeaveGroup: one member (before v3) or several, each with its own error (GRP-19)."""
        if not request.group_id:
            self._answer(request.group_id, token, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
            return
        group = self.groups.get(request.group_id)
        ids = [request.member_id] if version < 3 else [member.member_id for member in request.members]
        results = [(id, self._leave_one(group, id, now)) for id in ids]
        if version < 3:
            response = LeaveGroupResponse(error_code=results[0][1])
        else:
            members = [
                LeaveGroupResponse.MemberResponse(
                    member_id=id, group_instance_id=each.group_instance_id, error_code=error
                )
                for (id, error), each in zip(results, request.members, strict=True)
            ]
            response = LeaveGroupResponse(members=members)
        self._answer(request.group_id, token, response)
        if group is not None:
            self._collect(group, now)

    def _leave_one(self, group: ClassicGroup | None, id: str, now: TimestampMs) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if id in group.pending_members:
            del group.pending_members[id]
            group.try_complete_join(now)
            return ErrorCode.NONE
        if id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        group.remove(id, now)
        return ErrorCode.NONE

    # ---- offsets

    def refuse_commit(self, request: OffsetCommitRequest, version: int) -> ErrorCode | None:
        """Why a commit is refused as a whole, if it is (OFF-05 to OFF-09)."""
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        generation, member_id = request.generation_id_or_member_epoch, request.member_id
        group = self.groups.get(request.group_id)
        if group is None:
            if generation < 0:
                return None
            return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        if generation < 0 and group.state is State.EMPTY:
            return None
        if generation >= 0 or member_id or group.members:
            if member_id not in group.members:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if generation != group.generation:
                return ErrorCode.ILLEGAL_GENERATION
            if group.state is State.COMPLETING_REBALANCE:
                return ErrorCode.REBALANCE_IN_PROGRESS
        return None

    def commit_records(self, group: GroupId, accepted: Iterable[tuple[OffsetKey, OffsetCommitValue]]) -> list[KeyValue]:
        """The records that must be in the log before a commit is kept and acknowledged (OFF-13)."""
        return [
            offset_record(OffsetCommitKey(group=group, topic=topic, partition=partition), value)
            for (topic, partition), value in accepted
        ]

    def commit(
        self, request: OffsetCommitRequest, accepted: Iterable[tuple[OffsetKey, OffsetCommitValue]], now: TimestampMs
    ) -> None:
        """Keep offsets whose records are in the log; the last one wins (OFF-12)."""
        group = self.groups.get(request.group_id)
        if group is not None and request.member_id in group.members:
            group.touch(group.members[request.member_id], now)
        self.offsets.setdefault(request.group_id, {}).update(accepted)

    def committed(self, group: GroupId) -> dict[OffsetKey, OffsetCommitValue]:
        """The group's offsets; empty for a group that never committed (OFF-02)."""
        return self.offsets.get(group, {})

    def forget_topic(self, topic: TopicName) -> dict[GroupId, list[KeyValue]]:
        """A topic was deleted: its offsets vanish; gives each group's tombstones (OFF-16)."""
        tombstones: dict[GroupId, list[KeyValue]] = {}
        for group, offsets in self.offsets.items():
            for key in [key for key in offsets if key[0] == topic]:
                del offsets[key]
                record = offset_record(OffsetCommitKey(group=group, topic=key[0], partition=key[1]), None)
                tombstones.setdefault(group, []).append(record)
        return tombstones

    def unload(self, concerned: Callable[[GroupId], bool]) -> None:
        """Another node coordinates these groups now: who waits is told, and what is known of them is forgotten (COO-06)."""
        for group in [group for id, group in self.groups.items() if concerned(id)]:
            del self.groups[group.id]
            for member in group.members.values():
                if member.joining is not None:
                    self._answer(group.id, member.joining, JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
                if member.syncing is not None:
                    self._answer(group.id, member.syncing, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
        for id in [id for id in self.offsets if concerned(id)]:
            del self.offsets[id]

    # ---- time, answers, the log

    def tick(self, now: TimestampMs) -> None:
        for group in [*self.groups.values()]:
            deadline = group.next_deadline()
            if deadline is not None and now >= deadline:
                group.tick(now)
                self._collect(group, now)

    def next_deadline(self) -> TimestampMs | None:
        times = [time for group in self.groups.values() if (time := group.next_deadline()) is not None]
        return min(times, default=None)

    def take_answers(self) -> list[Answer]:
        """The responses that are due, each with the records that go before it."""
        answers, self._answers = self._answers, []
        return answers

    def _answer(self, group: GroupId, token: Token, response: Message) -> None:
        self._answers.append(Answer(group, token, response, []))

    def _collect(self, group: ClassicGroup, now: TimestampMs) -> None:
        """Take a group's answers; the record of a new generation or assignment goes before the first of them."""
        records: list[KeyValue] = []
        if group.changed and group.state in (State.STABLE, State.EMPTY):
            group.changed = False
            records = [group_record(group, now)] if group.members or group.generation else [group_tombstone(group.id)]
        for token, response in group.answers:
            self._answers.append(Answer(group.id, token, response, records))
            records = []
        if records:
            self._answers.append(Answer(group.id, None, LeaveGroupResponse(), records))
        group.answers = []

    def replay(self, key: Buffer, value: Buffer | None, now: TimestampMs) -> None:
        """Take up one record of the log, at start or when this node becomes the coordinator.

        Errors: CodecError when the bytes are no record of a coordinator.
        """
        decoded = decode_record(key, value)
        if decoded is None:
            return
        record_key, record_value = decoded
        if isinstance(record_key, OffsetCommitKey):
            kept = self.offsets.setdefault(record_key.group, {})
            if isinstance(record_value, OffsetCommitValue):
                kept[record_key.topic, record_key.partition] = record_value
            else:
                kept.pop((record_key.topic, record_key.partition), None)
        elif isinstance(record_key, GroupMetadataKey):
            if isinstance(record_value, GroupMetadataValue):
                self.groups[record_key.group] = restore_group(record_key.group, record_value, now)
            else:
                self.groups.pop(record_key.group, None)
