"""Committed offsets: cases that the drawn steps beside Kafka do not reach (`test_groups_beside_kafka`).

Permission to commit, transactions, deletions and expiry are compared there.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.coordinator.offset_commits import _java_length  # pyright: ignore[reportPrivateUsage]
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.legacy_offset_commit_record import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from reference.protocol.messages.offset_delete import OffsetDeleteRequest
from reference.protocol.primitives import ProducerEpoch, ProducerId
from tests.coordinator.group_room import Room

WEEK_MS = 7 * 24 * 3_600_000
CHECK_MS = 600_000
P = (ProducerId(7), ProducerEpoch(0))
"""A producer."""


def delete(room: Room, topic: str = "events", partition: int = 0, group: str = "g") -> int:
    """Delete one partition's offset; return its error, or that of the whole request."""
    place = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)
    topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[place])]
    try:
        decided = room.shard.commits.delete(OffsetDeleteRequest(group_id=group, topics=topics))
        room.write(decided.records)
    except KafkaError as error:
        return error.code
    return decided.response.topics[0].partitions[0].error_code


# ---- who may commit


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"topic": "unknown"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "unknown", "version": 10}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"version": 10}, ErrorCode.NONE),
        ({"metadata": "x" * 4096}, ErrorCode.NONE),
        ({"metadata": "x" * 4097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"metadata": "日" * 4096}, ErrorCode.NONE),
        ({"metadata": "𝄞" * 2049}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"generation": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"generation": 1, "version": 8}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 1, "topic": "unknown"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"member": "x"}, ErrorCode.NONE),
        ({"group": ""}, ErrorCode.NONE),
    ],
)
def test_commits_to_a_group_without_members(how: dict[str, Any], code: ErrorCode) -> None:
    room = Room()
    assert room.commit(1, **how) == code
    stored = room.committed(group=str(how.get("group", "g")))
    assert stored == (1 if code is ErrorCode.NONE else None)


@given(st.text())
def test_metadata_are_measured_as_java_measures_them(text: str) -> None:
    assert _java_length(text) == len(text.encode("utf-16-be", "surrogatepass")) // 2


# ---- transactions


def test_transactional_commits_that_are_refused() -> None:
    room = Room()
    assert room.commit_in_transaction(1, P, topic="unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert room.commit_in_transaction(1, P, generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert room.commit_in_transaction(1, P, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert room.log == []


# ---- deleting


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"group": "unknown"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"topic": "unknown"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "orders"}, ErrorCode.NONE),
    ],
)
def test_deletions_of_other_offsets_leave_the_stored_one(how: dict[str, Any], code: ErrorCode) -> None:
    room = Room()
    room.commit(1)
    assert delete(room, **how) == code
    assert room.committed() == 1


def test_no_offset_of_a_group_with_other_members_than_consumers_is_deleted() -> None:
    room = Room()
    room.join("a1", protocol_type="connect")
    assert delete(room) == ErrorCode.NON_EMPTY_GROUP


# ---- expiry and deletion of topics


@pytest.mark.parametrize(("retention_ms", "kept"), [(0, None), (-2, None), (-(2**63), None), (2**63 - 1, 1)])
def test_a_commit_may_name_any_time_to_be_kept(retention_ms: int, kept: int | None) -> None:
    room = Room()
    assert room.commit(1, retention_ms=retention_ms, version=4) == ErrorCode.NONE
    assert room.committed() == 1
    room.crash()
    room.advance(WEEK_MS + CHECK_MS)
    assert room.committed() == kept


def test_offsets_of_an_earlier_topic_of_this_name_stay() -> None:
    room = Room()
    room.commit(1)
    room.shard.topics_deleted({room.topics.ids["orders"]: "events"}, room.now)
    assert room.committed() == 1


def test_records_of_the_oldest_kafka_are_read() -> None:
    room = Room()
    key = b"\x00\x00" + encode(LegacyOffsetCommitKey(group="g", topic="events", partition=1), 0)
    value = b"\x00\x00" + encode(LegacyOffsetCommitValue(offset=5, metadata="old", commit_timestamp=room.now), 0)
    room.write([(key, value)])
    assert room.committed(partition=1) == 5
    room.write([(key, None)])
    assert room.committed(partition=1) is None
