"""A producer that records every send: pipelined, at a steady rate, through outages, in as many incarnations as it takes."""

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from linearizability.history.operations import send
from linearizability.history.recorder import Recorder
from linearizability.workload.client_run import ClientRun
from linearizability.workload.librdkafka import producer_settings
from linearizability.workload.outcomes import proves_nothing_appended
from linearizability.workload.partitioning.partitioners import (
    Outgoing,
    Partitioner,
    Topic,
    named,
)
from linearizability.workload.profile import Producing

DELIVERY_TIMEOUT_MS = 15_000
"""After this a send is given up as unknown. Longer than an election, so that most sends get their answer."""
IDEMPOTENT_DELIVERY_TIMEOUT_MS = 600_000
"""An idempotent producer never gives up: librdkafka then takes a new epoch and sends again, under new sequence numbers,
what was in flight. Those are duplicates that no broker can see, and that Kafka does not promise to prevent."""
MAX_OUTSTANDING = 400
"""Sends without an answer; more would only fill the history with unknowns while the broker is away."""
FLUSH_WITHIN_S = 20.0
POLL_S = 0.005
CUSTOMERS = 40
"""Records are of so many customers in turn, whose names are their keys where a partitioner chooses."""
STICKS_FOR_BYTES = 1_000


def partitioner(does: Producing, chance: random.Random) -> Partitioner:
    """The function that chooses the partitions of this producer's records."""
    if does.partitioner == "given":
        return lambda record, topic: chance.randrange(topic.partitions)
    return named(does.partitioner, STICKS_FOR_BYTES, chance)


def run(client_run: ClientRun) -> None:
    """Produce until asked to stop."""
    while not client_run.stopping.is_set():
        with client_run.recorder() as recorder:
            Incarnation(client_run, recorder).run()


class Incarnation:
    """A producer until its end or its first fatal error, which librdkafka raises when idempotence is lost for good."""

    def __init__(self, client_run: ClientRun, recorder: Recorder) -> None:
        task, does = client_run.task, client_run.task.does
        assert isinstance(does, Producing)
        self.client_run = client_run
        self.recorder = recorder
        self.acks = does.acks
        self.outstanding = 0
        self.fatal = False
        self.period_s = 1 / does.rate_per_s
        self.topic = Topic(task.topic, task.partitions)
        self.choose = partitioner(does, client_run.random)
        self.has_keys = does.partitioner != "given"
        self.producer = Producer(
            producer_settings(task.bootstrap, task.client_id)
            | {
                "acks": does.acks,
                "enable.idempotence": does.idempotence,
                "max.in.flight.requests.per.connection": does.max_in_flight,
                "compression.type": does.compression,
                "delivery.timeout.ms": IDEMPOTENT_DELIVERY_TIMEOUT_MS if does.idempotence else DELIVERY_TIMEOUT_MS,
                "linger.ms": does.linger_ms,
                "error_cb": self._on_error,
            }
        )

    def run(self) -> None:
        """Send at the rate while the answers keep up; then wait for what is in flight."""
        due = time.monotonic()
        counter = 0
        while not self.client_run.stopping.is_set() and not self.fatal:
            now = time.monotonic()
            if now >= due and self.outstanding < MAX_OUTSTANDING:
                self._send(counter)
                counter += 1
                due = max(due + self.period_s, now - 1)
            self._serve(self.producer.poll, min(max(due - time.monotonic(), 0), POLL_S))
            self.client_run.report()
        if not self.fatal:
            self._serve(self.producer.flush, FLUSH_WITHIN_S)
        self.producer.purge()
        self._serve(self.producer.flush, 1)

    def _serve(self, call: Callable[[float], object], timeout_s: float) -> None:
        """Let librdkafka call back. It reports a fatal error by raising it here, each time again."""
        try:
            call(timeout_s)
        except KafkaException as error:
            self._on_error(error.args[0])

    def _send(self, counter: int) -> None:
        task = self.client_run.task
        value = self.recorder.process << 32 | counter
        customer = b"customer %d" % (counter % CUSTOMERS) if self.has_keys else None
        partition = self.choose(Outgoing(customer or b"", len(str(value))), self.topic)
        key = f"{task.topic}-{partition}"
        operation = self.recorder.invoke("send", [send(key, value)])
        self.outstanding += 1
        try:
            self.producer.produce(
                task.topic,
                str(value),
                key=customer,
                partition=partition,
                on_delivery=partial(self._on_delivery, operation, key, value),
            )
        except (BufferError, KafkaException) as error:
            self._complete("fail", operation, error=str(error))

    def _on_delivery(self, operation: int, key: str, value: int, error: KafkaError | None, message: Message) -> None:
        if error is None and self.acks == "0":
            self._complete("info", operation, error="acks=0 has no response")
        elif error is None:
            offset = message.offset()
            known = offset if offset is not None and offset >= 0 else None
            self._complete("ok", operation, [send(key, value, offset=known)])
        else:
            outcome = "fail" if proves_nothing_appended(error) else "info"
            self._complete(outcome, operation, error=error.name() or str(error.code()))

    def _complete(self, outcome: str, operation: int, mops: Any = None, **fields: Any) -> None:
        self.outstanding -= 1
        self.client_run.counts[outcome] += 1
        getattr(self.recorder, outcome)(operation, mops, **fields)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() and not self.fatal:
            self.fatal = True
            self.recorder.mark("note", text=f"fatal: {error.name()}: {error.str()}")
