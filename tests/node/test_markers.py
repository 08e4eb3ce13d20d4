"""Markers on their way: one request a broker at a time, until every partition has one.

Errors of brokers and retries are drawn beside Kafka (`test_transactions_beside_kafka`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from reference.coordinator.transaction_coordinator import TransactionCoordinator, TransactionSettings
from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import State, TopicPartition
from reference.node.markers import PURPOSE, RETRY_MS, Markers
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from reference.protocol.primitives import AT_ONCE, NEVER, LeaderEpoch, ProducerId, TimestampMs

A, B, C = (TopicPartition("t", index) for index in range(3))
SETTINGS = TransactionSettings(60_000, 10**9, allows_two_phase_commit=False)
Answered = Callable[[Any, TimestampMs], None]


@dataclass
class Room:
    """A node with one coordinator, whose log fails on request only; the test plays the other brokers."""

    leaders: dict[TopicPartition, int] = field(default_factory=lambda: {A: 2, B: 3, C: 2})
    asked: list[tuple[int, WriteTxnMarkersRequest, Answered]] = field(default_factory=list[Any])
    refuses: ErrorCode | None = None
    is_held: bool = True
    said: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.node = 1
        self.configuration = SimpleNamespace(integer=lambda name: 30_000)
        self.image = SimpleNamespace(partition=self._partition)
        self.coordinator = TransactionCoordinator(0, LeaderEpoch(5), SETTINGS, lambda: 2, lambda now: ProducerId(77))
        room: Any = self
        self.markers = Markers(room, room, lambda body, now, answered: None, room)

    def _partition(self, topic: str, index: int) -> Any:
        leader = self.leaders.get(TopicPartition(topic, index))
        return None if leader is None else SimpleNamespace(leader=leader)

    def ask(self, broker: int, purpose: str, body: Any, timeout_ms: int, answered: Answered, now: int) -> None:
        assert purpose == PURPOSE
        self.asked.append((broker, body, answered))

    def holds(self, index: int, coordinator: TransactionCoordinator) -> bool:
        return self.is_held

    def write(self, index: int, records: Any, now: TimestampMs) -> None:
        if self.refuses is not None:
            raise KafkaError(self.refuses)
        for key, value in records:
            self.coordinator.replay(key, value, now, None)

    def log(self, level: str, message: str) -> None:
        self.said.append(message)

    # ---- what a test says

    def prepare(self, id: str, *partitions: TopicPartition, committed: bool = True) -> None:
        begun = self.coordinator.new_session(id, 1000, None, AT_ONCE)
        self.write(0, begun.records, AT_ONCE)
        identity = Identity(begun.transaction.producer_id, begun.transaction.epoch)
        joined = self.coordinator.add_partitions(id, identity, partitions, 2, AT_ONCE)
        assert joined is not None
        self.write(0, joined.records, AT_ONCE)
        ended, _ = self.coordinator.end_transaction(id, identity, committed, 2, AT_ONCE)
        assert ended is not None
        self.write(0, ended.records, AT_ONCE)
        self.markers.add(0, self.coordinator, id, AT_ONCE)
        self.markers.send(AT_ONCE)

    def answer(self, code: ErrorCode | None = ErrorCode.NONE, now: TimestampMs = AT_ONCE) -> None:
        """Answer the oldest request for all its partitions, or not at all (None)."""
        _, body, answered = self.asked.pop(0)
        answered(None if code is None else response(body, code), now)

    def state(self, id: str) -> State:
        return self.coordinator.transactions[id].state

    def brokers(self) -> list[tuple[int, list[TopicPartition]]]:
        return [(broker, partitions(body)) for broker, body, _ in self.asked]


def response(body: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    marker, topic, partition = (
        WriteTxnMarkersResponse.WritableTxnMarkerResult, WriteTxnMarkersResponse.WritableTxnMarkerTopicResult,
        WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult,
    )  # fmt: skip
    return WriteTxnMarkersResponse(
        markers=[
            marker(
                producer_id=each.producer_id,
                topics=[
                    topic(
                        name=one.name,
                        partitions=[
                            partition(partition_index=index, error_code=code) for index in one.partition_indexes
                        ],
                    )
                    for one in each.topics
                ],
            )
            for each in body.markers
        ]
    )


def partitions(body: WriteTxnMarkersRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for marker in body.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


@pytest.mark.step("transactions", "AddPartitions", "EndTransaction", "WriteMarker", "CompleteTransaction")
def test_each_leader_is_asked_once_and_then_the_transaction_is_complete() -> None:
    room = Room()
    room.prepare("x", A, B, C)
    assert sorted(room.brokers()) == [(2, [A, C]), (3, [B])]
    room.answer()
    assert room.state("x") is State.PREPARE_COMMIT
    room.answer()
    assert room.state("x") is State.COMPLETE_COMMIT and not room.asked


def test_a_partition_without_a_leader_is_waited_for() -> None:
    room = Room()
    room.leaders[A] = -1
    room.prepare("x", A)
    assert not room.asked
    room.leaders[A] = 3
    room.markers.send(AT_ONCE + RETRY_MS)
    assert room.brokers() == [(3, [A])]


def test_a_marker_that_is_refused_for_good_is_given_up() -> None:
    room = Room()
    room.prepare("x", A)
    room.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert room.markers.next_deadline() == NEVER and room.state("x") is State.PREPARE_COMMIT
    assert "t-0 refused the marker of x" in room.said[0]


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_a_completion_that_cannot_be_written_is_tried_again(code: ErrorCode) -> None:
    room = Room()
    room.prepare("x", A)
    room.refuses = code
    room.answer()
    assert room.state("x") is State.PREPARE_COMMIT
    room.refuses = None
    room.markers.send(AT_ONCE + RETRY_MS)
    assert room.state("x") is State.COMPLETE_COMMIT


def test_a_deposed_coordinator_sends_nothing() -> None:
    room = Room()
    room.prepare("x", A)
    room.prepare("y", A)  # in line
    room.is_held = False
    room.answer(None)
    room.markers.send(AT_ONCE + 10 * RETRY_MS)
    assert not room.asked and room.markers.next_deadline() == NEVER
