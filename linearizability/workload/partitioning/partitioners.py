"""Which partition a record goes to, and so which records keep an order among themselves: only those of one partition do.

| partitioner | who decides | order that is kept |
| --- | --- | --- |
| `given` | the record names its partition | what the application sends to one partition |
| `by_key` | murmur2 of the key | the records of one key, until the topic gets more partitions |
| `RoundRobin` | the next one in turn | none of use: neighbours never share a partition |
| `Sticky` | one by chance, until it has had a batch's worth of bytes | runs of neighbours |
| any function | the application | the application's |

A partitioner is a function of a record and its topic that gives a partition, or None where it does not know: `Chain` asks
several in turn. `default` is the producer's own: given, by key, sticky.
Source: org.apache.kafka.clients.producer (KafkaProducer.partition, RoundRobinPartitioner, BuiltInPartitioner).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from linearizability.workload.partitioning.murmur2 import partition_of


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record on its way out."""

    key: bytes | None = None
    size_bytes: int = 0
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in the producer's metadata."""

    name: str
    partitions: int
    available: Sequence[int] = ()
    """The partitions that have a leader now; nothing where none has, or that is unknown."""

    def choices(self) -> Sequence[int]:
        """Where a record without a key may go: around the partitions without a leader, if that is possible."""
        return self.available or range(self.partitions)


Partitioner: TypeAlias = Callable[[Outgoing, Topic], int | None]


def given(record: Outgoing, topic: Topic) -> int | None:
    """The partition that the record names. Errors: ValueError for one that the topic does not have."""
    if record.partition is not None and not 0 <= record.partition < topic.partitions:
        raise ValueError(f"partition {record.partition} of {topic.name}, which has {topic.partitions}")
    return record.partition


def by_key(record: Outgoing, topic: Topic) -> int | None:
    """The key's partition, with a leader or without: to go around it would break the key's order. An empty key is a key."""
    return None if record.key is None else partition_of(record.key, topic.partitions)


class RoundRobin:
    """Each record goes to the next partition of its topic, with a key or without."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def __call__(self, record: Outgoing, topic: Topic) -> int:
        choices = topic.choices()
        turn = self._turns.get(topic.name, 0)
        self._turns[topic.name] = turn + 1
        return choices[turn % len(choices)]


class Sticky:
    """One partition by chance until it has had `batch_size_bytes`; then again one by chance (KIP-480, KIP-794).

    So batches are as full as with one partition, and in the long run all partitions get the same number of bytes, however
    large the records are. Left out: Kafka also prefers brokers that answer fast.
    """

    def __init__(self, batch_size_bytes: int, chance: random.Random) -> None:
        if batch_size_bytes < 1:
            raise ValueError(f"batch_size_bytes is {batch_size_bytes}")
        self._batch_size_bytes = batch_size_bytes
        self._chance = chance
        self._current: dict[str, tuple[int, int]] = {}
        """Topic -> its partition of now, and how many bytes that has had."""

    def __call__(self, record: Outgoing, topic: Topic) -> int:
        choices = topic.choices()
        partition, bytes_had = self._current.get(topic.name, (-1, 0))
        if partition not in choices or bytes_had >= self._batch_size_bytes:
            partition, bytes_had = self._chance.choice(choices), 0
        self._current[topic.name] = partition, bytes_had + record.size_bytes
        return partition


class Chain:
    """The first partitioner that knows an answer decides. Errors: ValueError where none does, or its partition is none."""

    def __init__(self, *partitioners: Partitioner) -> None:
        self._partitioners = partitioners

    def __call__(self, record: Outgoing, topic: Topic) -> int:
        for partitioner in self._partitioners:
            partition = partitioner(record, topic)
            if partition is not None:
                if not 0 <= partition < topic.partitions:
                    raise ValueError(f"a partitioner gave {partition} for {topic.name}, which has {topic.partitions}")
                return partition
        raise ValueError(f"no partitioner decides on a record for {topic.name}")


def default(batch_size_bytes: int, chance: random.Random) -> Chain:
    """A producer's default: the record's partition, else its key's, else sticky."""
    return Chain(given, by_key, Sticky(batch_size_bytes, chance))
