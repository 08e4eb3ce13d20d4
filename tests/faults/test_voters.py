"""The fault `voters`: a controller is taken out of the quorum and put back, on nodes whose voters were in the configuration."""

from __future__ import annotations

import time
from pathlib import Path

from linearizability.faults.fault import World
from linearizability.faults.injection import Injection
from linearizability.faults.voters import Voters, described
from linearizability.targets import open_target

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
