"""Computes the target assignments of a group's members for a new group epoch.

Source: org.apache.kafka.coordinator.group.modern.TargetAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reference.coordinator import consumer_group_records as records
from reference.coordinator.assignment import Assignment
from reference.coordinator.assignors import range as range_assignor
from reference.coordinator.assignors import uniform
from reference.coordinator.assignors.spec import Assignor, GroupSpec, MemberSpec
from reference.coordinator.consumer_group import ConsumerGroup, target_of
from reference.coordinator.consumer_member import ConsumerMember
from reference.coordinator.group import KeyValue
from reference.coordinator.topics import Topics
from reference.protocol.primitives import TimestampMs, TopicId, TopicName

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform.assign, "range": range_assignor.assign}
"""The broker's assignors; group.consumer.assignors selects among them, and its first is the default."""


def may_assign(assigned_at: TimestampMs, interval_ms: int, now: TimestampMs) -> bool:
    """Whether a new target assignment may be computed: at most one per interval (KIP-1263).

    pre: assigned_at >= 0 and interval_ms >= 0
    post: _ or now - assigned_at < interval_ms
    post: not _ or assigned_at == 0 or now - assigned_at >= interval_ms or interval_ms == 0
    """
    return assigned_at == 0 or interval_ms == 0 or now >= assigned_at + interval_ms


def make_targets(
    group: ConsumerGroup, members: Mapping[str, ConsumerMember], topics: Topics, assignor: Assignor
) -> dict[str, Assignment]:
    """The target assignments of `members`, the group's members after the change that is being handled."""
    specs = {
        id: MemberSpec(ids_of(topics, group.topics_of(member)), target_of(group, member), member.instance_id)
        for id, member in members.items()
    }
    counts = {topic: topics.partition_count(topic) for spec in specs.values() for topic in spec.subscribed}
    return assignor(GroupSpec(specs, counts))


def ids_of(topics: Topics, names: Iterable[TopicName]) -> frozenset[TopicId]:
    """The ids of the topics that exist."""
    return frozenset(id for name in names if (id := topics.id_of(name)) is not None)


def target_records(
    group: ConsumerGroup, targets: Mapping[str, Assignment], epoch: int, now: TimestampMs
) -> list[KeyValue]:
    """The records of the targets that changed, and of their epoch."""
    changed = [
        records.target_record(group.id, id, target) for id, target in targets.items() if group.targets.get(id) != target
    ]
    return [*changed, records.target_metadata_record(group.id, epoch, now)]
