"""An assignor's input: the members of a group, their subscriptions, and the partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from reference.coordinator.assignment import NOTHING, Assignment
from reference.protocol.primitives import TopicId


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member: its subscription (existing topics) and its former target assignment."""

    subscribed: frozenset[TopicId]
    assigned: Assignment = NOTHING
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """All members, and the number of partitions of each topic that any of them subscribes to."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[TopicId, int]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({member.subscribed for member in self.members.values()}) <= 1

    def subscribers(self) -> dict[TopicId, list[str]]:
        """The members that subscribe to each topic, in the order of the members."""
        found: dict[TopicId, list[str]] = {}
        for id, member in self.members.items():
            for topic in member.subscribed:
                found.setdefault(topic, []).append(id)
        return found


Assignor: TypeAlias = Callable[[GroupSpec], dict[str, Assignment]]
"""Returns each member's target assignment; every partition of a subscribed topic is assigned to exactly one subscriber."""
