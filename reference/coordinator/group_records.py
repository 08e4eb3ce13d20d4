"""The records of a group coordinator in `__consumer_offsets`, in Kafka's formats.

A key is a 16-bit record type and the key's fields; a value is a 16-bit version and the value's fields; a null value
removes the key. Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde and GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from reference.coordinator.group import KeyValue
from reference.protocol.codec import CodecError, decode, encode
from reference.protocol.messages.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from reference.protocol.messages.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from reference.protocol.primitives import Buffer, GroupId, TopicName
from reference.protocol.schema import Message

T = TypeVar("T", bound=Message)

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1
"""The only version with an expiry timestamp, for OffsetCommit requests 2 to 4 with a retention time."""

REMEMBERED_OFFSET_KEYS = 4096
"""The size of the caches of encoded and decoded offset keys: groups commit the same few partitions again and again."""

Place = tuple[TopicName, int]
"""A partition."""


def encode_key(key: Message) -> bytes:
    return key.KEY.to_bytes(2, "big") + encode(key, 0)


def encode_value(value: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(value, version)


def group_record(group: GroupId, value: GroupMetadataValue) -> KeyValue:
    """A classic group's generation and assignment."""
    return encode_key(GroupMetadataKey(group=group)), encode_value(value, GROUP_METADATA_VERSION)


def group_tombstone(group: GroupId) -> KeyValue:
    return encode_key(GroupMetadataKey(group=group)), None


@lru_cache(maxsize=REMEMBERED_OFFSET_KEYS)
def offset_key(group: GroupId, place: Place) -> bytes:
    """The key of a group's offset in a partition."""
    return encode_key(OffsetCommitKey(group=group, topic=place[0], partition=place[1]))


@lru_cache(maxsize=REMEMBERED_OFFSET_KEYS)
def read_offset_key(key: bytes) -> tuple[GroupId, Place]:
    """Group, topic and partition of an offset's key. Errors: CodecError."""
    found = decode_key(OffsetCommitKey, key)
    return found.group, (found.topic, found.partition)


def offset_record(group: GroupId, place: Place, value: OffsetCommitValue | None) -> KeyValue:
    """The record of a committed offset, or its tombstone."""
    if value is None:
        return offset_key(group, place), None
    version = OFFSET_COMMIT_VERSION if value.expire_timestamp < 0 else OFFSET_COMMIT_VERSION_WITH_EXPIRY
    return offset_key(group, place), encode_value(value, version)


def record_type(key: Buffer) -> int:
    """The record type of a key. Errors: CodecError if the key is too short."""
    if len(key) < 2:
        raise CodecError(f"a key of {len(key)} bytes has no record type")
    return int.from_bytes(key[:2], "big", signed=True)


def decode_key(table: type[T], key: Buffer) -> T:
    """A key's fields. Errors: CodecError."""
    return decode(table, 0, key[2:])


def decode_value(table: type[T], value: Buffer | None) -> T | None:
    """A value's fields, None for a tombstone. Errors: CodecError."""
    if value is None:
        return None
    if len(value) < 2:
        raise CodecError(f"{table.__name__}: a value of {len(value)} bytes has no version")
    return decode(table, int.from_bytes(value[:2], "big", signed=True), value[2:])
