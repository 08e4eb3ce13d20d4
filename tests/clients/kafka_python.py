"""kafka-python, pure Python. Its codecs but gzip need a library each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # pyright: ignore[reportAttributeAccessIssue]
from kafka import codec as installed
from kafka.errors import KafkaError, OutOfOrderSequenceNumberError

from tests.clients.client import PLAIN, TIMEOUT_S, CannotDo, GaveUp, Message, Sending, Stream, StreamingClient


class KafkaPython(StreamingClient):
    def produce(self, topic: str, messages: Sequence[Message], how: Sending = PLAIN) -> None:
        if how.codec != "none" and not getattr(installed, f"has_{how.codec}")():
            raise CannotDo(f"kafka-python's library for {how.codec} is not installed: kafka-python[{how.codec}]")
        stream = KafkaPythonStream(
            topic,
            KafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if how.codec == "none" else how.codec,  # pyright: ignore[reportArgumentType]
                acks=how.acks if how.acks == "all" else int(how.acks),
                enable_idempotence=how.idempotent,
                linger_ms=20,
            ),
        )
        for message in messages:
            stream.produce(message)
        stream.finish()

    def read_on(self, topic: str, count: int, began: Event) -> list[Message]:
        return self._read_from(topic, count, 0, began)

    def read_in_group(self, topic: str, group: str, count: int) -> list[Message]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            found = _take(consumer, count, Event())
            consumer.commit()
            return found
        finally:
            consumer.close(autocommit=False)

    def read_since(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        place = TopicPartition(topic, 0)
        with_offsets = KafkaConsumer(bootstrap_servers=self.bootstrap)
        try:
            found = with_offsets.offsets_for_times({place: timestamp_ms})[place]
        finally:
            with_offsets.close()
        assert found is not None, f"no record at or after {timestamp_ms}"
        return self._read_from(topic, count, found.offset, Event())

    def stream(self, topic: str) -> Stream:
        return KafkaPythonStream(topic, KafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True))

    def _read_from(self, topic: str, count: int, offset: int, began: Event) -> list[Message]:
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        try:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, offset)
            return _take(consumer, count, began)
        finally:
            consumer.close()


class KafkaPythonStream(Stream):
    def __init__(self, topic: str, producer: KafkaProducer) -> None:
        self._topic = topic
        self._producer = producer
        self._sent: list[tuple[str | None, Any]] = []

    def send(self, value: str) -> None:
        self.produce(Message(value))

    def produce(self, message: Message) -> None:
        future = self._producer.send(
            self._topic,
            value=None if message.value is None else message.value.encode(),
            key=None if message.key is None else message.key.encode(),
            headers=[(key, value.encode()) for key, value in message.headers],
        )
        self._sent.append((message.value, future))

    def finish(self) -> None:
        failed: dict[str | None, KafkaError] = {}
        try:
            for value, future in self._sent:
                try:
                    future.get(timeout=TIMEOUT_S)
                except OutOfOrderSequenceNumberError as error:
                    failed[value] = error
        finally:
            self._producer.close()
        if failed:
            raise GaveUp(repr(next(iter(failed.values()))), failed)


def _take(consumer: Any, count: int, began: Event) -> list[Message]:
    found: list[Message] = []
    until = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} records came"
        for records in consumer.poll(timeout_ms=500, max_records=count - len(found)).values():
            for each in records:
                began.set()
                headers = tuple((key, value.decode()) for key, value in each.headers)
                found.append(Message(_text(each.value), _text(each.key), headers))
    return found


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode()
