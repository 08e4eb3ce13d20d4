"""Committed offsets: who may commit, what is kept, within transactions or not, and when it goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.coordinator.classic_state import State
from reference.coordinator.offset_commits import _java_length  # pyright: ignore[reportPrivateUsage]
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from reference.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from reference.protocol.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from reference.protocol.messages.offset_delete import OffsetDeleteRequest
from tests.coordinator.group_room import Room

WEEK_MS = 7 * 24 * 3_600_000
CHECK_MS = 600_000
P, Q = (7, 0), (8, 0)
"""Two producers."""


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, as every version begins."""
    return b"\x00\x01" + encode(ConsumerProtocolSubscription(topics=[*topics]), 0) + b"fields of a later version"


def delete(room: Room, topic: str = "events", partition: int = 0, group: str = "g") -> int:
    """One partition's OffsetDelete; gives its error, or the one that refuses it as a whole."""
    place = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)
    topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[place])]
    try:
        decided = room.shard.commits.delete(OffsetDeleteRequest(group_id=group, topics=topics))
        room.write(decided.records)
    except KafkaError as error:
        return error.code
    return decided.response.topics[0].partitions[0].error_code


# ---- who may commit


def test_the_last_commit_wins_also_a_smaller_one() -> None:
    room = Room()
    assert room.commit(10, metadata="ten", leader_epoch=3) == ErrorCode.NONE
    assert room.commit(4) == ErrorCode.NONE
    room.crash()
    assert room.committed() == 4
    assert room.group.state_name == "Empty"


def test_everything_of_a_commit_is_kept() -> None:
    room = Room()
    room.commit(10, metadata="zehn ∑", leader_epoch=3)
    room.crash()
    kept = room.shard.offsets.of("g")["events", 0]
    assert (kept.offset, kept.metadata, kept.leader_epoch) == (10, "zehn ∑", 3)
    assert (kept.committed_at, kept.topic_id) == (room.now, room.topics.ids["events"])


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
def test_commits_of_nobodys_group(how: dict[str, object], code: ErrorCode) -> None:
    room = Room()
    assert room.commit(1, **how) == code  # type: ignore[arg-type]
    stored = room.committed(group=str(how.get("group", "g")))
    assert stored == (1 if code is ErrorCode.NONE else None)


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"generation": 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 3}, ErrorCode.ILLEGAL_GENERATION),
        ({"member": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member": "", "generation": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_of_members(how: dict[str, object], code: ErrorCode) -> None:
    room = Room()
    leader, _, generation = room.two_members()
    asked = {"member": leader, "generation": generation, **how}
    assert room.commit(1, **asked) == code  # type: ignore[arg-type]
    expected = ErrorCode.NONE if how == {"member": "", "generation": -1} else code
    assert room.commit_in_transaction(1, P, **asked) == expected  # type: ignore[arg-type]


def test_commits_during_a_rebalance() -> None:
    """Members save what they have done when they are called, but not between two assignments (OFF-09, OFF-17)."""
    room = Room()
    leader, follower, generation = room.two_members()
    room.join("b2", follower, metadata=b"new")
    assert room.group.state is State.PREPARING_REBALANCE
    assert room.commit(1, member=leader, generation=generation) == ErrorCode.NONE
    room.join("a3", leader)
    assert room.group.state is State.COMPLETING_REBALANCE
    assert room.commit(2, member=leader, generation=generation + 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert room.commit_in_transaction(2, P, member=leader, generation=generation + 1) == ErrorCode.NONE


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    room = Room()
    leader, _, generation = room.two_members()
    room.advance(9_000)
    room.commit(1, member=leader, generation=generation)
    room.shard.classic.committed("g", leader, room.now)
    room.advance(9_000)
    assert leader in room.group.members


@given(st.text())
def test_metadata_are_measured_as_java_measures_them(text: str) -> None:
    assert _java_length(text) == len(text.encode("utf-16-be", "surrogatepass")) // 2


# ---- transactions


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("crash", [True, False])
def test_pending_offsets_count_when_the_marker_says_so(committed: bool, crash: bool) -> None:
    room = Room()
    room.commit(1)
    room.commit_in_transaction(5, P)
    assert room.committed() == 1
    assert room.shard.offsets.is_unstable("g", ("events", 0))
    if crash:
        room.crash()
    room.end_transaction(P, committed=committed)
    if crash:
        room.crash()
    assert room.committed() == (5 if committed else 1)
    assert not room.shard.offsets.is_unstable("g", ("events", 0))


def test_an_ordinary_commit_behind_the_pending_one_stays_the_last() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    room.commit(9)
    room.end_transaction(P, committed=True)
    assert room.committed() == 9


def test_of_two_transactions_the_later_commit_in_the_log_wins() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    room.commit_in_transaction(6, Q)
    room.end_transaction(Q, committed=True)
    assert room.shard.offsets.is_unstable("g", ("events", 0)), "the other one is still open"
    room.end_transaction(P, committed=True)
    assert room.committed() == 6


def test_a_deleted_offset_is_not_brought_back_by_a_marker() -> None:
    room = Room()
    room.commit_in_transaction(5, P)
    assert delete(room) == ErrorCode.NONE
    room.end_transaction(P, committed=True)
    assert room.committed() is None


def test_transactional_commits_of_what_is_not_there() -> None:
    room = Room()
    assert room.commit_in_transaction(1, P, topic="unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert room.commit_in_transaction(1, P, generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert room.commit_in_transaction(1, P, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert room.log == []


# ---- deleting


def test_offsets_of_topics_that_are_consumed_are_not_deleted() -> None:
    room = Room()
    room.commit(1)
    room.commit(2, topic="orders")
    room.join("a1", metadata=subscription("events"))
    assert delete(room) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(room, "orders") == ErrorCode.NONE
    assert (room.committed(), room.committed(topic="orders")) == (1, None)


def test_of_consumers_that_say_nothing_readable_everything_is_taken_to_be_consumed() -> None:
    room = Room()
    room.commit(1)
    room.join("a1", metadata=b"?")
    assert delete(room) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"group": "unknown"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"topic": "unknown"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "orders"}, ErrorCode.NONE),
    ],
)
def test_deleting_what_is_not_there(how: dict[str, object], code: ErrorCode) -> None:
    room = Room()
    room.commit(1)
    assert delete(room, **how) == code  # type: ignore[arg-type]


