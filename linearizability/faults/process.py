"""Faults on processes."""

import time
from typing import Any

from linearizability.faults.fault import Fault, World, register
from linearizability.faults.injection import Injection

STORM_ROUNDS = 4
STORM_GAP_S = 0.4


@register
class Kill(Fault):
    """kill -9, and a start after a while."""

    name = "kill"
    hooks = ("kill", "restart")
    aims = ("leader", "follower", "any", "controller", "coordinator")

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        node = world.choose(injection.who, injection.pick, "killed")
        if node is None:
            return None
        world.kill(node)
        return {"node": node}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.start(done["node"])


@register
class Stop(Kill):
    """SIGTERM, and a start after a while: a node that hands over its leadership before it goes."""

    name = "stop"
    hooks = ("stop", "restart")

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        node = world.choose(injection.who, injection.pick)
        if node is None:
            return None
        world.stop(node)
        return {"node": node}


@register
class Pause(Fault):
    """SIGSTOP, and SIGCONT after a while: a node that has not noticed the time between."""

    name = "pause"
    hooks = ("pause", "resume")
    aims = ("leader", "any", "controller", "follower", "coordinator")

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        node = world.choose(injection.who, injection.pick)
        if node is None:
            return None
        world.pause(node)
        return {"node": node}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.resume(done["node"])


@register
class Storm(Fault):
    """The same node is killed and started several times, each time before it could finish its recovery."""

    name = "storm"
    hooks = ("kill", "restart")
    aims = ("any", "leader", "follower")

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        node = world.choose(injection.who, injection.pick, "killed")
        if node is None:
            return None
        for _ in range(STORM_ROUNDS - 1):
            world.kill(node)
            world.start(node)
            time.sleep(STORM_GAP_S)
        world.kill(node)
        return {"node": node}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.start(done["node"])


@register
class KillAll(Fault):
    """kill -9 of all nodes in one moment."""

    name = "kill-all"
    hooks = ("kill", "restart")
    nodes = 2

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        targets = world.up
        if not targets or not world.may_fall(targets):
            return None
        for node in targets:
            world.kill(node)
        return {"nodes": targets}

    def end(self, world: World, done: dict[str, Any]) -> None:
        for node in done["nodes"]:
            world.start(node)
