"""The range assignor: each topic's partitions in runs, one run a subscriber, the first ones a partition longer.

Members stand in the order of their instance ids, those without one behind, by member id. So partitions of the same number
of two topics with equally many partitions go to the same member (co-partitioning), and nothing else is promised: a member
that comes or goes moves the runs of all behind it. Source: org.apache.kafka.coordinator.group.assignor.RangeAssignor.
"""

from __future__ import annotations

from reference.coordinator.assignment import Assignment, TopicIdPartition
from reference.coordinator.assignors.spec import GroupSpec


def assign(spec: GroupSpec) -> dict[str, Assignment]:
    """The target of every member."""
    targets: dict[str, set[TopicIdPartition]] = {id: set() for id in spec.members}
    ordered = GroupSpec({id: spec.members[id] for id in _in_order(spec)}, spec.partition_counts)
    for topic, subscribers in ordered.subscribers().items():
        partitions = spec.partition_counts[topic]
        longest = longer_runs(partitions, len(subscribers))
        shortest = partitions // len(subscribers)
        for position, id in enumerate(subscribers[:partitions]):  # no more of them than partitions have any
            start = run_start(position, shortest, longest)
            end = run_start(position + 1, shortest, longest)
            targets[id].update((topic, partition) for partition in range(start, end))
    return {id: frozenset(target) for id, target in targets.items()}


def longer_runs(partitions: int, members: int) -> int:
    """How many of the runs are a partition longer than the others.

    pre: partitions >= 0 and 0 < members <= 64
    post: 0 <= _ < members
    """
    return partitions % members


def run_start(position: int, shortest: int, longer: int) -> int:
    """Where the run of the member at a position begins, and that of the one before it ends.

    pre: position >= 0 and shortest >= 0 and longer >= 0
    post: position > longer or _ == position * shortest + position
    post: position <= longer or _ == position * shortest + longer
    """
    return position * shortest + min(position, longer)


def _in_order(spec: GroupSpec) -> list[str]:
    """The members by instance id, those without one behind, by member id."""

    def key(id: str) -> tuple[bool, str]:
        instance_id = spec.members[id].instance_id
        return (False, instance_id) if instance_id is not None else (True, id)

    return sorted(spec.members, key=key)
