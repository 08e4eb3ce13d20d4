"""A classic group, tested through the responses to its members.

Tested are cases that the drawn steps beside Kafka do not reach (`test_groups_beside_kafka`): settings, sizes, records of older
brokers, and failed writes that Kafka handles otherwise. All other responses to members are compared there.
"""

from __future__ import annotations

from typing import Any

import pytest

from linearizability.client.group_member import encode_subscription
from reference.coordinator.classic_groups import check_join, check_sync
from reference.coordinator.classic_rebalances import NEW_MEMBER_JOIN_TIMEOUT_MS
from reference.coordinator.classic_state import TRANSITIONS, State, diagram
from reference.coordinator.group_records import group_record
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.group_metadata_record import GroupMetadataValue
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.messages.sync_group import SyncGroupRequest
from tests.coordinator.group_room import SETTINGS, Room

# ---- the table


def test_every_state_has_its_row_and_may_end() -> None:
    assert set(TRANSITIONS) == set(State)
    assert all(State.DEAD in after for state, after in TRANSITIONS.items() if state is not State.DEAD)


def test_the_diagram_has_every_move() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert sum(len(after) for after in TRANSITIONS.values()) == len(lines) - 3
    assert any(line.startswith("    CompletingRebalance --> Stable: ") for line in lines)


# ---- joining


