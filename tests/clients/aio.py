"""aiokafka, which runs in an event loop: each client has a loop of its own, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from threading import Event
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndTimestamp

from tests.clients.client import PLAIN, TIMEOUT_S, Message, Sending, Stream, StreamingClient

Result = TypeVar("Result")


class Aiokafka(StreamingClient):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def produce(self, topic: str, messages: Sequence[Message], how: Sending = PLAIN) -> None:
        stream = AiokafkaStream(
            self,
            topic,
            compression_type=None if how.codec == "none" else how.codec,
            acks=how.acks if how.acks == "all" else int(how.acks),
            enable_idempotence=how.idempotent,
            linger_ms=20,
        )
        for message in messages:
            stream.produce(message)
        stream.finish()

    def read_on(self, topic: str, count: int, began: Event) -> list[Message]:
        return self.wait_for(self._read_from(topic, count, 0, began))

    def read_in_group(self, topic: str, group: str, count: int) -> list[Message]:
        return self.wait_for(self._read_in_group(topic, group, count))

    def read_since(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        return self.wait_for(self._read_since(topic, timestamp_ms, count))

    def stream(self, topic: str) -> Stream:
        return AiokafkaStream(self, topic, enable_idempotence=True)

    async def _read_in_group(self, topic: str, group: str, count: int) -> list[Message]:
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            found = await _take(consumer, count, Event())
            await consumer.commit()
            return found

    async def _read_since(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        place = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap) as consumer:
            found: OffsetAndTimestamp = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
        return await self._read_from(topic, count, found.offset, Event())

    async def _read_from(self, topic: str, count: int, offset: int, began: Event) -> list[Message]:
        place = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=self.bootstrap) as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            return await _take(consumer, count, began)


class AiokafkaStream(Stream):
    def __init__(self, client: Aiokafka, topic: str, **options: Any) -> None:
        self._client = client
        self._topic = topic
        self._acknowledgements: list[Any] = []
        self._producer: AIOKafkaProducer = client.wait_for(self._start(options))

    async def _start(self, options: dict[str, Any]) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=self._client.bootstrap, **options)
        await producer.start()
        return producer

    def send(self, value: str) -> None:
        self.produce(Message(value))

    def produce(self, message: Message) -> None:
        self._client.wait_for(self._send(message))

    async def _send(self, message: Message) -> None:
        future = await self._producer.send(
            self._topic,
            value=None if message.value is None else message.value.encode(),
            key=None if message.key is None else message.key.encode(),
            headers=[(key, value.encode()) for key, value in message.headers],
        )
        self._acknowledgements.append(future)

    def finish(self) -> None:
        self._client.wait_for(self._finish())

    async def _finish(self) -> None:
        try:
            await asyncio.gather(*self._acknowledgements)
        finally:
            await self._producer.stop()


async def _take(consumer: AIOKafkaConsumer, count: int, began: Event) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        batches = await consumer.getmany(timeout_ms=500, max_records=count - len(found))
        for records in batches.values():
            for each in records:
                began.set()
                headers = tuple((key, value.decode()) for key, value in each.headers)
                found.append(Message(_text(each.value), _text(each.key), headers))
    return found


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
