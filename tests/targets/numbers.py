"""Numbers that a producer writes to the topic `t` of a cluster, and that a consumer finds there."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, Producer, TopicPartition

WITHIN_S = 120
QUIET = {"log_level": 0}
PATIENT = {"request.timeout.ms": 4 * WITHIN_S * 1_000}
"""No request is given up and sent again while a test waits for its response: a new one would hide that the first has none."""


def produce(servers: str, numbers: Iterable[int], partitions: int = 1, settings: dict[str, int] | None = None) -> None:
    """Write numbers; all are acknowledged by all in-sync replicas in time, or the test fails."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET, **(settings or {})})
    refused: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            refused.append(error)

    for number in numbers:
        partition = number % partitions
        producer.produce("t", str(number), partition=partition, on_delivery=note)
    assert (producer.flush(WITHIN_S), refused) == (0, [])


def consumed(servers: str, count: int, partitions: int = 1) -> list[int]:
    """`count` numbers, those of a partition in its order; fewer if the others do not arrive in time."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", **QUIET})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(partitions)])
    found: list[int] = []
    until = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < until:
        found += [int(message.value() or b"") for message in consumer.consume(count, 1.0) if not message.error()]
    consumer.close()
    return found
