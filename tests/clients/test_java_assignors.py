"""Two of Kafka's own Java consumers subscribe together and share a topic, by each assignor that they have."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from linearizability.targets import Target, open_target
from tests.clients.test_consumer_protocol import QUICK
from tests.tools.jvm import TIMEOUT_S, Ran, Tools

pytestmark = pytest.mark.java

PARTITIONS = 4
RECORDS = 800
"""What each consumer reads before it leaves."""
PAUSE_S = 0.01
JAVA = "org.apache.kafka.clients.consumer"
ASSIGNMENTS = {
    "range": ("--assignment-strategy", f"{JAVA}.RangeAssignor"),
    "round robin": ("--assignment-strategy", f"{JAVA}.RoundRobinAssignor"),
    "sticky": ("--assignment-strategy", f"{JAVA}.StickyAssignor"),
    "cooperative sticky": ("--assignment-strategy", f"{JAVA}.CooperativeStickyAssignor"),
    "KIP-848, uniform": ("--group-protocol", "consumer", "--group-remote-assignor", "uniform"),
    "KIP-848, range": ("--group-protocol", "consumer", "--group-remote-assignor", "range"),
}


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker to which members of the new protocol send heartbeats often."""
    with open_target("reference:1", folder=tmp_path_factory.mktemp("java-assignors"), config=QUICK) as target:
        yield target


@contextmanager
def steady_producer(bootstrap: str, topic: str) -> Iterator[None]:
    """A record a moment for each partition, for as long as a consumer reads."""
    end = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        for number in count():
            for partition in range(PARTITIONS):
                producer.produce(topic, str(number), partition=partition)
            producer.poll(0)
            if end.wait(PAUSE_S):
                break
        producer.flush(30)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(60)


def wait_for_members(admin: AdminClient, group: str, number: int) -> None:
    """Wait for a stable group before any record is produced: else the first consumer reads its records and leaves too early."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        with suppress(KafkaException):  # the coordinator is not there yet, or no consumer has come
            seen = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
            if len(seen.members) == number and seen.state == ConsumerGroupState.STABLE:
                return
        time.sleep(0.1)
    raise TimeoutError(f"{group} is not stable with {number} members after {TIMEOUT_S:g} s")


def shares(ran: Ran) -> list[frozenset[int]]:
    """The partitions that a verifiable consumer owned after each assignment and revocation."""
    owned: frozenset[int] = frozenset()
    reported: list[frozenset[int]] = []
    for line in ran.well().splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        named = frozenset(each["partition"] for each in event.get("partitions", ()))
        if event.get("name") == "partitions_assigned":
            owned |= named
            reported.append(owned)
        elif event.get("name") == "partitions_revoked":
            owned -= named
            reported.append(owned)
    return reported


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_two_java_consumers_share_a_topic(
    quick_broker: Target, tools: Tools, topic: str, assignment: str, tmp_path: Path
) -> None:
    broker, settings = quick_broker, tmp_path / "consumer.properties"
    settings.write_text("" if "KIP-848" in assignment else "heartbeat.interval.ms=200\n")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", f"group-{topic}")
    how = (*where, "--max-messages", RECORDS, *ASSIGNMENTS[assignment], "--command-config", settings)
    consumers = [tools.start("kafka-verifiable-consumer", *how) for _ in range(2)]
    wait_for_members(admin, f"group-{topic}", 2)
    with steady_producer(broker.bootstrap, topic):
        first, second = (shares(consumer.result(TIMEOUT_S)) for consumer in consumers)
    halves = {(mine, other) for mine in first for other in second if len(mine) == len(other) == PARTITIONS // 2}
    assert any(not mine & other for mine, other in halves), f"{first} and {second}"
