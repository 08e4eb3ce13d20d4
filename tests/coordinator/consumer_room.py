"""A shard's consumer groups without a node: records are replayed as they are written, and clients send heartbeats."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from linearizability.client.group_member import assigned_partitions, owned_partitions
from reference.coordinator.consumer_group import ConsumerGroup
from reference.coordinator.consumer_heartbeat_check import check_request
from reference.coordinator.group import KeyValue
from reference.coordinator.group_settings import ConsumerGroupSettings, GroupSettings
from reference.coordinator.group_shard import GroupShard
from reference.protocol.codec import decode, encode
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message
from tests.coordinator.passing_time import advance
from tests.coordinator.topics import FakeTopics

REBALANCE_TIMEOUT_MS = 30_000

TopicPartition = tuple[str, int]


class Room:
    """The shard, its clock, and its log."""

    def __init__(self, settings: ConsumerGroupSettings | None = None, **topics: int) -> None:
        self.settings = settings or ConsumerGroupSettings(assignment_interval_ms=0)
        self.topics = FakeTopics(**topics)
        self.now = TimestampMs(1_000_000)
        self.log: list[KeyValue] = []
        self.chance = random.Random(1)
        self._begin()

    def _begin(self) -> None:
        self.answers: dict[object, Message] = {}
        self.shard = GroupShard(
            GroupSettings(initial_rebalance_delay_ms=0),
            self.chance,
            self.topics,
            lambda records, now: self.write(records, now),
            self.answers.__setitem__,
            lambda group: self.settings,
        )
        self.groups, self.consumer = self.shard.groups, self.shard.consumer

    def write(self, records: Sequence[KeyValue], now: TimestampMs) -> None:
        for key, value in records:
            self.log.append((key, value))
            self.shard.replay(key, value, now, None)

    def fail_over(self) -> None:
        """Let another coordinator load the log and take over."""
        self._begin()
        for key, value in self.log:
            self.shard.replay(key, value, self.now, None)
        self.shard.loaded(self.now)

    def compact(self) -> None:
        """Keep only the newest record of each key, at its place, and no tombstone."""
        newest = {key: at for at, (key, _) in enumerate(self.log)}
        self.log = [(key, value) for at, (key, value) in enumerate(self.log) if newest[key] == at and value is not None]

    def pass_time(self, ms: int) -> None:
        """Let time pass, timer by timer."""
        advance(self, self.now + ms)

    def beat(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        """Handle one heartbeat, encoded and decoded; return errors in the response."""
        request = decode(ConsumerGroupHeartbeatRequest, version, encode(request, version))
        try:
            check_request(request, version, self.settings.assignors)
            response = self.consumer.heartbeat(request, "client", "/127.0.0.1", self.now)
        except KafkaError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        return decode(ConsumerGroupHeartbeatResponse, version, encode(response, version))

    def group(self, id: str = "g") -> ConsumerGroup:
        return self.consumer.of(id)

    def named(self, partitions: Iterable[tuple[UUID, int]]) -> set[TopicPartition]:
        return {(self.topics.name_of(id) or str(id), partition) for id, partition in partitions}


@dataclass
class Client:
    """A member as a well-behaved client: it follows each assignment at once."""

    room: Room
    id: str
    group: str = "g"
    instance: str | None = None
    topics: list[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: set[tuple[UUID, int]] = field(default_factory=set)
    has_lost_an_answer: bool = False
    last: ConsumerGroupHeartbeatResponse = field(default_factory=ConsumerGroupHeartbeatResponse)

    def join(self) -> ConsumerGroupHeartbeatResponse:
        self.owned, self.epoch = set(), 0
        return self._take(
            ConsumerGroupHeartbeatRequest(
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                subscribed_topic_names=self.topics if self.topics is not None or self.regex else [],
                subscribed_topic_regex=self.regex,
                server_assignor=self.assignor,
                topic_partitions=[],
            )
        )

    def beat(self, owned: bool = True, lost: bool = False) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, or join without an epoch; with `owned` it lists the owned partitions.

        A `lost` response changes nothing at the client, and its next heartbeat has all fields.
        """
        if self.epoch == 0:
            return self.join()
        before = self.epoch, self.owned
        request = ConsumerGroupHeartbeatRequest()
        if self.has_lost_an_answer:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = self.topics or []
        if owned or self.has_lost_an_answer:
            request.topic_partitions = owned_partitions(sorted(self.owned))
        answer = self._take(request)
        self.has_lost_an_answer = lost
        if lost:
            self.epoch, self.owned = before
        return answer

    def subscribe(self, *topics: str) -> ConsumerGroupHeartbeatResponse:
        self.topics = [*topics]
        return self._take(
            ConsumerGroupHeartbeatRequest(
                subscribed_topic_names=self.topics, topic_partitions=owned_partitions(sorted(self.owned))
            )
        )

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        self.owned = set()
        return self._send(ConsumerGroupHeartbeatRequest(member_epoch=epoch))

    def names(self) -> set[TopicPartition]:
        return self.room.named(self.owned)

    def _take(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        request.member_epoch = self.epoch
        answer = self._send(request)
        if answer.error_code == ErrorCode.NONE:
            self.id, self.epoch = answer.member_id or self.id, answer.member_epoch
            if answer.assignment is not None:
                self.owned = set(assigned_partitions(answer))
        return answer

    def _send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        request.group_id, request.member_id, request.instance_id = self.group, self.id, self.instance
        self.last = self.room.beat(request)
        return self.last


def settle(room: Room, clients: Iterable[Client], rounds: int = 6) -> None:
    """Send heartbeats until each member owns its target."""
    for _ in range(rounds):
        room.pass_time(1_000)
        for client in clients:
            client.beat()
