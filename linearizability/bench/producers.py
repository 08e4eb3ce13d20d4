"""One library's producer that sends numbered records, one every few milliseconds, until SIGTERM.

    python -m linearizability.bench.producers aiokafka 127.0.0.1:9092 TOPIC PARTITION

Each library runs in a process of its own: none waits for another's work, and all are read alike, because this prints what
Kafka's VerifiableProducer prints. That is `producer_send_success` or `producer_send_error` with the record's value, which is
its number, and after SIGTERM, when the last records' outcomes are known, `tool_data` with how many were sent.

All ask for acks=all and idempotence. Their timeouts are equal where a library has such a setting, all else is its default:
aiokafka, for one, gives a record up that has waited for a leader for as long as a request may take.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

SEND_EVERY_S = 0.01
REQUEST_TIMEOUT_MS = 5_000
DELIVERY_TIMEOUT_MS = 120_000
RECONNECT_BACKOFF_MAX_MS = 500
LAST_WITHIN_S = 60.0
"""Time for the last acknowledgements after the last send."""

Report = Callable[[str, object], None]
"""Takes a record's value and its error, None if it is acknowledged."""


class Library(ABC):
    """An idempotent producer of one library, which sends to one partition."""

    module: ClassVar[str]
    """The module to import, only when it is used: not every installation has every library."""

    def __init__(self, topic: str, partition: int, report: Report) -> None:
        self.topic = topic
        self.partition = partition
        self.report = report

    @abstractmethod
    def start(self, bootstrap: str) -> None:
        """Connect."""

    @abstractmethod
    def send(self, value: str) -> None:
        """Send without waiting; the record's outcome is reported when it is known. Errors: whatever the library raises."""

    def rest(self, seconds: float) -> None:
        """Wait this long while the library works."""
        time.sleep(seconds)

    @abstractmethod
    def finish(self) -> None:
        """Wait for the outcomes of all records, but not longer than LAST_WITHIN_S."""


class Librdkafka(Library):
    module = "confluent_kafka"

    def start(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "reconnect.backoff.max.ms": RECONNECT_BACKOFF_MAX_MS,
            }
        )

    def send(self, value: str) -> None:
        def delivered(error: object, _: object) -> None:
            self.report(value, error)

        self._producer.produce(self.topic, value, partition=self.partition, on_delivery=delivered)

    def rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            self._producer.poll(left_s)  # returns as soon as it has reported something

    def finish(self) -> None:
        self._producer.flush(LAST_WITHIN_S)


class KafkaPython(Library):
    module = "kafka"

    def start(self, bootstrap: str) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            reconnect_backoff_max_ms=RECONNECT_BACKOFF_MAX_MS,
        )

    def send(self, value: str) -> None:
        future = self._producer.send(self.topic, value.encode(), partition=self.partition)
        future.add_callback(lambda _: self.report(value, None))
        future.add_errback(lambda error: self.report(value, error))

    def finish(self) -> None:
        self._producer.close(timeout=LAST_WITHIN_S)


class Aiokafka(Library):
    module = "aiokafka"

    def start(self, bootstrap: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._sends: set[asyncio.Task[None]] = set()
        self._loop.run_until_complete(self._start(bootstrap))

    async def _start(self, bootstrap: str) -> None:
        from aiokafka import AIOKafkaProducer

        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        await self._producer.start()

    def send(self, value: str) -> None:
        task = self._loop.create_task(self._send(value))
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)

    async def _send(self, value: str) -> None:
        try:
            await self._producer.send_and_wait(self.topic, value.encode(), partition=self.partition)
        except Exception as error:
            self.report(value, error)
        else:
            self.report(value, None)

    def rest(self, seconds: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def finish(self) -> None:
        self._loop.run_until_complete(self._finish())

    async def _finish(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WITHIN_S):
                await asyncio.gather(*self._sends)
                await self._producer.stop()


LIBRARIES: dict[str, type[Library]] = {
    "confluent-kafka": Librdkafka,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
"""Package name -> library."""


def send_until(library: Library, ended: Callable[[], bool]) -> int:
    """Send until `ended`. Returns the number of sent records. An exception at a send is that record's outcome."""
    sent = 0
    while not ended():
        value = str(sent)
        sent += 1
        try:
            library.send(value)
        except Exception as error:
            library.report(value, error)
        library.rest(SEND_EVERY_S)
    library.finish()
    return sent


def say(**facts: object) -> None:
    """Print a line of JSON in one write, because libraries report from their own threads."""
    os.write(sys.stdout.fileno(), (json.dumps(facts) + "\n").encode())


def report_outcome(value: str, error: object) -> None:
    if error is None:
        say(name="producer_send_success", value=value)
    else:
        say(name="producer_send_error", value=value, message=repr(error))


def main(client: str, bootstrap: str, topic: str, partition: str) -> None:
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    library = LIBRARIES[client](topic, int(partition), report_outcome)
    library.start(bootstrap)
    sent = send_until(library, lambda: bool(signals))
    say(name="tool_data", sent=sent)


if __name__ == "__main__":
    main(*sys.argv[1:])
