"""Converts a group with members to the other type (KIP-848, online migration; CGH-17).

A classic group of consumers becomes a consumer group when the first member of the new protocol joins it: its generation
becomes the epoch, its assignment both the current and the target assignment. A consumer group with only classic members
left becomes a classic one, and rebalances. One write removes the records of the old group and has those of the new one.
Source: GroupMetadataManager.convertToConsumerGroup and convertToClassicGroup of 4.3.1; group.consumer.migration.policy.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference.coordinator import consumer_group_records as records
from reference.coordinator.assignment import Assignment, with_epoch
from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_member import Client, Member
from reference.coordinator.consumer_group import ConsumerGroup, target_of
from reference.coordinator.consumer_group_replay import replay
from reference.coordinator.consumer_member import ClassicMember, ConsumerMember
from reference.coordinator.consumer_protocol import (
    CONSUMER,
    assignment_of,
    encode_assignment,
    subscription_of,
    version_of,
)
from reference.coordinator.group import KeyValue
from reference.coordinator.group_settings import ConsumerGroupSettings
from reference.coordinator.metadata_hash import TopicHashes
from reference.coordinator.topics import Topics
from reference.protocol.codec import CodecError
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import LONG_AGO, TimestampMs

# ---- to the new protocol


def upgrade(
    classic: ClassicGroup, topics: Topics, hashes: TopicHashes, settings: ConsumerGroupSettings
) -> tuple[ConsumerGroup, list[KeyValue]]:
    """The consumer group that a classic one with members becomes, and the records of the conversion.

    Errors: KafkaError GROUP_ID_NOT_FOUND if it cannot be converted.
    """
    _check_upgrade(classic, settings)
    try:
        members = [_upgraded(classic, member, topics) for member in classic.members.values()]
    except CodecError as error:
        raise _not_upgraded(classic, str(error)) from error
    written = _records(classic, members, hashes)
    group = ConsumerGroup(classic.id)
    for key, value in written:
        decoded = records.decode_record(key, value)
        assert decoded is not None, "only a consumer group's records were made"
        replay(group, *decoded)
    return group, [*classic.tombstones(), *written]


def _check_upgrade(classic: ClassicGroup, settings: ConsumerGroupSettings) -> None:
    if not settings.may_upgrade:
        raise _not_upgraded(classic, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER:
        raise _not_upgraded(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > settings.max_size:
        raise _not_upgraded(classic, "the group size exceeds the consumer group maximum size")


def _not_upgraded(classic: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {classic.id} to consumer group because {why}."
    )


def _upgraded(classic: ClassicGroup, member: Member, topics: Topics) -> ConsumerMember:
    metadata = member.metadata_for(classic.protocol or classic.select_protocol())
    subscription = subscription_of(metadata, topics)
    return ConsumerMember(
        member.id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client.id,
        client_host=member.client.host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=subscription.topics,
        assigned=with_epoch(assignment_of(member.assignment, topics), classic.generation),
        classic=ClassicMember(member.session_timeout_ms, tuple(member.protocols)),
    )


def _records(classic: ClassicGroup, members: Sequence[ConsumerMember], hashes: TopicHashes) -> list[KeyValue]:
    id, epoch = classic.id, classic.generation
    metadata_hash = hashes.of({topic for member in members for topic in member.topics})
    return [
        *(records.member_record(id, member) for member in members),
        records.group_epoch_record(id, epoch, metadata_hash),
        *(records.target_record(id, member.id, frozenset(member.assigned)) for member in members),
        records.target_metadata_record(id, epoch, LONG_AGO),
        *(records.current_record(id, member) for member in members),
    ]


# ---- back to the classic one


def downgrade(
    group: ConsumerGroup, members: Sequence[ConsumerMember], topics: Topics, now: TimestampMs
) -> list[KeyValue]:
    """The records that convert the group to a classic one of `members`, which all speak the classic protocol.

    Errors: KafkaError UNKNOWN_SERVER_ERROR if they have no protocol in common, or one's metadata cannot be decoded.
    """
    classic = ClassicGroup(group.id)
    for member in members:
        classic.add(_downgraded(member))
    classic.generation, classic.state_since = group.epoch, now
    if not classic.has_common_protocol:
        raise _not_downgraded(classic, "its members have no protocol in common")
    classic.protocol = classic.select_protocol()
    assignments = {
        member.id: _assignment(classic, classic.members[member.id], target_of(group, member), topics)
        for member in members
    }
    return [*group.tombstones(), classic.record(assignments)]


def _downgraded(member: ConsumerMember) -> Member:
    assert member.classic is not None, "only members of the classic protocol are left"
    return Member(
        id=member.id,
        instance_id=member.instance_id,
        client=Client(member.client_id, member.client_host),
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocol_type=CONSUMER,
        protocols=[*member.classic.protocols],
    )


def _assignment(classic: ClassicGroup, member: Member, target: Assignment, topics: Topics) -> bytes:
    try:
        version = version_of(member.metadata_for(classic.protocol))
    except CodecError as error:
        raise _not_downgraded(classic, str(error)) from error
    return encode_assignment(target, topics, version)


def _not_downgraded(classic: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"Cannot downgrade consumer group {classic.id} to classic group because {why}."
    )
