"""The records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's formats.

| record | key | content |
| --- | --- | --- |
| ConsumerGroupMetadata | 3, group | the group's epoch, and a hash of the topics' metadata that it was made for |
| ConsumerGroupPartitionMetadata | 4, group | unused: 4.1 and later only remove it |
| ConsumerGroupMemberMetadata | 5, group, member | the member's subscription and other fields of its heartbeats |
| ConsumerGroupTargetAssignmentMetadata | 6, group | the group epoch of the targets, and their time |
| ConsumerGroupTargetAssignmentMember | 7, group, member | the member's target assignment |
| ConsumerGroupCurrentMemberAssignment | 8, group, member | its epoch, its state, and its partitions |
| ConsumerGroupRegularExpression | 16, group, pattern | the topics that a pattern matched |

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers and GroupCoordinatorRecordSerde of 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference.coordinator.assignment import Assignment, MemberEpoch, Owned, TopicIdPartition, by_topic
from reference.coordinator.consumer_member import ClassicMember, ConsumerMember
from reference.coordinator.consumer_protocol import version_of
from reference.coordinator.group import KeyValue
from reference.coordinator.group_records import encode_key, encode_value
from reference.protocol.codec import CodecError, decode
from reference.protocol.errors import ErrorCode, KafkaError
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
from reference.protocol.primitives import Buffer, GroupId, TimestampMs, TopicName
from reference.protocol.schema import Message

VALUES: dict[type[Message], type[Message]] = {
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupPartitionMetadataValue,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
}
"""The value type of each key type; a record's type is its key's number."""

_KEYS = {key.KEY: key for key in VALUES}
RECORD_TYPES = frozenset(_KEYS)
_VERSION = 0
LAST_EPOCH: MemberEpoch = 2**31 - 1

_OwnedTopic = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
_TargetTopic = ConsumerGroupTargetAssignmentMemberValue.TopicPartition


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The topics that a pattern matched, the metadata version, and the time."""

    topics: frozenset[TopicName]
    version: int
    resolved_at: TimestampMs


# ---- writing


def _record(key: Message, value: Message | None) -> KeyValue:
    return encode_key(key), encode_value(value, _VERSION) if value is not None else None


def group_epoch_record(group: GroupId, epoch: int, metadata_hash: int) -> KeyValue:
    """Errors: KafkaError UNKNOWN_SERVER_ERROR where the epoch is beyond the last one."""
    if epoch > LAST_EPOCH:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The group {group} has used up its epochs.")
    return _record(
        ConsumerGroupMetadataKey(group_id=group), ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    )


def member_record(group: GroupId, member: ConsumerMember) -> KeyValue:
    classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
    protocol = ConsumerGroupMemberMetadataValue.ClassicProtocol
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[protocol(name=name, metadata=data) for name, data in member.classic.protocols],
        )
        if member.classic is not None
        else None,
    )
    return _record(ConsumerGroupMemberMetadataKey(group_id=group, member_id=member.id), value)


def target_record(group: GroupId, member_id: str, target: Assignment) -> KeyValue:
    topics = [_TargetTopic(topic_id=topic, partitions=partitions) for topic, partitions in by_topic(target).items()]
    return _record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics),
    )


def target_metadata_record(group: GroupId, epoch: int, now: TimestampMs) -> KeyValue:
    return _record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now),
    )


def current_record(group: GroupId, member: ConsumerMember) -> KeyValue:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_owned_topics(member.assigned),
        partitions_pending_revocation=_owned_topics(member.pending_revocation),
    )
    return _record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member.id), value)


def pattern_record(group: GroupId, pattern: str, resolved: ResolvedPattern) -> KeyValue:
    return _record(
        ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=pattern),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.resolved_at
        ),
    )


def pattern_tombstone(group: GroupId, pattern: str) -> KeyValue:
    return _record(ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=pattern), None)


def partition_metadata_tombstone(group: GroupId) -> KeyValue:
    return _record(ConsumerGroupPartitionMetadataKey(group_id=group), None)


def member_tombstones(group: GroupId, member_id: str) -> list[KeyValue]:
    """The tombstones of all records of a member, in the order in which they must be written."""
    return [
        _record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member_id), None),
        _record(ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member_id), None),
        _record(ConsumerGroupMemberMetadataKey(group_id=group, member_id=member_id), None),
    ]


def group_tombstones(group: GroupId) -> list[KeyValue]:
    """The tombstones of a group without members."""
    return [
        _record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group), None),
        partition_metadata_tombstone(group),
        _record(ConsumerGroupMetadataKey(group_id=group), None),
    ]


def _owned_topics(owned: Owned) -> list[_OwnedTopic]:
    return [
        _OwnedTopic(
            topic_id=topic, partitions=partitions, assignment_epochs=[owned[topic, each] for each in partitions]
        )
        for topic, partitions in by_topic(owned).items()
    ]


# ---- reading


def decode_record(key: Buffer, value: Buffer | None) -> tuple[Message, Message | None] | None:
    """A record's key and value; None for a record that is not a consumer group's.

    Errors: CodecError when the bytes are no such record.
    """
    table = _KEYS.get(int.from_bytes(key[:2], "big"))
    if table is None:
        return None
    decoded = decode(table, _VERSION, key[2:])
    if value is None:
        return decoded, None
    if len(value) < 2:
        raise CodecError(f"{VALUES[table].__name__}: a value of {len(value)} bytes has no version")
    return decoded, decode(VALUES[table], int.from_bytes(value[:2], "big"), value[2:])


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return frozenset((topic.topic_id, each) for topic in value.topic_partitions for each in topic.partitions)


def owned_of(topics: list[_OwnedTopic], default_epoch: MemberEpoch) -> dict[TopicIdPartition, MemberEpoch]:
    """The partitions that a record assigns to a member. Records before 4.3 have no epochs: `default_epoch` replaces them."""
    owned: dict[TopicIdPartition, MemberEpoch] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or []
        if len(epochs) != len(topic.partitions):
            epochs = [max(default_epoch, 0)] * len(topic.partitions)
        owned.update({(topic.topic_id, each): epoch for each, epoch in zip(topic.partitions, epochs, strict=True)})
    return owned


def classic_of(value: ConsumerGroupMemberMetadataValue) -> ClassicMember | None:
    """The classic fields of a member; None for a member of the new protocol.

    Errors: CodecError if it names no protocol, or if the metadata of its most preferred protocol are no subscription.
    """
    classic = value.classic_member_metadata
    if classic is None:
        return None
    if not classic.supported_protocols:
        raise CodecError("a member of the classic protocol names no protocol")
    protocols = tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols)
    version_of(protocols[0][1])
    return ClassicMember(classic.session_timeout_ms, protocols)