def test_what_members_that_are_no_consumers_use_is_unknown() -> None:
    room = Room()
    room.join("a1", protocol_type="connect")
    assert delete(room) == ErrorCode.NON_EMPTY_GROUP


# ---- expiry and deletion of topics


def test_offsets_of_nobodys_group_expire_from_their_commit() -> None:
    room = Room()
    room.commit(1)
    room.advance(WEEK_MS - 1000)
    room.commit(2, partition=1)
    room.advance(CHECK_MS)
    assert (room.committed(), room.committed(partition=1)) == (None, 2)
    room.advance(WEEK_MS + CHECK_MS)
    assert room.shard.groups == {}, "nothing is left of the group"
    room.crash()
    assert room.shard.groups == {}


def test_an_empty_groups_offsets_expire_from_when_it_became_empty() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.commit(1, member=leader, generation=generation)
    for _ in range(100):
        room.advance(5000)
        room.heartbeat(leader, generation)
        room.heartbeat(follower, generation)
    became_empty = room.now
    room.leave(leader, follower)
    room.crash()
    room.advance(WEEK_MS - 1000)
    assert room.committed() == 1
    room.advance(CHECK_MS + 1000)
    assert room.committed() is None
    assert room.now - became_empty < WEEK_MS + 2 * CHECK_MS


def test_topics_of_a_live_group_do_not_expire_but_others_do() -> None:
    room = Room(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1_000)
    room.commit(1)
    room.commit(2, topic="orders")
    room.join("a1", metadata=subscription("events"), session_timeout_ms=1_800_000)
    member = room.joined("a1").member_id
    room.sync("s1", member, 1, {member: b"A"})
    room.advance(100_000)
    assert (room.committed(), room.committed(topic="orders")) == (1, None)


def test_a_commit_may_say_when_it_expires() -> None:
    room = Room()
    room.commit(1, retention_ms=30_000, version=4)
    room.crash()
    room.advance(CHECK_MS)
    assert room.committed() is None


@pytest.mark.parametrize(("retention_ms", "kept"), [(0, None), (-2, None), (-(2**63), None), (2**63 - 1, 1)])
def test_a_commit_may_name_any_time_to_be_kept(retention_ms: int, kept: int | None) -> None:
    room = Room()
    assert room.commit(1, retention_ms=retention_ms, version=4) == ErrorCode.NONE
    assert room.committed() == 1
    room.crash()
    room.advance(WEEK_MS + CHECK_MS)
    assert room.committed() == kept


def test_pending_offsets_keep_their_partitions_offset() -> None:
    room = Room()
    room.commit(1)
    room.commit_in_transaction(2, P)
    room.advance(WEEK_MS + CHECK_MS)
    assert room.committed() == 1
    room.end_transaction(P, committed=False)
    room.advance(CHECK_MS)
    assert room.shard.groups == {}


def test_a_deleted_topics_offsets_vanish() -> None:
    room = Room()
    room.commit(1)
    room.commit(2, topic="orders")
    room.commit_in_transaction(3, P, partition=1)
    room.shard.topics_deleted({room.topics.ids["events"]: "events"}, room.now)
    room.end_transaction(P, committed=True)
    room.crash()
    assert (room.committed(), room.committed(partition=1), room.committed(topic="orders")) == (None, None, 2)


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
