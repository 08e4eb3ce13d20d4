"""Whether groups and replicas have settled: one generation, each partition owned once, read and committed, ISRs complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linearizability.simulation.client import Key, SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.consuming import name_of
from linearizability.simulation.copying import SimulatedCopier
from linearizability.simulation.grouping import SimulatedMember
from linearizability.simulation.schedule import GROUPS_TOPIC
from linearizability.simulation.simulated_zookeeper import SimulatedZooKeeper
from linearizability.simulation.transacting import SimulatedTransactor
from reference.controller.image import NO_LEADER, TOPIC_RESOURCE
from reference.replication.partition import Partition
from reference.zookeeper import znodes


def unsettled(cluster: SimulatedCluster, members: Sequence[SimulatedMember]) -> str:
    """Why a group has not settled; empty where all have. A settled group is stable, owns each partition once, and has read and
    committed all records.

    A member that has ended for good is not counted: the others must have taken over its partitions.
    """
    groups: dict[str, list[SimulatedMember]] = {}
    for member in members:
        if not member.finished:
            groups.setdefault(member.member.group, []).append(member)
    ends = _ends(cluster)
    return next((reason for name, group in groups.items() if (reason := _lacks(name, group, ends))), "")


def _lacks(name: str, members: Sequence[SimulatedMember], ends: Mapping[Key, int]) -> str:
    if not all(member.is_settled for member in members) or len({member.generation for member in members}) > 1:
        states = ", ".join(f"{member.name} in {member.generation}" for member in members)
        return f"group {name} is not stable: {states}"
    owned = sorted(key for member in members for key in member.places)
    if owned != sorted(ends):
        return f"group {name} owns {owned} of {sorted(ends)}"
    for member in members:
        for key, place in member.places.items():
            if place.position < ends[key]:
                return f"group {name} has read {name_of(key)} up to {place.position} of {ends[key]}"
        if not member.has_committed_all:
            return f"{member.name} has not committed all that it has read"
    return ""


def _ends(cluster: SimulatedCluster) -> dict[Key, int]:
    """The high watermark of each partition that groups read, from its leader."""
    ends = dict.fromkeys(cluster.inputs(), 0)
    for machine in cluster.machines:
        for partition in machine.node.partitions.values() if machine.node is not None else ():
            key = (partition.topic, partition.index)
            if partition.is_leader and key in ends:
                ends[key] = max(ends[key], partition.high_watermark)
    return ends


def unstable(cluster: SimulatedCluster) -> list[tuple[int, Partition]]:
    """The leading replicas whose last stable offset is below the high watermark, each with its node's number."""
    return [
        (machine.number, partition)
        for machine in cluster.machines
        if machine.node is not None
        for partition in machine.node.partitions.values()
        if partition.is_leader and partition.last_stable_offset() < partition.high_watermark
    ]


def may_hang(cluster: SimulatedCluster, client: SimulatedClient) -> bool:
    """Whether a client may wait for ever without a violation.

    A transactional client may, where the transaction coordinator lost decisions. A copier also may, where `__consumer_offsets`
    lost a transaction's marker: the offsets committed in the transaction stay unstable until the producer's next transaction
    ends, and the copier waits for them before it begins one. Kafka does not write a lost marker again either.
    """
    if not isinstance(client, SimulatedTransactor | SimulatedCopier):
        return False
    checker = cluster.checker
    return cluster.promises.is_forgetful or (
        isinstance(client, SimulatedCopier)
        and checker is not None
        and any(
            checker.lost_ends(number, partition)
            for number, partition in unstable(cluster)
            if partition.topic == GROUPS_TOPIC
        )
    )


def unfinished(cluster: SimulatedCluster) -> list[str]:
    """What the controller has not completed: partitions without a leader, replicas out of sync or, with ZooKeeper, tools'
    requests and the state that brokers should have from it."""
    if cluster.zookeeper is not None:
        left = [f"ZooKeeper still holds {path}" for path in cluster.zookeeper.requests_left()]
        return left + _other_settings(cluster, cluster.zookeeper) + _other_metadata(cluster, cluster.zookeeper)
    return leaderless(cluster) + [f"{replica} is not in sync" for replica in out_of_sync(cluster)]


