"""Members of a group, each a subscribing consumer of some client in a thread of its own, as applications have them.

A member records the partitions that it owns now, and counts how often they changed.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from confluent_kafka import Consumer, KafkaError, KafkaException
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.waiting import await_true

PATIENCE_S = 60.0
SESSION_MS, HEARTBEAT_MS, POLL_S = 6_000, 200, 0.1


class Member(ABC):
    """One consumer. `partitions` is what it owns; `rebalances` how often that changed."""

    def __init__(self, bootstrap: str, topic: str, group: str, strategy: str, instance: str | None = None) -> None:
        self.partitions: frozenset[int] = frozenset()
        self.rebalances = 0
        self.failure: Exception | None = None
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        self._strategy = strategy
        self._instance = instance
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Close the consumer and wait for its end. A static member sends no LeaveGroup."""
        self._end.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the consumer does not close"

    def _run(self) -> None:
        try:
            self._attend()
        except Exception as error:
            self.failure = error
        finally:
            self.partitions = frozenset()

    def _owns(self, partitions: Sequence[int]) -> None:
        now = frozenset(partitions)
        if now != self.partitions:
            self.partitions, self.rebalances = now, self.rebalances + 1

    @abstractmethod
    def _attend(self) -> None:
        """Poll until it is time to leave."""


class ConfluentMember(Member):
    def _attend(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self._group,
            "partition.assignment.strategy": self._strategy,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "auto.offset.reset": "earliest",
        }
        if self._instance is not None:
            settings["group.instance.id"] = self._instance
        consumer = Consumer(settings)
        consumer.subscribe([self._topic])
        try:
            while not self._end.is_set():
                message = consumer.poll(POLL_S)
                error = message.error() if message is not None else None
                if error is not None and error.code() == KafkaError.FENCED_INSTANCE_ID:
                    raise KafkaException(error)
                self._owns([place.partition for place in consumer.assignment()])
        finally:
            consumer.close()


class KafkaPythonMember(Member):
    POLL_MS = 1_000
    """A poll that ends while the group is being joined makes version 3.0.12 forget the answer to its SyncGroup now and then:
    it then sends heartbeats no more, until its session ends."""
    STRATEGIES = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def _attend(self) -> None:
        consumer = KafkaConsumer(
            self._topic,
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            group_instance_id=self._instance,
            partition_assignment_strategy=[self.STRATEGIES[self._strategy]],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
        )
        try:
            while not self._end.is_set():
                consumer.poll(timeout_ms=self.POLL_MS)
                self._owns([place.partition for place in consumer.assignment()])
        finally:
            consumer.close()


class AiokafkaMember(Member):
    STRATEGIES = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}

    def _attend(self) -> None:
        asyncio.run(self._attend_in_loop())

    async def _attend_in_loop(self) -> None:
        consumer = AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            group_instance_id=self._instance,
            partition_assignment_strategy=[self.STRATEGIES[self._strategy]],
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            auto_offset_reset="earliest",
        )
        async with consumer:
            while not self._end.is_set():
                await consumer.getmany(timeout_ms=int(POLL_S * 1000))
                self._owns([place.partition for place in consumer.assignment()])


MEMBERS: dict[str, type[Member]] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


def await_shares(members: Sequence[Member], sizes: Sequence[int]) -> None:
    """Wait until the members own all partitions between them, so many each, and none of them twice."""

    def is_shared() -> bool:
        for member in members:
            if member.failure is not None:
                raise member.failure
        owned = [partition for member in members for partition in member.partitions]
        shares = sorted(len(member.partitions) for member in members)
        return shares == sorted(sizes) and sorted(owned) == [*range(sum(sizes))]

    await_true(is_shared, lambda: f"shares of {[*sizes]} from {[sorted(member.partitions) for member in members]}")
