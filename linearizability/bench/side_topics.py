"""Two topics beside the one that is judged: one with retention, one that is compacted, under a steady load of librdkafka's.

The compacted topic is checked by what compaction promises: of every key the last acknowledged value, or a later one, is
there. One idempotent producer writes rising numbers, so a lower number under a key means that an acknowledged record was lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from linearizability.targets.target import Node, TargetError
from linearizability.workload.cluster import create_topic
from linearizability.workload.librdkafka import connection_settings

RETAINED, COMPACTED = "endurance-retained", "endurance-compacted"
SEGMENT_BYTES = 1 << 20
RETENTION_BYTES = 8 << 20
KEYS = 500
VALUE_BYTES = 1000
FLUSH_WITHIN_S = 60.0
READ_WITHIN_S = 120.0
SLOWEST_STEP_S = 0.2
SILENT = {"log_level": 2}
"""librdkafka does not report each connection that a restart ends."""

CONFIGS: Mapping[str, dict[str, str]] = {
    RETAINED: {"retention.bytes": str(RETENTION_BYTES), "segment.bytes": str(SEGMENT_BYTES)},
    COMPACTED: {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.2",
        "delete.retention.ms": "1000",
    },
}
BROKER_CONFIG = {"log.retention.check.interval.ms": "10000", "log.cleaner.backoff.ms": "5000"}
"""The defaults check every five minutes, too rarely for a short run."""


@dataclass
class Written:
    """The outcomes of the numbers written under each key of the compacted topic."""

    attempted: dict[int, int] = field(default_factory=dict[int, int])
    acknowledged: dict[int, int] = field(default_factory=dict[int, int])

    def lost(self, stored: Mapping[int, int]) -> list[str]:
        """Return the keys whose last value in the topic is older than the last acknowledged one, or was never written."""
        found: list[str] = []
        for key, number in sorted(self.acknowledged.items()):
            last = stored.get(key)
            if last is None or not number <= last <= self.attempted[key]:
                found.append(f"key {key}: {number} was acknowledged, the last one stored is {last}")
        return found


class SideLoad:
    """Writes to both topics, half of the records each, until `end`. Its latencies are read by `take_latencies`."""

    def __init__(self, bootstrap: str, nodes: Sequence[Node], rate_per_s: float) -> None:
        """Create the topics. Errors: TargetError."""
        from confluent_kafka import Producer

        self.written = Written()
        self.refused = 0
        """Number of records that the producer gave up, or whose outcome is unknown."""
        self.sent = 0
        self._rate_per_s = rate_per_s
        factor = min(3, len(nodes))
        for topic, configs in CONFIGS.items():
            promised = {"min.insync.replicas": str(max(1, factor - 1))}
            create_topic(nodes, topic, partitions=1, replication_factor=factor, configs=configs | promised)
        settings = connection_settings(bootstrap, "endurance") | {"enable.idempotence": True, "linger.ms": 2} | SILENT
        self._producer = Producer(settings)
        self._latencies: list[float] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, name="side load", daemon=True)
        self._thread.start()

    def take_latencies(self) -> list[float]:
        """Return the sorted milliseconds from send to acknowledgement of records acknowledged since the last call."""
        taken, self._latencies = self._latencies, []
        return sorted(taken)

    def end(self) -> None:
        """Stop sending and wait for all outcomes. Errors: TargetError if some stay unknown."""
        self._stopping.set()
        self._thread.join()
        if left := self._producer.flush(FLUSH_WITHIN_S):
            raise TargetError(f"{left} records beside the run have no outcome after {FLUSH_WITHIN_S:.0f} s")

    def _write(self) -> None:
        filler = b"x" * VALUE_BYTES
        began = time.monotonic()
        while not self._stopping.is_set():
            due = int((time.monotonic() - began) * self._rate_per_s)
            while self.sent < due:
                number = self.sent
                try:
                    if number % 2:
                        self._producer.produce(RETAINED, filler, on_delivery=self._delivered)
                    else:
                        key = number // 2 % KEYS
                        value = str(number).ljust(VALUE_BYTES).encode()
                        self._producer.produce(COMPACTED, value, str(key).encode(), on_delivery=self._delivered)
                        self.written.attempted[key] = number
                except BufferError:  # the queue is full: the cluster is away for long
                    break
                self.sent += 1
            self._producer.poll(min(SLOWEST_STEP_S, 1 / self._rate_per_s))

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.refused += 1
            return
        self._latencies.append(message.latency() * 1000)
        if message.topic() == COMPACTED:
            self.written.acknowledged[int(message.key())] = int(message.value())


def read_compacted(bootstrap: str) -> dict[int, int]:
    """Return each key's last number, reading the whole compacted topic. Errors: TargetError."""
    from confluent_kafka import Consumer, TopicPartition

    settings = connection_settings(bootstrap, "endurance-reader") | SILENT
    consumer = Consumer(settings | {"group.id": "endurance-reader", "enable.auto.commit": False})
    stored: dict[int, int] = {}
    try:
        place = TopicPartition(COMPACTED, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=READ_WITHIN_S)
        consumer.assign([place])
        until = time.monotonic() + READ_WITHIN_S
        while consumer.position([TopicPartition(COMPACTED, 0)])[0].offset < end:
            for message in consumer.consume(1000, 0.5):
                if message.error() is None:
                    stored[int(message.key() or b"")] = int(message.value() or b"")
            if time.monotonic() > until:
                raise TargetError(f"{COMPACTED} was not read to its end within {READ_WITHIN_S:.0f} s")
    finally:
        consumer.close()
    return stored
