"""SyncGroup of classic groups: the leader's assignment, and members that wait for it."""

from __future__ import annotations

import pytest

from reference.coordinator.classic_groups import check_sync
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.coordinator.group_room import Room


def test_the_followers_sync_waits_for_the_leaders() -> None:
    room = Room()
    room.join("a1")
    leader = room.joined("a1").member_id
    room.join("b1")
    room.join("a2", leader)
    follower = room.joined("b1").member_id
    assert room.sync("sb", follower, 2) is None
    room.sync("sa", leader, 2, {leader: b"A"})
    assert room.synced("sb") == b"", "a member that the leader leaves out gets nothing"


def test_a_sync_after_the_assignment_gets_it_at_once() -> None:
    room = Room()
    _, follower, generation = room.two_members()
    assert room.sync("again", follower, generation) is not None
    assert room.synced("again") == b"B"


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
def test_refused_syncs(how: dict[str, object], code: ErrorCode) -> None:
    room = Room()
    _, follower, generation = room.two_members()
    answer = room.sync("x", **{"member": follower, "generation": generation, **how})  # type: ignore[arg-type]
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
def test_syncs_that_no_group_accepts(
    group: str, protocol: tuple[str | None, str | None], version: int, code: ErrorCode
) -> None:
    request = SyncGroupRequest(group_id=group, protocol_type=protocol[0], protocol_name=protocol[1])
    with pytest.raises(KafkaError) as refused:
        check_sync(request, version)
    assert refused.value.code is code


def test_from_version_5_on_a_sync_says_its_protocol() -> None:
    check_sync(SyncGroupRequest(group_id="g", protocol_type="consumer", protocol_name="range"), 5)
    check_sync(SyncGroupRequest(group_id="g"), 4)


def test_a_waiting_sync_fails_when_a_rebalance_begins() -> None:
    room = Room()
    room.join("a1")
    leader = room.joined("a1").member_id
    room.join("b1")
    room.join("a2", leader)
    follower = room.joined("b1").member_id
    room.sync("sb", follower, 2)
    room.join("c1")
    answer = room.answers["sb"]
    assert isinstance(answer, SyncGroupResponse)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    late = room.sync("sa", leader, 2, {leader: b"A"})
    assert late is not None
    assert late.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_cannot_be_written_is_nobodys() -> None:
    room = Room()
    room.join("a1")
    leader = room.joined("a1").member_id
    room.refusal = ErrorCode.UNKNOWN_SERVER_ERROR
    answer = room.sync("sa", leader, 1, {leader: b"A"})
    assert answer is not None
    assert (answer.error_code, answer.assignment) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
    room.refusal = None
    assert room.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    room.join("a2", leader)
    assert room.joined("a2").generation_id == 2


def test_who_does_not_ask_for_its_assignment_is_given_up() -> None:
    room = Room()
    leader, _, _ = room.two_members()
    room.join("a3", leader)
    room.join("b3", room.joined("b1").member_id)
    room.sync("s3", leader, 3, {leader: b"A"})
    for _ in range(5):
        room.advance(4000)
        room.heartbeat(leader, 3)
        room.heartbeat(room.joined("b1").member_id, 3)
    assert [*room.group.members] == [leader], "it sent heartbeats, but took no assignment"
