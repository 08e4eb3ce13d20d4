"""Well-formed records that no coordinator writes: requests to their groups may be refused, but no exception escapes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from reference.coordinator.classic_member import Client
from reference.coordinator.consumer_group_records import VALUES, group_epoch_record
from reference.coordinator.group import KeyValue
from reference.coordinator.group_records import encode_key, encode_value
from reference.protocol.codec import CodecError, encode
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from reference.protocol.messages.consumer_group_member_metadata_record import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from reference.protocol.messages.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from reference.protocol.messages.heartbeat import HeartbeatRequest
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.messages.leave_group import LeaveGroupRequest
from reference.protocol.messages.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from reference.protocol.schema import Field, Message, default_of
from tests.coordinator.consumer_room import Room

TEXTS = ["", "g", "m1", "m2", "i1", "events", "orders", "consumer", "range", "sticky", "client", "ev.*", "("]
NUMBERS = [-2, -1, 0, 1, 2, 3, 127, 2**31 - 1]
SMALL_NUMBERS = [-128, -1, 0, 1, 2, 3, 127]
SUBSCRIPTION = bytes.fromhex("0000000000010006") + b"events" + bytes.fromhex("00000000")
BYTES = [b"", b"\0", SUBSCRIPTION, SUBSCRIPTION[:-2], bytes(6), b"\xff" * 9]
VALUES_OF_KEYS = {**VALUES, GroupMetadataKey: GroupMetadataValue, OffsetCommitKey: OffsetCommitValue}
MEMBERS = ["m1", "m2", ""]


def some_value(chance: random.Random, field: Field, version: int) -> Any:
    if version in field.nullable and chance.random() < 0.2:
        return None
    if version in field.tagged and chance.random() < 0.3:
        return default_of(field)
    if field.kind == "array":
        return [some_element(chance, field.element, version) for _ in range(chance.choice((0, 1, 1, 2)))]
    if field.kind == "struct":
        return some_message(chance, field.element, version)
    return some_element(chance, field.kind, version)


def some_element(chance: random.Random, kind: Any, version: int) -> Any:
    match kind:
        case "string":
            return chance.choice(TEXTS)
        case "bytes":
            return chance.choice(BYTES)
        case "uuid":
            return UUID(int=chance.randrange(4))
        case "int8":
            return chance.choice(SMALL_NUMBERS)
        case "int16" | "int32" | "int64":
            return chance.choice(NUMBERS)
        case "bool":
            return chance.random() < 0.5
        case _:
            return some_message(chance, kind, version)


def some_message(chance: random.Random, table: type[Message], version: int) -> Message:
    message = table()
    for field in table.FIELDS:
        if version in field.versions:
            setattr(message, field.name, some_value(chance, field, version))
    return message


def some_record(chance: random.Random) -> KeyValue:
    """A record about the group `g`, most often of the member `m1` or `m2`."""
    table = chance.choice([*VALUES_OF_KEYS])
    key: Any = some_message(chance, table, 0)
    setattr(key, "group" if hasattr(key, "group") else "group_id", "g")
    if hasattr(key, "member_id"):
        key.member_id = chance.choice(MEMBERS)
    if chance.random() < 0.1:
        return encode_key(key), None
    value = VALUES_OF_KEYS[table]
    version = chance.choice([*value.VERSIONS])
    return encode_key(key), encode_value(some_message(chance, value, version), version)


def ask(room: Room, chance: random.Random, token: int) -> None:
    """Send one request about the group."""
    shard, now = room.shard, room.now
    member, instance = chance.choice(MEMBERS), chance.choice([None, None, "i1"])
    generation = chance.choice(NUMBERS)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    names = chance.choice([["range"], ["sticky"], ["range", "sticky"], [""]])
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[protocol(name=name, metadata=SUBSCRIPTION) for name in names],
    )
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"")],
    )
    beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member, group_instance_id=instance)
    leave = LeaveGroupRequest(
        group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=member, group_instance_id=instance)]
    )
    newer = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member or "m3",
        member_epoch=chance.choice([-2, -1, 0, 0, 1, 2]),
        instance_id=instance,
        rebalance_timeout_ms=6000,
        subscribed_topic_names=["events"],
        topic_partitions=[],
        subscribed_topic_regex=chance.choice([None, "ev.*"]),
    )
    asked: list[Callable[[], object]] = [
        lambda: shard.join(join, chance.choice([3, 9]), Client("client", "/127.0.0.1"), token, now),
        lambda: shard.sync(sync, token, now),
        lambda: shard.heartbeat(beat, now),
        lambda: shard.leave(leave, 3, now),
        lambda: room.beat(newer),
        lambda: room.pass_time(chance.choice([1, 5000, 60_000])),
    ]
    with suppress(KafkaError):
        chance.choice(asked)()


def expect_readable(answers: Iterable[Message]) -> None:
    """Encode the responses. Errors: CodecError."""
    for answer in answers:
        encode(answer, type(answer).VERSIONS.highest)


@pytest.mark.parametrize("first_seed", range(0, 600, 100))
def test_whatever_a_groups_records_are_requests_are_answered_or_refused(first_seed: int) -> None:
    replayed = granted = 0
    for seed in range(first_seed, first_seed + 100):
        chance = random.Random(seed)
        room = Room(events=2, orders=1)
        for _ in range(chance.randrange(1, 8)):
            with suppress(CodecError):
                room.write([some_record(chance)], room.now)
                replayed += 1
        room.shard.loaded(room.now)
        for token in range(20):
            ask(room, chance, token)
        expect_readable(room.answers.values())
        granted += sum(getattr(each, "error_code", None) == ErrorCode.NONE for each in room.answers.values())
    assert replayed > 200 and granted > 40, f"{replayed} records replayed, {granted} requests granted"


def test_a_classic_member_without_a_protocol_is_no_member() -> None:
    room = Room(events=2)
    classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(session_timeout_ms=6000, supported_protocols=[])
    value = ConsumerGroupMemberMetadataValue(subscribed_topic_names=["events"], classic_member_metadata=classic)
    room.write([group_epoch_record("g", 1, 0)], room.now)
    with pytest.raises(CodecError, match="names no protocol"):
        room.write(
            [(encode_key(ConsumerGroupMemberMetadataKey(group_id="g", member_id="m1")), encode_value(value, 0))],
            room.now,
        )
    room.shard.loaded(room.now)
    room.shard.sync(SyncGroupRequest(group_id="g", generation_id=1, member_id="m1"), "token", room.now)
    answer = room.answers["token"]
    assert isinstance(answer, SyncGroupResponse)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
