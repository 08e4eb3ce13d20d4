"""The applications of these tests, on unmodified confluent-kafka: they write, consume in groups, and read a topic to its end."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # pyright: ignore[reportPrivateImportUsage]

PATIENCE_S = 60.0
"""The time limit of a step, which takes a moment on a quiet machine."""

Settings = Mapping[str, Any]

QUICK_GROUPS: Settings = {
    "heartbeat.interval.ms": 100,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "topic.metadata.refresh.interval.ms": 200,
}
"""Members learn of rebalances soon; nothing is committed that a test does not commit."""

_numbers = itertools.count(1)


class Applications:
    """The applications of one cluster, which they reach at `bootstrap`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def new_topic(self, partitions: int = 1) -> str:
        name = f"confusion-{next(_numbers)}"
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        while len(self.admin.list_topics(topic, PATIENCE_S).topics[topic].partitions) != partitions:
            assert time.monotonic() < until, f"{topic} does not grow"

    def member_shares(self, group: str) -> list[int]:
        """How many partitions each member of the group has, as the coordinator reports it; empty while it rebalances."""
        described = self.admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        if described.state != ConsumerGroupState.STABLE:
            return []
        return sorted(len(member.assignment.topic_partitions) for member in described.members)

    def producer(self, settings: Settings | None = None) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0} | dict(settings or {}))

    def write(self, topic: str, values: Sequence[str], partition: int = 0, settings: Settings | None = None) -> None:
        """Write the values in their order, and wait for all acknowledgements. Errors: KafkaException, if one record failed."""
        producer = self.producer(settings)
        failures: list[KafkaError] = []
        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=keep_failures(failures))
        assert producer.flush(PATIENCE_S) == 0
        if failures:
            raise KafkaException(failures[0])

    @contextmanager
    def consumer(self, group: str, topics: Sequence[str] = (), settings: Settings | None = None) -> Iterator[Consumer]:
        """A consumer, subscribed where topics are given. In the end it leaves its group, also when the test fails."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": group, **QUICK_GROUPS} | dict(settings or {})
        )
        if topics:
            consumer.subscribe([*topics])
        try:
            yield consumer
        finally:
            consumer.close()

    def read_all(self, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[str]:
        """Everything in the partition, without a group."""
        settings = {"enable.partition.eof": True, "isolation.level": isolation, "fetch.wait.max.ms": 10}
        with self.consumer("reads-all", settings=settings) as consumer:
            consumer.assign([TopicPartition(topic, partition, 0)])
            found: list[str] = []
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"{topic} has no end"
                error = message.error()
                if error is None:
                    found.append(text(message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise KafkaException(error)

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        with self.consumer(group) as consumer:
            return consumer.committed([TopicPartition(topic, partition)], PATIENCE_S)[0].offset


def take(consumer: Consumer, count: int) -> list[str]:
    return [text(message.value()) for message in take_messages(consumer, count)]


def take_messages(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` records, polled one by one: nothing beyond them is handed out."""
    found: list[Message] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} records came"
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        found.append(message)
    return found


def share(consumers: Sequence[Consumer], sizes: Sequence[int]) -> list[set[tuple[str, int]]]:
    """Poll the consumers until the numbers of their partitions are `sizes`, in any order; return each one's partitions.

    Records that arrive meanwhile are dropped.
    """
    gather(consumers, lambda _: sorted(len(each) for each in owned(consumers)) == sorted(sizes))
    return owned(consumers)


def owned(consumers: Sequence[Consumer]) -> list[set[tuple[str, int]]]:
    return [{(place.topic, place.partition) for place in each.assignment()} for each in consumers]


def gather(consumers: Sequence[Consumer], is_enough: Callable[[list[list[str]]], bool]) -> list[list[str]]:
    """Poll the consumers in turn until their records are enough; return the records of each."""
    found: list[list[str]] = [[] for _ in consumers]
    until = time.monotonic() + PATIENCE_S
    while not is_enough(found):
        assert time.monotonic() < until, f"not enough came: {found}, assigned are {owned(consumers)}"
        for mine, each in zip(found, consumers, strict=True):
            message = each.poll(0.02)
            if message is not None:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                mine.append(text(message.value()))
    return found


def keep_failures(failures: list[KafkaError]) -> Callable[[KafkaError | None, Any], None]:
    def note(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            failures.append(error)

    return note


def text(data: str | bytes | None) -> str:
    return data.decode() if isinstance(data, bytes) else str(data)
