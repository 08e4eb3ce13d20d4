"""Which partition a record goes to, and so which records keep an order among themselves: only those of one partition do.

| partitioner | who decides | order that is kept |
| --- | --- | --- |
| `by_key` | murmur2 of the key | the records of one key, until the topic gets more partitions |
| `RoundRobin` | the next one in turn | none of use: neighbours never share a partition |
| `Sticky` | one by chance, until it has had a batch's worth of bytes | runs of neighbours |

A partitioner is a function of a record and its topic that gives a partition.
Source: org.apache.kafka.clients.producer (KafkaProducer.partition, RoundRobinPartitioner, BuiltInPartitioner).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from linearizability.workload.partitioning.murmur2 import partition_of


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record on its way out."""

    key: bytes = b""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in the producer's metadata."""

    name: str
    partitions: int


Partitioner: TypeAlias = Callable[[Outgoing, Topic], int]


def by_key(record: Outgoing, topic: Topic) -> int:
    """The key's partition, with a leader or without: to go around it would break the key's order. An empty key is a key."""
    return partition_of(record.key, topic.partitions)


class RoundRobin:
    """Each record goes to the next partition of its topic, with a key or without."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def __call__(self, record: Outgoing, topic: Topic) -> int:
        turn = self._turns.get(topic.name, 0)
        self._turns[topic.name] = turn + 1
        return turn % topic.partitions


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
        partition, bytes_had = self._current.get(topic.name, (-1, 0))
        if partition < 0 or bytes_had >= self._batch_size_bytes:
            partition, bytes_had = self._chance.randrange(topic.partitions), 0
        self._current[topic.name] = partition, bytes_had + record.size_bytes
        return partition


def named(
    name: Literal["by-key", "round-robin", "sticky"], sticks_for_bytes: int, chance: random.Random
) -> Partitioner:
    """A new partitioner of this name."""
    match name:
        case "by-key":
            return by_key
        case "round-robin":
            return RoundRobin()
        case "sticky":
            return Sticky(sticks_for_bytes, chance)
