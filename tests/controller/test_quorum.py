"""The quorum's rules, one by one; what a single member answers is compared with Kafka's (`test_quorum_beside_kafka`).

Among them is when a record of the metadata log is committed (Raft's figure 8).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from reference.controller import quorum_leading
from reference.controller import quorum_messages as messages
from reference.controller.quorum_electing import become_candidate
from reference.controller.quorum_member import MAX_EPOCH
from reference.controller.quorum_roles import OBSERVER_ROLES, TRANSITIONS, Role
from reference.controller.quorum_settings import QuorumSettings
from reference.controller.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from reference.protocol.messages.vote import VoteRequest
from reference.protocol.primitives import FIRST_OFFSET, NO_NODE, NO_UUID, LeaderEpoch, NodeId
from tests.controller.cluster import nodes
from tests.controller.quorum_members import (
    CLUSTER,
    LOG_FOLDER,
    Members,
    asked_vote,
    asker_of,
    copied,
    fetch,
    levels,
    part,
    stand,
    topic,
    vote,
)

SPECIFICATION = Path(__file__).parent.parent.parent / "spec" / "quorum" / "Quorum.tla"


# ---- one voter


def test_the_only_voter_leads_at_once_and_commits_at_once() -> None:
    members = Members(voters=1)
    members.start(0)
    quorum = members[0]
    assert quorum.is_ready
    assert (quorum.epoch, quorum.leader, quorum.high_watermark) == (1, 0, 1)
    assert quorum.append([topic(1), topic(2)], members.now) == 1
    assert quorum.high_watermark == 3
    assert members.names(0) == ["t1", "t2"]
    assert quorum.take_sends() == []
    assert quorum.next_deadline() is None


@pytest.mark.step("quorum", "Restart")
def test_what_the_only_voter_has_appended_survives_a_power_loss() -> None:
    members = Members(voters=1)
    members.start(0)
    members[0].append([topic(1)], members.now)
    members.lose_power(0)
    members.start(0)
    assert members.names(0) == ["t1"]
    assert members[0].epoch == 2


def test_what_a_voter_has_fetched_survives_a_power_loss(three: Members) -> None:
    three[0].append([topic(1)], three.now)
    three.deliver()
    assert three[1].log_end_offset == 2
    three.lose_power(1)
    three.start(1)
    assert three[1].log_end_offset == 2


# ---- votes


@pytest.mark.step("quorum", "GrantVote")
def test_a_vote_is_durable_before_it_is_answered() -> None:
    members = Members()
    members.start(0)
    assert asked_vote(members, vote(1)) == (ErrorCode.NONE, True)
    members.lose_power(0)
    members.start(0)
    assert asked_vote(members, vote(2)) == (ErrorCode.NONE, False)
    assert asked_vote(members, vote(1)) == (ErrorCode.NONE, True)
    assert asked_vote(members, vote(2, epoch=6)) == (ErrorCode.NONE, True)


def test_voters_that_know_no_pre_votes_elect_a_leader_and_the_next() -> None:
    """As beside Apache Kafka 3.9."""
    members = Members(pre_vote=False)
    members.start(0, 1, 2)
    first = members.elect(1).epoch
    members.lose_power(1)
    assert members.elect(0).epoch > first
    steps = [action for _, action in members.traces]
    assert "BecomeCandidate" in steps and "GrantPreVote" not in steps


@pytest.mark.step("quorum", "GrantPreVote")
def test_a_pre_vote_promises_nothing() -> None:
    members = Members()
    members.start(0)
    for candidate in (1, 2):
        assert asked_vote(members, vote(candidate, epoch=0, last=(0, 0), pre_vote=True)) == (ErrorCode.NONE, True)
    assert members[0].epoch == 0
    assert read_quorum_state(members.disks[0], LOG_FOLDER).voted == -1


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (vote(cluster="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (VoteRequest(cluster_id=CLUSTER), ErrorCode.INVALID_REQUEST),
    ],
)
def test_votes_that_are_refused_as_a_whole(three: Members, request_: VoteRequest, code: ErrorCode) -> None:
    assert three.ask(0, request_).error_code == code
    assert three[0].is_leader


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (vote(7), ErrorCode.INCONSISTENT_VOTER_SET),
        (vote(-1), ErrorCode.INCONSISTENT_VOTER_SET),
        (vote(0), ErrorCode.INVALID_REQUEST),
        (vote(epoch=0, last=(0, 1)), ErrorCode.INVALID_REQUEST),
        (vote(epoch=MAX_EPOCH), ErrorCode.INVALID_REQUEST),
        (vote(last=(5, 1)), ErrorCode.INVALID_REQUEST),
        (vote(last=(-1, 1)), ErrorCode.INVALID_REQUEST),
        (vote(last=(1, -1)), ErrorCode.INVALID_REQUEST),
        (vote(epoch=0, last=(0, 1), pre_vote=True), ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_votes_that_are_refused_leave_the_leader_alone(three: Members, request_: VoteRequest, code: ErrorCode) -> None:
    assert asked_vote(three, request_) == (code, False)
    assert (three[0].is_leader, three[0].epoch) == (True, 1)


def test_a_vote_that_cannot_be_stored_is_not_given() -> None:
    members = Members()
    members.start(0)
    members.disks[0].read_only = True
    assert asked_vote(members, vote()) == (ErrorCode.KAFKA_STORAGE_ERROR, False)
    assert members[0].epoch == 0
    assert "read-only" in members.sayings[-1]
    members.disks[0].read_only = False
    assert asked_vote(members, vote()) == (ErrorCode.NONE, True)


# ---- elections


@pytest.mark.step("quorum", "BecomeProspective")
def test_a_member_alone_spends_no_epoch() -> None:
    members = Members()
    members.start(0)
    members.pass_time(20_000, step=50)
    assert members[0].epoch == 0
    assert not members[0].is_leader


@pytest.mark.step("quorum", "BecomeProspective", "BecomeCandidate", "BecomeLeader")
def test_a_leader_that_is_cut_off_resigns_and_the_others_elect_another(three: Members) -> None:
    three.reaches = lambda sender, receiver: 0 not in (sender, receiver)
    three.pass_time(10_000, step=20)
    assert not three[0].is_leader
    assert three[0].epoch <= 2
    leaders = [id for id in (1, 2) if three[id].is_ready]
    assert len(leaders) == 1
    three.reaches = lambda sender, receiver: True
    three.pass_time(3_000, step=20)
    assert three[0].leader == leaders[0]


@pytest.mark.step("quorum", "Restart")
def test_a_former_leader_does_not_lead_its_epoch_again(three: Members) -> None:
    three.lose_power(0)
    three.start(0)
    assert three[0].role is Role.RESIGNED
    assert three[0].epoch == 1


def test_a_clean_end_hands_over_to_the_best_successor(three: Members) -> None:
    three.reaches = lambda sender, receiver: 1 not in (sender, receiver)
    three[0].append([topic(1)], three.now)
    three.deliver()
    three.reaches = lambda sender, receiver: True
    three[0].resign(three.now)
    assert three[0].role is Role.RESIGNED
    sends = dict(three[0].take_sends())
    assert sorted(sends) == [1, 2]
    named = [messages.successors_in(copied(request).topics[0].partitions[0]) for request in sends.values()]
    assert named == [[(2, NO_UUID), (1, NO_UUID)]] * 2
    for peer, request in sorted(sends.items()):
        three.ask(peer, request)
    three.deliver()
    assert three[2].is_ready
    three.pass_time(2_000, step=20)
    assert three[0].role in (Role.FOLLOWER, Role.UNATTACHED)
    assert three[2].is_leader


@pytest.mark.step("quorum", "LearnEpoch")
def test_an_old_leader_learns_of_the_new_epoch(three: Members) -> None:
    three.reaches = lambda sender, receiver: False
    three.now += 1000
    three[0].tick(three.now)
    peer, request = three[0].take_sends()[0]
    answer = messages.voter_response(BeginQuorumEpochResponse, ErrorCode.FENCED_LEADER_EPOCH, LeaderEpoch(7), NodeId(2))
    three[0].receive(peer, request, answer, three.now)
    assert (three[0].role, three[0].epoch, three[0].leader) == (Role.FOLLOWER, 7, 2)


def test_two_leaders_of_one_epoch_are_not_believed(three: Members) -> None:
    answer = three.ask(1, messages.begin_request(asker_of(2, 1), NodeId(1))).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert three[1].leader == 0


def test_answers_to_questions_that_were_not_asked_are_ignored(three: Members) -> None:
    before = (three[1].role, three[1].epoch)
    for request, response in (
        (vote(), messages.vote_response(ErrorCode.NONE, LeaderEpoch(9), NodeId(2), granted=True)),
        (fetch(), messages.fetch_response(ErrorCode.FENCED_LEADER_EPOCH, LeaderEpoch(9), NodeId(2))),
    ):
        three[1].receive(NodeId(2), request, response, three.now)
    assert (three[1].role, three[1].epoch) == before


def test_the_last_epoch_ends_in_peace() -> None:
    members = Members(voters=1)
    members.start(0)
    state = QuorumState(leader=NO_NODE, leader_epoch=LeaderEpoch(MAX_EPOCH - 1), voted=NO_NODE)
    write_quorum_state(members.disks[0], LOG_FOLDER, state)
    members.start(0)
    assert not members[0].is_leader
    assert members[0].epoch == MAX_EPOCH - 1
    assert members[0].next_deadline() is None
    assert "no election" in members.sayings[-1]


# ---- appending


@pytest.mark.step("quorum", "AppendRecord")
def test_only_a_ready_leader_appends(three: Members) -> None:
    with pytest.raises(KafkaError) as refused:
        three[1].append([topic(1)], three.now)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    fresh = Members()
    fresh.start(0, 1, 2)
    stand(fresh, 0, voter=1)
    assert not fresh[0].is_ready
    with pytest.raises(KafkaError):
        fresh[0].append([topic(1)], fresh.now)


def test_a_disk_that_refuses_leaves_nothing_behind() -> None:
    members = Members(voters=1)
    members.start(0)
    members.disks[0].read_only = True
    with pytest.raises(KafkaError) as refused:
        members[0].append([topic(1)], members.now)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    members.disks[0].read_only = False
    assert (members[0].log_end_offset, members[0].high_watermark) == (1, 1)
    assert members[0].append([topic(2)], members.now) == 1
    assert members.names(0) == ["t2"]


def test_a_decision_that_no_batch_holds_is_refused() -> None:
    members = Members(voters=1)
    members.start(0)
    with pytest.raises(KafkaError) as refused:
        members[0].append([topic(number) for number in range(100)], members.now)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert members[0].append([topic(1)], members.now) == 1


def test_a_truncation_that_the_disk_refuses_stops_the_member_until_it_restarts(three: Members) -> None:
    three.reaches = lambda sender, receiver: False
    for number in range(30):
        three[0].append([topic(number)], three.now)
    three.reaches = lambda sender, receiver: 0 not in (sender, receiver)
    three.pass_time(6_000, step=20)
    three.reaches = lambda sender, receiver: True
    writes = three.disks[0].write_file

    def refuse_checkpoints(path: Path, data: bytes) -> None:
        if path.name != "quorum-state":
            raise OSError(5, "broken")
        writes(path, data)

    three.disks[0].write_file = refuse_checkpoints
    three.pass_time(3_000, step=20)
    three.disks[0].write_file = writes
    assert three[0].is_broken
    assert three[0].next_deadline() is None
    assert asked_vote(three, vote(1, epoch=50)) == (ErrorCode.KAFKA_STORAGE_ERROR, False)
    three.lose_power(0)
    three.start(0)
    three.pass_time(3_000, step=20)
    assert three[0].log_end_offset == three[1].log_end_offset == three[2].log_end_offset


# ---- observers


def test_an_observer_finds_the_leader_and_follows_without_a_vote() -> None:
    members = Members(observers=1)
    members.start(0, 1, 2, 3)
    members.elect(0)
    members.pass_time(1_000)
    members[0].append([topic(1)], members.now)
    members.deliver()
    assert members.names(3) == ["t1"]
    assert members[3].role is Role.FOLLOWER
    answer = members.ask(3, vote(1, epoch=2, voter=3, last=(1, 50))).topics[0].partitions[0]
    assert (answer.error_code, answer.vote_granted) == (ErrorCode.INCONSISTENT_VOTER_SET, False)
    members.lose_power(0, 1, 2)
    members.pass_time(10_000, step=50)
    assert members[3].role in OBSERVER_ROLES


# ---- describing


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"cluster_id": None}, ErrorCode.NONE),
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"voter_directory_id": NO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST),
        ({"k_raft_version_feature": levels(1, 1)}, ErrorCode.INVALID_REQUEST),
        ({"k_raft_version_feature": levels(-1, 1)}, ErrorCode.INVALID_REQUEST),
        ({"voter_id": 7}, ErrorCode.VOTER_NOT_FOUND),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_id": 0}, ErrorCode.INVALID_REQUEST),  # the leader itself, by which Kafka ends
    ],
)
def test_a_voter_says_where_it_is_reached(three: Members, changed: dict[str, Any], code: ErrorCode) -> None:
    """KIP-853; the codes are those of the leader of three Apache Kafka 4.3.1 with kraft.version 0."""
    listener = UpdateRaftVoterRequest.Listener(name="CONTROLLER", host="h", port=1)
    given = {
        "cluster_id": CLUSTER, "current_leader_epoch": 1, "voter_id": 1, "voter_directory_id": UUID(int=9),
        "listeners": [listener], "k_raft_version_feature": levels(0, 1),
    }  # fmt: skip
    answer = three[0].handle_update_raft_voter(UpdateRaftVoterRequest(**given | changed), "CONTROLLER", three.now)
    assert (answer.error_code, answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (code, 0, 1)
    refused = three[1].handle_update_raft_voter(UpdateRaftVoterRequest(**given), "CONTROLLER", three.now)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---- tables


def test_every_role_can_be_reached_and_left() -> None:
    assert {before for before, _ in TRANSITIONS} == {after for _, after in TRANSITIONS} == set(Role)
    assert all(reason for reason in TRANSITIONS.values())


def test_a_step_that_the_table_does_not_know_is_a_mistake(three: Members) -> None:
    with pytest.raises(AssertionError, match="follower to candidate"):
        become_candidate(three[1], three.now)


def test_steps_bear_the_specifications_names() -> None:
    members = Members()
    members.start(0, 1, 2)
    members.elect(0).append([topic(1)], members.now)
    members.deliver()
    actions = set(re.findall(r'Step\("(\w+)"', SPECIFICATION.read_text()))
    reported = {action for _, action in members.traces}
    assert reported <= actions
    assert reported == actions, actions - reported


@pytest.mark.parametrize("voters", [(), (1, 1), (-1, 2)])
def test_voters_that_cannot_be(voters: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"controller\.quorum\.voters"):
        QuorumSettings(tuple(nodes(*voters)))


def test_settings_come_from_the_configuration() -> None:
    from reference.controller.config_table import BROKER

    def integer(name: str) -> int:
        default = BROKER[name].default
        assert default is not None
        return int(default)

    settings = QuorumSettings(tuple(nodes(1, 2)))
    assert settings.configured(integer) == settings


@pytest.mark.step("quorum", "AnswerFetch", "ApplyFetch", "AdvanceHighWatermark")
def test_a_majority_commits_and_less_does_not(three: Members) -> None:
    three.reaches = lambda sender, receiver: False
    three[0].append([topic(1)], three.now)
    assert three.names(0) == []
    assert [record for _, record in three[0].appended(FIRST_OFFSET)] == [topic(1)]
    three.reaches = lambda sender, receiver: 2 not in (sender, receiver)
    three.pass_time(600)
    assert three.names(0) == three.names(1) == ["t1"]


def figure_8() -> tuple[Members, int]:
    """Raft's figure 8: a record of epoch 1 reaches a majority only while its leader leads epoch 3.

    Member 0 leads epoch 1 and is alone with its first record; member 1 leads epoch 2 and is alone with that; member 0
    leads epoch 3 and gets the record of epoch 1, and nothing more, to member 2. Return the members, and that leader's high watermark.
    """
    members = Members(fetch_max_bytes=1)
    members.start(0, 1, 2)
    for leader_id in (0, 1):
        stand(members, leader_id, voter=2)
        assert members[leader_id].log_end_offset == 1
        members.lose_power(leader_id)
        members.start(leader_id)
    members.lose_power(1)
    stand(members, 0, voter=2)
    leader = members[0]
    assert leader.log_end_offset == 2
    one = fetch(2, leader.epoch, last=(0, 0))
    one.max_bytes = 1
    assert len(part(members.fetch(0, one)).records) > 0
    members.fetch(0, fetch(2, leader.epoch, last=(1, 1)))
    return members, leader.high_watermark


@pytest.mark.step("quorum", "AdvanceHighWatermark")
def test_a_majority_does_not_commit_a_record_of_an_old_epoch() -> None:
    members, high_watermark = figure_8()
    assert high_watermark == 0
    leader = members[0]
    members.fetch(0, fetch(2, leader.epoch, last=(leader.epoch, 2)))
    assert leader.high_watermark == 2


def test_without_the_rule_the_figure_would_commit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_leading, "next_commit", lambda current, reached, start: max(current, reached))
    assert figure_8()[1] == 1
