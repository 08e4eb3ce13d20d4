"""A classic group, seen in the responses that its members receive."""

from __future__ import annotations

import pytest

from reference.coordinator.classic_groups import check_join
from reference.coordinator.classic_rebalances import NEW_MEMBER_JOIN_TIMEOUT_MS
from reference.coordinator.classic_state import TRANSITIONS, State, diagram
from reference.coordinator.group_records import group_record
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.group_metadata_value import GroupMetadataValue
from reference.protocol.messages.join_group import JoinGroupRequest
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
def test_what_no_group_accepts(group: str, session_timeout_ms: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        check_join(JoinGroupRequest(group_id=group, session_timeout_ms=session_timeout_ms), SETTINGS)
    assert refused.value.code is code


def test_the_first_member_leads_and_forms_a_generation_alone() -> None:
    room = Room()
    room.join("a1")
    answer = room.joined("a1")
    assert (answer.generation_id, answer.leader, answer.protocol_name) == (1, answer.member_id, "range")
    assert [member.metadata for member in answer.members] == [b"m"]


def test_version_4_asks_the_new_member_to_come_back_with_the_id_it_is_given() -> None:
    room = Room()
    first = room.join("a1", version=4)
    assert first is not None
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("client-")
    room.join("a2", first.member_id, version=4)
    assert room.joined("a2").member_id == first.member_id


def test_an_unused_id_is_forgotten_and_holds_up_the_others_no_longer() -> None:
    room = Room()
    leader, _, _ = room.two_members()
    first = room.join("c1", version=4)
    assert first is not None
    room.join("a3", leader, metadata=b"new")
    assert "a3" not in room.answers, "a member was promised a place"
    room.advance(10_000)
    assert room.group.pending_members == set()
    assert room.refused_join("c2", first.member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unused_id_that_is_forgotten_calls_no_member() -> None:
    """The drawn comparison with Kafka found a rebalance here."""
    room = Room()
    leader, follower, generation = room.two_members()
    room.refused_join("c1", version=4)
    room.advance(6_000)
    assert {room.heartbeat(each, generation) for each in (leader, follower)} == {ErrorCode.NONE}
    room.advance(6_000)
    assert room.group.pending_members == set() and room.group.state is State.STABLE


def test_a_second_member_calls_the_first_back_and_only_the_leader_sees_all() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    assert generation == 2
    assert {member.member_id for member in room.joined("a2").members} == {leader, follower}
    assert room.joined("b1").members == []
    assert (room.synced("sa"), room.synced("sb")) == (b"A", b"B")


def test_a_follower_that_changes_nothing_gets_the_generation_that_stands() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.join("b2", follower)
    assert room.joined("b2").generation_id == generation
    assert room.join("a3", leader) is None, "the leader's rejoin forces a rebalance"
    assert room.group.state is State.PREPARING_REBALANCE


def test_a_follower_that_changes_what_it_says_of_itself_calls_all() -> None:
    room = Room()
    _, follower, _ = room.two_members()
    assert room.join("b2", follower, metadata=b"other topics") is None
    assert room.group.state is State.PREPARING_REBALANCE


def test_before_the_assignment_a_member_that_asks_again_gets_the_same_generation() -> None:
    room = Room()
    room.join("a1")
    leader = room.joined("a1").member_id
    room.join("a2", leader)
    assert room.joined("a2") == room.joined("a1")


def test_a_join_that_is_sent_twice_is_answered_twice() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.join("b2", follower, metadata=b"new")
    room.join("b3", follower, metadata=b"new")
    refused = room.answers["b2"]
    assert getattr(refused, "error_code", None) == ErrorCode.REBALANCE_IN_PROGRESS
    room.join("a3", leader)
    assert room.joined("b3").generation_id == room.joined("a3").generation_id == generation + 1


@pytest.mark.parametrize(
    ("member", "how", "code"),
    [
        ("", {"protocols": ("other",)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("", {"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("", {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("nobody", {}, ErrorCode.UNKNOWN_MEMBER_ID),
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


def test_a_full_group_takes_no_further_member() -> None:
    room = Room(max_size=2)
    leader, follower, _ = room.two_members()
    assert room.refused_join("c1") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert room.join("a3", leader) is None
    assert room.join("b2", follower) is not None, "its members may join again"


def test_a_group_that_has_become_too_large_is_called_to_shrink_when_it_is_loaded() -> None:
    room = Room()
    leader, follower, _ = room.two_members()
    room.settings = Room(max_size=1).settings
    room.crash()
    assert room.group.state is State.PREPARING_REBALANCE
    room.join("a3", leader)
    assert room.refused_join("b3", follower) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [member.member_id for member in room.joined("a3").members] == [leader]


def test_any_text_is_a_group_id_and_any_bytes_are_metadata() -> None:
    """Connect and Streams have protocol types and metadata of their own: they pass through unharmed."""
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


def test_protocols_are_voted_for_among_those_that_all_know() -> None:
    room = Room()
    room.join("a1", protocols=("sticky", "range"))
    leader = room.joined("a1").member_id
    room.join("b1", protocols=("range", "roundrobin"))
    room.join("a2", leader, protocols=("sticky", "range"))
    assert room.joined("b1").protocol_name == "range"


def test_most_votes_win() -> None:
    room = Room(initial_rebalance_delay_ms=1)
    for token, protocols in (("a", ("x", "y")), ("b", ("y", "x")), ("c", ("y", "x", "z"))):
        room.join(token, protocols=protocols)
    room.advance(2)
    assert {room.joined(token).protocol_name for token in "abc"} == {"y"}


def test_the_initial_delay_lets_others_in() -> None:
    room = Room(initial_rebalance_delay_ms=3000)
    assert room.join("a1") is None
    room.advance(2000)
    assert room.join("b1") is None
    room.advance(2000)
    assert "a1" not in room.answers, "a member came meanwhile: another delay begins"
    room.advance(2000)
    assert room.joined("a1").generation_id == room.joined("b1").generation_id == 1


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    room = Room(initial_rebalance_delay_ms=3000)
    for second in range(8):
        room.join(f"m{second}", rebalance_timeout_ms=7000)
        room.advance(1000)
    assert room.joined("m0").generation_id == room.joined("m6").generation_id == 1
    assert room.group.members.keys() >= {room.joined("m0").member_id}


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


# ---- syncing


# ---- heartbeats, sessions, leaving


def test_heartbeats_report_a_rebalance_and_refuse_strangers() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    assert room.heartbeat(leader, generation) == ErrorCode.NONE
    assert room.heartbeat(leader, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert room.heartbeat("stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert room.heartbeat("stranger", 1, group="unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    room.join("c1")
    assert room.heartbeat(follower, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_silent_member_is_given_up_and_the_rest_go_on() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.advance(9000)
    assert room.heartbeat(leader, generation) == ErrorCode.NONE
    room.advance(1500)
    assert room.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    room.join("a3", leader)
    assert [member.member_id for member in room.joined("a3").members] == [leader]
    assert follower not in room.group.members


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
    assert leader not in room.group.members
    assert room.group.leader in (follower, room.joined("c1").member_id)


def test_who_waits_to_join_is_not_held_to_its_session() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.join("b2", follower, metadata=b"new")
    for _ in range(3):
        room.advance(6000)
        room.heartbeat(leader, generation)
    assert follower in room.group.members, "18 seconds without a heartbeat, for it could not send one"


def test_a_new_member_does_not_wait_for_ever() -> None:
    room = Room()
    room.join("a1", rebalance_timeout_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS, session_timeout_ms=1_800_000)
    leader = room.joined("a1").member_id
    room.sync("s1", leader, 1)
    room.join("b1")
    room.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert getattr(room.answers["b1"], "error_code", None) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_empties_the_group_and_its_record_says_so() -> None:
    room = Room()
    room.join("a1")
    leader = room.joined("a1").member_id
    room.sync("sa", leader, 1, {leader: b"A"})
    written = len(room.log)
    assert room.leave(leader, version=2).error_code == ErrorCode.NONE
    assert (room.group.state, room.group.generation, len(room.log)) == (State.EMPTY, 2, written + 1)
    room.crash()
    assert (room.group.state, room.group.generation) == (State.EMPTY, 2)


def test_that_the_group_is_empty_is_written_later_where_it_cannot_be_now() -> None:
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


def test_several_leave_at_once_and_each_gets_its_answer() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    answer = room.leave(follower, "stranger")
    assert [member.error_code for member in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert room.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert room.heartbeat(follower, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    nowhere = room.leave("x", group="unknown")
    assert (nowhere.error_code, nowhere.members[0].error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    assert room.leave("x", group="unknown", version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_out_can_be_given_back() -> None:
    room = Room()
    first = room.join("a1", version=4)
    assert first is not None
    assert room.leave(first.member_id).members[0].error_code == ErrorCode.NONE
    assert room.refused_join("a2", first.member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_while_it_waits_gets_an_error() -> None:
    room = Room()
    _, follower, _ = room.two_members()
    room.join("b2", follower, metadata=b"new")
    room.leave(follower)
    assert getattr(room.answers["b2"], "error_code", None) == ErrorCode.UNKNOWN_MEMBER_ID


# ---- fail-over


def test_members_go_on_with_another_coordinator() -> None:
    room = Room()
    leader, follower, generation = room.two_members()
    room.crash()
    assert (room.group.state, room.group.generation, room.group.leader) == (State.STABLE, generation, leader)
    assert room.heartbeat(leader, generation) == ErrorCode.NONE
    room.sync("again", follower, generation)
    assert room.synced("again") == b"B"
    room.advance(9_999)
    assert len(room.group.members) == 2, "the others have their whole session to send a heartbeat"
    room.advance(1)
    assert len(room.group.members) == 0


def test_another_coordinator_knows_of_members_what_the_last_generation_says() -> None:
    """One that stayed while the group changed its protocol is not taken for what it was in the generation before."""
    room = Room()
    room.join("a1", protocols=("sticky", "range"), metadata=b"before", session_timeout_ms=10_000)
    first = room.joined("a1").member_id
    room.sync("s1", first, 1, {first: b"A"})
    room.join("b1", protocols=("range",))
    room.join("a2", first, protocols=("sticky", "range"), metadata=b"after", session_timeout_ms=20_000)
    second = room.joined("b1").member_id
    room.sync("s2", first, 2, {first: b"A", second: b"B"})
    room.crash()
    room.join("c1", protocols=("range",))
    room.join("a3", first, protocols=("range",), metadata=b"again")
    room.join("b2", second, protocols=("range",))
    assert room.joined("c1").protocol_name == "range"
    room.crash()
    room.advance(10_000)
    assert [*room.group.members] == [first], "its session is as long as it said last"
    assert room.group.members[first].metadata_for("range") == b"after"


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
    """A record that is not what a coordinator writes must not make the group useless."""
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
