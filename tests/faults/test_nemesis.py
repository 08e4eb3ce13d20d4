"""The nemesis injects the faults that it should, heals all that it hurt, and writes both down."""

import json
import struct
from collections.abc import Collection, Sequence

import pytest

from linearizability.faults import all_faults, deletion, fault, nemesis
from linearizability.faults.fault import World, select
from linearizability.faults.injection import Injection, Who
from linearizability.faults.nemesis import Nemesis
from linearizability.faults.schedule import Schedule, Wave
from linearizability.history.recorder import Recorder
from linearizability.targets.target import DiskError, Node, Target, TargetError
from linearizability.workload.cluster import ClusterView, Coordinated, PartitionView


class Pretended(Target):
    """Three nodes that only remember what was done to them."""

    spec = "pretended:3"
    hooks: Collection[str] = ("kill", "stop", "restart", "pause", "resume", "power-loss", "disk", "clock")

    def __init__(self) -> None:
        self.log: list[str] = []
        self.dead: set[int] = set()
        self.frozen: set[int] = set()
        self.sick: set[int] = set()
        self.wrong: set[int] = set()

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

    def power_loss(self, nodes: Collection[int], kept: float = 0.0, *, journaled: bool = False) -> None:
        for node in nodes:
            self.kill(node)
            self.log.append(f"rob {node}")

    def disk(self, node: int, error: DiskError | None, bytes_left: int = 0) -> None:
        self.log.append(f"disk {node} {error or 'mended'}")
        self.sick = self.sick | {node} if error else self.sick - {node}

    def clock(self, node: int, seconds: float) -> None:
        self.log.append(f"clock {node}")
        self.wrong = self.wrong | {node} if seconds else self.wrong - {node}


@pytest.fixture
def target(monkeypatch):
    target = Pretended()

    def look(nodes, topic):
        leader = PartitionView(2, 5, (1, 2, 3), (1, 2, 3))
        return ClusterView(frozenset(node.id for node in nodes), 3, {0: leader, 1: leader})

    monkeypatch.setattr(fault, "look", look)
    monkeypatch.setattr(fault, "find_coordinator", lambda nodes, what: {"hunters": 1}[what.name])
    monkeypatch.setattr(fault, "find_controller", lambda nodes, named: named)
    monkeypatch.setattr(nemesis, "FIRST_QUIET_S", 0)
    monkeypatch.setattr(nemesis, "TICK_S", 0.005)
    monkeypatch.setattr(nemesis, "LOOK_EVERY_S", 0.02)
    return target


def carry_out(target: Target, tmp_path, *injections: Injection, seconds: float = 0.6) -> list[dict]:
    schedule = Schedule(seed=1, seconds=seconds, waves=[Wave(injections=list(injections), quiet_s=0)])
    with Recorder.open(tmp_path, process=0) as recorder:
        world = World(target, "topic", coordinated=[Coordinated("group", "hunters")])
        attacker = Nemesis(world, recorder, partitions=2)
        attacker.carry_out(schedule)
        assert attacker.heal_all() == []
    lines = (tmp_path / "history-00000.jsonl").read_text().splitlines()
    return [
        event for event in map(json.loads, lines) if event.get("type") == "mark" and event["f"] in ("fault", "heal")
    ]


@pytest.mark.parametrize(("who", "node"), [("leader", 2), ("controller", 3), ("follower", 1), ("coordinator", 1)])
def test_a_fault_hits_the_wanted_role(target, tmp_path, who, node):
    marks = carry_out(target, tmp_path, Injection(at_s=0, fault="kill", who=who, seconds=0.1))
    assert target.log == [f"kill {node}", f"restart {node}"]
    assert [(mark["f"], mark["name"], mark["node"]) for mark in marks] == [
        ("fault", "kill", node),
        ("heal", "kill", node),
    ]


def test_pick_decides_among_several(target, tmp_path):
    marks = carry_out(
        target,
        tmp_path,
        Injection(at_s=0, fault="pause", who="any", pick=0.9, seconds=0.3),
        Injection(at_s=0.05, fault="pause", who="any", pick=0.0, seconds=0.1),
    )
    assert [(m["f"], m["node"]) for m in marks] == [("fault", 3), ("fault", 1), ("heal", 1), ("heal", 3)]


def test_a_node_under_a_fault_gets_no_second_one_and_all_are_healed(target, tmp_path):
    injections = [Injection(at_s=0.01 * n, fault="kill", who="leader", pick=0, seconds=5) for n in range(4)]
    marks = carry_out(target, tmp_path, *injections, seconds=0.3)
    assert [mark["node"] for mark in marks if mark["f"] == "fault"] == [2, 1, 3]
    assert target.dead == set() and target.frozen == set()
    assert sum(mark["f"] == "heal" for mark in marks) == 3


def test_a_fault_is_left_out_whose_node_ends_before_it(target, tmp_path, monkeypatch):
    """A node whose disk broke ends when it next writes: between the look at the nodes and the fault, too."""

    def end_first(node: int) -> None:
        target.dead.add(node)
        raise TargetError(f"node {node} is down and cannot be paused")

    monkeypatch.setattr(target, "pause", end_first)
    marks = carry_out(target, tmp_path, Injection(at_s=0, fault="pause", who="leader", seconds=0.1), seconds=0.2)
    assert marks == [] and target.log == ["restart 2"]


