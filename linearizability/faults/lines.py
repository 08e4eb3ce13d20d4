"""Bad lines: all packets to and from a node come late, or not at all."""

import math
from abc import abstractmethod
from typing import Any

from linearizability.faults.fault import Fault, World, register
from linearizability.faults.injection import Injection
from linearizability.faults.network import Line

DELAY_MS = (5.0, 800.0)
"""One way, on a logarithmic scale: from a busy network to one across the world with full queues."""
JITTER_SHARE = 0.5
LOSS = (0.01, 0.3)
"""The share of packets that are lost, on a logarithmic scale: TCP still gets through, at times very slowly."""


class BadLine(Fault):
    """The line of one node is bad."""

    network = "lines"
    aims = ("leader", "any", "follower", "controller")

    @abstractmethod
    def line(self, pick: float) -> Line:
        """The line's delay and loss for this pick."""

    def target(self, world: World, injection: Injection) -> int | None:
        """The place whose line it is; None where none is left."""
        return world.choose(injection.who, injection.pick)

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        node = self.target(world, injection)
        line = self.line(injection.pick * 7919 % 1)
        if node is None or not world.spoil(node, line):
            return None
        return {"node": node, "delay_ms": line.delay_ms, "jitter_ms": line.jitter_ms, "loss": line.loss}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.mend(done["node"])


@register
class Slow(BadLine):
    """All packets to and from one node come late."""

    name = "slow"

    def line(self, pick: float) -> Line:
        delay_ms = round(_logarithmic(DELAY_MS, pick), 1)
        return Line(delay_ms=delay_ms, jitter_ms=round(delay_ms * JITTER_SHARE, 1))


@register
class Lossy(BadLine):
    """A share of the packets that one node sends, or is sent, is lost, by chance."""

    name = "lossy"

    def line(self, pick: float) -> Line:
        return Line(loss=round(_logarithmic(LOSS, pick), 4))


def _logarithmic(bounds: tuple[float, float], pick: float) -> float:
    low, high = (math.log(bound) for bound in bounds)
    return math.exp(low + pick * (high - low))
