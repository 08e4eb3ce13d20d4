"""Voters that change, one at a time (KIP-853)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from reference.controller.quorum_log import QuorumLog
from reference.controller.quorum_roles import Role
from reference.controller.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from reference.controller.quorum_voters import VoterSet
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from reference.protocol.primitives import NodeId, Offset
from reference.storage.errors import StorageError
from tests.controller.quorum_members import CLUSTER, LOG_FOLDER, OF_METADATA, Members, topic


def addition(members: Members, id: int, **changed: Any) -> AddRaftVoterRequest:
    listeners = [
        AddRaftVoterRequest.Listener(name=each.listener, host=each.host, port=each.port)
        for each in members.voter(id).endpoints
    ]
    given: dict[str, Any] = {
        "cluster_id": CLUSTER,
        "voter_id": id,
        "voter_directory_id": members.directories[id],
        "listeners": listeners,
    }
    return AddRaftVoterRequest(**given | changed)


def removal(members: Members, id: int, **changed: Any) -> RemoveRaftVoterRequest:
    given = {"cluster_id": CLUSTER, "voter_id": id, "voter_directory_id": members.directories[id]}
    return RemoveRaftVoterRequest(**given | changed)


def change(
    members: Members, leader: int, request: AddRaftVoterRequest | RemoveRaftVoterRequest, token: object = None
) -> int | None:
    """The error code of a change after all messages are delivered; None while the change is pending."""
    token = token or object()
    members.ask(leader, request, token)
    members.deliver()
    found = [response for given, response in members.answers if given == token]
    return found[0].error_code if found else None


@pytest.fixture
def one() -> Members:
    """Member 0 is the only voter, and leads; 1, 2 and 3 observe, and have caught up."""
    members = Members(1, 3, changing=True)
    members.start(0, 1, 2, 3)
    members.pass_time(2000)
    return members


@pytest.fixture
def three() -> Members:
    """Member 0 leads 1 and 2; 3 observes."""
    members = Members(3, 1, changing=True)
    members.start(0, 1, 2, 3)
    members.elect(0)
    members.pass_time(1000)
    return members


def test_the_voters_of_a_formatted_node_are_in_its_log_from_the_first_epoch_on(one: Members) -> None:
    assert one[0].is_ready
    assert one[0].kraft_version == 1
    assert [one[id].voters.ids for id in range(4)] == [(0,)] * 4
    assert one[1].role is Role.FOLLOWER


@pytest.mark.step("quorum", "AppendVoters")
def test_observers_become_voters_one_after_the_other(one: Members) -> None:
    for id in (1, 2):
        assert change(one, 0, addition(one, id)) == ErrorCode.NONE
    assert [one[id].voters.ids for id in range(4)] == [(0, 1, 2)] * 4
    one.lose_power(1, 2)
    one[0].append([topic(1)], one.now)
    one.deliver()
    assert one.names(0) == []
    one.start(1)
    one.pass_time(3000)
    assert one.names(0) == one.names(1) == ["t1"]


def test_the_progress_of_voters_is_kept_when_the_voters_change(three: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress of a voter is kept; that of a voter with another directory is unknown."""
    leader = three[0]
    role = leader.leading
    assert role is not None
    before = dict(role.members.voters)
    assert all(progress.end > 0 for progress in before.values())
    role.count_by(leader.voters, three.now)
    assert all(role.members.voters[id] is progress for id, progress in before.items())
    voters = VoterSet(replace(each, directory=UUID(int=77)) if each.id == 2 else each for each in leader.voters)
    monkeypatch.setattr(type(leader), "voters", voters)
    role.count_by(voters, three.now)
    assert role.members.voters[NodeId(2)].end < 0
    assert role.members.voters[NodeId(1)] is before[NodeId(1)]


def test_a_new_voter_can_lead(one: Members) -> None:
    for id in (1, 2):
        change(one, 0, addition(one, id))
    one[0].append([topic(1)], one.now)
    one.pass_time(1000)
    one.lose_power(0)
    one.pass_time(8000)
    assert [id for id in (1, 2) if one[id].is_leader]
    assert one.names(1) == one.names(2) == ["t1"]


