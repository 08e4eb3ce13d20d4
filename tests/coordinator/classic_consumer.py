"""A consumer of the classic protocol that talks to a shard, in whatever group it finds itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from linearizability.client.group_member import ClassicMember, encode_subscription
from reference.coordinator.classic_member import Client as Sender
from reference.coordinator.consumer_protocol import assignment_of, encode_assignment
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.join_group import JoinGroupResponse
from reference.protocol.messages.sync_group import SyncGroupResponse
from tests.coordinator.consumer_room import Room, TopicPartition

REBALANCE_MS, SESSION_MS = 20_000, 10_000


@dataclass
class Classic:
    """A consumer of the classic protocol, which gives up what it is not given again."""

    room: Room
    id: str = ""
    instance: str | None = None
    topics: list[str] = field(default_factory=lambda: ["foo"])
    protocol: str = "range"
    generation: int = -1
    owned: set[TopicPartition] = field(default_factory=set)

    @property
    def member(self) -> ClassicMember:
        return ClassicMember(
            "g",
            {self.protocol: encode_subscription(self.topics, sorted(self.owned), version=1)},
            self.id,
            self.instance,
            SESSION_MS,
            REBALANCE_MS,
            generation=self.generation,
            protocol=self.protocol,
        )

    def join(self) -> JoinGroupResponse:
        answer = self._ask_to_join()
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            answer = self._ask_to_join()
        if answer.error_code == ErrorCode.NONE:
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def _ask_to_join(self) -> JoinGroupResponse:
        request = self.member.join()
        answer = self._answer(lambda token: self.room.shard.join(request, 9, Sender("c", "/h"), token, self.room.now))
        assert isinstance(answer, JoinGroupResponse)
        return answer

    def sync(self, *assigned: tuple[str, list[TopicPartition]]) -> SyncGroupResponse:
        """Ask for what the member owns; a leader says who owns what."""
        request = self.member.sync({id: encoded(self.room, partitions) for id, partitions in assigned})
        answer = self._answer(lambda token: self.room.shard.sync(request, token, self.room.now))
        assert isinstance(answer, SyncGroupResponse)
        if answer.error_code == ErrorCode.NONE:
            self.owned = self.room.named(assignment_of(bytes(answer.assignment), self.room.topics))
        return answer

    def _answer(self, ask: Callable[[object], None]) -> object:
        token = object()
        ask(token)
        self.room.shard.tick(self.room.now)  # a first rebalance is due at once
        return self.room.answers[token]


def encoded(room: Room, partitions: list[TopicPartition]) -> bytes:
    named = frozenset((id, each) for topic, each in partitions if (id := room.topics.id_of(topic)) is not None)
    return encode_assignment(named, room.topics, 1)
