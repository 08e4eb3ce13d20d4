"""The uniform assignor for members that subscribe to different topics.

First every member keeps its partitions of topics that it still subscribes to. Then each unowned partition goes to the
least loaded subscriber. Topics with the most partitions per subscriber come first, because they have the least choice.
Last, partitions move from the most to the least loaded subscriber of a topic, round after round over the topics, until
nothing moves.
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
    """The target assignment of every member."""
    return _Builder(spec).build()


class _Builder:
    """Computes one assignment."""

    def __init__(self, spec: GroupSpec) -> None:
        self._counts = spec.partition_counts
        self._subscribers = spec.subscribers()
        self._position = {id: position for position, id in enumerate(spec.members)}
        self._loads = dict.fromkeys(spec.members, 0)
        self._owners: dict[TopicId, dict[int, str]] = {topic: {} for topic in self._subscribers}
        for id, member in spec.members.items():
            for topic, partition in member.assigned:
                if topic in member.subscribed:
                    self._give(topic, partition, id)

    def build(self) -> dict[str, Assignment]:
        topics = sorted(self._subscribers, key=self._urgency)
        for topic in topics:
            self._give_out(topic)
        self._balance([topic for topic in topics if len(self._subscribers[topic]) > 1])
        targets: dict[str, set[TopicIdPartition]] = {id: set() for id in self._loads}
        for topic, owners in self._owners.items():
            for partition, id in owners.items():
                targets[id].add((topic, partition))
        return {id: frozenset(target) for id, target in targets.items()}

    def _urgency(self, topic: TopicId) -> tuple[float, int, int]:
        """The sort key of a topic: many partitions per subscriber first, then few subscribers."""
        subscribers = len(self._subscribers[topic])
        return (-self._counts[topic] / subscribers, subscribers, topic.int)

    def _give(self, topic: TopicId, partition: int, id: str) -> None:
        former = self._owners[topic].get(partition)
        if former is not None:
            self._loads[former] -= 1
        self._owners[topic][partition] = id
        self._loads[id] += 1

    def _load(self, id: str) -> tuple[int, int]:
        """The sort key of a member: its number of partitions; among equals the earlier member is less."""
        return (self._loads[id], self._position[id])

    def _give_out(self, topic: TopicId) -> None:
        """Assign a topic's partitions without an owner to its least loaded subscribers."""
        free = [partition for partition in range(self._counts[topic]) if partition not in self._owners[topic]]
        if not free:
            return
        loads = [(*self._load(id), id) for id in self._subscribers[topic]]
        heapq.heapify(loads)
        for partition in free:
            id = loads[0][2]
            self._give(topic, partition, id)
            heapq.heapreplace(loads, (*self._load(id), id))

    def _balance(self, topics: Sequence[TopicId]) -> None:
        for _ in range(MAX_ROUNDS):
            if not [topic for topic in topics if self._balance_topic(topic)]:
                return

    def _balance_topic(self, topic: TopicId) -> bool:
        """Move a topic's partitions to less loaded subscribers while one owns at least two fewer; return whether any moved."""
        subscribers = self._subscribers[topic]
        loads = [self._loads[id] for id in subscribers]
        if not is_worth_moving(max(loads), min(loads)):
            return False
        movable: dict[str, list[int]] = {id: [] for id in subscribers}
        for partition, id in sorted(self._owners[topic].items()):
            movable[id].append(partition)
        least = [(*self._load(id), id) for id in subscribers]
        most = [(-load, -position, id) for load, position, id in least if movable[id]]
        heapq.heapify(least)
        heapq.heapify(most)
        moved = False
        while most:
            load, position, giver = most[0]
            if -load != self._loads[giver]:
                heapq.heapreplace(most, (-self._loads[giver], position, giver))
            elif not movable[giver]:
                heapq.heappop(most)
            elif least[0][0] != self._loads[least[0][2]]:
                heapq.heapreplace(least, (*self._load(least[0][2]), least[0][2]))
            elif is_worth_moving(-load, least[0][0]):
                self._give(topic, movable[giver].pop(), least[0][2])
                moved = True
            else:
                break
        return moved


def is_worth_moving(most: int, least: int) -> bool:
    """Whether moving a partition from a member with `most` to one with `least` makes the two more even.

    pre: most >= least >= 0
    post: _ == (max(most - 1, least + 1) < most)
    """
    return most - least > 1
