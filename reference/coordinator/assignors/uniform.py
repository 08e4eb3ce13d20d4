"""The uniform assignor: members own about the same number of partitions, with as few moves as that allows.

If all members subscribe to the same topics, their numbers of partitions differ by at most one, and a partition moves
only if its owner has too many. Source: org.apache.kafka.coordinator.group.assignor.UniformAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable

from reference.coordinator.assignment import Assignment, TopicIdPartition, in_order
from reference.coordinator.assignors import uniform_heterogeneous
from reference.coordinator.assignors.spec import GroupSpec
from reference.protocol.primitives import TopicId


def assign(spec: GroupSpec) -> dict[str, Assignment]:
    """The target assignment of every member."""
    return _assign_equals(spec) if spec.is_homogeneous else uniform_heterogeneous.assign(spec)


def _assign_equals(spec: GroupSpec) -> dict[str, Assignment]:
    """Assign to members that all subscribe to the same topics: keep partitions up to each member's quota, then fill up."""
    subscribed = next((member.subscribed for member in spec.members.values()), frozenset[TopicId]())
    wanted = {(topic, partition) for topic in subscribed for partition in range(spec.partition_counts[topic])}
    targets: dict[str, set[TopicIdPartition]] = {}
    room: dict[str, int] = {}
    minimum, extras = divmod(len(wanted), len(spec.members)) if spec.members else (0, 0)
    for position, (id, member) in enumerate(spec.members.items()):
        held = member.assigned & wanted
        quota = member_quota(minimum, extras, len(held), len(spec.members) - position)
        extras -= quota - minimum
        targets[id] = set(held) if len(held) <= quota else set(in_order(held)[:quota])
        room[id] = quota - len(targets[id])
    _fill(targets, room, wanted.difference(*targets.values()))
    return {id: frozenset(target) for id, target in targets.items()}


def _fill(targets: dict[str, set[TopicIdPartition]], room: dict[str, int], free: Iterable[TopicIdPartition]) -> None:
    """Assign the partitions that no member holds to members with room, in the order of the members."""
    left = iter(in_order(free))
    for id, target in targets.items():
        target.update(partition for _, partition in zip(range(room[id]), left, strict=False))


def member_quota(minimum: int, extras: int, held: int, members_left: int) -> int:
    """The most partitions that a member may own. Of the `members_left`, itself among them, `extras` own one more than
    `minimum`.

    A member that already owns one more keeps it. Another gets an extra only if as many extras as members are left. So
    the order of the members alone never moves a partition.

    pre: minimum >= 0 and 0 <= extras <= members_left and members_left > 0 and held >= 0
    post: minimum <= _ <= minimum + 1
    post: _ == minimum or extras > 0
    post: extras == 0 or held <= minimum or _ == minimum + 1
    post: extras - (_ - minimum) <= members_left - 1
    """
    takes_extra = extras > 0 and (held > minimum or members_left <= extras)
    return minimum + 1 if takes_extra else minimum
