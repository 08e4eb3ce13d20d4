"""The operations of a client library with transactions, a class for each library: write and end, and copy exactly once."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import aiokafka
import aiokafka.structs
import kafka
import kafka.structs
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.clients.client import TIMEOUT_S

PART = 10
"""Records that one transaction of a copy takes over, at most."""

Outcome = Callable[[int], bool]
"""Whether the n-th transaction is committed."""


class Transactional(ABC):
    """A library's transactional producer, under one transactional id."""

    def __init__(self, bootstrap: str, id: str) -> None:
        self.bootstrap = bootstrap
        self.id = id

    @abstractmethod
    def write(self, topic: str, transactions: Sequence[tuple[Sequence[str], bool]]) -> None:
        """One transaction after the other: its values, all sent, and whether it is committed."""

    @abstractmethod
    def copy(self, source: str, target: str, group: str, count: int, is_committed: Outcome) -> None:
        """Consume, produce the same and commit offsets in transactions, until `count` records were taken over."""


class ConfluentTransactions(Transactional):
    def _producer(self) -> Producer:
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.id})
        producer.init_transactions(TIMEOUT_S)
        return producer

    def write(self, topic: str, transactions: Sequence[tuple[Sequence[str], bool]]) -> None:
        producer = self._producer()
        for values, committed in transactions:
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value)
            assert producer.flush(TIMEOUT_S) == 0
            (producer.commit_transaction if committed else producer.abort_transaction)(TIMEOUT_S)

    def copy(self, source: str, target: str, group: str, count: int, is_committed: Outcome) -> None:
        producer, consumer = self._producer(), self._consumer(group)
        consumer.subscribe([source])
        copied = number = 0
        until = time.monotonic() + TIMEOUT_S
        while copied < count:
            assert time.monotonic() < until, f"{copied} of {count} records were copied"
            taken = [each for each in consumer.consume(PART, 0.5) if each.error() is None]
            if not taken:
                continue
            producer.begin_transaction()
            for each in taken:
                producer.produce(target, each.value())
            offsets = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
            number += 1
            if is_committed(number):
                producer.commit_transaction(TIMEOUT_S)
                copied += len(taken)
            else:
                producer.abort_transaction(TIMEOUT_S)
                for place in consumer.committed(consumer.assignment(), TIMEOUT_S):
                    consumer.seek(TopicPartition(source, place.partition, max(place.offset, 0)))
        consumer.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )


class KafkaPythonTransactions(Transactional):
    def _producer(self) -> Any:
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=self.id)
        producer.init_transactions()
        return producer

    def write(self, topic: str, transactions: Sequence[tuple[Sequence[str], bool]]) -> None:
        producer = self._producer()
        for values, committed in transactions:
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value.encode())
            producer.flush(TIMEOUT_S)
            (producer.commit_transaction if committed else producer.abort_transaction)()
        producer.close()

    def copy(self, source: str, target: str, group: str, count: int, is_committed: Outcome) -> None:
        producer = self._producer()
        consumer: Any = kafka.KafkaConsumer(
            source,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        copied = number = 0
        until = time.monotonic() + TIMEOUT_S
        while copied < count:
            assert time.monotonic() < until, f"{copied} of {count} records were copied"
            for partition, taken in consumer.poll(500, max_records=PART).items():
                producer.begin_transaction()
                for each in taken:
                    producer.send(target, each.value)
                place = kafka.structs.OffsetAndMetadata(taken[-1].offset + 1, "", -1)
                producer.send_offsets_to_transaction({partition: place}, group)
                number += 1
                if is_committed(number):
                    producer.commit_transaction()
                    copied += len(taken)
                else:
                    producer.abort_transaction()
                    consumer.seek(partition, consumer.committed(partition) or 0)
        consumer.close()
        producer.close()


class AiokafkaTransactions(Transactional):
    def write(self, topic: str, transactions: Sequence[tuple[Sequence[str], bool]]) -> None:
        asyncio.run(self._write(topic, transactions))

    async def _write(self, topic: str, transactions: Sequence[tuple[Sequence[str], bool]]) -> None:
        async with self._producer() as producer:
            for values, committed in transactions:
                await producer.begin_transaction()
                for value in values:
                    await producer.send_and_wait(topic, value.encode())
                await (producer.commit_transaction() if committed else producer.abort_transaction())

    def copy(self, source: str, target: str, group: str, count: int, is_committed: Outcome) -> None:
        asyncio.run(asyncio.wait_for(self._copy(source, target, group, count, is_committed), TIMEOUT_S))

    async def _copy(self, source: str, target: str, group: str, count: int, is_committed: Outcome) -> None:
        consumer: Any = aiokafka.AIOKafkaConsumer(
            source,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        copied = number = 0
        async with self._producer() as producer, consumer:
            while copied < count:
                for partition, taken in (await consumer.getmany(timeout_ms=500, max_records=PART)).items():
                    await producer.begin_transaction()
                    for each in taken:
                        await producer.send(target, each.value)
                    await producer.send_offsets_to_transaction({partition: taken[-1].offset + 1}, group)
                    number += 1
                    if is_committed(number):
                        await producer.commit_transaction()
                        copied += len(taken)
                    else:
                        await producer.abort_transaction()
                        consumer.seek(partition, await consumer.committed(partition) or 0)

    def _producer(self) -> Any:
        return aiokafka.AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=self.id)


LIBRARIES: dict[str, type[Transactional]] = {
    "confluent-kafka": ConfluentTransactions,
    "kafka-python": KafkaPythonTransactions,
    "aiokafka": AiokafkaTransactions,
}


def read_all(bootstrap: str, topic: str, isolation: str) -> list[str]:
    """Everything in a topic's one partition that a consumer of this isolation level gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{topic} has no end"
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                raise KafkaException(error)
            value = message.value()
            found.append(value.decode() if isinstance(value, bytes) else str(value))
    finally:
        consumer.close()


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (place,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        return place.offset
    finally:
        consumer.close()
