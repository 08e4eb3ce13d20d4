"""Which links each fault of the network cuts, and that its end joins them all again."""

from collections import Counter

import pytest

from linearizability.faults import all_faults, fault
from linearizability.faults.fault import World, select
from linearizability.faults.injection import Injection
from linearizability.targets.target import Node, TargetError
from linearizability.workload.cluster import ClusterView, PartitionView
from tests.faults.test_nemesis import Pretended


class Links:
    """A network that only remembers its cuts; `services` beside the nodes."""

    def __init__(self, nodes: int, services: int = 0) -> None:
        self.places = list(range(nodes + services + 1))
        self.cuts: Counter[tuple[int, int]] = Counter()

    def cut(self, sender: int, receiver: int) -> None:
        self.cuts[sender, receiver] += 1

    def join(self, sender: int, receiver: int) -> None:
        self.cuts[sender, receiver] -= 1

    def heal(self) -> None:
        self.cuts.clear()

    @property
    def apart(self) -> set[tuple[int, int]]:
        return {link for link, count in self.cuts.items() if count}


def apart_in(world: World) -> set[tuple[int, int]]:
    assert isinstance(world.network, Links)
    return world.network.apart


def both(*pairs: tuple[int, int]) -> set[tuple[int, int]]:
    return {way for one, other in pairs for way in ((one, other), (other, one))}


def world(monkeypatch, nodes: int, leaders: list[int], *, controller: int = -1, services: int = 0) -> World:
    """Partitions 0, 1 … led by `leaders`, each with replicas on its leader and on the two nodes after it."""
    target = Pretended()
    monkeypatch.setattr(
        Pretended, "nodes", [Node(number, "127.0.0.1", 9000 + number) for number in range(1, nodes + 1)]
    )

    def view(leader: int) -> PartitionView:
        replicas = tuple((leader - 1 + step) % nodes + 1 for step in range(3))
        return PartitionView(leader, 1, replicas, replicas)

    seen = ClusterView(frozenset(range(1, nodes + 1)), -1, {n: view(leader) for n, leader in enumerate(leaders)})
    monkeypatch.setattr(fault, "look", lambda nodes, topic: seen)
    monkeypatch.setattr(fault, "find_controller", lambda nodes, named: controller)
    return World(target, "t", Links(nodes, services))


def injection(name: str, pick: float = 0.0) -> Injection:
    return Injection(at_s=0, fault=name, who="leader", pick=pick)


@pytest.mark.parametrize(
    ("nodes", "leaders", "controller", "services", "apart"),
    [
        (3, [1], 3, 0, both((1, 2))),
        (5, [1], 4, 0, both((1, 2), (1, 3))),
        (5, [1, 4], 4, 0, both((1, 2), (1, 3))),
        (3, [1], 1, 1, both((1, 2), (1, 3))),
        (3, [1], 2, 1, both((1, 3))),
    ],
)
def test_a_leader_loses_its_followers_and_keeps_the_controller(
    nodes, leaders, controller, services, apart, monkeypatch
):
    hurt = world(monkeypatch, nodes, leaders, controller=controller, services=services)
    fault = all_faults()["leader-followers"]
    for pick in (0.0, 0.9):
        done = fault.begin(hurt, injection("leader-followers", pick))
        assert done is not None and done["node"] == 1
        assert apart_in(hurt) == apart
        fault.end(hurt, done)
        assert apart_in(hurt) == set()


def test_a_leader_that_would_be_no_controller_any_more_is_spared(monkeypatch):
    hurt = world(monkeypatch, 3, [2, 2], controller=2)
    assert all_faults()["leader-followers"].begin(hurt, injection("leader-followers")) is None
    assert apart_in(hurt) == set()


@pytest.mark.parametrize("nodes", [4, 5, 7])
def test_in_a_ring_each_node_sees_its_two_neighbours(nodes, monkeypatch):
    hurt = world(monkeypatch, nodes, [1], services=1)
    fault = all_faults()["ring"]
    seen = set()
    for pick in (0.0, 0.3, 0.6):
        done = fault.begin(hurt, injection("ring", pick))
        assert done is not None and sorted(done["nodes"]) == list(range(1, nodes + 1))
        apart = apart_in(hurt)
        assert apart == {(receiver, sender) for sender, receiver in apart}
        for place, node in enumerate(done["nodes"]):
            sees = {other for other in range(1, nodes + 1) if other != node and (node, other) not in apart}
            assert sees == {done["nodes"][place - 1], done["nodes"][(place + 1) % nodes]}
        assert not any(nodes + 1 in link or 0 in link for link in apart)
        seen.add(frozenset(apart))
        fault.end(hurt, done)
        assert apart_in(hurt) == set()
    assert len(seen) > 1


def test_three_nodes_make_no_ring(monkeypatch):
    hurt = world(monkeypatch, 3, [1])
    with pytest.raises(TargetError, match="the fault ring needs 4 nodes; pretended:3 has 3"):
        select(["ring"], hurt.target, hurt.network)
    assert "leader-followers" in select([], hurt.target, hurt.network)


def test_the_controller_is_looked_up_when_the_fault_is_injected(monkeypatch):
    """With a metadata quorum Metadata names a random broker as the controller."""
    hurt = world(monkeypatch, 3, [1], controller=3)
    done = all_faults()["leader-controller"].begin(hurt, injection("leader-controller"))
    assert done is not None and apart_in(hurt) == both((1, 3))
    assert hurt.choose("controller", 0.0) == 3