def test_voters_survive_a_power_loss(one: Members) -> None:
    change(one, 0, addition(one, 1))
    one.lose_power(0, 1)
    one.start(0, 1)
    assert [one[id].voters.ids for id in (0, 1)] == [(0, 1)] * 2
    assert read_quorum_state(one.disks[1], LOG_FOLDER).leader == 0


def test_voters_survive_in_a_snapshot(one: Members) -> None:
    change(one, 0, addition(one, 1))
    one[0].append([topic(1)], one.now)
    one.pass_time(1000)
    assert one[0].write_snapshot(one[0].high_watermark, [topic(1)], one.now) is not None
    one.lose_power(3)
    one.replace_disk(3)
    one.start(3)
    one.pass_time(1000)
    assert one[3].latest_snapshot == one[0].latest_snapshot
    assert (one[3].voters.ids, one[3].kraft_version) == ((0, 1), 1)
    one.lose_power(0)
    one.start(0)
    assert one[0].voters.ids == (0, 1)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": UUID(int=0)}, ErrorCode.INVALID_REQUEST),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST),
        ({"voter_id": 0}, ErrorCode.DUPLICATE_VOTER),
        ({"voter_directory_id": UUID(int=77)}, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_additions_that_are_refused(one: Members, changed: dict[str, Any], code: ErrorCode) -> None:
    assert change(one, 0, addition(one, 1, **changed)) == code
    assert one[0].voters.ids == (0,)


def test_configured_voters_do_not_change() -> None:
    members = Members()
    members.start(0, 1, 2)
    members.elect(0)
    request = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=1, voter_directory_id=UUID(int=1))
    assert change(members, 0, request) == ErrorCode.UNSUPPORTED_VERSION


def test_a_node_that_does_not_support_the_level_is_not_added(one: Members) -> None:
    one.levels = (0, 0)
    assert change(one, 0, addition(one, 1)) == ErrorCode.INVALID_REQUEST


def test_a_node_that_does_not_answer_is_not_added(one: Members) -> None:
    one.lose_power(1)
    assert change(one, 0, addition(one, 1)) == ErrorCode.REQUEST_TIMED_OUT
    assert one[0].voters.ids == (0,)


@pytest.mark.step("quorum", "AppendVoters")
def test_one_change_at_a_time(three: Members) -> None:
    three.lose_power(1, 2)
    assert change(three, 0, removal(three, 2), "first") is None
    assert three[0].voters.ids == (0, 1)
    assert change(three, 0, removal(three, 1), "second") == ErrorCode.REQUEST_TIMED_OUT
    assert change(three, 0, addition(three, 3), "third") == ErrorCode.REQUEST_TIMED_OUT
    assert [token for token, _ in three.answers] == ["second", "third"], "the pending change is waited for"
    three.pass_time(2100)
    assert [(token, answer.error_code) for token, answer in three.answers][2:] == [
        ("first", ErrorCode.REQUEST_TIMED_OUT)
    ]
    assert change(three, 0, removal(three, 1)) == ErrorCode.REQUEST_TIMED_OUT
    assert three[0].voters.ids == (0, 1)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("appends", [True, False])
def test_a_change_that_cannot_be_written_is_answered_once(
    three: Members, monkeypatch: pytest.MonkeyPatch, adds: bool, appends: bool
) -> None:
    """The disk refuses the record, or refuses after it: then it may be there or not, and the leader resigns."""
    right = QuorumLog.append_voters

    def fail(log: QuorumLog, *given: Any) -> Offset:
        if appends:
            right(log, *given)
        raise StorageError("the disk is broken")

    monkeypatch.setattr(QuorumLog, "append_voters", fail)
    error = change(three, 0, addition(three, 3) if adds else removal(three, 2))
    assert error == (ErrorCode.NOT_LEADER_OR_FOLLOWER if appends and adds else ErrorCode.KAFKA_STORAGE_ERROR)
    assert three[0].is_leader is not appends
    three.pass_time(5000)
    assert len(three.answers) == 1


