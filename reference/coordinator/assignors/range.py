"""The range assignor: each subscriber gets one run of a topic's partitions; the first runs are one partition longer.

Members are sorted by instance id, then those without one by member id. So partitions of the same number of two topics
with equally many partitions go to the same member (co-partitioning). Nothing else is promised: a member that joins or
leaves moves the runs of all members behind it. Source: org.apache.kafka.coordinator.group.assignor.RangeAssignor.
"""

from __future__ import annotations

from reference.coordinator.assignment import Assignment, TopicIdPartition
from reference.coordinator.assignors.spec import GroupSpec


def assign(spec: GroupSpec) -> dict[str, Assignment]:
    """The target assignment of every member."""
    targets: dict[str, set[TopicIdPartition]] = {id: set() for id in spec.members}
    ordered = GroupSpec({id: spec.members[id] for id in _in_order(spec)}, spec.partition_counts)
    for topic, subscribers in ordered.subscribers().items():
        partitions = spec.partition_counts[topic]
        longest = longer_runs(partitions, len(subscribers))
        shortest = partitions // len(subscribers)
        for position, id in enumerate(subscribers[:partitions]):  # a member beyond the number of partitions gets none
            start = run_start(position, shortest, longest)
            end = run_start(position + 1, shortest, longest)
            targets[id].update((topic, partition) for partition in range(start, end))
    return {id: frozenset(target) for id, target in targets.items()}


def longer_runs(partitions: int, members: int) -> int:
    """The number of runs that are one partition longer than the others.

    pre: partitions >= 0 and 0 < members <= 64
    post: 0 <= _ < members
    """
    return partitions % members


def run_start(position: int, shortest: int, longer: int) -> int:
    """The first partition of the run of the member at a position; the run of the member before it ends there.

    pre: position >= 0 and shortest >= 0 and longer >= 0
    post: position > longer or _ == position * shortest + position
    post: position <= longer or _ == position * shortest + longer
    """
    return position * shortest + min(position, longer)


def _in_order(spec: GroupSpec) -> list[str]:
    """The member ids, sorted by instance id; then those without an instance id, by member id."""

    def key(id: str) -> tuple[bool, str]:
        instance_id = spec.members[id].instance_id
        return (False, instance_id) if instance_id is not None else (True, id)

    return sorted(spec.members, key=key)
