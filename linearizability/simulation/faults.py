"""Injects and ends each kind of fault in the simulated world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.gates import Gate, Gates
from linearizability.simulation.network import Uneven, Way
from linearizability.simulation.schedule import (
    ANY_ORDER,
    CLIENTS,
    FAULTS,
    GROUPS_TOPIC,
    METADATA_TOPIC,
    TRANSACTIONS_TOPIC,
    Fault,
)
from linearizability.simulation.simulated_zookeeper import PLACE
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.primitives import NodeId
from reference.zookeeper import znodes


def _crash(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).crash()


def _power_loss(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.on_power_loss(fault.node)
    cluster.machine(fault.node).lose_power(
        cluster.world.chance(f"fault/{fault.at_ms}/{fault.kind}"), in_any_order=fault.amount == ANY_ORDER
    )


def _stop(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).stop()


def _start(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).start()


def _pause(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).pause()


def _resume(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).resume()


def _disk_full(cluster: SimulatedCluster, fault: Fault) -> None:
    disk = cluster.machine(fault.node).disk
    disk.capacity_bytes = disk.used_bytes + max(0, fault.amount)


def _room(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).disk.capacity_bytes = None


def _read_only(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).disk.read_only = True


def _writable(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).disk.read_only = False


def _flush_fails(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).disk.flushes_fail = True


def _flush_works(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).disk.flushes_fail = False


def _crash_in_step(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).dies_at_change = fault.amount


def _crash_no_more(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).dies_at_change = 0


def _directory_fails(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).lose_directory()


def _move(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).move((fault.topic, fault.partition), fault.amount)


def _clock_jump(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.machine(fault.node).jump(fault.amount)


def _reset(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.reset_some(cluster.world.chance(f"fault/{fault.at_ms}/{fault.kind}"), fault.amount / 100)


def _flaky(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.cut_share = min(100, max(0, fault.amount)) / 100


def _sound(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.cut_share = 0.0


def _others(cluster: SimulatedCluster, fault: Fault) -> tuple[int, ...]:
    """Return the nodes on the other side of a cut."""
    return fault.others or tuple(node for node in cluster.schedule.node_ids if node != fault.node)


def _out(cluster: SimulatedCluster, fault: Fault) -> list[Way]:
    return [(fault.node, other) for other in _others(cluster, fault) if other != fault.node]


def _in(cluster: SimulatedCluster, fault: Fault) -> list[Way]:
    return [(other, node) for node, other in _out(cluster, fault)]


def _ways(cluster: SimulatedCluster, fault: Fault) -> list[Way]:
    """Return the directions that a cut blocks."""
    match fault.kind:
        case "zookeeper-cut":
            return [(fault.node, PLACE), (PLACE, fault.node)]
        case "cut-out":
            return _out(cluster, fault)
        case "cut-in":
            return _in(cluster, fault)
        case "isolate":
            rest_of_all = [node for node in (CLIENTS, *cluster.places) if node != fault.node]
            return [way for other in rest_of_all for way in ((fault.node, other), (other, fault.node))]
        case "halves":
            rest = [node for node in cluster.schedule.node_ids if node not in fault.others]
            return [way for one in fault.others for other in rest for way in ((one, other), (other, one))]
        case _:
            return _out(cluster, fault) + _in(cluster, fault)


def _cut(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.cut(_ways(cluster, fault))


def _uncut(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.heal(_ways(cluster, fault))


def _slow_node(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.slow_down(fault.node, fault.amount * MICROSECONDS_A_MS)


def _fast_node(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.slow_down(fault.node, -fault.amount * MICROSECONDS_A_MS)


def _uneven(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.uneven.append(_unevenness(fault))


def _even(cluster: SimulatedCluster, fault: Fault) -> None:
    if _unevenness(fault) in cluster.network.uneven:
        cluster.network.uneven.remove(_unevenness(fault))


def _unevenness(fault: Fault) -> Uneven:
    return Uneven(fault.node, fault.channel, fault.at_ms, fault.amount * MICROSECONDS_A_MS)


def _gate(fault: Fault) -> Gate:
    if fault.messages in ("produce", "leader-and-isr"):
        return Gate(fault.messages, None, frozenset({fault.node}), fault.at_ms)
    return Gate(fault.messages, fault.node, frozenset(fault.others) - {fault.node}, fault.at_ms)


def _gates(cluster: SimulatedCluster) -> Gates:
    assert cluster.network.gates is not None
    return cluster.network.gates


def _hold(cluster: SimulatedCluster, fault: Fault) -> None:
    before_us = cluster.world.now_us + fault.amount * MICROSECONDS_A_MS if fault.amount else None
    _gates(cluster).holding.append(_gate(fault)._replace(before_us=before_us))


def _let_go(cluster: SimulatedCluster, fault: Fault) -> None:
    _end_gate(_gates(cluster).holding, _gate(fault))
    cluster.network.look_again()


def _lose(cluster: SimulatedCluster, fault: Fault) -> None:
    _gates(cluster).losing.append(_gate(fault))


def _lose_no_more(cluster: SimulatedCluster, fault: Fault) -> None:
    _end_gate(_gates(cluster).losing, _gate(fault))


def _end_gate(gates: list[Gate], gate: Gate) -> None:
    for each in gates:
        if each._replace(before_us=None) == gate:
            gates.remove(each)
            return


def _operate(cluster: SimulatedCluster, fault: Fault) -> None:
    if cluster.operator is not None:
        cluster.operator.take(fault)


def _move_leader(cluster: SimulatedCluster, fault: Fault) -> None:
    if fault.role:
        rest = [each for each in fault.others if each != fault.node]
        fault = fault.model_copy(update={"others": (fault.node, *rest)[: len(fault.others)]})
    _operate(cluster, fault.model_copy(update={"kind": "reassign"}))
    _operate(cluster, fault.model_copy(update={"kind": "elect-preferred"}))


def _send_late(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.late_senders[fault.node] += 1


def _send(cluster: SimulatedCluster, fault: Fault) -> None:
    late = cluster.network.late_senders
    late[fault.node] -= 1
    cluster.network.late_senders = +late
    cluster.machine(fault.node).send_what_is_late()


def _expire(cluster: SimulatedCluster, fault: Fault) -> None:
    if cluster.zookeeper is not None:
        cluster.zookeeper.expire(fault.node)


def _write_reassignment(cluster: SimulatedCluster, fault: Fault) -> None:
    if cluster.zookeeper is not None:
        key = fault.topic or cluster.schedule.topics[0].name, fault.partition
        replicas = [NodeId(each) for each in fault.others or reversed(cluster.schedule.node_ids)]
        cluster.zookeeper.write_request(znodes.REASSIGNMENTS, znodes.encode_reassignments({key: replicas}))


def _write_elections(cluster: SimulatedCluster, fault: Fault) -> None:
    if cluster.zookeeper is not None:
        cluster.zookeeper.write_request(
            znodes.PREFERRED_ELECTION, znodes.encode_partitions(sorted(cluster.partitions()))
        )


def _slow_zookeeper(cluster: SimulatedCluster, fault: Fault) -> None:
    if cluster.zookeeper is not None:
        cluster.zookeeper.extra_us += fault.amount * MICROSECONDS_A_MS


def _fast_zookeeper(cluster: SimulatedCluster, fault: Fault) -> None:
    if cluster.zookeeper is not None:
        cluster.zookeeper.extra_us -= fault.amount * MICROSECONDS_A_MS


def _change_zookeeper(cluster: SimulatedCluster, fault: Fault) -> None:
    if cluster.zookeeper is not None:
        cluster.zookeeper.change_leader()


def _recover_zookeeper(cluster: SimulatedCluster, fault: Fault) -> None:
    if cluster.zookeeper is not None:
        cluster.zookeeper.recover()


def _slow(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.extra_latency_us += fault.amount * MICROSECONDS_A_MS


def _fast(cluster: SimulatedCluster, fault: Fault) -> None:
    cluster.network.extra_latency_us = max(0, cluster.network.extra_latency_us - fault.amount * MICROSECONDS_A_MS)


def _depose(cluster: SimulatedCluster, fault: Fault) -> None:
    if cluster.zookeeper is not None:
        cluster.zookeeper.depose_controller()


Action = Callable[["SimulatedCluster", Fault], None]

ACTIONS: dict[str, tuple[Action, Action | None]] = {
    "crash": (_crash, _start),
    "power-loss": (_power_loss, _start),
    "stop": (_stop, _start),
    "pause": (_pause, _resume),
    "disk-full": (_disk_full, _room),
    "read-only": (_read_only, _writable),
    "flush-fails": (_flush_fails, _flush_works),
    "crash-in-step": (_crash_in_step, _crash_no_more),
    "directory-fails": (_directory_fails, None),
    "move": (_move, None),
    "clock-jump": (_clock_jump, None),
    "reset": (_reset, None),
    "flaky": (_flaky, _sound),
    "slow": (_slow, _fast),
    "cut": (_cut, _uncut),
    "cut-out": (_cut, _uncut),
    "cut-in": (_cut, _uncut),
    "isolate": (_cut, _uncut),
    "zookeeper-cut": (_cut, _uncut),
    "zookeeper-expire": (_expire, None),
    "zookeeper-slow": (_slow_zookeeper, _fast_zookeeper),
    "zookeeper-change": (_change_zookeeper, _recover_zookeeper),
    "zookeeper-depose": (_depose, None),
    "zookeeper-reassign": (_write_reassignment, None),
    "zookeeper-elect": (_write_elections, None),
    "halves": (_cut, _uncut),
    "slow-node": (_slow_node, _fast_node),
    "uneven": (_uneven, _even),
    "hold": (_hold, _let_go),
    "lose": (_lose, _lose_no_more),
    "send-late": (_send_late, _send),
    "reassign": (_operate, None),
    "config": (_operate, None),
    "elect-preferred": (_operate, None),
    "lead": (_move_leader, None),
    "add-voter": (_operate, None),
    "remove-voter": (_operate, None),
}
"""Kind of fault -> how it begins, and how it ends after `for_ms`."""

assert ACTIONS.keys() == FAULTS.keys()


class Traps:
    """The faults that wait for a step of the specification."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._set: dict[str, list[tuple[Fault, int]]] = {}
        self._is_over = False

    def arm(self, fault: Fault, number: int) -> None:
        """Let the fault wait for its step."""
        self._set.setdefault(fault.after, []).append((fault, number))

    def disarm(self) -> None:
        """Drop all waiting faults, also those that were due."""
        self._set = {}
        self._is_over = True

    def on_action(self, node: int, action: str, row: Mapping[str, Any]) -> None:
        """A step happens: faults that waited for it are injected `wait_ms` after it."""
        waiting = self._set.get(action)
        if not waiting:
            return
        is_quorums = str(row.get("partition", "")).startswith(METADATA_TOPIC)
        for trap in [each for each in waiting if (each[0].topic == METADATA_TOPIC) == is_quorums]:
            waiting.remove(trap)
            fault, number = trap
            fault = _at_step(fault, node, _other(node, row))
            self._cluster.world.after(fault.wait_ms * MICROSECONDS_A_MS, self._inject, fault, number)

    def _inject(self, fault: Fault, number: int) -> None:
        if not self._is_over:
            inject(self._cluster, fault, number)


