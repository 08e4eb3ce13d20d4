"""The end of a run: each node is stopped cleanly and started once more, and then one is killed for good."""

from __future__ import annotations

from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.machine import Machine
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation
from reference.controller.elections import places
from reference.controller.image import MetadataImage
from reference.protocol.primitives import NodeId
from reference.replication.partition import Partition
from reference.zookeeper import znodes

ALIVE_BOUND_MS = 20_000
"""Once all is healed, the controller takes all nodes to be alive within this time."""
LEAVE_BOUND_MS = 4_000
"""A node that asks leave to stop then gets it within this time; it waits twice as long."""
STOP_BOUND_MS = 10_000
FENCED_BOUND_MS = 8_000
"""A killed broker is fenced within this time: an election of the controller, the session, and one decision."""
LOOK_EVERY_US = 10_000


def lose_one(cluster: SimulatedCluster, machine: Machine) -> None:
    """Kill a node, once the controller takes all to be alive, and wait until the others have fenced it. Errors: Violation.

    Only where the other voters are a majority; with ZooKeeper there is no controller that fences.
    """
    world = cluster.world
    if len(cluster.machines) < 3 or cluster.schedule.coordination != "kraft":
        return
    bound_us = world.now_us + ALIVE_BOUND_MS * MICROSECONDS_A_MS
    world.run(bound_us, lambda: _is_owed_leave(cluster, machine), LOOK_EVERY_US)
    if not _is_owed_leave(cluster, machine):
        raise Violation("no-progress", f"after {ALIVE_BOUND_MS} ms {machine.name} is not known to be alive")
    machine.crash()
    bound_us = world.now_us + FENCED_BOUND_MS * MICROSECONDS_A_MS
    world.run(bound_us, lambda: _is_fenced(cluster, machine), LOOK_EVERY_US)
    if not _is_fenced(cluster, machine):
        raise Violation("not-fenced", f"{machine.name} was killed, and {FENCED_BOUND_MS} ms later it is not fenced")


def _is_fenced(cluster: SimulatedCluster, machine: Machine) -> bool:
    """Whether the active controller has fenced a node's broker."""
    active = cluster.active_controller()
    node = cluster.machine(active).node if active is not None else None
    broker = node.image.brokers.get(NodeId(machine.number)) if node is not None else None
    return broker is not None and broker.fenced


def start_again(cluster: SimulatedCluster, machine: Machine) -> None:
    """Stop a node cleanly, once the controller takes all nodes to be alive, and start it again.

    Errors: Violation, also where it stops without leave.
    """
    world = cluster.world
    if not cluster.is_alone:
        bound_us = world.now_us + ALIVE_BOUND_MS * MICROSECONDS_A_MS
        world.run(bound_us, lambda: _is_owed_leave(cluster, machine), LOOK_EVERY_US)
        if not _is_owed_leave(cluster, machine):
            raise Violation("no-progress", f"after {ALIVE_BOUND_MS} ms {machine.name} cannot be given leave to stop")
    began_us = world.now_us
    machine.stop(2 * LEAVE_BOUND_MS)
    if machine.is_up:
        world.run(began_us + STOP_BOUND_MS * MICROSECONDS_A_MS, lambda: not machine.is_up)
    if machine.is_up:
        raise Violation("no-progress", f"{machine.name} did not stop within {STOP_BOUND_MS} ms")
    if not cluster.is_alone and world.now_us - began_us >= LEAVE_BOUND_MS * MICROSECONDS_A_MS:
        raise Violation("no-leave-to-stop", f"{machine.name} got no leave to stop within {LEAVE_BOUND_MS} ms")
    machine.start()


def _is_owed_leave(cluster: SimulatedCluster, machine: Machine) -> bool:
    """Whether the active controller takes all nodes to be alive, and knows this one's incarnation: it gives leave to stop.

    With ZooKeeper it gives none to a leader that is alone in an ISR, nor takes others into it, once it has been asked: a leader
    that may take a follower out again (one that reaches the high watermark joins, and may lag all the same) is not owed it yet.
    """
    node, active = machine.node, cluster.active_controller()
    controller = cluster.machine(active).node if active is not None else None
    if node is None or controller is None or not cluster.are_unfenced(cluster.schedule.node_ids):
        return False
    if cluster.schedule.coordination == "zookeeper":
        image = controller.controller.image  # of what the leader may not have learned yet
        is_reading = not controller.controller.is_active  # everything again: it may find brokers out of sync then
        if is_reading or not _knows_all(cluster, controller.controller_epoch, image):
            return False
        if not all(_keeps_isr(each, node.id) for each in node.partitions.values()):
            return False
        return not any(places(image, lambda each: [*each.isr] == [node.id] and len(each.replicas) > 1))
    return controller.image.brokers[node.id].epoch == node.broker_epoch


def _keeps_isr(partition: Partition, node: int) -> bool:
    """Whether it leads a partition of which it knows no member of the ISR to lag, and proposes nothing; or does not lead it."""
    leading = partition.leading
    if leading is None:
        return True
    end = partition.log.log_end_offset
    others = [leading.followers.get(NodeId(each)) for each in partition.state.isr if each != node]
    return leading.pending is None and all(each is not None and each.end == end for each in others)


def _knows_all(cluster: SimulatedCluster, controller_epoch: int, image: MetadataImage) -> bool:
    """Whether ZooKeeper has no later controller, and no decision whose answer is still on its way to this one."""
    assert cluster.zookeeper is not None
    find = cluster.zookeeper.tree.find
    epoch = find(znodes.CONTROLLER_EPOCH)
    states = (
        (find(znodes.state_path(topic.name, index)), each) for topic, index, each in places(image, lambda _: True)
    )
    return (
        epoch is not None
        and int(epoch.data) == controller_epoch
        and all(state is None or state.version == each.partition_epoch for state, each in states)
    )
