"""What a group coordinator writes to `__consumer_offsets`, in Kafka's record formats.

A key is a 16-bit record type and the key's fields; a value is a 16-bit version and the value's fields; a null value
removes the key. Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde.
"""

from __future__ import annotations

from typing import TypeVar

from reference.coordinator.classic_group import ClassicGroup, Member, State
from reference.protocol.codec import CodecError, decode, encode
from reference.protocol.messages.group_metadata_key import GroupMetadataKey
from reference.protocol.messages.group_metadata_value import GroupMetadataValue
from reference.protocol.messages.offset_commit_key import OffsetCommitKey
from reference.protocol.messages.offset_commit_value import OffsetCommitValue
from reference.protocol.primitives import Buffer, GroupId, TimestampMs
from reference.protocol.schema import Message

T = TypeVar("T", bound=Message)

KeyValue = tuple[bytes, bytes | None]
"""One record of the log; a null value is a tombstone."""

_GROUP_METADATA_VERSION = 3
_OFFSET_COMMIT_VERSION = 3


def encode_key(key: Message) -> bytes:
    return key.KEY.to_bytes(2, "big") + encode(key, 0)


def encode_value(value: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(value, version)


def group_record(group: ClassicGroup, now: TimestampMs) -> KeyValue:
    """The group's generation and assignment as one record."""
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member.id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata_for(group.protocol or ""),
            assignment=member.assignment,
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=now,
        members=members,
    )
    return encode_key(GroupMetadataKey(group=group.id)), encode_value(value, _GROUP_METADATA_VERSION)


def group_tombstone(group: GroupId) -> KeyValue:
    return encode_key(GroupMetadataKey(group=group)), None


def offset_record(key: OffsetCommitKey, value: OffsetCommitValue | None) -> KeyValue:
    """One committed offset, or its removal."""
    return encode_key(key), encode_value(value, _OFFSET_COMMIT_VERSION) if value else None


def decode_record(key: Buffer, value: Buffer | None) -> tuple[Message, Message | None] | None:
    """A record's key and value; None for a record type that this coordinator does not keep.

    Errors: CodecError when the bytes are no such record.
    """
    kind = int.from_bytes(key[:2], "big")
    if kind in (0, OffsetCommitKey.KEY):
        return decode(OffsetCommitKey, 0, key[2:]), _decode_value(OffsetCommitValue, value)
    if kind == GroupMetadataKey.KEY:
        return decode(GroupMetadataKey, 0, key[2:]), _decode_value(GroupMetadataValue, value)
    return None


def _decode_value(table: type[T], value: Buffer | None) -> T | None:
    if value is None:
        return None
    if len(value) < 2:
        raise CodecError(f"{table.__name__}: a value of {len(value)} bytes has no version")
    return decode(table, int.from_bytes(value[:2], "big"), value[2:])


def restore_group(group: GroupId, value: GroupMetadataValue, now: TimestampMs) -> ClassicGroup:
    """A group as its last record tells it: its members live on and have a session to be heard of (GRP-24)."""
    restored = ClassicGroup(
        id=group,
        state=State.STABLE if value.members else State.EMPTY,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        leader=value.leader,
    )
    for each in value.members:
        restored.members[each.member_id] = Member(
            id=each.member_id,
            client_id=each.client_id,
            client_host=each.client_host,
            session_timeout_ms=each.session_timeout,
            rebalance_timeout_ms=each.rebalance_timeout if each.rebalance_timeout >= 0 else each.session_timeout,
            protocol_type=value.protocol_type,
            protocols=[(value.protocol or "", bytes(each.subscription))],
            deadline=now + each.session_timeout,
            assignment=bytes(each.assignment),
            is_new=False,
        )
    return restored
