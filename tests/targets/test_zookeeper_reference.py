"""Reference brokers that a real ZooKeeper coordinates: each is killed in turn, the controller too, and nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from linearizability.targets import WrongTarget, open_target
from linearizability.targets.reference import ZooKeeperReferenceCluster

WITHIN_S = 60
NEVER_LAGS = {"replica.lag.time.max.ms": "600000"}
"""The leaders themselves take no member out of an ISR while a test runs: the controller must."""
QUIET = {"log_level": 0}
PARTITIONS, RECORDS = 3, 150


def produce(target: ZooKeeperReferenceCluster, first: int) -> None:
    """Write numbers, which all in-sync replicas acknowledge in time."""
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": target.bootstrap, "enable.idempotence": True, **QUIET})
    for number in range(first, first + RECORDS):
        partition = number % PARTITIONS
        producer.produce(
            "t", str(number), partition=partition, on_delivery=lambda error, _: error and refused.append(error)
        )
    assert producer.flush(WITHIN_S) == 0 and refused == []


def consumed(target: ZooKeeperReferenceCluster, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "g", **QUIET})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
    found: list[int] = []
    until = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < until:
        found += [int(message.value() or b"") for message in consumer.consume(count, 1.0) if not message.error()]
    consumer.close()
    return found


def in_sync(admin: AdminClient) -> list[int]:
    return [len(each.isrs) for each in admin.list_topics("t", timeout=WITHIN_S).topics["t"].partitions.values()]


@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_each_broker_is_killed_in_turn_and_nothing_is_lost(tmp_path: Path) -> None:
    with open_target("reference-zk:3", folder=tmp_path, config=NEVER_LAGS) as target:
        assert isinstance(target, ZooKeeperReferenceCluster)
        admin = AdminClient({"bootstrap.servers": target.bootstrap, **QUIET})
        topic = NewTopic("t", PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(WITHIN_S)
        produce(target, 0)
        for times, victim in enumerate((1, 2, 3), start=1):
            target.kill(victim)
            produce(target, times * RECORDS)
            target.restart(victim)
            until = time.monotonic() + WITHIN_S
            while in_sync(admin) != [3] * PARTITIONS:
                assert time.monotonic() < until, f"node {victim} is not in sync again"
                time.sleep(0.2)
        assert sorted(consumed(target, 4 * RECORDS)) == [*range(4 * RECORDS)]


def test_releases_without_zookeeper_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongTarget, match=r"ZooKeeper coordinates releases up to 3\.9"):
        open_target("kafka-zk:4.3.1:3", folder=tmp_path)
