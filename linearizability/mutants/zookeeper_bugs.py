"""Bugs of clusters with ZooKeeper: former bugs of Apache Kafka, and one of ZooKeeper itself."""

from __future__ import annotations

from typing import Any

from linearizability.mutants.registry import mutant
from reference.zookeeper.operations import ANY_VERSION, Check


@mutant(
    "reference.node.zookeeper.orders:is_stale_broker_epoch",
    "A broker takes requests of the controller that were for its former registration (before KIP-380).",
    fuzz=True,
    nodes=3,
    breaks=("taken-for-former-registration",),
    coordination="zookeeper",
)
def kip_380(original: Any, asked: int, own: int) -> bool:
    return False


@mutant(
    "reference.node.zookeeper.orders:is_fenced_stop",
    "A broker deletes a replica by a StopReplica request of an earlier leader epoch (before KIP-570).",
    fuzz=True,
    nodes=3,
    breaks=("deleted-in-sync",),
    coordination="zookeeper",
)
def kip_570(original: Any, asked: int, own: int) -> bool:
    return False


@mutant(
    "reference.zookeeper.writes:Condition.check",
    "A controller writes decisions without a check of the controller epoch (before KAFKA-6082).",
    fuzz=True,
    nodes=3,
    breaks=("written-by-deposed-controller",),
    coordination="zookeeper",
)
def kafka_6082(original: Any, condition: Any) -> Check:
    return Check(original(condition).path, ANY_VERSION)


@mutant(
    "reference.node.zookeeper.orders:is_stale_controller_epoch",
    "A broker takes requests of a controller although it has learned of a later one.",
    fuzz=True,
    nodes=3,
    breaks=("taken-from-deposed-controller",),
    coordination="zookeeper",
)
def deposed_controller_obeyed(original: Any, body: Any, newest: int) -> bool:
    return False


@mutant(
    "reference.node.zookeeper.orders:is_given_up",
    "A broker takes a request that the controller has given up, behind the later ones of the controller's next connection.",
    fuzz=True,
    nodes=3,
    breaks=("zookeeper-not-followed", "no-progress"),
    coordination="zookeeper",
)
def given_up_request_obeyed(
    original: Any, epoch: int, connection: int, newest_epoch: int, newest_connection: int
) -> bool:
    return False


@mutant(
    "linearizability.simulation.simulated_zookeeper:SimulatedZooKeeper.ask",
    "ZooKeeper carries out what arrives in a session that it has ended: a bug of its own, which no broker can prevent.",
    fuzz=True,
    nodes=3,
    breaks=("written-by-expired-session",),
    coordination="zookeeper",
)
def expired_session_writes(original: Any, zookeeper: Any, connection: Any, number: int, operation: Any) -> None:
    if zookeeper.is_up and not zookeeper.has_session(connection.session):
        zookeeper.tree.carry_out(operation, connection.session)
    original(zookeeper, connection, number, operation)
