"""A member's knowledge of the leader: its id and its endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from reference.controller import quorum_messages as messages
from reference.controller.quorum_roles import Role
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from reference.protocol.messages.vote import VoteRequest
from reference.protocol.primitives import NO_UUID, LeaderEpoch, NodeId
from tests.controller.quorum_members import CLUSTER, Members

STRANGER = 3
"""A node that is no voter in the log of node 0."""


@pytest.fixture
def members() -> Members:
    members = Members(3, 2, changing=True)
    members.start(0)
    return members


def asker(members: Members, node: int, epoch: int) -> messages.Asker:
    return messages.Asker(CLUSTER, NodeId(node), members.directories[node], LeaderEpoch(epoch))


def report(members: Members, leader: int, epoch: int, host: str) -> Any:
    """BeginQuorumEpoch of a leader to node 0."""
    request = messages.begin_request(asker(members, leader, epoch), NodeId(0))
    form = BeginQuorumEpochRequest.LeaderEndpoint
    request.leader_endpoints = [form(name="CONTROLLER", host=host, port=1)]
    return members.ask(0, request).topics[0].partitions[0]


def stand(members: Members) -> None:
    while members[0].role is not Role.PROSPECTIVE:
        members.now += 10
        members[0].tick(members.now)


def test_one_that_loses_follows_a_leader_again_that_is_no_voter_in_its_log(members: Members) -> None:
    report(members, STRANGER, 5, "there")
    stand(members)
    for peer, request in [(to, each) for to, each in members[0].take_sends() if isinstance(each, VoteRequest)]:
        refusal = messages.vote_response(ErrorCode.NONE, LeaderEpoch(5), NodeId(STRANGER), granted=False)
        members[0].receive(peer, request, refusal, members.now)
    assert (members[0].role, members[0].leader) == (Role.FOLLOWER, STRANGER)


def test_one_that_loses_keeps_the_leader_that_it_cannot_reach(members: Members) -> None:
    """It gives no vote in an epoch that has a leader."""
    report(members, STRANGER, 5, "there")
    members.start(0)
    stand(members)
    members[0].tick(members.now + 2000)
    assert (members[0].stored.leader, members[0].epoch) == (STRANGER, 5)


@pytest.mark.parametrize(
    ("successors", "stands"),
    [([], True), ([0], True), ([1, 0], False), ([1], False)],
)
def test_the_first_successor_stands_at_once_and_each_where_none_is_named(
    members: Members, successors: list[int], stands: bool
) -> None:
    report(members, 1, 5, "node-1")
    named = [(NodeId(id), members.directories[id]) for id in successors]
    members.ask(0, messages.end_request(asker(members, 1, 5), named))
    assert (members[0].role is Role.PROSPECTIVE) == stands


def test_a_successor_is_named_with_its_directory(members: Members) -> None:
    report(members, 1, 5, "node-1")
    members.ask(0, messages.end_request(asker(members, 1, 5), [(NodeId(0), members.directories[2])]))
    assert members[0].role is Role.FOLLOWER
    members.ask(0, messages.end_request(asker(members, 1, 5), [(NodeId(0), NO_UUID)]))
    assert members[0].role is Role.PROSPECTIVE


def test_one_without_a_vote_follows_its_silent_leader_on() -> None:
    members = Members(3, 1)
    members.start(0, 1, 2, 3)
    members.elect(0)
    members.pass_time(1000)
    del members.quorums[0], members.quorums[1], members.quorums[2]
    members.pass_time(10_000, step=50)
    assert (members[3].role, members[3].leader) == (Role.FOLLOWER, 0)
