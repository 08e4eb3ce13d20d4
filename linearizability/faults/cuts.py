"""Faults on the network between nodes, and between clients and nodes.

Those with `network = "groups"` also run through a target's own `partition` and `heal` hooks; those with `"links"` need
every single link, which network namespaces give.
"""

import random
import threading
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any

from linearizability.faults.background import Background
from linearizability.faults.fault import Fault, World, register
from linearizability.faults.injection import Injection
from linearizability.faults.network import CLIENTS

FLAKY_OFF_S = 0.15
FLAKY_ON_S = 0.25
"""A link that works most of the time, and loses whatever is on its way when it does not."""

Link = tuple[int, int]


class Cut(Fault):
    """Takes links away, and gives them back."""

    network = "links"
    nodes = 2
    aims = ("leader", "any", "follower", "controller")

    @abstractmethod
    def links(self, world: World, injection: Injection) -> tuple[list[Link], dict[str, Any]] | None:
        """The links to cut, and the fields of the mark; None where no node fits."""

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        chosen = self.links(world, injection)
        if chosen is None or not chosen[0]:
            return None
        links, fields = chosen
        world.cut(links)
        return {**fields, "links": links}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.join([tuple(link) for link in done["links"]])


@register
class Isolate(Fault):
    """One node sees none of the others; clients see all."""

    name = "isolate"
    network = "groups"
    nodes = 2
    aims = ("leader", "any", "controller", "follower", "coordinator")

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        node = world.choose(injection.who, injection.pick)
        if node is None:
            return None
        world.partition([[node], [place for place in world.places if place != node]])
        return {"node": node}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.unpartition([[done["node"]], [place for place in world.places if place != done["node"]]])


@register
class Halves(Fault):
    """The nodes fall into two groups: a minority and a majority, by chance."""

    name = "halves"
    network = "groups"
    nodes = 3

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        nodes = world.ids
        first = int(injection.pick * len(nodes))
        turned = nodes[first:] + nodes[:first]
        minority = turned[: len(nodes) // 2]
        groups = [minority, [place for place in world.places if place not in minority]]
        world.partition(groups)
        return {"groups": groups}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.unpartition(done["groups"])


@register
class Pair(Cut):
    """Two nodes do not see each other; both see the rest. On three nodes this is a bridge."""

    name = "pair"

    def links(self, world: World, injection: Injection) -> tuple[list[Link], dict[str, Any]] | None:
        node = world.choose(injection.who, injection.pick)
        others = [other for other in world.ids if other != node]
        if node is None:
            return None
        other = others[int(injection.pick * 7919) % len(others)]
        return both_ways([(node, other)]), {"nodes": [node, other]}


@register
class Deaf(Cut):
    """A node receives nothing from the others; they receive what it sends."""

    name = "deaf"

    def links(self, world: World, injection: Injection) -> tuple[list[Link], dict[str, Any]] | None:
        node = world.choose(injection.who, injection.pick)
        return None if node is None else ([(place, node) for place in world.places if place != node], {"node": node})


@register
class Mute(Cut):
    """The others receive nothing from a node; it receives what they send."""

    name = "mute"

    def links(self, world: World, injection: Injection) -> tuple[list[Link], dict[str, Any]] | None:
        node = world.choose(injection.who, injection.pick)
        return None if node is None else ([(node, place) for place in world.places if place != node], {"node": node})


@register
class LeaderFromController(Cut):
    """A leader and the controller (and ZooKeeper, where there is one) do not see each other; replication goes on."""

    name = "leader-controller"
    aims = ("leader",)

    def links(self, world: World, injection: Injection) -> tuple[list[Link], dict[str, Any]] | None:
        node = world.choose("leader", injection.pick)
        if node is None:
            return None
        others = [place for place in (world.controller(), *world.services) if place not in (node, -1)]
        return both_ways([(node, other) for other in others]), {"node": node}


@register
class LeaderFromFollowers(Cut):
    """A leader and the followers of its partitions do not see each other; it and the controller do.

    A follower on the controller's node is spared for that. So is a leader there, but where ZooKeeper keeps the metadata: cut off
    from the rest of the quorum it would be no controller any more.
    """

    name = "leader-followers"
    aims = ("leader",)
    nodes = 3

    def links(self, world: World, injection: Injection) -> tuple[list[Link], dict[str, Any]] | None:
        led = world.look().partitions.values()
        controller = world.controller()
        leaders = sorted({view.leader for view in led} & {*world.up} - (set() if world.services else {controller}))
        if not leaders:
            return None
        node = leaders[int(injection.pick * len(leaders))]
        followers = {replica for view in led if view.leader == node for replica in view.replicas} - {node, controller}
        return both_ways([(node, follower) for follower in sorted(followers)]), {"node": node}


@register
class Ring(Cut):
    """The nodes stand in a ring, in an order by chance, and each sees its two neighbours alone; services are seen by all.

    Of up to five nodes each still sees a majority, and no two see the same. Of three each would see all.
    """

    name = "ring"
    nodes = 4
    aims = ("any",)

    def links(self, world: World, injection: Injection) -> tuple[list[Link], dict[str, Any]] | None:
        nodes = world.ids
        ring = random.Random(injection.pick).sample(nodes, len(nodes))
        neighbours = {frozenset(pair) for pair in pairwise([*ring, ring[0]])}
        apart = [pair for pair in combinations(ring, 2) if frozenset(pair) not in neighbours]
        return both_ways(apart), {"nodes": ring}


@register
class Clients(Cut):
    """Clients do not see one node; nodes see each other."""

    name = "clients"
    aims = ("leader", "any")
    nodes = 1

    def links(self, world: World, injection: Injection) -> tuple[list[Link], dict[str, Any]] | None:
        node = world.choose(injection.who, injection.pick)
        return None if node is None else (both_ways([(CLIENTS, node)]), {"node": node})


@register
class Flaky(Fault):
    """The links of one node work, and do not, several times a second."""

    name = "flaky"
    network = "links"
    nodes = 2
    aims = ("leader", "any", "follower", "controller")

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        node = world.choose(injection.who, injection.pick)
        if node is None:
            return None
        links = both_ways([(node, place) for place in world.places if place != node])
        flicker = Background(f"flaky {node}", partial(_flicker, world, links))
        world.flickering.setdefault(node, []).append(flicker)
        return {"node": node}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.end(world.flickering[done["node"]].pop())


def _flicker(world: World, links: Sequence[Link], stop: threading.Event) -> None:
    while not stop.is_set():
        world.cut(links)
        try:
            stop.wait(FLAKY_OFF_S)
        finally:
            world.join(links)
        stop.wait(FLAKY_ON_S)


def both_ways(links: Sequence[Link]) -> list[Link]:
    """Each link and its way back."""
    return [way for one, other in links for way in ((one, other), (other, one))]