def test_an_error_of_the_target_with_all_nodes_running_ends_the_hunt(target, tmp_path, monkeypatch):
    def refuse(node: int) -> None:
        raise TargetError("no permission to send signals")

    monkeypatch.setattr(target, "pause", refuse)
    with pytest.raises(TargetError, match="no permission"):
        carry_out(target, tmp_path, Injection(at_s=0, fault="pause", who="leader", seconds=0.1), seconds=0.2)


@pytest.mark.parametrize("name", [n for n, fault in all_faults().items() if fault.hooks and not fault.network])
def test_every_process_fault_heals(target, tmp_path, name, monkeypatch):
    monkeypatch.setattr("linearizability.faults.process.STORM_GAP_S", 0)
    carry_out(target, tmp_path, Injection(at_s=0, fault=name, who="any", seconds=0.1))
    assert target.log and target.dead == set() and target.frozen == set()
    assert target.sick == set() and target.wrong == set()


@pytest.mark.parametrize("name", ["disk-full", "disk-broken", "clock-skew", "power-loss"])
def test_what_lasts_when_the_seconds_are_over_is_healed_too(target, tmp_path, name):
    marks = carry_out(target, tmp_path, Injection(at_s=0, fault=name, who="leader", seconds=60), seconds=0.2)
    assert [mark["f"] for mark in marks] == ["fault", "heal"] and marks[0]["node"] == 2
    assert not target.dead | target.sick | target.wrong


def test_a_node_that_its_disk_ended_waits_until_the_disk_is_mended(target, tmp_path):
    with Recorder.open(tmp_path, process=0) as recorder:
        attacker = Nemesis(World(target, "topic"), recorder, partitions=2)

        def ends(elapsed: float) -> None:
            if target.sick and elapsed > 0.05:
                target.dead |= target.sick

        wave = Wave(injections=[Injection(at_s=0, fault="disk-full", who="controller", seconds=0.3)], quiet_s=0)
        attacker.carry_out(Schedule(seed=1, seconds=0.6, waves=[wave]), ends)
        assert attacker.heal_all() == []
    assert target.log == ["disk 3 full", "disk 3 mended", "restart 3"]
    assert attacker.deaths == []


def test_a_node_that_ends_soon_after_its_disk_was_mended_did_not_end_by_itself(target, tmp_path):
    """The shutdown after a refused write takes a second or two: the disk may be mended before it is over."""
    with Recorder.open(tmp_path, process=0) as recorder:
        world = World(target, "topic")
        attacker = Nemesis(world, recorder, partitions=2)
        fault = all_faults()["disk-full"]
        done = fault.begin(world, Injection(at_s=0, fault="disk-full", who="controller"))
        assert done is not None
        fault.end(world, done)
        target.dead.add(3)
        assert attacker.heal_all() == [] and attacker.deaths == []
        assert target.log == ["disk 3 full", "disk 3 mended", "restart 3"]
        target.dead.add(3)
        assert attacker.heal_all() == [] and attacker.deaths == ["node 3 ended by itself"]


def test_a_mended_disk_excuses_no_end_after_the_cluster_was_whole(target, tmp_path):
    with Recorder.open(tmp_path, process=0) as recorder:
        world = World(target, "topic")
        attacker = Nemesis(world, recorder, partitions=2)
        world.break_disk(3, "full", 1)
        world.mend_disk(3)
        world.trust()
        target.dead.add(3)
        assert attacker.heal_all() == [] and attacker.deaths == ["node 3 ended by itself"]


def test_no_more_nodes_are_in_doubt_than_the_promise_allows(target):
    """With two of three nodes in doubt, one of them robbed of unflushed bytes, an acknowledged record may be gone. No fault does
    this unless it is asked for."""
    world = World(target, "topic", None, least_doubted=2)
    world.kill(1)
    assert world.may_fall([2, 3]) and not world.may_fall([2], robbed=True) and world.may_fall([1], robbed=True)
    world.start(1)
    assert world.choose("leader", 0, "robbed") == 1
    world.lose_power([1], 0.0)
    world.start(1)
    assert not world.may_fall([2]) and world.choose("leader", 0, "killed") == 1
    assert world.choose("leader", 0) == 2
    world.trust()
    assert world.may_fall([2]) and world.choose("leader", 0, "robbed") == 2
    world.least_doubted = None
    world.lose_power([1, 2], 0.0)
    assert world.may_fall([3], robbed=True)


def test_the_promise_is_kept_unless_a_fault_is_asked_for_that_breaks_it():
    assert (fault.least_doubted(robbed=0, promised=2), fault.least_doubted(robbed=1, promised=2)) == (2, 2)
    assert fault.least_doubted(robbed=3, promised=2) is fault.least_doubted(robbed=1, promised=1) is None


