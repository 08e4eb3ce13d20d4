"""A shard of groups under a test's control: requests, responses, written records, and a crash at any point."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack
from uuid import UUID

from linearizability.client.group_member import ClassicMember
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import Committed, Topic, commit_request
from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_member import Client
from reference.coordinator.group import KeyValue, Token
from reference.coordinator.group_settings import GroupSettings
from reference.coordinator.group_shard import GroupShard, Producer
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.join_group import JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from reference.protocol.messages.offset_commit import OffsetCommitResponse
from reference.protocol.messages.sync_group import SyncGroupResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message
from tests.coordinator.passing_time import advance
from tests.coordinator.topics import FakeTopics

NOW_IN_THE_BEGINNING = TimestampMs(1_000_000)
TOPICS = {"events": 4, "orders": 2}
"""Topic -> its number of partitions."""

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)


class JoinFields(TypedDict, total=False):
    """The fields of a JoinGroup beside its member and protocols."""

    group: str
    instance: str | None
    protocol_type: str
    session_timeout_ms: int
    rebalance_timeout_ms: int


class OffsetOwner(TypedDict, total=False):
    """The group, member and partition of a committed offset; by default a consumer that is no member."""

    group: str
    topic: str
    partition: int
    member: str
    generation: int
    instance: str | None


class Room:
    """One shard, its log, and the response to each token."""

    def __init__(self, settings: GroupSettings = SETTINGS, **changes: int) -> None:
        self.settings = replace(settings, **changes)
        self.topics = FakeTopics(**TOPICS)
        self.chance = random.Random(1)
        self.log: list[tuple[bytes, bytes | None, Producer | None]] = []
        self.answers: dict[Token, Message] = {}
        self.now = NOW_IN_THE_BEGINNING
        self.refusal: ErrorCode | None = None
        """The error of each write at present."""
        self.shard = self._new_shard()
        self.shard.loaded(self.now)

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, self.chance, self.topics, self._write, self._answered)

    def _write(self, records: Sequence[KeyValue], now: TimestampMs) -> None:
        self.write(records)

    def write(self, records: Sequence[KeyValue], producer: Producer | None = None) -> None:
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        for key, value in records:
            self.log.append((key, value, producer))
            self.shard.replay(key, value, self.now, producer)

    def _answered(self, token: Token, response: Message) -> None:
        assert token not in self.answers, f"{token} is answered twice"
        self.answers[token] = response

    def crash(self) -> None:
        """Let another node coordinate, which has the log and nothing else."""
        self.shard.unload(self.now)
        self.shard = self._new_shard()
        for key, value, producer in self.log:
            self.shard.replay(key, value, self.now, producer)
        self.shard.loaded(self.now)

    def advance(self, ms: int) -> None:
        """Let time pass, and run the timers that become due."""
        advance(self, self.now + ms)

    # ---- what members ask

    def join(
        self,
        token: str,
        member: str = "",
        *,
        protocols: Sequence[str] = ("range",),
        metadata: bytes = b"m",
        version: int = 3,
        **fields: Unpack[JoinFields],
    ) -> JoinGroupResponse | None:
        said = ClassicMember(
            fields.get("group", "g"),
            dict.fromkeys(protocols, metadata),
            member,
            fields.get("instance"),
            fields.get("session_timeout_ms", 10_000),
            fields.get("rebalance_timeout_ms", 20_000),
            fields.get("protocol_type", "consumer"),
        )
        self.shard.classic.join(said.join(), version, Client("client", "/127.0.0.1"), token, self.now)
        self.advance(0)
        answer = self.answers.get(token)
        assert answer is None or isinstance(answer, JoinGroupResponse)
        return answer

    def refused_join(self, token: str, member: str = "", **how: Any) -> int:
        answer = self.join(token, member, **how)
        assert answer is not None
        return answer.error_code

    def joined(self, token: str) -> JoinGroupResponse:
        answer = self.answers[token]
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.NONE
        return answer

    def sync(
        self,
        token: str,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> SyncGroupResponse | None:
        said = ClassicMember(group, id=member, instance_id=instance, generation=generation)
        request = said.sync(assignments)
        request.protocol_type, request.protocol_name = protocol
        self.shard.classic.sync(request, token, self.now)
        answer = self.answers.get(token)
        assert answer is None or isinstance(answer, SyncGroupResponse)
        return answer

    def synced(self, token: str) -> bytes:
        answer = self.answers[token]
        assert isinstance(answer, SyncGroupResponse)
        assert answer.error_code == ErrorCode.NONE
        return bytes(answer.assignment)

    def heartbeat(self, member: str, generation: int, *, group: str = "g", instance: str | None = None) -> int:
        said = ClassicMember(group, id=member, instance_id=instance, generation=generation)
        return self.shard.classic.heartbeat(said.heartbeat(), self.now).error_code

    def leave(self, *members: str | tuple[str, str | None], group: str = "g", version: int = 3) -> LeaveGroupResponse:
        pairs = [(member, None) if isinstance(member, str) else member for member in members]
        request = LeaveGroupRequest(
            group_id=group,
            member_id=pairs[0][0] if version < 3 else "",
            members=[LeaveGroupRequest.MemberIdentity(member_id=id, group_instance_id=each) for id, each in pairs],
        )
        return self.shard.classic.leave(request, version, self.now)

    # ---- what they commit

    def commit(
        self,
        offset: int,
        *,
        metadata: str = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        version: int = 9,
        **owner: Unpack[OffsetOwner],
    ) -> int:
        """Commit one partition's offset; return its error, or that of the whole request."""
        topic = owner.get("topic", "events")
        named = Topic(topic, self.topics.id_of(topic) or UUID(int=99), 1)
        request = commit_request(
            owner.get("group", "g"),
            {(named, owner.get("partition", 0)): Committed(offset, metadata, leader_epoch)},
            generation=owner.get("generation", -1),
            member_id=owner.get("member", ""),
            instance_id=owner.get("instance"),
            retention_time_ms=retention_ms,
        )
        try:
            decided = self.shard.commits.commit(request, version, self.now)
            self.write(decided.records)
        except KafkaError as error:
            return error.code
        return only_code(decided.response)

    def commit_in_transaction(
        self,
        offset: int,
        producer: Producer,
        *,
        metadata: str = "",
        **owner: Unpack[OffsetOwner],
    ) -> int:
        request = ProducerSession("t", producer).commit_offsets(
            owner.get("group", "g"),
            {(owner.get("topic", "events"), owner.get("partition", 0)): Committed(offset, metadata)},
            generation_id_or_member_epoch=owner.get("generation", -1),
            member_id=owner.get("member", ""),
            group_instance_id=owner.get("instance"),
        )
        try:
            decided = self.shard.commits.commit_in_transaction(request, 5, self.now)
            self.write(decided.records, producer)
        except KafkaError as error:
            return error.code
        return only_code(decided.response)

    def committed(self, group: str = "g", topic: str = "events", partition: int = 0) -> int | None:
        found = self.shard.offsets.of(group).get((topic, partition))
        return None if found is None else found.offset

    # ---- what there is

    @property
    def group(self) -> ClassicGroup:
        found = self.shard.groups["g"]
        assert isinstance(found, ClassicGroup)
        return found

    def two_members(self) -> tuple[str, str, int]:
        """A stable group of two: leader, follower, generation."""
        self.join("a1")
        leader = self.joined("a1").member_id
        self.join("b1")
        self.join("a2", leader)
        follower = self.joined("b1").member_id
        generation = self.joined("a2").generation_id
        self.sync("sb", follower, generation)
        self.sync("sa", leader, generation, {leader: b"A", follower: b"B"})
        return leader, follower, generation


def only_code(response: OffsetCommitResponse | TxnOffsetCommitResponse) -> int:
    (topic,) = response.topics
    (partition,) = topic.partitions
    return partition.error_code
