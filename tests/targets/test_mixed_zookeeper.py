"""Apache Kafka and the reference over one ZooKeeper: brokers are killed, the controller moves between the kinds, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from linearizability.agreement import Agreement, compare_nodes
from linearizability.targets import WrongTarget, open_target
from linearizability.targets.mixed_zookeeper import MixedZooKeeperCluster
from linearizability.targets.target import Node
from linearizability.targets.wire import Wire
from reference.protocol.messages.metadata import MetadataRequest
from tests.targets.numbers import PATIENT, QUIET, consumed, produce
from tests.waiting import await_true

SPEC = "mixed:kafka-zk:3.9.2,reference-zk,kafka-zk:3.9.2"
REFERENCE = 2
WITHIN_S = 120
PARTITIONS, RECORDS = 6, 300
NEVER_LAGS = {"replica.lag.time.max.ms": "600000"}
"""Leaders take no member out of an ISR while a test runs: the controller must, in a way that they take."""


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("mixed:kafka-zk:2.7.2,reference-zk", "the inter-broker protocols of 2.8 and 3.9, and kafka-zk:2.7.2 neither"),
        ("mixed:reference,reference-zk", "coordinates all nodes of a cluster or none"),
        ("mixed:kafka:3.9.2,reference-zk", "coordinates all nodes of a cluster or none"),
        ("mixed:broker=reference-zk,kafka-zk:3.9.2", "coordinates all nodes of a cluster or none"),
    ],
)
def test_what_cannot_stand_in_such_a_cluster_is_refused_by_name(spec: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(WrongTarget, match=said):
        open_target(spec, folder=tmp_path)


def controller(node: Node) -> int:
    with Wire.connect(node.host, node.port) as wire:
        return wire.call(MetadataRequest(topics=[])).controller_id


def await_controller(target: MixedZooKeeperCluster, down: int = 0) -> int:
    """The controller that all live brokers name."""
    until = time.monotonic() + WITHIN_S
    while True:
        named = {controller(node) for node in target.nodes if node.id != down}
        if len(named) == 1 and not named & {-1, down}:
            return named.pop()
        assert time.monotonic() < until, f"no one controller: {named}"
        time.sleep(0.2)


def await_in_sync(target: MixedZooKeeperCluster, admin: AdminClient) -> None:
    await_true(lambda: [*map(len, isrs(admin))] == [3] * PARTITIONS, lambda: f"all in sync; there are {isrs(admin)}")


def isrs(admin: AdminClient) -> list[list[int]]:
    return [each.isrs for each in admin.list_topics("t", timeout=WITHIN_S).topics["t"].partitions.values()]


def survives(folder: Path, kills: int, victims: Sequence[int] | None, spec: str = SPEC) -> tuple[list[int], Agreement]:
    """Kill the named brokers, or each time the controller, between writes. Returns the controllers, and the nodes' comparison."""
    with open_target(spec, folder=folder, config=NEVER_LAGS) as target:
        assert isinstance(target, MixedZooKeeperCluster)
        admin = AdminClient({"bootstrap.servers": target.bootstrap, **QUIET})
        topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(WITHIN_S)
        controllers = [await_controller(target)]
        produce(target.bootstrap, range(RECORDS), PARTITIONS, PATIENT)
        for times in range(1, kills + 1):
            victim = victims[times - 1] if victims is not None else controllers[-1]
            target.kill(victim)
            controllers.append(await_controller(target, down=victim))
            produce(target.bootstrap, range(times * RECORDS, (times + 1) * RECORDS), PARTITIONS, PATIENT)
            target.restart(victim)
            await_in_sync(target, admin)
        sent = (kills + 1) * RECORDS
        assert sorted(consumed(target.bootstrap, sent, PARTITIONS)) == [*range(sent)]
        return controllers, compare_nodes(target)


def agrees(found: Agreement) -> None:
    assert (found.differences, found.reasons) == ([], [])
    assert found.replicas >= 3 * PARTITIONS


@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_each_broker_is_killed_once_and_nothing_is_lost(tmp_path: Path) -> None:
    _, found = survives(tmp_path, 3, (1, 2, 3))
    agrees(found)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("spec", [SPEC, "mixed:kafka-zk:3.9.2,reference-zk,kafka-zk:2.8.2"])
def test_the_controller_is_killed_six_times_and_moves_between_the_kinds(tmp_path: Path, spec: str) -> None:
    controllers, found = survives(tmp_path, 6, None, spec)
    agrees(found)
    assert REFERENCE in controllers and {*controllers} != {REFERENCE}, controllers
