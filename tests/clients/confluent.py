"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.clients.client import PLAIN, TIMEOUT_S, Message, Sending, Stream, StreamingClient


class Confluent(StreamingClient):
    def produce(self, topic: str, messages: Sequence[Message], how: Sending = PLAIN) -> None:
        stream = ConfluentStream(
            topic,
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": how.codec,
                "acks": how.acks,
                "enable.idempotence": how.idempotent,
                "linger.ms": 20,
            },
        )
        for message in messages:
            stream.produce(message)
        stream.finish()

    def read_on(self, topic: str, count: int, began: Event) -> list[Message]:
        return self._read_from(TopicPartition(topic, 0, 0), count, began)

    def read_in_group(self, topic: str, group: str, count: int) -> list[Message]:
        consumer = self._consumer(group)
        try:
            consumer.subscribe([topic])
            found = _take(consumer, count, Event())
            consumer.commit(asynchronous=False)
            return found
        finally:
            consumer.close()

    def read_since(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        consumer = self._consumer(f"seeker-{uuid.uuid4()}")
        try:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=TIMEOUT_S)
        finally:
            consumer.close()
        return self._read_from(found, count, Event())

    def end_offset(self, topic: str) -> int:
        """The high watermark of the topic's one partition; 0 while there is no such topic."""
        consumer = self._consumer("watcher")
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)[1]
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
                return 0
            raise
        finally:
            consumer.close()

    def stream(self, topic: str) -> Stream:
        return ConfluentStream(topic, {"bootstrap.servers": self.bootstrap, "enable.idempotence": True})

    def _read_from(self, place: TopicPartition, count: int, began: Event) -> list[Message]:
        consumer = self._consumer(f"reader-{uuid.uuid4()}")
        try:
            consumer.assign([place])
            return _take(consumer, count, began)
        finally:
            consumer.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )


class ConfluentStream(Stream):
    def __init__(self, topic: str, config: dict[str, Any]) -> None:
        self._topic = topic
        self._producer = Producer(config)
        self._failures: list[KafkaError] = []

    def send(self, value: str) -> None:
        self.produce(Message(value))

    def produce(self, message: Message) -> None:
        headers: list[tuple[str, str | bytes | None]] = [*message.headers]
        self._producer.produce(
            self._topic, value=message.value, key=message.key, headers=headers, on_delivery=self._on_delivery
        )
        self._producer.poll(0)

    def finish(self) -> None:
        left = self._producer.flush(TIMEOUT_S)
        assert not left, f"{left} records are not acknowledged after {TIMEOUT_S} s"
        assert not self._failures, f"{len(self._failures)} records failed: {self._failures[0]}"

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failures.append(error)


def _take(consumer: Consumer, count: int, began: Event) -> list[Message]:
    found: list[Message] = []
    until = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} records came"
        for each in consumer.consume(min(count - len(found), 500), timeout=0.5):
            error = each.error()
            if error is not None:
                raise KafkaException(error)
            began.set()
            headers = [(key, _text(value) or "") for key, value in each.headers() or []]
            found.append(Message(_text(each.value()), _text(each.key()), tuple(headers)))
    return found


def _text(data: str | bytes | None) -> str | None:
    return data.decode() if isinstance(data, bytes) else data
