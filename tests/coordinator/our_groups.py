"""A shard of ours that is called with Kafka's messages, as the node's handlers call it."""

from __future__ import annotations

import random
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from reference.coordinator import group_admin
from reference.coordinator.assignors.spec import GroupSpec
from reference.coordinator.classic_groups import check_group_id, check_join, check_sync
from reference.coordinator.classic_member import Client
from reference.coordinator.classic_rebalances import join_refused
from reference.coordinator.consumer_group_description import describe
from reference.coordinator.consumer_heartbeat_check import check_request
from reference.coordinator.group import KeyValue, Token
from reference.coordinator.group_settings import ConsumerGroupSettings, GroupSettings
from reference.coordinator.group_shard import GroupShard, Producer
from reference.coordinator.offset_commits import refused_commit, refused_in_transaction
from reference.node.groups import refuse
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from reference.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from reference.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from reference.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from reference.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from reference.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from reference.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from reference.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from reference.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from reference.protocol.primitives import ProducerEpoch, ProducerId, TimestampMs
from reference.protocol.schema import Message
from tests.coordinator.topics import FakeTopics

NOW = TimestampMs(1_000_000_000_000)
CLIENT = Client("client", "/127.0.0.1")
BROKERS = {0: "a", 1: "b", 2: ""}
"""Broker ids and their racks."""
DESCRIBED_WITH = 6
"""The version of the DescribeGroups requests."""
CHECK_INTERVAL_MS = 50_021
"""offsets.retention.check.interval.ms: no sum of other times, so that no check comes together with the end of another timer."""

SETTINGS = GroupSettings(
    max_size=4,
    max_metadata_size=10,
    offsets_retention_ms=3 * 60_000,
    offsets_retention_check_interval_ms=CHECK_INTERVAL_MS,
)
CONSUMER_SETTINGS = ConsumerGroupSettings(
    assignors=("spread", "reversed", "range"), max_size=4, max_classic_size=4, regex_refresh_interval_ms=60_000
)
RESPONSES: dict[type[Message], type[Message]] = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
    OffsetCommitRequest: OffsetCommitResponse,
    TxnOffsetCommitRequest: TxnOffsetCommitResponse,
    OffsetDeleteRequest: OffsetDeleteResponse,
    OffsetFetchRequest: OffsetFetchResponse,
    DeleteGroupsRequest: DeleteGroupsResponse,
    DescribeGroupsRequest: DescribeGroupsResponse,
    ConsumerGroupDescribeRequest: ConsumerGroupDescribeResponse,
    ListGroupsRequest: ListGroupsResponse,
}
BASE64_LENGTH, UUID_LENGTH = 22, 36
"""The length of member ids of consumer groups, and of the random part of member ids of classic groups."""

Row = tuple[str, str, int, bool]
"""A record of the log: key, value, producer id, and whether it is the marker that ends a transaction."""


def spread(group: GroupSpec, *, reverse: bool = False) -> dict[str, frozenset[tuple[UUID, int]]]:
    """Assign as Groups.Spread in Groups.java."""
    given: dict[str, set[tuple[UUID, int]]] = {id: set() for id in group.members}
    for topic, ids in group.subscribers().items():
        ids = sorted(ids, reverse=reverse)
        for index in range(group.partition_counts[topic]):
            given[ids[index % len(ids)]].add((topic, index))
    return {id: frozenset(partitions) for id, partitions in given.items()}


ASSIGNORS = {"spread": spread, "reversed": partial(spread, reverse=True)}
"""Assignors that are no part of the product: each member's place follows from its id alone, in Groups.java as here."""


class RackedTopics(FakeTopics):
    """Topics whose partitions have two replicas each, in the racks of the brokers."""

    @staticmethod
    def replicas(index: int) -> list[int]:
        return [index % len(BROKERS), (index + 1) % len(BROKERS)]

    def partition_racks(self, id: UUID) -> Sequence[Sequence[str]]:
        return [
            [BROKERS[each] for each in self.replicas(index) if BROKERS[each]]
            for index in range(self.partition_count(id))
        ]

    def described(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "brokers": [[id, rack] for id, rack in BROKERS.items()],
            "topics": [
                {
                    "name": name,
                    "id": [id.int >> 64, id.int & ((1 << 64) - 1)],
                    "replicas": [self.replicas(index) for index in range(self.partition_count(id))],
                }
                for name, id in self.ids.items()
            ],
        }


class GivenIds(random.Random):
    """The random bits of member ids that Kafka has drawn."""

    def __init__(self) -> None:
        super().__init__(1)
        self.known: set[str] = set()
        self.waiting: deque[int] = deque()

    def getrandbits(self, k: int, /) -> int:
        return self.waiting.popleft() if self.waiting else super().getrandbits(k)

    def learn(self, ids: Iterable[str]) -> None:
        self.waiting.clear()
        for id in dict.fromkeys(ids):
            if id and id not in self.known:
                self.known.add(id)
                if len(id) == BASE64_LENGTH:
                    self.waiting.append(int.from_bytes(urlsafe_b64decode(id + "=="), "big"))
                elif len(id) > UUID_LENGTH:
                    self.waiting.append(UUID(id[-UUID_LENGTH:]).int)