def _at_step(fault: Fault, actor: int, other: int | None) -> Fault:
    """The fault with the nodes that a step names in the place of its role."""
    match fault.role:
        case "actor":
            return fault.model_copy(update={"node": actor})
        case "other" if other is not None:
            return fault.model_copy(update={"node": other})
        case "between":
            return fault.model_copy(update={"node": actor, "others": () if other is None else (other,)})
        case _:
            return fault


def _other(node: int, row: Mapping[str, Any]) -> int | None:
    """Return the second node that a step names: the follower, the leader, the sender or receiver."""
    named = {**row.get("args", {}), **row}
    found = (named.get(name) for name in ("follower", "leader", "from", "to"))
    return next((each for each in found if isinstance(each, int) and each not in (node, -1)), None)


def aimed(cluster: SimulatedCluster, fault: Fault) -> Fault:
    """The fault with its target found: who has the role that it names, at this moment."""
    found: int | None = None
    if fault.role == "controller":
        found = cluster.active_controller()
    elif fault.role == "leader":
        found = cluster.leader_of((fault.topic, fault.partition))
    elif fault.role == "bystander":
        found = _bystander(cluster, fault)
    elif fault.role == "coordinator":
        found = cluster.leader_of((GROUPS_TOPIC, 0))
    elif fault.role == "transaction-coordinator":
        found = cluster.leader_of((TRANSACTIONS_TOPIC, 0))
    node = found if found is not None else fault.node
    return fault.model_copy(
        update={"node": node if node in cluster.schedule.node_ids else cluster.schedule.node_ids[0]}
    )