def _other_settings(cluster: SimulatedCluster, zookeeper: SimulatedZooKeeper) -> list[str]:
    """Topic configurations that differ between brokers and ZooKeeper: as controller, a broker would decide by its own."""
    found: list[str] = []
    for machine in cluster.machines:
        for name in machine.node.image.topics if machine.node is not None else ():
            path = znodes.config_path(TOPIC_RESOURCE, name)
            znode = zookeeper.tree.find(path)
            written = {} if znode is None else znodes.decode_config(path, znode.data)
            held = machine.node.image.configs.get((TOPIC_RESOURCE, name), {}) if machine.node is not None else {}
            if held != written:
                found.append(f"{machine.name} holds the settings {held} of {name}, where ZooKeeper says {written}")
    return found


def _other_metadata(cluster: SimulatedCluster, zookeeper: SimulatedZooKeeper) -> list[str]:
    """The brokers and leaders in the nodes' metadata that differ from ZooKeeper's."""
    brokers = {int(name) for name in zookeeper.tree.children(znodes.BROKER_IDS)}
    leaders: dict[str, tuple[int, int]] = {}
    for topic in zookeeper.tree.children(znodes.TOPICS):
        for index in zookeeper.tree.children(znodes.partitions_path(topic)):
            path = znodes.state_path(topic, int(index))
            if (znode := zookeeper.tree.find(path)) is not None:
                state = znodes.decode_state(path, znode.data)
                leaders[f"{topic}-{index}"] = state.leader, state.leader_epoch
    found: list[str] = []
    for machine in cluster.machines:
        if machine.node is None:
            continue
        image = machine.node.image
        reported = {
            f"{topic.name}-{index}": (partition.leader, partition.leader_epoch)
            for topic in image.topics.values()
            for index, partition in topic.partitions.items()
        }
        if {*image.brokers} != brokers:
            found.append(f"{machine.name} knows the brokers {sorted(image.brokers)}, of {sorted(brokers)}")
        for key in sorted(leaders.keys() | reported.keys()):
            if leaders.get(key) != reported.get(key):
                written = f"ZooKeeper says {leaders.get(key)}"
                found.append(f"{machine.name} has leader and epoch {reported.get(key)} of {key}, where {written}")
    return found


def leaderless(cluster: SimulatedCluster) -> list[str]:
    """The partitions without a leader, internal topics' too, of which a replica could lead, by the active controller's image.

    It is in the ISR; in the ELR where the ISR is empty; the last leader where both are. A fenced broker, one that is about to
    stop and one whose log is offline lead nothing. That no controller is active is reported by `out_of_sync`.
    """
    active = cluster.active_controller()
    node = cluster.machine(active).node if active is not None else None
    if node is None:
        return []
    image = node.image
    found: list[str] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            last = partition.last_known_elr if len(partition.last_known_elr) == 1 else []
            able = [
                replica
                for replica in partition.isr or partition.eligible_leader_replicas or last
                if image.is_active(replica) and not _is_offline(cluster, replica, (topic.name, index))
            ]
            if partition.leader == NO_LEADER and able:
                found.append(f"{topic.name}-{index} has no leader, though {able} may lead it, of {partition}")
    return found


def out_of_sync(cluster: SimulatedCluster) -> list[str]:
    """The replicas outside the ISR of a partition with a leader, by the active controller's image; offline logs do not count."""
    active = cluster.active_controller()
    node = cluster.machine(active).node if active is not None else None
    if node is None:
        return ["no node is the active controller"]
    return [
        f"{topic.name}-{index} on node {replica}, of {partition}"
        for topic in node.image.topics.values()
        for index, partition in topic.partitions.items()
        if partition.leader != NO_LEADER
        for replica in {*partition.replicas} - {*partition.isr}
        if not _is_offline(cluster, replica, (topic.name, index))
    ]


def _is_offline(cluster: SimulatedCluster, replica: int, key: Key) -> bool:
    node = cluster.machine(replica).node
    return node is not None and key in node.replicas.offline