def test_a_node_is_trusted_when_all_has_been_whole_for_a_while(target, tmp_path, monkeypatch):
    monkeypatch.setattr(nemesis, "TRUSTED_AFTER_S", 0.1)
    timed: list[tuple[float, Who]] = [(0.0, "leader"), (0.06, "follower"), (0.5, "follower")]
    injections = [Injection(at_s=at, fault="power-loss", who=who, seconds=0.05) for at, who in timed]
    with Recorder.open(tmp_path, process=0) as recorder:
        attacker = Nemesis(World(target, "topic", None, least_doubted=2), recorder, partitions=2)
        attacker.carry_out(Schedule(seed=1, seconds=2, waves=[Wave(injections=injections, quiet_s=0)]))
    assert [line for line in target.log if line.startswith("rob")] == ["rob 2", "rob 2", "rob 1"]


def test_when_no_node_answers_the_cluster_is_not_whole(target, monkeypatch):
    world = World(target, "topic")
    assert world.look().answered == {1, 2, 3}
    for node in (1, 2, 3):
        world.kill(node)
    view = world.look()
    assert view.answered == frozenset() and view.partitions[0].leader == 2


def test_what_takes_more_than_the_promise_allows_is_only_done_when_it_is_asked_for(target, monkeypatch):
    offered = select([], target, None)
    assert "power-loss" in offered and "blackout" not in offered and "power-loss-journal" not in offered
    with pytest.raises(TargetError, match="the fault power-loss-journal needs a cluster that is started here"):
        select(["power-loss-journal"], target, None)
    assert select(["blackout"], target, None) == ["blackout"]
    monkeypatch.setattr(Pretended, "nodes", [Node(1, "127.0.0.1", 9001)])
    assert "power-loss" not in select([], target, None)


def test_a_node_that_ends_by_itself_is_noted_and_started_again(target, tmp_path):
    with Recorder.open(tmp_path, process=0) as recorder:
        attacker = Nemesis(World(target, "topic"), recorder, partitions=2)
        target.dead.add(3)
        attacker.carry_out(Schedule(seed=1, seconds=0.1, waves=[]))
    assert attacker.deaths == ["node 3 ended by itself"]
    assert target.log == ["restart 3"]


def test_nodes_that_end_again_and_again_are_left_alone_and_reported(target, tmp_path, monkeypatch):
    monkeypatch.setattr(target, "restart", lambda node, *, wait=True: None)
    with Recorder.open(tmp_path, process=0) as recorder:
        attacker = Nemesis(World(target, "topic"), recorder, partitions=2)
        target.dead.add(3)
        attacker.carry_out(Schedule(seed=1, seconds=30, waves=[]))
        assert attacker.heal_all() == ["nodes end by themselves again and again, last node 3"]
    assert len(attacker.deaths) == 1 + nemesis.DEATHS_A_NODE * 3


def test_a_cluster_that_does_not_heal_is_reported(target, tmp_path, monkeypatch):
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


def test_an_excuse_names_whose_loss_it_explains_from_the_loss_until_all_is_trusted(target):
    """Partition 0 has replicas 1, 2, 3, as the topic's others; one robbed node excuses nothing, two in doubt do."""
    world = World(target, "topic", None)
    reported: list[tuple[str, dict]] = []
    world.mark = lambda f, **fields: reported.append((f, fields))
    world.look()
    world.lose_power([1], 0.0)
    world.start(1)
    assert not reported
    world.kill(2)
    ((f, excuse),) = reported
    assert (f, excuse["number"], excuse["nodes"]) == ("excuse", 1, [1, 2])
    assert {"topic-0", "__consumer_offsets", "__transaction_state"} <= {*excuse["keys"]}
    world.kill(3)
    world.trust()
    world.trust()
    assert [(f, fields.get("nodes")) for f, fields in reported[1:]] == [("excuse", [1, 2, 3]), ("excuse-over", None)]
    world.start(2)
    world.kill(2)
    assert len(reported) == 3, "no node has lost bytes since"


@pytest.mark.parametrize("died", ["flaky", "deletion"])
def test_a_fault_whose_thread_dies_was_none(target, tmp_path, monkeypatch, died):
    """An exception in the fault's thread (here one that pyroute2 raises) leaves the round unknown: `heal_all` reports it."""

    class Broken:
        places = [0, 1, 2, 3]

        def cut(self, sender, receiver):
            raise struct.error("unpack requires a buffer of 4 bytes")

        def join(self, sender, receiver): ...

        def heal(self): ...

    def broken(nodes, topic):
        raise struct.error("unpack requires a buffer of 4 bytes")

    monkeypatch.setattr(deletion, "look", broken)
    monkeypatch.setattr(deletion, "wish", lambda world, request: object())
    injection = Injection(at_s=0, fault=died, who="leader", seconds=0.05)
    with Recorder.open(tmp_path, process=0) as recorder:
        attacker = Nemesis(World(target, "topic", Broken()), recorder, partitions=2)
        attacker.carry_out(Schedule(seed=1, seconds=0.3, waves=[Wave(injections=[injection], quiet_s=0)]))
        (failed,) = attacker.heal_all()
    assert "ended by itself: error: unpack requires a buffer" in failed