@pytest.mark.parametrize(
    ("group", "session_timeout_ms", "code"),
    [
        ("", 10_000, ErrorCode.INVALID_GROUP_ID),
        ("g", 5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        ("g", 1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_joins_that_every_group_refuses(group: str, session_timeout_ms: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        check_join(JoinGroupRequest(group_id=group, session_timeout_ms=session_timeout_ms), SETTINGS)
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("member", "how", "code"),
    [
        ("", {"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("nobody", {"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", {"group": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", {"group": "new", "protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("", {"group": "new", "protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_refused_joins(member: str, how: dict[str, object], code: ErrorCode) -> None:
    room = Room()
    room.two_members()
    assert room.refused_join("x", member, **how) == code


def test_a_group_that_lost_its_members_while_it_waits_for_a_newcomer_takes_others() -> None:
    """Found by `fuzz --workload groups`: with no members, no protocol was known to all of them."""
    room = Room()
    leader, follower, _ = room.two_members()
    assert room.refused_join("c1", version=4) == ErrorCode.MEMBER_ID_REQUIRED
    room.leave(leader, follower)
    assert room.group.state is State.PREPARING_REBALANCE and not room.group.members
    assert room.refused_join("d1", protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join("e1", protocols=("other",)) is None, "it is a member, and waits for the one that is awaited"


def test_a_group_that_has_become_too_large_is_called_to_shrink_when_it_is_loaded() -> None:
    room = Room()
    leader, follower, _ = room.two_members()
    room.settings = Room(max_size=1).settings
    room.crash()
    assert room.group.state is State.PREPARING_REBALANCE
    room.join("a3", leader)
    assert room.refused_join("b3", follower) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "a3" not in room.answers, "as in Kafka the refusal does not end the rebalance"
    room.advance(20_000)
    assert [member.member_id for member in room.joined("a3").members] == [leader]


def test_a_static_member_that_returns_with_other_topics_changes_the_known_subscriptions_in_the_next_generation() -> (
    None
):
    room = Room()
    room.join("a1", instance="i", metadata=encode_subscription(["events"]))
    member = room.joined("a1").member_id
    room.sync("s1", member, 1, {member: b"A"})
    room.join("a2", instance="i", metadata=encode_subscription(["orders"]))
    assert room.joined("a2").generation_id == 1
    assert room.group.is_subscribed_to("events") and not room.group.is_subscribed_to("orders")
    room.crash()
    assert room.group.is_subscribed_to("orders") and not room.group.is_subscribed_to("events")


def test_any_text_is_a_group_id_and_any_bytes_are_metadata() -> None:
    """Connect and Streams have their own protocol types and metadata; the broker passes them on unchanged."""
    room = Room()
    strange = "gruppe\x00 ∑ 日本 " + "x" * 300
    room.join("a1", group=strange, protocol_type="connect", protocols=("sessioned",), metadata=bytes(range(256)))
    answer = room.joined("a1")
    assert answer.protocol_type == "connect"
    assert answer.members[0].metadata == bytes(range(256))
    room.sync("s1", answer.member_id, 1, {answer.member_id: b"\x00\xff"}, group=strange)
    assert room.synced("s1") == b"\x00\xff"
    room.crash()
    assert room.heartbeat(answer.member_id, 1, group=strange) == ErrorCode.NONE


# ---- protocols and delays


def test_a_protocol_that_a_member_names_twice_counts_once() -> None:
    room = Room()
    room.join("a1", protocols=("range", "range"))
    leader = room.joined("a1").member_id
    room.join("b1", protocols=("sticky", "range"))
    room.join("a2", leader, protocols=("range", "range"))
    assert room.joined("a2").protocol_name == room.joined("b1").protocol_name == "range"


@pytest.mark.parametrize("rebalance_timeout_ms", [0, -1])
def test_a_rebalance_timeout_of_zero_waits_for_no_member(rebalance_timeout_ms: int) -> None:
    room = Room()
    room.join("a1", rebalance_timeout_ms=rebalance_timeout_ms)
    first = room.joined("a1").member_id
    assert room.heartbeat(first, 1) == ErrorCode.UNKNOWN_MEMBER_ID, "not even for its SyncGroup"
    assert room.group.is_empty


# ---- heartbeats, sessions, leaving


def test_a_new_member_does_not_wait_for_ever() -> None:
    room = Room()
    room.join("a1", rebalance_timeout_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS, session_timeout_ms=1_800_000)
    leader = room.joined("a1").member_id
    room.sync("s1", leader, 1)
    room.join("b1")
    room.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert getattr(room.answers["b1"], "error_code", None) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_record_of_an_empty_group_is_retried_after_a_failed_write() -> None:
    room = Room()
    room.join("a1")
    leader = room.joined("a1").member_id
    room.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.leave(leader)
    room.advance(5000)
    assert room.group.state is State.PREPARING_REBALANCE
    room.refusal = None
    room.advance(1000)
    assert room.group.state is State.EMPTY


# ---- fail-over


def test_waiting_requests_fail_when_another_node_coordinates() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.join("b2", follower, metadata=b"new")
    room.crash()
    assert getattr(room.answers["b2"], "error_code", None) == ErrorCode.NOT_COORDINATOR
    assert room.heartbeat(leader, generation) == ErrorCode.NONE, "the call to join was never written"


def test_a_group_of_an_older_kafka_is_read() -> None:
    """Before version 1 of the record members had no rebalance timeout."""
    room = Room()
    member = GroupMetadataValue.MemberMetadata(
        member_id="m", session_timeout=10_000, subscription=b"s", assignment=b"A"
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=7, protocol="range", leader="m", members=[member])
    room.write([group_record("g", value)])
    assert room.heartbeat("m", 7) == ErrorCode.NONE
    assert room.group.rebalance_timeout_ms == 10_000


def test_a_leader_that_the_record_does_not_name_is_another_member() -> None:
    """A record that no coordinator writes must not make the group unusable."""
    room = Room()
    member = GroupMetadataValue.MemberMetadata(
        member_id="m", session_timeout=10_000, subscription=b"s", assignment=b"A"
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=7, protocol="range", leader="gone", members=[member]
    )
    room.write([group_record("g", value)])
    room.join("a1", "m")
    assert (room.joined("a1").leader, room.joined("a1").generation_id) == ("m", 8)


# ---- syncing


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"generation": 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol": ("connect", None)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": ("consumer", "sticky")}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": ("consumer", "range")}, ErrorCode.NONE),
        ({"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_refused_syncs(how: dict[str, Any], code: ErrorCode) -> None:
    room = Room()
    _, follower, generation = room.two_members()
    answer = room.sync("x", **{"member": follower, "generation": generation, **how})
    assert answer is not None
    assert answer.error_code == code


@pytest.mark.parametrize(
    ("group", "protocol", "version", "code"),
    [
        ("g", ("consumer", None), 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("g", (None, "range"), 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("", (None, None), 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("", (None, None), 4, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_syncs_that_every_group_refuses(
    group: str, protocol: tuple[str | None, str | None], version: int, code: ErrorCode
) -> None:
    request = SyncGroupRequest(group_id=group, protocol_type=protocol[0], protocol_name=protocol[1])
    with pytest.raises(KafkaError) as refused:
        check_sync(request, version)
    assert refused.value.code is code


def test_a_sync_names_its_protocol_from_version_5_on() -> None:
    check_sync(SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range"), 5)
    check_sync(SyncGroupRequest(group_id="g"), 4)
