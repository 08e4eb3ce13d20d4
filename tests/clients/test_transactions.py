"""Transactions of every client library that has them: what is aborted is never seen, and a copy is exactly once."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from linearizability.targets import Target
from tests.clients.client import Message
from tests.clients.confluent import Confluent
from tests.clients.test_restart import kill_and_start
from tests.clients.transactional import (
    LIBRARIES,
    AiokafkaTransactions,
    ConfluentTransactions,
    Transactional,
    committed_offset,
    read_all,
)
from tests.storage.dump import dump
from tests.tools.jvm import Tools, run_in_own_jvm

COUNT = 60


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, broker: Target, topic: str) -> Transactional:
    return LIBRARIES[request.param](broker.bootstrap, f"id-{topic}")


def fill(broker: Target, topic: str, count: int = COUNT) -> list[str]:
    values = [str(number) for number in range(count)]
    Confluent(broker.bootstrap).produce(topic, [Message(value) for value in values])
    return values


@pytest.mark.sampled(days=5)
def test_what_is_aborted_is_never_seen(library: Transactional, topic: str) -> None:
    library.write(topic, [(["a", "b"], True), (["never"], False), (["c"], True), (["never, too"], False)])
    assert read_all(library.bootstrap, topic, "read_committed") == ["a", "b", "c"]
    assert read_all(library.bootstrap, topic, "read_uncommitted") == ["a", "b", "never", "c", "never, too"]


@pytest.mark.sampled(days=5)
def test_a_new_session_aborts_what_the_one_before_left_open(library: Transactional, topic: str) -> None:
    zombie = ConfluentTransactions(library.bootstrap, library.id)._producer()
    zombie.begin_transaction()
    zombie.produce(topic, "left open")
    assert zombie.flush(60) == 0
    library.write(topic, [(["new"], True)])
    assert read_all(library.bootstrap, topic, "read_committed") == ["new"]
    with pytest.raises(Exception, match=r"[Ff]enced|epoch"):
        zombie.commit_transaction(60)


@pytest.mark.sampled(days=5)
def test_a_copy_is_exactly_once(library: Transactional, broker: Target, topic: str) -> None:
    sent = fill(broker, topic)
    library.copy(topic, f"{topic}-copy", f"group-{topic}", COUNT, lambda number: number % 3 != 0)
    assert read_all(broker.bootstrap, f"{topic}-copy", "read_committed") == sent
    assert committed_offset(broker.bootstrap, f"group-{topic}", topic) == COUNT


def test_a_copy_outlives_a_killed_broker(broker: Target, topic: str) -> None:
    sent = fill(broker, topic, 200)
    library = AiokafkaTransactions(broker.bootstrap, f"id-{topic}")
    with ThreadPoolExecutor(1) as aside:
        killed = []

        def is_committed(number: int) -> bool:
            if number == 5:
                killed.append(aside.submit(kill_and_start, broker))
            time.sleep(0.02)
            return True

        library.copy(topic, f"{topic}-copy", f"group-{topic}", 200, is_committed)
        killed[0].result()
    assert read_all(broker.bootstrap, f"{topic}-copy", "read_committed") == sent


@pytest.mark.java
def test_javas_transactional_copier(broker: Target, topic: str) -> None:
    sent = fill(broker, topic, 200)
    ran = run_in_own_jvm(
        "kafka-transactional-message-copier",
        "--broker-list",
        broker.bootstrap,
        "--input-topic",
        topic,
        "--input-partition",
        0,
        "--output-topic",
        f"{topic}-copy",
        "--transactional-id",
        f"id-{topic}",
        "--consumer-group",
        f"group-{topic}",
        "--transaction-size",
        30,
        "--max-messages",
        200,
        "--enable-random-aborts",
    )
    ran.well()
    assert read_all(broker.bootstrap, f"{topic}-copy", "read_committed") == sent


@pytest.mark.java
def test_kafkas_transactions_tool(broker: Target, tools: Tools, topic: str) -> None:
    id = f"id-{topic}"
    producer = ConfluentTransactions(broker.bootstrap, id)._producer()
    producer.begin_transaction()
    producer.produce(topic, "open")
    assert producer.flush(60) == 0
    where = ("--bootstrap-server", broker.bootstrap)
    (row,) = [
        line.split() for line in tools.run("kafka-transactions", *where, "list").well().splitlines() if id in line
    ]
    assert row[0] == id and row[3] == "Ongoing"
    described = (
        tools.run("kafka-transactions", *where, "describe", "--transactional-id", id).well().splitlines()[1].split()
    )
    assert described[4] == "Ongoing" and described[-1] == f"{topic}-0"
    producers = tools.run("kafka-transactions", *where, "describe-producers", "--topic", topic, "--partition", 0).well()
    assert producers.splitlines()[1].split()[0] == row[2]
    hanging = tools.run("kafka-transactions", *where, "find-hanging", "--broker-id", 1, "--max-transaction-timeout", 0)
    assert id not in hanging.well()
    producer.commit_transaction(60)
    assert "CompleteCommit" in tools.run("kafka-transactions", *where, "describe", "--transactional-id", id).well()


@pytest.mark.java
def test_an_operator_ends_the_transactions_of_others(broker: Target, tools: Tools, topic: str) -> None:
    where = ("--bootstrap-server", broker.bootstrap)
    abandoned, fenced = (
        ConfluentTransactions(broker.bootstrap, f"id-{topic}-{name}")._producer() for name in ("abandoned", "fenced")
    )
    ways = (
        (abandoned, ("abort", "--topic", topic, "--partition", 0, "--start-offset", 0)),
        (fenced, ("forceTerminateTransaction", "--transactionalId", f"id-{topic}-fenced")),
    )
    for producer, way in ways:
        producer.begin_transaction()
        producer.produce(topic, "open")
        assert producer.flush(60) == 0
        tools.run("kafka-transactions", *where, *way).well()
        reported = tools.run(
            "kafka-transactions", *where, "describe-producers", "--topic", topic, "--partition", 0
        ).well()
        assert {line.split()[-1] for line in reported.splitlines()[1:]} == {"None"}
    with pytest.raises(KafkaException):
        fenced.commit_transaction(60)
    assert read_all(broker.bootstrap, topic, "read_committed") == []


@pytest.mark.java
def test_kafkas_decoder_reads_the_transaction_log(broker: Target, topic: str) -> None:
    id = f"id-{topic}"
    ConfluentTransactions(broker.bootstrap, id).write(topic, [(["a"], True), (["b"], False)])
    files = sorted((Path(broker.describe()["folders"][0]) / "data").glob("__transaction_state-*/*.log"))
    text = dump(files, "--transaction-log-decoder", "--deep-iteration")
    states = [line for line in text.splitlines() if id in line]
    assert [state_of(line) for line in states] == [0, 1, 2, 4, 1, 3, 5]


def state_of(line: str) -> int:
    payload = json.loads(line.split("payload: ", 1)[1])
    return payload["data"]["transactionStatus"]
