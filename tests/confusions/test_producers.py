"""Which records a producer loses, repeats and reorders."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.produce import ProduceRequest
from tests.confusions.applications import PATIENCE_S, Applications, keep_failures
from tests.confusions.wire import Mishap, Wire

PLAIN = {"enable.idempotence": False, "acks": "all", "retry.backoff.ms": 50}
IDEMPOTENT = {"enable.idempotence": True, "retry.backoff.ms": 50}


def test_a_retry_without_idempotence_duplicates(unlucky: Applications, wire: Wire, topic: str) -> None:
    wire.befall(ProduceRequest, Mishap.UNANSWERED)
    unlucky.write(topic, ["paid"], settings=PLAIN)
    assert unlucky.read_all(topic) == ["paid", "paid"]

    other = unlucky.new_topic()
    wire.befall(ProduceRequest, Mishap.UNANSWERED)
    unlucky.write(other, ["paid"], settings=IDEMPOTENT)
    assert unlucky.read_all(other) == ["paid"]


def test_a_new_session_is_not_deduplicated(applications: Applications, topic: str) -> None:
    for _ in range(2):
        applications.write(topic, ["paid"], settings=IDEMPOTENT)
    assert applications.read_all(topic) == ["paid", "paid"]

    other = applications.new_topic()
    died = transactional(applications, other)
    died.produce(other, "paid")
    assert died.flush(PATIENCE_S) == 0
    again = transactional(applications, other)
    again.produce(other, "paid")
    again.commit_transaction(PATIENCE_S)
    assert applications.read_all(other) == ["paid"]
    with pytest.raises(KafkaException, match=r"[Ff]enced"):
        died.commit_transaction(PATIENCE_S)


def transactional(applications: Applications, topic: str) -> Producer:
    """A session under the one transactional id of the application, its transaction begun."""
    producer = applications.producer({"transactional.id": f"pays-into-{topic}"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    return producer


def test_acks_0_is_at_most_once(unlucky: Applications, wire: Wire, topic: str) -> None:
    lost = wire.befall(ProduceRequest, Mishap.LOST)
    unlucky.write(topic, ["reported as delivered"], settings=PLAIN | {"acks": 0})
    assert lost.met.wait(PATIENCE_S)
    assert unlucky.read_all(topic) == []

    wire.befall(ProduceRequest, Mishap.LOST)
    unlucky.write(topic, ["delivered"], settings=IDEMPOTENT)
    assert unlucky.read_all(topic) == ["delivered"]


DIES = """
import os, sys
from confluent_kafka import Producer

bootstrap, topic, flushes = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 60_000})
producer.produce(topic, "accepted by produce()")
if flushes == "True":
    assert producer.flush(60) == 0
os._exit(9)
"""
"""A process that ends at once, without any cleanup, after `produce` has returned without an error."""


def test_buffered_records_die_with_their_producer(applications: Applications, topic: str) -> None:
    for flushes, stored in ((False, []), (True, ["accepted by produce()"])):
        ended = subprocess.run([sys.executable, "-c", DIES, applications.bootstrap, topic, str(flushes)], check=False)
        assert ended.returncode == 9
        assert applications.read_all(topic) == stored


ELECTIONS = [
    (Mishap.LOST, ErrorCode.NONE, KafkaError._TRANSPORT),
    (Mishap.REFUSED, ErrorCode.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS),
]
"""(fault of a request, error, the client's error): the leader dies, or the new one has too few replicas in sync."""


def test_an_error_during_an_election_that_clients_do_not_retry(unlucky: Applications, wire: Wire) -> None:
    for mishap, error, reported in ELECTIONS:
        unretried, retried = unlucky.new_topic(), unlucky.new_topic()
        wire.befall(ProduceRequest, mishap, error)
        with pytest.raises(KafkaException) as failed:
            unlucky.write(unretried, ["lost"], settings=PLAIN | {"retries": 0})
        assert failed.value.args[0].code() == reported
        assert unlucky.read_all(unretried) == []

        wire.befall(ProduceRequest, mishap, error)
        unlucky.write(retried, ["kept"], settings=IDEMPOTENT)
        assert unlucky.read_all(retried) == ["kept"]

    sought = unlucky.new_topic()
    wire.befall(ProduceRequest, Mishap.REFUSED, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    unlucky.write(sought, ["kept"], settings=PLAIN | {"retries": 0})
    assert unlucky.read_all(sought) == ["kept"], "librdkafka looks for the new leader unasked"


@pytest.mark.parametrize(
    ("settings", "stored"),
    [(PLAIN, ["zeroth", "second", "first"]), (IDEMPOTENT, ["zeroth", "first", "second"])],
    ids=["confusion", "idempotence"],
)
def test_retries_reorder(
    unlucky: Applications, wire: Wire, topic: str, settings: dict[str, Any], stored: list[str]
) -> None:
    producer = unlucky.producer(settings)
    failures: list[KafkaError] = []
    producer.produce(topic, "zeroth", on_delivery=keep_failures(failures))
    assert producer.flush(PATIENCE_S) == 0
    refused = wire.befall(ProduceRequest, Mishap.OVERTAKEN, ErrorCode.NOT_ENOUGH_REPLICAS)
    producer.produce(topic, "first", on_delivery=keep_failures(failures))
    assert refused.met.wait(PATIENCE_S)
    producer.produce(topic, "second", on_delivery=keep_failures(failures))
    assert producer.flush(PATIENCE_S) == 0
    assert not failures
    assert unlucky.read_all(topic) == stored


KEYS = [f"customer-{number}" for number in range(12)]


def test_partition_growth_remaps_keys(applications: Applications) -> None:
    topic = applications.new_topic(2)
    before = places_of_keys(applications, topic)
    applications.grow(topic, 4)
    after = places_of_keys(applications, topic)
    moved = {key for key in KEYS if after[key] != before[key]}
    assert moved
    assert moved != set(KEYS)
    stored = [applications.read_all(topic, number) for number in range(4)]
    for key in KEYS:
        holding = sum(key in records for records in stored)
        assert holding == (2 if key in moved else 1), "a moved key's records have no common order any more"

    copy = applications.new_topic(4)
    assert (
        places_of_keys(applications, copy, [key for records in stored for key in records])
        == places_of_keys(applications, copy)
        == after
    )


def places_of_keys(applications: Applications, topic: str, keys: list[str] = KEYS) -> dict[str, int]:
    """Write a record under each key, in the order given; the partition that each key's records came to."""
    places: dict[str, int] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None
        key, partition = message.key(), message.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        assert places.setdefault(key.decode(), partition) == partition

    producer = applications.producer({"partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(topic, key, key, on_delivery=note)
    assert producer.flush(PATIENCE_S) == 0
    return places
