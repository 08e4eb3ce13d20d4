"""Replays the records of `__consumer_offsets` into consumer groups (KIP-848).

Compaction keeps the newest record of each key, so records may come in an order that no coordinator wrote. So a member is
created by its metadata or by its current assignment, and removed by the tombstone of its metadata.
Source: org.apache.kafka.coordinator.group.GroupMetadataManager.replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from reference.coordinator import consumer_group_records as records
from reference.coordinator.assignment import MemberEpoch, TopicIdPartition
from reference.coordinator.consumer_group import NO_EPOCH, ConsumerGroup
from reference.coordinator.consumer_group_records import ResolvedPattern
from reference.coordinator.consumer_member import LEAVING, ConsumerMember, MemberState
from reference.protocol.messages.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from reference.protocol.messages.consumer_group_member_metadata_record import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from reference.protocol.messages.consumer_group_metadata_record import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from reference.protocol.messages.consumer_group_partition_metadata_record import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from reference.protocol.messages.consumer_group_regular_expression_record import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from reference.protocol.messages.consumer_group_target_assignment_member_record import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from reference.protocol.messages.consumer_group_target_assignment_metadata_record import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from reference.protocol.primitives import LONG_AGO
from reference.protocol.schema import Message


def replay(group: ConsumerGroup, key: Message, value: Message | None) -> None:
    """Replay a record of this group."""
    _REPLAY[type(key)](group, key, value)


def is_gone(group: ConsumerGroup) -> bool:
    """Whether the group's last record was removed."""
    return group.epoch == NO_EPOCH


def _group_metadata(
    group: ConsumerGroup, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
) -> None:
    group.epoch = value.epoch if value is not None else NO_EPOCH
    group.metadata_hash = value.metadata_hash if value is not None else 0


def _partition_metadata(
    group: ConsumerGroup, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
) -> None:
    group.has_partition_metadata = value is not None


def _member_metadata(
    group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> None:
    if value is None:
        group.drop(key.member_id)
        return
    group.take(
        replace(
            _member(group, key.member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=records.classic_of(value),
        )
    )


def _target_metadata(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.assignment_epoch = value.assignment_epoch if value is not None else NO_EPOCH
    group.assigned_at = value.assignment_timestamp if value is not None else LONG_AGO


def _target(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = records.target_of(value)


def _current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    if value is not None:
        epoch = value.member_epoch
        change = {
            "epoch": epoch,
            "previous_epoch": value.previous_member_epoch,
            "state": MemberState.of(value.state),
            "assigned": records.owned_of(value.assigned_partitions, epoch),
            "pending_revocation": records.owned_of(value.partitions_pending_revocation, epoch),
        }
        group.take(replace(_member(group, key.member_id), **change))
    elif key.member_id in group.members:
        nothing: dict[TopicIdPartition, MemberEpoch] = {}
        left = replace(
            group.members[key.member_id],
            epoch=LEAVING,
            previous_epoch=LEAVING,
            assigned=nothing,
            pending_revocation=nothing,
        )
        group.take(left)


def _pattern(
    group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> None:
    if value is None:
        group.patterns.pop(key.regular_expression, None)
    else:
        group.patterns[key.regular_expression] = ResolvedPattern(
            frozenset(value.topics), value.version, value.timestamp
        )


def _member(group: ConsumerGroup, id: str) -> ConsumerMember:
    return group.members.get(id) or ConsumerMember(id)


_REPLAY = cast(
    "dict[type[Message], Callable[[ConsumerGroup, Any, Any], None]]",
    {
        ConsumerGroupMetadataKey: _group_metadata,
        ConsumerGroupPartitionMetadataKey: _partition_metadata,
        ConsumerGroupMemberMetadataKey: _member_metadata,
        ConsumerGroupTargetAssignmentMetadataKey: _target_metadata,
        ConsumerGroupTargetAssignmentMemberKey: _target,
        ConsumerGroupCurrentMemberAssignmentKey: _current,
        ConsumerGroupRegularExpressionKey: _pattern,
    },
)
"""The handler of each record type."""
