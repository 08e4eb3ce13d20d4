"""Sets of partitions as consumer groups (KIP-848) use them: by topic id, so that a re-created topic is another topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from reference.protocol.primitives import TopicId

MemberEpoch: TypeAlias = int
"""The epoch of the target assignment that a member has reached; it grows with the group epoch."""

TopicIdPartition: TypeAlias = tuple[TopicId, int]

Assignment: TypeAlias = frozenset[TopicIdPartition]
"""A member's target assignment."""

Owned: TypeAlias = Mapping[TopicIdPartition, MemberEpoch]
"""The partitions that a member owns, each with the member's epoch when it was assigned. Commits are fenced by that
epoch (KIP-1251)."""

NOTHING: Assignment = frozenset()


def in_order(partitions: Iterable[TopicIdPartition]) -> list[TopicIdPartition]:
    """The partitions, sorted by topic id and number."""
    return sorted(partitions, key=lambda partition: (partition[0].int, partition[1]))


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[TopicId, list[int]]:
    """The partitions of each topic, in order."""
    found: dict[TopicId, list[int]] = {}
    for topic, partition in in_order(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def with_epoch(partitions: Iterable[TopicIdPartition], epoch: MemberEpoch) -> dict[TopicIdPartition, MemberEpoch]:
    """These partitions, all assigned in one epoch."""
    return dict.fromkeys(partitions, epoch)
