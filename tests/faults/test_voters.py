"""The fault `voters`: a controller is taken out of the quorum and put back, on nodes whose voters were in the configuration."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from linearizability.faults import voters as fault_voters
from linearizability.faults.fault import World
from linearizability.faults.injection import Injection
from linearizability.faults.voters import Voters, described
from linearizability.targets import open_target
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.schema import Message

WITHIN_S = 60.0


def voters(world: World) -> list[int]:
    quorum = described(world)
    return sorted(each.replica_id for each in quorum.topics[0].partitions[0].current_voters) if quorum else []


def test_a_controller_leaves_and_comes_back(tmp_path: Path) -> None:
    """The leader: another one leads meanwhile."""
    injection = Injection(at_s=0, fault="voters", who="controller", pick=0, seconds=1)
    with open_target("reference:3", folder=tmp_path) as target:
        world, fault = World(target, "t"), Voters()
        done, until = None, time.monotonic() + WITHIN_S
        while done is None:
            assert time.monotonic() < until, described(world)
            done = fault.begin(world, injection)
        left = [node for node in (1, 2, 3) if node != done["node"]]
        while voters(world) != left or world.controller() not in left:
            assert time.monotonic() < until, described(world)
        assert fault.begin(world, injection) is None, "two voters stay"
        while voters(world) != [1, 2, 3]:
            fault.end(world, done)
            assert time.monotonic() < until, described(world)


@pytest.mark.parametrize("outcome", ["no answer", ErrorCode.VOTER_NOT_FOUND, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_controller_comes_back_when_the_answer_to_its_removal_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str | ErrorCode
) -> None:
    """VOTER_NOT_FOUND is what a request gets that is sent again after a lost answer."""
    ask = fault_voters.wish

    def loses_answers(world: World, request: Message) -> Any:
        answer = ask(world, request)
        if isinstance(request, RemoveRaftVoterRequest) and answer is not None and answer.error_code == ErrorCode.NONE:
            lost.append(request)
            if outcome == "no answer":
                return None
            answer.error_code = outcome
        return answer

    def adds_none(world: World, request: Message) -> Any:
        return None if isinstance(request, AddRaftVoterRequest) else ask(world, request)

    lost: list[Message] = []
    injection = Injection(at_s=0, fault="voters", who="any", pick=0, seconds=1)
    with open_target("reference:3", folder=tmp_path) as target:
        world, fault = World(target, "t"), Voters()
        done, until = None, time.monotonic() + WITHIN_S
        monkeypatch.setattr(fault_voters, "wish", loses_answers)
        while not lost:
            assert time.monotonic() < until, described(world)
            done = fault.begin(world, injection)
        assert (done is None) == (outcome == ErrorCode.UNKNOWN_SERVER_ERROR)
        monkeypatch.setattr(fault_voters, "wish", adds_none)
        if done is not None:
            assert fault.begin(world, injection) is None, "an injection lasts, so its voter is not added by another"
            fault.end(world, done)
        monkeypatch.setattr(fault_voters, "wish", ask)
        while voters(world) != [1, 2, 3]:
            assert fault.begin(world, injection) is None, "the missing voter comes first"
            assert time.monotonic() < until, described(world)
