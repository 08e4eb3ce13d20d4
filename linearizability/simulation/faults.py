"""What each kind of fault of a schedule does to the simulated world, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from linearizability.simulation.schedule import FAULTS, Fault
from linearizability.simulation.world import MICROSECONDS_A_MS

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster


def _crash(cluster: Cluster, fault: Fault) -> None:
    cluster.machines[fault.node].crash()


def _power_loss(cluster: Cluster, fault: Fault) -> None:
    cluster.machines[fault.node].lose_power(cluster.world.chance(f"fault/{fault.at_ms}/{fault.kind}"))


def _stop(cluster: Cluster, fault: Fault) -> None:
    cluster.machines[fault.node].stop()


def _start(cluster: Cluster, fault: Fault) -> None:
    cluster.machines[fault.node].start()


def _pause(cluster: Cluster, fault: Fault) -> None:
    cluster.machines[fault.node].pause()


def _resume(cluster: Cluster, fault: Fault) -> None:
    cluster.machines[fault.node].resume()


def _disk_full(cluster: Cluster, fault: Fault) -> None:
    disk = cluster.machines[fault.node].disk
    disk.capacity_bytes = disk.used_bytes + max(0, fault.amount)


def _room(cluster: Cluster, fault: Fault) -> None:
    cluster.machines[fault.node].disk.capacity_bytes = None


def _read_only(cluster: Cluster, fault: Fault) -> None:
    cluster.machines[fault.node].disk.read_only = True


def _writable(cluster: Cluster, fault: Fault) -> None:
    cluster.machines[fault.node].disk.read_only = False


def _clock_jump(cluster: Cluster, fault: Fault) -> None:
    cluster.machines[fault.node].jump(fault.amount)


def _reset(cluster: Cluster, fault: Fault) -> None:
    cluster.network.reset_some(cluster.world.chance(f"fault/{fault.at_ms}/{fault.kind}"), fault.amount / 100)


def _flaky(cluster: Cluster, fault: Fault) -> None:
    cluster.network.cut_share = min(100, max(0, fault.amount)) / 100


def _sound(cluster: Cluster, fault: Fault) -> None:
    cluster.network.cut_share = 0.0


def _slow(cluster: Cluster, fault: Fault) -> None:
    cluster.network.extra_latency_us += fault.amount * MICROSECONDS_A_MS


def _fast(cluster: Cluster, fault: Fault) -> None:
    cluster.network.extra_latency_us = max(0, cluster.network.extra_latency_us - fault.amount * MICROSECONDS_A_MS)


Action = Callable[["Cluster", Fault], None]

ACTIONS: dict[str, tuple[Action, Action | None]] = {
    "crash": (_crash, _start),
    "power-loss": (_power_loss, _start),
    "stop": (_stop, _start),
    "pause": (_pause, _resume),
    "disk-full": (_disk_full, _room),
    "read-only": (_read_only, _writable),
    "clock-jump": (_clock_jump, None),
    "reset": (_reset, None),
    "flaky": (_flaky, _sound),
    "slow": (_slow, _fast),
}
"""Kind of fault -> how it begins, and how it ends after `for_ms`."""

assert ACTIONS.keys() == FAULTS.keys()


def strike(cluster: Cluster, fault: Fault, number: int) -> None:
    """Let one fault of a schedule happen now."""
    begin, end = ACTIONS[fault.kind]
    cluster.world.counts[f"fault {fault.kind}"] += 1
    cluster.world.trace.note(f"fault {fault.kind} {fault.node} {fault.for_ms} {fault.amount}")
    if cluster.world.trace.keep:
        cluster.world.trace.tell("world", "world", f"fault {number}: {fault.kind} — {FAULTS[fault.kind]}")
    cluster.notebook.mark("fault", name=f"{fault.kind}-{number}", node=fault.node)
    begin(cluster, fault)
    if end is None:
        _heal(cluster, fault, number, None)
    else:
        cluster.world.after(fault.for_ms * MICROSECONDS_A_MS, _heal, cluster, fault, number, end)


def _heal(cluster: Cluster, fault: Fault, number: int, end: Action | None) -> None:
    if end is not None:
        end(cluster, fault)
    cluster.notebook.mark("heal", name=f"{fault.kind}-{number}", node=fault.node)


def heal_all(cluster: Cluster) -> None:
    """Make everything whole again."""
    cluster.network.extra_latency_us = 0
    cluster.network.cut_share = 0.0
    for machine in cluster.machines:
        machine.disk.capacity_bytes = None
        machine.disk.read_only = False
        machine.resume()
        machine.start()
