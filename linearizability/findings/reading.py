"""Read a partition by an unmodified consumer, for the reproductions of findings."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

POLLED_WITHIN_S = 60.0


def read(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> dict[int, str]:
    """Offset -> value of each record of partition 0, from its beginning to its end, at this isolation level."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation}
    consumer = Consumer(settings | {"enable.partition.eof": True})
    found: dict[int, str] = {}
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(POLLED_WITHIN_S)) is not None and message.error() is None:
            found[message.offset() or 0] = (message.value() or b"").decode()
    finally:
        consumer.close()
    return found