def _bystander(cluster: SimulatedCluster, fault: Fault) -> int | None:
    """Some node that neither leads the partition nor is the active controller: the first from the fault's own on."""
    busy = {cluster.active_controller(), cluster.leader_of((fault.topic, fault.partition))}
    nodes = sorted(cluster.schedule.node_ids, key=lambda node: (node < fault.node, node))
    return next((node for node in nodes if node not in busy), None)


def inject(cluster: SimulatedCluster, fault: Fault, number: int) -> None:
    """Inject one fault of a schedule now."""
    fault = aimed(cluster, fault)
    begin, end = ACTIONS[fault.kind]
    cluster.world.counts[f"fault {fault.kind}"] += 1
    cluster.world.trace.note(f"fault {fault.kind} {fault.node} {fault.for_ms} {fault.amount}")
    if cluster.world.trace.keep:
        cluster.world.trace.log_event("world", "world", f"fault {number}: {fault.kind} — {FAULTS[fault.kind]}")
    cluster.recorder.mark("fault", name=f"{fault.kind}-{number}", node=fault.node)
    cluster.heals_at_us = max(cluster.heals_at_us, cluster.world.now_us + fault.for_ms * MICROSECONDS_A_MS)
    begin(cluster, fault)
    if end is None:
        _heal(cluster, fault, number, None)
    else:
        cluster.world.after(fault.for_ms * MICROSECONDS_A_MS, _heal, cluster, fault, number, end)


def _heal(cluster: SimulatedCluster, fault: Fault, number: int, end: Action | None) -> None:
    if end is not None:
        end(cluster, fault)
    cluster.recorder.mark("heal", name=f"{fault.kind}-{number}", node=fault.node)


def heal_all(cluster: SimulatedCluster) -> None:
    """End all faults: heal the network and the disks, restart the nodes."""
    cluster.network.heal_all()
    for machine in cluster.machines:
        machine.dies_at_change = 0
        machine.disk.capacity_bytes = None
        machine.disk.read_only = machine.disk.flushes_fail = False
        machine.resume()
        machine.send_what_is_late()
        if any(disk.failure is not None for disk in machine.disks):
            machine.crash()
        machine.start()
