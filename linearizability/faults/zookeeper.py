"""Faults of the ZooKeeper that coordinates the nodes: killed, frozen, cut off from them, slow.

ZooKeeper writes a transaction to its disk before it answers, so no fault here takes a decision back. What is at stake is what the
nodes do meanwhile: sessions expire, and a controller or a leader may not know it.
"""

from __future__ import annotations

from typing import Any

from linearizability.faults.cuts import Cut, Link, both_ways
from linearizability.faults.fault import Fault, World, register
from linearizability.faults.injection import Injection
from linearizability.faults.lines import Slow
from linearizability.targets.zookeeper import ByZooKeeper, ZooKeeper


def _zookeeper(world: World) -> ZooKeeper:
    assert isinstance(world.target, ByZooKeeper)
    return world.target.zookeeper


@register
class ZooKeeperKill(Fault):
    """kill -9 of ZooKeeper, and a start after a while: its sessions go on, with all of their time again."""

    name = "zookeeper-kill"
    of_zookeeper = True

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        _zookeeper(world).kill()
        return {}

    def end(self, world: World, done: dict[str, Any]) -> None:
        _zookeeper(world).start()


@register
class ZooKeeperPause(Fault):
    """SIGSTOP of ZooKeeper, and SIGCONT after a while: it then ends sessions of which it received nothing."""

    name = "zookeeper-pause"
    of_zookeeper = True

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        process = _zookeeper(world).process
        if process is None or not process.running:
            return None
        process.pause()
        return {}

    def end(self, world: World, done: dict[str, Any]) -> None:
        process = _zookeeper(world).process
        if process is not None and process.running:
            process.resume()


@register
class ZooKeeperCut(Cut):
    """One node and ZooKeeper do not see each other; the node sees all others, and they see ZooKeeper."""

    name = "zookeeper-cut"
    of_zookeeper = True
    nodes = 1
    aims = ("controller", "leader", "any")

    def links(self, world: World, injection: Injection) -> tuple[list[Link], dict[str, Any]] | None:
        node = world.choose(injection.who, injection.pick)
        if node is None:
            return None
        return both_ways([(node, service) for service in world.services]), {"node": node}


@register
class ZooKeeperIsolate(Cut):
    """No node sees ZooKeeper; all see each other."""

    name = "zookeeper-isolate"
    of_zookeeper = True
    nodes = 1
    aims = ("any",)

    def links(self, world: World, injection: Injection) -> tuple[list[Link], dict[str, Any]] | None:
        return both_ways([(node.id, service) for node in world.nodes for service in world.services]), {}


@register
class ZooKeeperSlow(Slow):
    """All packets to and from ZooKeeper come late."""

    name = "zookeeper-slow"
    of_zookeeper = True
    aims = ("any",)

    def target(self, world: World, injection: Injection) -> int | None:
        return next(iter(world.services), None)
