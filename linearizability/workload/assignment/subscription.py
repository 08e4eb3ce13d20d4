"""The input and the result of an assignor.

In a classic group the broker passes members' metadata through; the member that is leader runs the assignor and sends the
result with its SyncGroup. Source: org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
"""A topic's name and a partition's number."""

Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""Member id -> its partitions. Every member is named; one without work has an empty list."""

NO_GENERATION = -1
"""The generation of a member that has not yet owned anything."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member's subscription, as its JoinGroup reports it."""

    topics: frozenset[str]
    instance_id: str | None = None
    """Of a static member (KIP-345): it keeps its place in the order when its member id changes."""
    owned: frozenset[TopicPartition] = frozenset()
    """Its partitions before this rebalance; only the sticky assignor uses them."""
    generation: int = NO_GENERATION
    """The generation in which it got them."""


@dataclass(frozen=True, slots=True)
class Group:
    """All subscriptions, and how many partitions each topic has. A topic that is not counted does not exist."""

    members: Mapping[str, Member]
    partition_counts: Mapping[str, int]

    def in_order(self) -> list[str]:
        """The members: static ones by instance id, then the others by member id."""

        def place(id: str) -> tuple[bool, str]:
            instance_id = self.members[id].instance_id
            return (True, id) if instance_id is None else (False, instance_id)

        return sorted(self.members, key=place)

    def subscribers(self, topic: str) -> list[str]:
        """The members that want a topic, in order."""
        return [id for id in self.in_order() if topic in self.members[id].topics]

    def topics(self) -> list[str]:
        """The existing topics with a subscriber, by name."""
        wanted = frozenset[str]().union(*(member.topics for member in self.members.values()))
        return sorted(topic for topic in wanted if self.partition_counts.get(topic, 0) > 0)

    def partitions(self) -> list[TopicPartition]:
        """All partitions of those topics, by topic and number."""
        return [(topic, number) for topic in self.topics() for number in range(self.partition_counts[topic])]

    def no_member_has_anything(self) -> Assignment:
        """The assignment to begin with, its members in order."""
        return {id: [] for id in self.in_order()}
