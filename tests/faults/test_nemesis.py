"""The nemesis strikes whom it should, heals all that it hurt, and writes both down."""

import json
from collections.abc import Collection, Sequence

import pytest

from linearizability.faults import all_faults, fault, nemesis
from linearizability.faults.fault import World, select
from linearizability.faults.nemesis import Nemesis
from linearizability.faults.schedule import Schedule, Wave
from linearizability.faults.strike import Strike
from linearizability.history.recorder import Recorder
from linearizability.targets.target import Node, Target, TargetError
from linearizability.workload.cluster import ClusterView, PartitionView


class Pretended(Target):
    """Three nodes that only remember what was done to them."""

    spec = "pretended:3"
    hooks: Collection[str] = ("kill", "stop", "restart", "pause", "resume")

    def __init__(self) -> None:
        self.log: list[str] = []
        self.dead: set[int] = set()
        self.frozen: set[int] = set()

    @property
    def nodes(self) -> Sequence[Node]:
        return [Node(number, "127.0.0.1", 9000 + number) for number in (1, 2, 3)]

    def open(self) -> None: ...

    def close(self) -> None: ...

    def running(self, node: int) -> bool:
        return node not in self.dead

    def kill(self, node: int) -> None:
        assert node not in self.dead
        self.log.append(f"kill {node}")
        self.dead.add(node)
        self.frozen.discard(node)

    def stop(self, node: int) -> None:
        self.kill(node)

    def restart(self, node: int, *, wait: bool = True) -> None:
        assert node in self.dead
        self.log.append(f"restart {node}")
        self.dead.discard(node)

    def pause(self, node: int) -> None:
        self.log.append(f"pause {node}")
        self.frozen.add(node)

    def resume(self, node: int) -> None:
        self.log.append(f"resume {node}")
        self.frozen.discard(node)


@pytest.fixture
def target(monkeypatch):
    target = Pretended()

    def look(nodes, topic):
        leader = PartitionView(2, 5, (1, 2, 3), (1, 2, 3))
        return ClusterView(frozenset(node.id for node in nodes), 3, {0: leader, 1: leader})

    monkeypatch.setattr(fault, "look", look)
    monkeypatch.setattr(nemesis, "FIRST_QUIET_S", 0)
    monkeypatch.setattr(nemesis, "TICK_S", 0.005)
    monkeypatch.setattr(nemesis, "LOOK_EVERY_S", 0.02)
    return target


def carry_out(target: Target, tmp_path, *strikes: Strike, seconds: float = 0.6) -> list[dict]:
    schedule = Schedule(seed=1, seconds=seconds, waves=[Wave(strikes=list(strikes), quiet_s=0)])
    with Recorder.open(tmp_path, process=0) as recorder:
        attacker = Nemesis(World(target, "topic"), recorder, partitions=2)
        attacker.carry_out(schedule)
        assert attacker.heal_all() == []
    lines = (tmp_path / "history-00000.jsonl").read_text().splitlines()
    return [
        event for event in map(json.loads, lines) if event.get("type") == "mark" and event["f"] in ("fault", "heal")
    ]


@pytest.mark.parametrize(("who", "node"), [("leader", 2), ("controller", 3), ("follower", 1)])
def test_a_blow_falls_on_the_wanted_role(target, tmp_path, who, node):
    marks = carry_out(target, tmp_path, Strike(at_s=0, fault="kill", who=who, seconds=0.1))
    assert target.log == [f"kill {node}", f"restart {node}"]
    assert [(mark["f"], mark["name"], mark["node"]) for mark in marks] == [
        ("fault", "kill", node),
        ("heal", "kill", node),
    ]


def test_pick_decides_among_several(target, tmp_path):
    marks = carry_out(
        target, tmp_path,
        Strike(at_s=0, fault="pause", who="any", pick=0.9, seconds=0.3),
        Strike(at_s=0.05, fault="pause", who="any", pick=0.0, seconds=0.1),
    )  # fmt: skip
    assert [(m["f"], m["node"]) for m in marks] == [("fault", 3), ("fault", 1), ("heal", 1), ("heal", 3)]


def test_a_struck_node_is_not_struck_again_and_nobody_is_left_hurt(target, tmp_path):
    strikes = [Strike(at_s=0.01 * n, fault="kill", who="leader", pick=0, seconds=5) for n in range(4)]
    marks = carry_out(target, tmp_path, *strikes, seconds=0.3)
    assert [mark["node"] for mark in marks if mark["f"] == "fault"] == [2, 1, 3]
    assert target.dead == set() and target.frozen == set()
    assert sum(mark["f"] == "heal" for mark in marks) == 3


@pytest.mark.parametrize("name", [n for n, fault in all_faults().items() if fault.hooks and not fault.network])
def test_every_process_fault_heals(target, tmp_path, name, monkeypatch):
    monkeypatch.setattr("linearizability.faults.process.STORM_GAP_S", 0)
    carry_out(target, tmp_path, Strike(at_s=0, fault=name, who="any", seconds=0.1))
    assert target.log and target.dead == set() and target.frozen == set()


def test_a_node_that_ends_by_itself_is_noted_and_started_again(target, tmp_path):
    with Recorder.open(tmp_path, process=0) as recorder:
        attacker = Nemesis(World(target, "topic"), recorder, partitions=2)
        target.dead.add(3)
        attacker.carry_out(Schedule(seed=1, seconds=0.1, waves=[]))
    assert attacker.deaths == ["node 3 ended by itself"]
    assert target.log == ["restart 3"]


def test_nodes_that_end_again_and_again_are_left_alone_and_told(target, tmp_path, monkeypatch):
    monkeypatch.setattr(target, "restart", lambda node, *, wait=True: None)
    with Recorder.open(tmp_path, process=0) as recorder:
        attacker = Nemesis(World(target, "topic"), recorder, partitions=2)
        target.dead.add(3)
        attacker.carry_out(Schedule(seed=1, seconds=30, waves=[]))
        assert attacker.heal_all() == ["nodes end by themselves again and again, last node 3"]
    assert len(attacker.deaths) == 1 + nemesis.DEATHS_A_NODE * 3


def test_a_cluster_that_does_not_heal_is_told(target, tmp_path, monkeypatch):
    monkeypatch.setattr(nemesis, "COMPLETE_WITHIN_S", 0.1)
    behind = PartitionView(2, 5, (1, 2, 3), (2,))
    monkeypatch.setattr(fault, "look", lambda nodes, topic: ClusterView(frozenset((1, 2)), 3, {0: behind, 1: behind}))
    with Recorder.open(tmp_path, process=0) as recorder:
        attacker = Nemesis(World(target, "topic"), recorder, partitions=2)
        (reason,) = attacker.heal_all()
    assert "silent nodes [3]" in reason and "partition 1: leader 2, in sync [2]" in reason


def test_faults_are_chosen_by_what_the_target_offers(target):
    assert "kill" in select([], target, None)
    assert select(["none"], target, None) == []
    target.hooks = ("pause", "resume")
    assert select([], target, None) == ["pause"]
    with pytest.raises(TargetError, match=r"the fault kill needs the hook kill, which pretended:3 does not offer"):
        select(["kill"], target, None)
    with pytest.raises(TargetError, match="'meteor' is no fault"):
        select(["meteor"], target, None)
