"""A classic group's life, told by what its members are answered."""

import random

from reference.coordinator.classic_group import TRANSITIONS, State
from reference.coordinator.group_coordinator import Client, GroupCoordinator, GroupSettings
from reference.node.internal_topics import partition_for
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupRequest
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SETTINGS = GroupSettings(
    min_session_timeout_ms=6000,
    max_session_timeout_ms=1_800_000,
    initial_rebalance_delay_ms=0,
    max_size=3,
    max_metadata_bytes=4096,
)


class Room:
    """A coordinator, and what each token was answered."""

    def __init__(self, initial_delay_ms: int = 0) -> None:
        settings = GroupSettings(6000, 1_800_000, initial_delay_ms, 3, 4096)
        self.coordinator = GroupCoordinator(settings, random.Random(1))
        self.answers: dict[object, object] = {}
        self.records: list[tuple[bytes, bytes | None]] = []
        self.now = 1000

    def collect(self) -> None:
        for answer in self.coordinator.take_answers():
            self.records += answer.records
            self.answers[answer.token] = answer.response

    def join(
        self,
        token: str,
        member: str = "",
        *,
        protocols: tuple[str, ...] = ("range",),
        version: int = 3,
        metadata: bytes = b"m",
    ):
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
        )
        self.coordinator.join(request, version, Client("client", "/127.0.0.1"), token, self.now)
        self.collect()
        return self.answers.get(token)

    def sync(self, token: str, member: str, generation: int, assignments: dict[str, bytes] | None = None):
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=id, assignment=value)
                for id, value in (assignments or {}).items()
            ],
        )
        self.coordinator.sync(request, token, self.now)
        self.collect()
        return self.answers.get(token)

    def heartbeat(self, member: str, generation: int) -> int:
        self.coordinator.heartbeat(
            HeartbeatRequest(group_id="g", member_id=member, generation_id=generation), "h", self.now
        )
        self.collect()
        answer = self.answers["h"]
        assert isinstance(answer, HeartbeatResponse)
        return answer.error_code

    def advance(self, ms: int) -> None:
        self.now += ms
        self.coordinator.tick(self.now)
        self.collect()

    def joined(self, token: str) -> JoinGroupResponse:
        answer = self.answers[token]
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.NONE
        return answer

    def two_members(self) -> tuple[str, str, int]:
        """A stable group of two: leader, follower, generation."""
        self.join("a1")
        leader = self.joined("a1").member_id
        self.join("b1")
        self.join("a2", leader)
        follower = self.joined("b1").member_id
        generation = self.joined("a2").generation_id
        self.sync("sb", follower, generation)
        self.sync("sa", leader, generation, {leader: b"A", follower: b"B"})
        return leader, follower, generation


def test_every_state_has_its_row() -> None:
    assert set(TRANSITIONS) == set(State)
    assert all(State.DEAD in after for state, after in TRANSITIONS.items() if state is not State.DEAD)


def test_the_first_member_leads_and_forms_a_generation_alone() -> None:
    room = Room()
    room.join("a1")
    answer = room.joined("a1")
    assert (answer.generation_id, answer.leader, answer.protocol_name) == (1, answer.member_id, "range")
    assert [member.metadata for member in answer.members] == [b"m"]


def test_v4_asks_the_new_member_to_come_back_with_the_id_it_is_given() -> None:
    room = Room()
    first = room.join("a1", version=4)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    room.join("a2", first.member_id, version=4)
    assert room.joined("a2").member_id == first.member_id


def test_a_second_member_calls_the_first_back_and_only_the_leader_sees_all() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    assert generation == 2
    assert {member.member_id for member in room.joined("a2").members} == {leader, follower}
    assert room.joined("b1").members == []
    for token, wanted in (("sa", b"A"), ("sb", b"B")):
        answer = room.answers[token]
        assert isinstance(answer, SyncGroupResponse)
        assert answer.assignment == wanted


def test_the_followers_sync_waits_for_the_leaders() -> None:
    room = Room()
    room.join("a1")
    leader = room.joined("a1").member_id
    room.join("b1")
    room.join("a2", leader)
    follower = room.joined("b1").member_id
    assert room.sync("sb", follower, 2) is None
    room.sync("sa", leader, 2, {leader: b"A"})
    answer = room.answers["sb"]
    assert isinstance(answer, SyncGroupResponse)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"")


def test_heartbeats_tell_of_a_rebalance_and_refuse_strangers() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    assert room.heartbeat(leader, generation) == ErrorCode.NONE
    assert room.heartbeat(leader, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert room.heartbeat("stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    room.join("c1")
    assert room.heartbeat(follower, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_changes_nothing_gets_the_generation_that_stands() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.join("b2", follower)
    assert room.joined("b2").generation_id == generation
    assert room.join("a3", leader) is None, "the leader's rejoin forces a rebalance"
    assert room.coordinator.groups["g"].state is State.PREPARING_REBALANCE


def test_a_silent_member_is_given_up_and_the_rest_go_on() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.advance(9000)
    assert room.heartbeat(leader, generation) == ErrorCode.NONE
    room.advance(1500)
    assert room.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    room.join("a3", leader)
    assert [member.member_id for member in room.joined("a3").members] == [leader]
    assert follower not in room.coordinator.groups["g"].members


def test_members_that_do_not_rejoin_in_time_are_dropped() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.join("c1")
    room.join("b2", follower)
    for _ in range(4):
        room.advance(5000)
        room.heartbeat(leader, generation)
    answer = room.joined("b2")
    assert answer.generation_id == generation + 1
    assert leader not in room.coordinator.groups["g"].members


def test_leaving_empties_the_group_and_its_record_says_so() -> None:
    room = Room()
    room.join("a1")
    leader = room.joined("a1").member_id
    room.sync("sa", leader, 1, {leader: b"A"})
    written = len(room.records)
    room.coordinator.leave(LeaveGroupRequest(group_id="g", member_id=leader), 2, "l", room.now)
    room.collect()
    assert room.coordinator.groups["g"].state is State.EMPTY
    assert len(room.records) == written + 1


def test_refusals() -> None:
    room = Room()
    room.two_members()
    assert room.join("x", protocols=("other",)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.join("y", "nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    room.join("c1")
    assert room.join("d1").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_protocols_are_voted_for_among_those_that_all_know() -> None:
    room = Room()
    room.join("a1", protocols=("sticky", "range"))
    leader = room.joined("a1").member_id
    room.join("b1", protocols=("range", "roundrobin"))
    room.join("a2", leader, protocols=("sticky", "range"))
    assert room.joined("b1").protocol_name == "range"


def test_the_initial_delay_lets_others_in() -> None:
    room = Room(initial_delay_ms=3000)
    assert room.join("a1") is None
    room.advance(2000)
    assert room.join("b1") is None
    room.advance(2000)
    assert "a1" not in room.answers
    room.advance(1000)
    assert room.joined("a1").generation_id == room.joined("b1").generation_id == 1


def test_state_survives_in_its_records() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    other = GroupCoordinator(SETTINGS, random.Random(2))
    for key, value in room.records:
        other.replay(key, value, room.now)
    restored = other.groups["g"]
    assert (restored.state, restored.generation, restored.leader) == (State.STABLE, generation, leader)
    assert restored.members[follower].assignment == b"B"


def test_groups_are_spread_by_javas_hash() -> None:
    assert partition_for("", 50) == 0
    assert partition_for("my-group", 50) == 12
    assert partition_for("polygenelubricants", 50) == 0  # whose hash is the least 32-bit number
