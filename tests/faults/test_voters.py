"""The fault `voters`: a controller is taken out of the quorum and put back, on nodes whose voters were in the configuration."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from linearizability.faults import voters as fault_voters
from linearizability.faults.fault import World
from linearizability.faults.injection import Injection
from linearizability.faults.nemesis import Nemesis
from linearizability.faults.voters import ADDED, REMOVED, Voters, described, step, voters_of
from linearizability.history.recorder import Recorder
from linearizability.targets import open_target
from linearizability.targets.target import Target
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_features import UpdateFeaturesRequest
from reference.protocol.primitives import NO_UUID
from reference.protocol.schema import Message

WITHIN_S = 60.0
OF_ANY = Injection(at_s=0, fault="voters", who="any", pick=0, seconds=1)
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR


def until(world: World, holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < ends, (described(world), world.effects, world.unwanted_voters, world.missing_voters)
        time.sleep(0.05)


def voters(world: World) -> list[int]:
    return sorted(voters_of(described(world)))


def test_a_controller_leaves_and_comes_back(tmp_path: Path) -> None:
    """The leader is removed, and another one leads meanwhile. Then a removal is begun without a majority: it happens once there
    is one."""
    with open_target("reference:3", folder=tmp_path) as target:
        world = World(target, "t")
        until(world, lambda: voters(world) == [1, 2, 3] and world.controller() > 0)
        done = Voters().begin(world, OF_ANY.model_copy(update={"who": "controller"}))
        assert done
        left = [node for node in (1, 2, 3) if node != done["node"]]
        until(world, lambda: voters(world) == left and world.controller() in left)
        assert Voters().begin(world, OF_ANY) is None, "two voters stay"
        Voters().end(world, done)
        until(world, lambda: world.has_its_voters)
        assert voters(world) == [1, 2, 3]
        assert world.effects == {REMOVED: 1, ADDED: 1}
        for node in (2, 3):
            world.pause(node)
        done = Voters().begin(world, OF_ANY)
        assert done and done == {"node": 1}
        for node in (2, 3):
            world.resume(node)
        until(world, lambda: world.effects[REMOVED] == 2)
        Voters().end(world, done)
        until(world, lambda: world.has_its_voters)
        assert voters(world) == [1, 2, 3]
        world.end(world.operator)
        assert not world.failures


class Quorum:
    """Three controllers, of which some vote. `asked` has the requests; `instead` the next errors in place of its own answers."""

    def __init__(self) -> None:
        self.directories = {1: UUID(int=1), 2: UUID(int=2), 3: UUID(int=3)}
        self.present = {1, 2, 3}
        self.asked: list[Message] = []
        self.instead: list[ErrorCode | None] = []

    def wish(self, world: World, request: Message) -> Any:
        answer = self._answered(request)
        if not isinstance(request, (AddRaftVoterRequest, RemoveRaftVoterRequest)):
            return answer
        self.asked.append(request)
        error = self.instead.pop(0) if self.instead else answer
        return None if error is None else SimpleNamespace(error_code=error)

    def _answered(self, request: Message) -> Any:
        if isinstance(request, AddRaftVoterRequest):
            assert request.voter_directory_id == self.directories[request.voter_id]
            known = request.voter_id in self.present
            self.present.add(request.voter_id)
            return ErrorCode.DUPLICATE_VOTER if known else ErrorCode.NONE
        if isinstance(request, RemoveRaftVoterRequest):
            known = request.voter_id in self.present
            self.present.discard(request.voter_id)
            return ErrorCode.NONE if known else ErrorCode.VOTER_NOT_FOUND
        if isinstance(request, UpdateFeaturesRequest):
            self.directories = {node: UUID(int=node) for node in self.directories}
            return None
        current = [SimpleNamespace(replica_id=n, replica_directory_id=self.directories[n]) for n in self.present]
        partition = SimpleNamespace(error_code=ErrorCode.NONE, current_voters=current)
        nodes = [SimpleNamespace(node_id=n, listeners=[]) for n in self.present]
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])], nodes=nodes)


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> Quorum:
    quorum = Quorum()
    monkeypatch.setattr(fault_voters, "wish", quorum.wish)
    monkeypatch.setattr(fault_voters, "Background", lambda name, work: None)
    monkeypatch.setattr(World, "choose", lambda world, who, pick: 1)
    return quorum


@pytest.fixture
def world() -> World:
    return World(cast(Target, SimpleNamespace(nodes=[])), "t")


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("outcome", [None, UNKNOWN])
def test_a_controller_comes_back_when_the_answer_to_its_removal_is_lost(
    quorum: Quorum, world: World, outcome: ErrorCode | None, is_over: bool
) -> None:
    """The removal counts where the quorum confirms it."""
    removed: set[int] = set()
    done = Voters().begin(world, OF_ANY)
    assert done and done == {"node": 1}
    quorum.instead = [outcome]
    step(world, removed)
    assert quorum.present == {2, 3} and world.effects[REMOVED] == 0
    if not is_over:
        step(world, removed)
        assert world.effects[REMOVED] == 1
    Voters().end(world, done)
    step(world, removed)
    assert quorum.present == {1, 2, 3} and world.has_its_voters
    assert world.effects == {REMOVED: 1, ADDED: 1}


def test_a_removal_and_an_addition_are_asked_for_until_they_are_answered(quorum: Quorum, world: World) -> None:
    removed: set[int] = set()
    Voters().end(world, Voters().begin(world, OF_ANY) or {})
    quorum.instead = [ErrorCode.NONE, None, UNKNOWN]
    for _ in range(2):
        step(world, removed)
        assert not world.has_its_voters and world.effects[ADDED] == 0
    step(world, removed)
    assert world.has_its_voters and world.effects == {REMOVED: 1, ADDED: 1}


def test_a_voter_that_an_old_request_removed_comes_back(quorum: Quorum, world: World) -> None:
    """The request took effect long after the operator had given it up."""
    step(world, set())
    quorum.present.discard(2)
    step(world, set())
    assert quorum.present == {1, 2, 3} and not world.effects


def test_two_voters_stay(quorum: Quorum, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Voters().begin(world, OF_ANY)
    assert Voters().begin(world, OF_ANY) is None, "the same node"
    monkeypatch.setattr(World, "choose", lambda world, who, pick: 2)
    assert Voters().begin(world, OF_ANY) is None
    quorum.present = {1, 2}
    step(world, set())
    assert quorum.present == {1, 2}


def test_voters_of_the_configuration_come_into_the_log_first(quorum: Quorum, world: World) -> None:
    quorum.directories = dict.fromkeys(quorum.directories, NO_UUID)
    assert Voters().begin(world, OF_ANY)
    step(world, set())
    assert not quorum.asked and NO_UUID not in quorum.directories.values()
    step(world, set())
    assert quorum.present == {2, 3}


def test_a_cluster_is_not_healed_while_a_voter_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = SimpleNamespace(nodes=[], controllers_alone=[], hooks=())
    world = World(cast(Target, target), "t")
    world.missing_voters = {2}
    monkeypatch.setattr("linearizability.faults.nemesis.COMPLETE_WITHIN_S", 0.2)
    monkeypatch.setattr("linearizability.faults.nemesis.LOOK_EVERY_S", 0.01)
    with Recorder.open(tmp_path, process=0) as recorder:
        attacker = Nemesis(world, recorder, partitions=0)
        assert "missing voters [2]" in attacker.heal_all()[0]
        assert not attacker.in_sync
        world.missing_voters.clear()
        world.unwanted_voters.add(3)
        assert attacker.heal_all() == [] and attacker.in_sync