def test_no_change_before_the_epoch_has_a_committed_record(three: Members) -> None:
    three.lose_power(0)
    three.reaches = lambda sender, receiver: False
    leader = three[1]
    three.pass_time(4500)
    three.reaches = lambda sender, receiver: True
    while not leader.is_leader:
        three.now += 10
        leader.tick(three.now)
        for peer, request in leader.take_sends():
            if three[2].role is not Role.LEADER and peer == 2:
                leader.receive(peer, request, three.ask(2, request), three.now)
            else:
                leader.unreachable(peer, request, three.now)
    assert not leader.is_ready
    leader.handle_remove_raft_voter(removal(three, 0), "early", three.now)
    responses: list[Any] = [response for token, response in leader.take_answers() if token == "early"]
    assert [each.error_code for each in responses] == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_removal_that_is_not_committed_is_undone(three: Members) -> None:
    """A leader that is cut off appends a removal; the others elect another leader, whose log has none."""
    three.reaches = lambda sender, receiver: 0 not in (sender, receiver)
    assert change(three, 0, removal(three, 2)) is None
    assert three[0].voters.ids == (0, 1)
    three.pass_time(8000)
    three.reaches = lambda sender, receiver: True
    three.pass_time(3000)
    assert [three[id].voters.ids for id in range(3)] == [(0, 1, 2)] * 3
    assert any(response.error_code == ErrorCode.REQUEST_TIMED_OUT for _, response in three.answers)


def test_a_removed_leader_resigns_when_that_is_committed(three: Members) -> None:
    assert change(three, 0, removal(three, 0)) == ErrorCode.NONE
    assert three[0].role is not Role.LEADER
    three.pass_time(3000)
    assert sorted(id for id in range(3) if three[id].is_leader) in ([1], [2])
    assert [three[id].voters.ids for id in range(3)] == [(1, 2)] * 3
    assert three[0].role is Role.FOLLOWER
    leader = next(id for id in (1, 2) if three[id].is_leader)
    three[leader].append([topic(1)], three.now)
    three.pass_time(1000)
    assert three.names(0) == ["t1"]


def test_a_leader_that_removes_itself_does_not_count_itself(three: Members) -> None:
    three.lose_power(2)
    assert change(three, 0, removal(three, 0)) is None
    assert three[0].is_leader
    three.start(2)
    three.pass_time(1000)
    assert not three[0].is_leader


def test_a_leader_that_fails_during_its_own_removal_completes_it_later() -> None:
    """Of two voters it alone has the change: the other one has the shorter log, and needs its vote."""
    members = Members(2, 1, changing=True)
    members.start(0, 1, 2)
    members.elect(0)
    members.pass_time(1000)
    members.lose_power(1)
    assert change(members, 0, removal(members, 0)) is None
    members.lose_power(0)
    members.start(0, 1)
    assert members[0].may_stand and not members[0].is_voter
    members.pass_time(10_000)
    assert members[1].is_leader and [members[id].voters.ids for id in range(3)] == [(1,)] * 3
    assert not members[0].may_stand and members[0].role is Role.FOLLOWER
    elected = members.traces.count((0, "BecomeLeader"))
    members.lose_power(1)
    members.pass_time(10_000)
    assert members.traces.count((0, "BecomeLeader")) == elected and members[0].role is Role.FOLLOWER


def test_a_removed_member_needs_a_majority_of_the_others() -> None:
    """Its own vote is not among those of the new voters."""
    members = Members(4, changing=True)
    members.start(0, 1, 2, 3)
    members.elect(0)
    members.pass_time(1000)
    members.lose_power(2, 3)
    assert change(members, 0, removal(members, 0)) is None
    members.lose_power(0)
    members.start(0)
    members.pass_time(10_000)
    assert members[0].may_stand and members.traces.count((0, "BecomeLeader")) == 1
    members.start(2)
    members.pass_time(10_000)
    assert any(members[id].is_leader for id in (1, 2)) and members[0].voters.ids == (1, 2, 3)


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"voter_directory_id": UUID(int=77)}, ErrorCode.VOTER_NOT_FOUND), ({"voter_id": 3}, ErrorCode.VOTER_NOT_FOUND)],
)
def test_removals_that_are_refused(three: Members, changed: dict[str, Any], code: ErrorCode) -> None:
    assert change(three, 0, removal(three, 1, **changed)) == code


