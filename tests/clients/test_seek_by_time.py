"""Each unmodified client finds its place by time."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from linearizability.targets import Target
from tests.clients.client import Client, Message

BEGIN_MS = 1_600_000_000_000
STEP_MS = 1_000
COUNT = 50


@pytest.mark.parametrize(("after_ms", "first"), [(-5, 0), (20_000, 20), (20_001, 21), (49_000, 49)])
def test_reading_begins_at_the_first_record_of_that_time(
    broker: Target, client: Client, topic: str, after_ms: int, first: int
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 3})
    for number in range(COUNT):
        producer.produce(topic, str(number), timestamp=BEGIN_MS + number * STEP_MS)
    assert producer.flush(30) == 0
    found = client.read_since(topic, BEGIN_MS + after_ms, COUNT - first)
    assert found == [Message(str(number)) for number in range(first, COUNT)]
