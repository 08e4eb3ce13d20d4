"""Members that keep their place over a restart, by the name of their instance (KIP-345, KIP-814)."""

from __future__ import annotations

import pytest

from reference.coordinator.classic_state import State
from reference.protocol.errors import ErrorCode
from tests.coordinator.group_room import Room


def two_static_members(room: Room) -> tuple[str, str, int]:
    """A stable group of two static members, "i" that leads and "j": their member ids, the generation."""
    room.join("i1", instance="i", version=5)
    leader = room.joined("i1").member_id
    room.join("j1", instance="j", version=5)
    room.join("i2", leader, instance="i", version=5)
    follower = room.joined("j1").member_id
    room.sync("sj", follower, 2, instance="j")
    room.sync("si", leader, 2, {leader: b"I", follower: b"J"}, instance="i")
    return leader, follower, 2


def test_a_static_member_is_admitted_at_once_and_named_after_its_instance() -> None:
    room = Room()
    room.join("a1", instance="shelf-7", version=9)
    answer = room.joined("a1")
    assert answer.member_id.startswith("shelf-7-")
    assert [member.group_instance_id for member in answer.members] == ["shelf-7"]


def test_a_follower_comes_back_without_a_rebalance() -> None:
    room = Room()
    leader, follower, generation = two_static_members(room)
    room.join("j2", instance="j", version=9)
    answer = room.joined("j2")
    assert answer.generation_id == generation
    assert answer.member_id not in (leader, follower)
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader, [], False)
    room.sync("sj2", answer.member_id, generation, instance="j")
    assert room.synced("sj2") == b"J"
    assert room.heartbeat(leader, generation, instance="i") == ErrorCode.NONE


def test_a_leader_that_comes_back_is_asked_to_skip_the_assignment() -> None:
    room = Room()
    _, follower, generation = two_static_members(room)
    room.join("i3", instance="i", version=9)
    answer = room.joined("i3")
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert {member.member_id for member in answer.members} == {answer.member_id, follower}
    assert room.group.state is State.STABLE
    assert room.group.generation == generation


def test_before_version_9_a_leader_that_comes_back_does_not_know_that_it_leads() -> None:
    room = Room()
    leader, _, _ = two_static_members(room)
    room.join("i3", instance="i", version=8)
    answer = room.joined("i3")
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader, [], False)
    assert room.group.leader == answer.member_id


def test_the_former_member_is_fenced() -> None:
    room = Room()
    member, generation = room.one_static_member()
    room.join("a2", instance="i", version=9)
    assert room.heartbeat(member, generation, instance="i") == ErrorCode.FENCED_INSTANCE_ID
    assert room.heartbeat(member, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.refused_join("a3", member, instance="i", version=5) == ErrorCode.FENCED_INSTANCE_ID
    answer = room.sync("s3", member, generation, instance="i")
    assert answer is not None
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert room.commit(1, member=member, generation=generation, instance="i") == ErrorCode.FENCED_INSTANCE_ID
    left = room.leave((member, "i"))
    assert left.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_who_waits_under_the_former_id_is_fenced() -> None:
    room = Room()
    _, follower, _ = two_static_members(room)
    room.join("j2", follower, instance="j", metadata=b"new", version=5)
    room.join("j3", instance="j", metadata=b"new", version=5)
    assert getattr(room.answers["j2"], "error_code", None) == ErrorCode.FENCED_INSTANCE_ID
    assert "j3" not in room.answers


def test_another_protocol_is_a_reason_to_rebalance() -> None:
    room = Room()
    room.join("a1", instance="i", protocols=("range", "sticky"), version=9)
    member = room.joined("a1").member_id
    room.sync("s1", member, 1, {member: b"A"}, instance="i")
    room.join("a2", instance="i", protocols=("sticky", "range"), version=9)
    answer = room.joined("a2")
    assert (answer.protocol_name, answer.generation_id) == ("sticky", 2)
    assert not answer.skip_assignment
    assert answer.member_id != member


def test_while_the_assignment_is_awaited_all_are_called_again() -> None:
    room = Room()
    room.join("a1", instance="i", version=5)
    room.join("a2", instance="i", version=5)
    assert room.joined("a2").generation_id == 2


def test_a_static_member_is_waited_for_until_its_session_ends() -> None:
    room = Room()
    _, follower, _ = two_static_members(room)
    room.join("c1", rebalance_timeout_ms=2000, session_timeout_ms=6000)
    room.advance(9_000)
    assert follower in room.group.members, "the rebalance timeout removes only dynamic members"
    room.advance(20_000)
    assert follower not in room.group.members


def test_another_coordinator_knows_the_instances() -> None:
    room = Room()
    _, follower, generation = two_static_members(room)
    room.crash()
    room.join("j2", instance="j", version=9)
    answer = room.joined("j2")
    assert answer.generation_id == generation
    room.crash()
    assert room.heartbeat(follower, generation, instance="j") == ErrorCode.FENCED_INSTANCE_ID
    assert room.heartbeat(answer.member_id, generation, instance="j") == ErrorCode.NONE
    room.sync("sj2", answer.member_id, generation, instance="j")
    assert room.synced("sj2") == b"J"


def test_a_return_that_cannot_be_written_did_not_happen() -> None:
    room = Room()
    member, generation = room.one_static_member()
    room.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.refused_join("a2", instance="i", metadata=b"new", version=9) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    room.refusal = None
    assert room.heartbeat(member, generation, instance="i") == ErrorCode.NONE
    assert room.group.members[member].protocols == [("range", b"m")]


@pytest.mark.parametrize(
    ("leaving", "code"),
    [
        (("", "j"), ErrorCode.NONE),
        (("", "nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
        (("", None), ErrorCode.UNKNOWN_MEMBER_ID),
        (("someone else", "j"), ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_static_members_leave_by_their_instance(leaving: tuple[str, str | None], code: ErrorCode) -> None:
    room = Room()
    leader, _, generation = two_static_members(room)
    answer = room.leave(leaving)
    assert answer.members[0].error_code == code
    assert answer.members[0].group_instance_id == leaving[1]
    reported = ErrorCode.REBALANCE_IN_PROGRESS if code is ErrorCode.NONE else ErrorCode.NONE
    assert room.heartbeat(leader, generation, instance="i") == reported
