"""Bugs in the coordination by ZooKeeper: those that Apache Kafka once had, and one of ZooKeeper itself."""

from __future__ import annotations

from typing import Any

from linearizability.mutants.registry import mutant
from reference.zookeeper.operations import ANY_VERSION, Check


@mutant(
    "kip-380",
    "reference.node.zookeeper.orders:is_stale_broker_epoch",
    "A broker takes requests of the controller that were for its former registration (before KIP-380).",
    fuzz=True,
    nodes=3,
    breaks=("taken-for-former-registration",),
    coordination="zookeeper",
)
def unchecked_broker_epoch(original: Any, asked: int, own: int) -> bool:
    return False


@mutant(
    "kip-570",
    "reference.node.zookeeper.orders:is_fenced_stop",
    "A broker deletes a replica by a StopReplica request of an earlier leader epoch (before KIP-570).",
    fuzz=True,
    nodes=3,
    breaks=("deleted-in-sync",),
    coordination="zookeeper",
)
def unfenced_stop(original: Any, asked: int, own: int) -> bool:
    return False


@mutant(
    "kafka-6082",
    "reference.zookeeper.writes:Condition.check",
    "A controller writes decisions without a check of the controller epoch (before KAFKA-6082).",
    fuzz=True,
    nodes=3,
    breaks=("written-by-deposed-controller",),
    coordination="zookeeper",
)
def unchecked_controller_epoch(original: Any, condition: Any) -> Check:
    return Check(original(condition).path, ANY_VERSION)


@mutant(
    "deposed-controller-obeyed",
    "reference.node.zookeeper.orders:is_stale_controller_epoch",
    "A broker takes requests of a controller although it has learned of a later one.",
    fuzz=True,
    nodes=3,
    breaks=("taken-from-deposed-controller",),
    coordination="zookeeper",
)
def unchecked_request(original: Any, body: Any, newest: int) -> bool:
    return False


@mutant(
    "given-up-request-obeyed",
    "reference.node.zookeeper.orders:is_given_up",
    "A broker takes a request that the controller has given up, behind the later ones of the controller's next connection.",
    fuzz=True,
    nodes=3,
    breaks=("zookeeper-not-followed", "no-progress"),
    coordination="zookeeper",
)
def unchecked_connection(original: Any, epoch: int, connection: int, newest_epoch: int, newest_connection: int) -> bool:
    return False


@mutant(
    "expired-session-writes",
    "linearizability.simulation.simulated_zookeeper:SimulatedZooKeeper.ask",
    "ZooKeeper carries out what arrives in a session that it has ended: a bug of its own, which no broker can prevent.",
    fuzz=True,
    nodes=3,
    breaks=("written-by-expired-session",),
    coordination="zookeeper",
)
def unchecked_session(original: Any, zookeeper: Any, connection: Any, number: int, operation: Any) -> None:
    if zookeeper.is_up and not zookeeper.has_session(connection.session):
        zookeeper.tree.carry_out(operation, connection.session)
    original(zookeeper, connection, number, operation)