class OurGroups:
    """The shard, its clock, and the responses and records of the last step."""

    def __init__(self, topics: RackedTopics, settings: ConsumerGroupSettings) -> None:
        self.topics = topics
        self.settings = settings
        self.now = NOW
        self.refusal: ErrorCode | None = None
        """The error of each write at present."""
        self.ids = GivenIds()
        self.answers: dict[str, Message] = {}
        self.written: list[Row] = []
        self._begin()
        self.shard.loaded(self.now)

    def _begin(self) -> None:
        self.shard = GroupShard(
            SETTINGS,
            self.ids,
            self.topics,
            lambda records, now: self._write(records),
            self._answered,
            lambda group: self.settings,
        )

    def _write(self, records: Sequence[KeyValue], producer: Producer | None = None) -> None:
        if records and self.refusal is not None:
            raise KafkaError(self.refusal)
        for key, value in records:
            self.written.append((key.hex(), (value or b"").hex(), producer[0] if producer else -1, False))
            self.shard.replay(key, value, self.now, producer)

    def _answered(self, token: Token, response: Message) -> None:
        self.answers[str(token)] = response

    def load(self, log: Sequence[Row], loading: Callable[[], None]) -> None:
        """Let another coordinator load the log and take over; `loading` is called before its timers begin."""
        self.shard.unload(self.now)
        self._begin()
        for key, value, producer, is_marker in log:
            by = (ProducerId(producer), ProducerEpoch(0))
            if is_marker:
                self.shard.replay_marker(by, key == "commit")
            else:
                written = bytes.fromhex(value) if value else None
                self.shard.replay(bytes.fromhex(key), written, self.now, by if producer >= 0 else None)
        loading()
        self.shard.loaded(self.now)

    # ---- requests

    def handle(self, request: Message, version: int, token: str) -> None:
        """Handle a request as the node's handlers do."""
        answer = self._answer(request, version, token)
        if answer is not None:
            self.answers[token] = answer

    def _answer(self, request: Message, version: int, token: str) -> Message | None:
        try:
            return self._decide(request, version, token)
        except KafkaError as error:
            match request:
                case JoinGroupRequest():
                    return join_refused(request.member_id, error.code)
                case OffsetCommitRequest():
                    return refused_commit(request, version, self.topics, error.code)
                case OffsetFetchRequest():
                    return _fetched(request.groups[0].group_id, error_code=error.code)
                case TxnOffsetCommitRequest():
                    return refused_in_transaction(request, self.topics, error.code)
                case _:
                    refused = RESPONSES[type(request)]()
                    refuse(refused, error.code)
                    return refused

    def _decide(self, request: Message, version: int, token: str) -> Message | None:
        shard, now = self.shard, self.now
        match request:
            case JoinGroupRequest():
                check_join(request, SETTINGS)
                shard.join(request, version, CLIENT, token, now)
            case SyncGroupRequest():
                check_sync(request, version)
                shard.sync(request, token, now)
            case HeartbeatRequest():
                check_group_id(request.group_id)
                return shard.heartbeat(request, now)
            case LeaveGroupRequest():
                check_group_id(request.group_id)
                return shard.leave(request, version, now)
            case ConsumerGroupHeartbeatRequest():
                check_request(request, version, CONSUMER_SETTINGS.assignors)
                return shard.consumer.heartbeat(request, CLIENT.id, CLIENT.host, now)
            case OffsetCommitRequest():
                decided = shard.commits.commit(request, version, now)
                shard.classic.committed(request.group_id, request.member_id, now)
                self._write(decided.records)
                return decided.response
            case OffsetFetchRequest():
                (asked,) = request.groups
                topics = shard.fetches.fetch(asked, version, request.require_stable)
                return _fetched(asked.group_id, topics=topics)
            case TxnOffsetCommitRequest():
                decided = shard.commits.commit_in_transaction(request, version, now)
                self._write(decided.records, (request.producer_id, request.producer_epoch))
                return decided.response
            case OffsetDeleteRequest():
                check_group_id(request.group_id)
                decided = shard.commits.delete(request)
                self._write(decided.records)
                return decided.response
            case DeleteGroupsRequest():
                return DeleteGroupsResponse(results=[self._deleted(id) for id in request.groups_names])
            case _:
                return self._look(request)
        return None

    def _deleted(self, id: str) -> DeleteGroupsResponse.DeletableGroupResult:
        result = DeleteGroupsResponse.DeletableGroupResult(group_id=id)
        try:
            self._write(group_admin.removal(self.shard.groups, self.shard.offsets, id))
        except KafkaError as error:
            result.error_code = error.code
        return result

    def _look(self, request: Message) -> Message:
        groups = self.shard.groups
        match request:
            case ListGroupsRequest():
                return ListGroupsResponse(groups=group_admin.list_groups(groups, request))
            case DescribeGroupsRequest():
                described = [group_admin.describe_group(groups, id, DESCRIBED_WITH) for id in request.groups]
                return DescribeGroupsResponse(groups=described)
            case ConsumerGroupDescribeRequest():
                return ConsumerGroupDescribeResponse(groups=[*map(self._described, request.group_ids)])
            case _:
                raise AssertionError(request)

    def _described(self, id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        try:
            return describe(self.shard.consumer.of(id), self.topics, CONSUMER_SETTINGS.assignors[0])
        except KafkaError as error:
            return ConsumerGroupDescribeResponse.DescribedGroup(group_id=id, error_code=error.code)


def _fetched(group: str, **fields: Any) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group, **fields)])
