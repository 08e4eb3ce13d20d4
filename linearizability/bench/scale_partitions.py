"""Rows of `bench scale` for partitions and connections."""

from __future__ import annotations

from linearizability.bench.scale_cluster import STARTED_WITHIN_S, Meter, Topics, connect
from linearizability.targets import Node
from linearizability.targets.cluster import ClusterTarget


def measure_partitions(target: ClusterTarget, count: int, meter: Meter) -> None:
    """Measure a cluster with `count` partitions. Errors: TargetError."""
    topics, row = Topics(target, count), meter.row
    empty_mb, empty_descriptors = meter.holdings()
    meter.stage("created", topics.create)
    meter.stage("served", topics.serve)
    topics.await_in_sync()
    full_mb, full_descriptors = meter.holdings()
    replicas = count * min(3, len(target.nodes))
    row["replica_kb"] = round((full_mb - empty_mb) * 1024 / replicas, 2)
    row["replica_descriptors"] = round((full_descriptors - empty_descriptors) / replicas, 3)
    row["resident_mb"] = round(full_mb)
    meter.idle("idle_cpu_ms_per_s")
    name = next(iter(topics.sizes))
    leader = leader_of(topics, name)
    connection = connect(leader)
    meter.load([connection], leader.address, name, -1)
    connection.socket.close()
    killed = target.nodes[-1].id
    lines = meter.log_lines()
    meter.kill(killed)
    meter.stage("led_again", topics.serve)
    meter.stage("back", lambda: come_back(target, killed))
    meter.stage("in_sync_again", topics.await_in_sync)
    row["log_lines_of_failover"] = meter.log_lines() - lines


def come_back(target: ClusterTarget, node: int) -> None:
    """Start a killed node, and wait until it answers. Errors: TargetError."""
    target.restart(node, wait=False)
    target.await_answers([target.member(node)], STARTED_WITHIN_S)


def leader_of(topics: Topics, name: str) -> Node:
    """Return the leader of a topic's first partition, which the bench loads."""
    connection = connect(topics.alive()[0])
    found = next(each for each in topics.look(connection, [name]).topics[0].partitions if each.partition_index == 0)
    connection.socket.close()
    return next(node for node in topics.target.nodes if node.id == found.leader_id)


def measure_connections(target: ClusterTarget, count: int, meter: Meter) -> None:
    """Measure a node under the load of `count` connections. Errors: TargetError."""
    topics = Topics(target, 1)
    topics.create()
    topics.serve()
    name = next(iter(topics.sizes))
    node = leader_of(topics, name)
    empty_mb, _ = meter.holdings()
    connections = [connect(node) for _ in range(count)]
    meter.load(connections, node.address, name, 1)
    meter.row["connection_kb"] = round((meter.holdings()[0] - empty_mb) * 1024 / count, 2)
    for connection in connections:
        connection.socket.close()


def measure_start(target: ClusterTarget, count: int, meter: Meter) -> None:
    """Measure the starts of a node with `count` partitions. Errors: TargetError."""
    topics = Topics(target, count)
    node = target.nodes[0].id
    empty_mb, empty_descriptors = meter.holdings()
    meter.stage("created", topics.create)
    meter.stage("served", topics.serve)
    full_mb, full_descriptors = meter.holdings()
    meter.row["resident_mb"], meter.row["descriptors"] = round(full_mb), full_descriptors
    meter.row["partition_kb"] = round((full_mb - empty_mb) * 1024 / count, 2)
    meter.row["partition_descriptors"] = round((full_descriptors - empty_descriptors) / count, 3)
    meter.idle("idle_cpu_ms_per_s")
    name = next(iter(topics.sizes))
    connection = connect(target.nodes[0])
    meter.load([connection], target.nodes[0].address, name, 1)
    connection.socket.close()
    meter.stop(node)
    meter.start("start_after_stop", node, topics.serve)
    meter.kill(node)
    meter.start("start_after_kill", node, topics.serve)
