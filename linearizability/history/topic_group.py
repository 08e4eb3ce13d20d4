"""A consumer group's offsets in a topic, kept by a reader that is no member: it chooses its partitions by itself.

Brokers take such commits only while the group has no members, and report them as of those of any group. Of two readers that
keep the same group's offsets neither learns of the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from functools import cached_property
from typing import TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

from linearizability.history.topic import ANSWERS_WITHIN_S, HistoryTopic, TopicError

Offsets = dict[int, int]
"""Partition -> offset of the next record."""

AGAIN_AFTER_S = 0.2
AGAIN = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR,
     KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_NOT_AVAILABLE,
     KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION}
)  # fmt: skip
"""Errors of a cluster that is not ready yet."""

T = TypeVar("T")


class TopicGroup:
    """One group and one topic. It can be pickled until it is first asked. Errors of all that asks: TopicError."""

    def __init__(self, topic: HistoryTopic, name: str) -> None:
        self.topic = topic
        self.name = name

    def __str__(self) -> str:
        return f"{self.topic}, group {self.name}"

    def place(self) -> Offsets:
        """The offsets at which the group continues: its committed ones, and the start of partitions for which it has none."""
        starts, ends, committed = self.starts(), self.ends(), self.committed()
        place = {partition: committed.get(partition, start) for partition, start in starts.items()}
        for partition, offset in place.items():
            if not starts[partition] <= offset <= ends[partition]:
                raise TopicError(
                    f"{self}: its committed offset {offset} of partition {partition} is not within the records, "
                    f"{starts[partition]} to {ends[partition]}: some are gone, or the topic is another; reset the group"
                )
        return place

    def committed(self) -> Offsets:
        """The group's committed offsets; partitions without one are left out.

        It uses a consumer that joins no group: after NOT_COORDINATOR for an admin client's OffsetFetch librdkafka (2.16)
        expects a consumer's state, and the process dies.
        """
        places = [TopicPartition(self.topic.name, partition) for partition in self._partitions()]
        settings = {
            "bootstrap.servers": self.topic.brokers, "group.id": self.name, "isolation.level": "read_committed",
        }  # fmt: skip

        def ask() -> Offsets:
            consumer = Consumer(settings)
            try:
                found = _without_errors(consumer.committed(places, timeout=ANSWERS_WITHIN_S))
            finally:
                consumer.close()
            return {each.partition: each.offset for each in found if each.offset >= 0}

        return self._answer("its offsets cannot be read", ask)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit these offsets, whatever the group committed before."""

        def ask() -> None:
            places = [TopicPartition(self.topic.name, partition, offset) for partition, offset in offsets.items()]
            wanted = [ConsumerGroupTopicPartitions(self.name, places)]
            answer = self._admin.alter_consumer_group_offsets(wanted, request_timeout=ANSWERS_WITHIN_S)
            _without_errors(answer[self.name].result().topic_partitions)

        self._answer("its offsets cannot be committed, which only a group without members allows", ask)

    def starts(self) -> Offsets:
        """The first offset of each partition."""
        return self._bounds(OffsetSpec.earliest())

    def ends(self) -> Offsets:
        """The last stable offset of each partition: the end for readers of committed records."""
        return self._bounds(OffsetSpec.latest())

    def _bounds(self, spec: OffsetSpec | None) -> Offsets:
        assert spec is not None
        places = {TopicPartition(self.topic.name, partition): spec for partition in self._partitions()}

        def ask() -> Offsets:
            answers = self._admin.list_offsets(
                places, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWERS_WITHIN_S
            )
            return {place.partition: answer.result().offset for place, answer in answers.items()}

        # Metadata may name a new partition before its leader knows it.
        return self._answer("its records cannot be found", ask, AGAIN | {KafkaError.UNKNOWN_TOPIC_OR_PART})

    def _partitions(self) -> list[int]:
        topics = TopicCollection([self.topic.name])

        def ask() -> list[int]:
            described = self._admin.describe_topics(topics, request_timeout=ANSWERS_WITHIN_S)
            return sorted(each.id for each in described[self.topic.name].result().partitions)

        return self._answer("its topic cannot be found", ask)

    def _answer(self, failure: str, ask: Callable[[], T], again: Set[int] = AGAIN) -> T:
        until = time.monotonic() + ANSWERS_WITHIN_S
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in again or time.monotonic() >= until:
                    raise TopicError(f"{self}: {failure}: {error.args[0].str()}") from error
                time.sleep(AGAIN_AFTER_S)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.topic.brokers})


def _without_errors(places: list[TopicPartition]) -> list[TopicPartition]:
    """The same places. Errors: KafkaException, of the first that has one."""
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
    return places
