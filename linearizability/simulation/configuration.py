"""The configuration of simulated nodes, and their addresses."""

from __future__ import annotations

from linearizability.simulation.schedule import Schedule

PROPERTIES = {
    "process.roles": "broker,controller",
    "num.partitions": "1",
    "log.index.size.max.bytes": "2048",
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "300",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",  # by the wall clock: after a fault sets it back, no assignment would be made
    "auto.create.topics.enable": "false",
}
"""The configuration of simulated nodes; the schedule's overrides it."""

CLUSTER_PROPERTIES = {
    "broker.session.timeout.ms": "600",
    "broker.heartbeat.interval.ms": "150",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "1100",
    "controller.quorum.request.timeout.ms": "800",
    "replica.lag.time.max.ms": "400",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "250",
    "controlled.shutdown.retry.backoff.ms": "50",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": "2",
}
"""Further configuration of several nodes: shorter waits, because runs are short.

A voter's fetch timeout must exceed twice the 500 ms for which the leader delays a fetch, or idle clusters would hold
elections for ever.
"""

PLAINTEXT, CONTROLLER = "PLAINTEXT", "CONTROLLER"
PORTS = {PLAINTEXT: 9092, CONTROLLER: 9093}
"""The ports of the listeners in clusters of several nodes."""


ZOOKEEPER_PROPERTIES = {
    "zookeeper.connect": "zookeeper:2181",
    "zookeeper.session.timeout.ms": "500",
    "controller.socket.timeout.ms": "1000",
    "tidegauge.peers.release": "3.9.2",
}
"""Further configuration of nodes with ZooKeeper; 3.9 is the last release with the controller's requests to brokers."""


def host_of(number: int) -> str:
    return f"node-{number}"


def properties_of(schedule: Schedule, number: int) -> dict[str, str]:
    """The configuration of one node."""
    own = {"node.id": str(number)}
    if schedule.coordination == "zookeeper":
        own = {"broker.id": str(number)} | CLUSTER_PROPERTIES | ZOOKEEPER_PROPERTIES
        own |= {
            "inter.broker.listener.name": PLAINTEXT,
            "listeners": f"{PLAINTEXT}://{host_of(number)}:{PORTS[PLAINTEXT]}",
        }
    elif schedule.nodes > 1:
        changing = schedule.coordination == "changing-voters"
        voting = schedule.node_ids if changing else schedule.voters or schedule.node_ids
        at = {each: f"{host_of(each)}:{PORTS[CONTROLLER]}" for each in voting}
        named = {"controller.quorum.voters": ",".join(f"{each}@{address}" for each, address in at.items())}
        listeners = PORTS if number in voting else {PLAINTEXT: PORTS[PLAINTEXT]}
        own |= CLUSTER_PROPERTIES | (
            {"controller.quorum.bootstrap.servers": ",".join(at.values())} if changing else named
        )
        own |= {
            "controller.listener.names": CONTROLLER,
            "inter.broker.listener.name": PLAINTEXT,
            "process.roles": "broker,controller" if number in voting else "broker",
            "listeners": ",".join(f"{name}://{host_of(number)}:{port}" for name, port in listeners.items()),
        }
    if schedule.nodes > 1:
        own |= {
            "default.replication.factor": str(schedule.replication_factor),
            "offsets.topic.replication.factor": str(schedule.replication_factor),
            "transaction.state.log.replication.factor": str(schedule.replication_factor),
            "transaction.state.log.min.isr": "2",
        }
    if schedule.small_portions:
        own["controller.quorum.fetch.max.bytes"] = "1"
    return PROPERTIES | own | schedule.properties
