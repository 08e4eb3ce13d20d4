"""The uniform assignor for members that subscribe to different topics.

First everybody keeps what it still subscribes to. Then what nobody owns goes to the least loaded subscriber, the topics
with the most partitions a subscriber first: they have the least choice. Last, partitions move from the most to the least
loaded subscriber of a topic, round after round over the topics, until nothing moves.
Source: org.apache.kafka.coordinator.group.assignor.UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from reference.coordinator.assignment import Assignment, TopicIdPartition
from reference.coordinator.assignors.spec import GroupSpec
from reference.protocol.primitives import TopicId

MAX_ROUNDS = 16
"""Rounds of balancing over all topics; each ends earlier where nothing moves."""


def assign(spec: GroupSpec) -> dict[str, Assignment]:
    """The target of every member."""
    return _Builder(spec).build()


class _Builder:
    """One assignment on its way."""

    def __init__(self, spec: GroupSpec) -> None:
        self._counts = spec.partition_counts
        self._subscribers = spec.subscribers()
        self._targets: dict[str, set[TopicIdPartition]] = {
            id: {each for each in member.assigned if each[0] in member.subscribed}
            for id, member in spec.members.items()
        }
        self._position = {id: position for position, id in enumerate(spec.members)}

    def build(self) -> dict[str, Assignment]:
        topics = sorted(self._subscribers, key=self._urgency)
        for topic in topics:
            self._give_out(topic)
        self._balance([topic for topic in topics if len(self._subscribers[topic]) > 1])
        return {id: frozenset(target) for id, target in self._targets.items()}

    def _urgency(self, topic: TopicId) -> tuple[float, int, TopicId]:
        """Where a topic stands: many partitions for each subscriber first, then few subscribers."""
        subscribers = len(self._subscribers[topic])
        return (-self._counts[topic] / subscribers, subscribers, topic)

    def _load(self, id: str) -> tuple[int, int]:
        """How much a member owns; of equals the earlier one is the lesser."""
        return (len(self._targets[id]), self._position[id])

    def _give_out(self, topic: TopicId) -> None:
        """What nobody owns of a topic goes to its least loaded subscribers."""
        owned = {each for id in self._subscribers[topic] for each in self._targets[id] if each[0] == topic}
        loads = [(self._load(id), id) for id in self._subscribers[topic]]
        heapq.heapify(loads)
        for partition in range(self._counts[topic]):
            if (topic, partition) not in owned:
                _, id = loads[0]
                self._targets[id].add((topic, partition))
                heapq.heapreplace(loads, (self._load(id), id))

    def _balance(self, topics: Sequence[TopicId]) -> None:
        for _ in range(MAX_ROUNDS):
            if not [topic for topic in topics if self._balance_topic(topic)]:
                return

    def _balance_topic(self, topic: TopicId) -> bool:
        """Move a topic's partitions to less loaded subscribers as long as one owns two less; whether any moved."""
        movable = {
            id: sorted(each for each in self._targets[id] if each[0] == topic) for id in self._subscribers[topic]
        }
        moved = False
        for _ in range(self._counts[topic]):
            givers = [id for id, partitions in movable.items() if partitions]
            if not givers:
                break
            most, least = max(givers, key=self._load), min(movable, key=self._load)
            if not is_worth_moving(len(self._targets[most]), len(self._targets[least])):
                break
            partition = movable[most].pop()
            self._targets[most].remove(partition)
            self._targets[least].add(partition)
            moved = True
        return moved


def is_worth_moving(most: int, least: int) -> bool:
    """Whether a partition's move from who owns `most` to who owns `least` makes the two more even.

    pre: most >= least >= 0
    post: _ == (max(most - 1, least + 1) < most)
    """
    return most - least > 1
