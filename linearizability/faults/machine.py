"""Faults on a node's machine: its power, its disk, its clock.

They need the target's hooks `power-loss`, `disk` and `clock`. Clusters of our own processes offer them where there is a C
compiler (`linearizability/targets/interposer`), which documents its model of a power loss.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from linearizability.faults.fault import Fault, World, register
from linearizability.faults.injection import Injection
from linearizability.targets.target import DiskError

NOTHING_KEPT_BELOW = 0.5
"""Every second power loss removes all bytes that were not fsynced; the others leave a share of them, torn anywhere."""
BYTES_LEFT = (1, 200_000)
"""Bytes that a disk still accepts before it is full; drawn on a logarithmic scale."""
SKEW_S = (0.5, 600.0)
"""How far a clock is put wrong, on a logarithmic scale. Well below `log.message.timestamp.after.max.ms` (an hour)."""


def second_pick(injection: Injection) -> float:
    """Another number of [0, 1), so that a node does not always suffer the same."""
    return injection.pick * 7919 % 1


@register
class PowerLoss(Fault):
    """One machine loses power: its broker ends, and loses the bytes that it has not fsynced."""

    name = "power-loss"
    hooks = ("power-loss", "restart")
    aims = ("leader", "follower", "any", "controller")
    journaled: ClassVar[bool] = False
    """Whether the file system writes a truncation before all later flushes; otherwise it may come undone."""

    def robs(self, nodes: int) -> int:
        return 1

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        node = world.choose(injection.who, injection.pick, "robbed")
        if node is None:
            return None
        kept = second_pick(injection)
        kept = 0.0 if kept < NOTHING_KEPT_BELOW else kept
        world.lose_power([node], kept, journaled=self.journaled)
        return {"node": node, "kept": round(kept, 3)}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.start(done["node"])


@register
class PowerLossWithJournal(PowerLoss):
    """The same, on a file system with a journal: truncated bytes do not come back (findings/unflushed_truncation)."""

    name = "power-loss-journal"
    of_interposer = True
    only_by_name = True
    journaled = True


@register
class Blackout(Fault):
    """All machines lose power in one moment. Kafka promises nothing then: any loss is permitted."""

    name = "blackout"
    hooks = ("power-loss", "restart")
    nodes = 2

    def robs(self, nodes: int) -> int:
        return nodes

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        targets = world.up
        if not targets or not world.may_fall(targets, robbed=True):
            return None
        world.lose_power(targets, 0.0)
        return {"nodes": targets}

    def end(self, world: World, done: dict[str, Any]) -> None:
        for node in done["nodes"]:
            world.start(node)


class Disk(Fault):
    """One node's disk refuses writes. Brokers may end by themselves; they are started when the disk is mended."""

    hooks = ("disk", "restart")
    aims = ("leader", "follower", "any", "controller")
    error: ClassVar[DiskError]

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        node = world.choose(injection.who, injection.pick, "killed")
        if node is None or node in world.sick:
            return None
        left = int(_logarithmic(BYTES_LEFT, second_pick(injection)))
        world.break_disk(node, self.error, left)
        return {"node": node, "bytes_left": left}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.mend_disk(done["node"])
        world.notice_deaths()
        world.start(done["node"])


@register
class DiskFull(Disk):
    """A node's disk takes a few bytes more, and is full (ENOSPC)."""

    name = "disk-full"
    error = "full"


@register
class DiskBroken(Disk):
    """A node's disk fails every write and every fsync (EIO)."""

    name = "disk-broken"
    error = "broken"


@register
class ClockSkew(Fault):
    """A node's wall clock jumps, ahead or back, and jumps right again when the fault ends. Monotonic time goes on as ever."""

    name = "clock-skew"
    hooks = ("clock",)
    aims = ("any", "leader", "controller", "follower")

    def begin(self, world: World, injection: Injection) -> dict[str, Any] | None:
        node = world.choose(injection.who, injection.pick)
        if node is None:
            return None
        direction = 1 if int(injection.pick * 104_729) % 2 else -1
        seconds = round(direction * _logarithmic(SKEW_S, second_pick(injection)), 3)
        world.set_clock(node, seconds)
        return {"node": node, "seconds": seconds}

    def end(self, world: World, done: dict[str, Any]) -> None:
        world.set_clock(done["node"], 0.0)


def _logarithmic(bounds: Sequence[float], pick: float) -> float:
    low, high = (math.log(bound) for bound in bounds)
    return math.exp(low + pick * (high - low))