def test_the_last_voter_stays(one: Members) -> None:
    assert change(one, 0, removal(one, 0)) == ErrorCode.VOTER_NOT_FOUND


def test_a_voter_with_a_new_disk_is_another_one(three: Members) -> None:
    three.lose_power(2)
    former = removal(three, 2)
    three.replace_disk(2)
    three.start(2)
    three.pass_time(1000)
    assert three[2].role is Role.FOLLOWER
    three.lose_power(1)
    three[0].append([topic(1)], three.now)
    three.pass_time(500)
    assert three.names(0) == [], "an empty disk under a voter's id commits nothing"
    three.start(1)
    three.pass_time(500)
    assert change(three, 0, addition(three, 2)) == ErrorCode.DUPLICATE_VOTER
    assert change(three, 0, former) == ErrorCode.NONE
    three.pass_time(500)
    assert change(three, 0, addition(three, 2)) == ErrorCode.NONE
    assert three[2].voters.is_voter(NodeId(2), three.directories[2])


def test_a_voter_reports_another_endpoint(three: Members) -> None:
    listener = UpdateRaftVoterRequest.Listener(name="CONTROLLER", host="another-host", port=1)
    request = UpdateRaftVoterRequest(
        cluster_id=CLUSTER,
        current_leader_epoch=three[0].epoch,
        voter_id=2,
        voter_directory_id=three.directories[2],
        listeners=[listener],
        k_raft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=1
        ),
    )
    end = three[0].log_end_offset
    assert three.ask(0, request).error_code == ErrorCode.NONE
    assert three[0].address_of(NodeId(2)) == ("another-host", 1)
    three.pass_time(500)
    assert three.ask(0, request).error_code == ErrorCode.NONE
    assert three[0].log_end_offset == end + 1, "what is known is not written again"
    three.pass_time(3000)
    assert three[0].address_of(NodeId(2)) == ("node-2", 9093), "the voter itself knows better, and says so"


def test_a_controller_joins_by_itself() -> None:
    members = Members(1, 1, changing=True, auto_join=True)
    members.start(0, 1)
    members.pass_time(6000)
    assert [members[id].voters.ids for id in (0, 1)] == [(0, 1)] * 2
    members.lose_power(1)
    members.replace_disk(1)
    members.start(1)
    members.pass_time(6000)
    assert [members[id].voters.is_voter(NodeId(1), members.directories[1]) for id in (0, 1)] == [True, True]


def test_the_leader_describes_voters_and_their_directories(three: Members) -> None:
    found: Any = three[0].handle_describe_quorum(OF_METADATA, three.now)
    described = found.topics[0].partitions[0]
    assert {each.replica_id: each.replica_directory_id for each in described.current_voters} == {
        id: three.directories[id] for id in range(3)
    }
    assert [(each.replica_id, each.replica_directory_id) for each in described.observers] == [(3, three.directories[3])]


def test_an_observer_that_knows_the_epoch_finds_the_leader_at_its_bootstrap_server() -> None:
    members = Members(1, 1, changing=True)
    members.start(0, 1)
    members.pass_time(1000)
    members.lose_power(1)
    members.replace_disk(1)
    members.disks[1].make_folder(LOG_FOLDER)
    state = QuorumState(leader_epoch=members[0].epoch)
    write_quorum_state(members.disks[1], LOG_FOLDER, state)
    members.start(1)
    members.pass_time(1000)
    assert (members[1].role, members[1].leader) == (Role.FOLLOWER, 0)
