"""Kafka's verifiable tools, which are the Java client under Kafka's own system tests, while a broker starts again.

What they and the performance tools print is compared with Apache Kafka in `tests/tools/test_beside_kafka.py`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from linearizability.targets import Target
from tests.clients.confluent import Confluent
from tests.clients.test_restart import kill_and_start, stop_and_start
from tests.tools.jvm import Ran, Tools, run_in_own_jvm

pytestmark = pytest.mark.java

PATIENCE_S = 60.0


def events(ran: Ran, name: str) -> list[dict[str, Any]]:
    """The JSON lines of that name which a verifiable tool printed."""
    lines = [json.loads(line) for line in ran.well().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("name") == name]


def await_end_offset(broker: Target, topic: str, at_least: int) -> None:
    watcher = Confluent(broker.bootstrap)
    until = time.monotonic() + PATIENCE_S
    while watcher.end_offset(topic) < at_least:
        assert time.monotonic() < until, f"{topic} never had {at_least} records"
        time.sleep(0.02)


def test_an_idempotent_java_producer_outlives_restarts(
    broker: Target, tools: Tools, topic: str, tmp_path: Path
) -> None:
    settings = tmp_path / "producer.properties"
    settings.write_text("enable.idempotence=true\nretries=2147483647\nmax.in.flight.requests.per.connection=5\n")
    count, rate = 1500, 600
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--max-messages", count)
    consuming = tools.start("kafka-verifiable-consumer", *where, "--group-id", f"group-{topic}", "--verbose")
    with ThreadPoolExecutor(1) as aside:
        load = ("--throughput", rate, "--command-config", settings)
        producing = aside.submit(run_in_own_jvm, "kafka-verifiable-producer", *where, *load)
        await_end_offset(broker, topic, count // 4)
        stop_and_start(broker)
        await_end_offset(broker, topic, count // 2)
        kill_and_start(broker)
        produced = producing.result()
    acknowledged = {each["value"] for each in events(produced, "producer_send_success")}
    stored = [message.value for message in Confluent(broker.bootstrap).read(topic, count)]
    assert Confluent(broker.bootstrap).end_offset(topic) == count
    assert stored == [str(number) for number in range(count)]
    assert acknowledged == set(stored)
    seen = Counter(each["value"] for each in events(consuming.result(PATIENCE_S), "record_data"))
    assert len(seen) > count // 2, "the consumer did not go on after the restarts"
