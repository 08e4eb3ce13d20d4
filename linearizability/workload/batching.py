"""How a producer puts records into batches and sends them: a state machine in virtual time.

A partition's records wait in a queue of batches. The last one is *open* and takes records until it is full, by bytes
(`batch.size`) or by count. A batch is due when it is full, when its first record has waited `linger.ms`, or at a flush.

Batches of one partition leave in the order in which they were begun, a batch that failed before all others; what is in
flight has left already. So with one batch in flight a partition's log has the order of `append`, whatever fails; with more,
a batch that failed is written behind those that had left after it. (An idempotent producer is spared that: the broker refuses
what comes too early by its sequence number, and the producer puts back in that order.) Between partitions there is no order.

Source: org.apache.kafka.clients.producer.internals.RecordAccumulator without idempotence; the defaults are ProducerConfig's.
Three things are different: Kafka has no bound by count, counts requests in flight by connection, and backs off exponentially.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batching:
    """When a batch is full, how long it waits, and how many may be under way. Errors: ValueError for impossible values."""

    linger_ms: int = 5
    batch_size_bytes: int = 16_384
    batch_records: int | None = None
    max_in_flight: int = 5
    """Batches of one partition that have left and have no answer."""
    retry_backoff_ms: int = 100
    """How long a failed batch, and all behind it, wait before it goes out again."""

    def __post_init__(self) -> None:
        least = {"linger_ms": 0, "batch_size_bytes": 1, "batch_records": 1, "max_in_flight": 1, "retry_backoff_ms": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise ValueError(f"{name} is {value}, the least is {bound}")


@dataclass(slots=True, eq=False)
class Batch(Generic[T]):
    """Records of one partition that travel, and are appended, together."""

    partition: Hashable
    due_ms: int
    """When it may leave, if it is the first of its queue."""
    records: list[T] = field(default_factory=list)
    size_bytes: int = 0
    attempts: int = 0
    """How often it has failed. A batch that has left takes no more records."""

    def has_room(self, size_bytes: int, limits: Batching) -> bool:
        """Whether a record still fits. Into an empty batch every record does: a large one travels alone."""
        if not self.records:
            return True
        fits_by_count = limits.batch_records is None or len(self.records) < limits.batch_records
        return fits_by_count and self.attempts == 0 and self.size_bytes + size_bytes <= limits.batch_size_bytes


class Accumulator(Generic[T]):
    """All partitions' queues. `now` is in milliseconds and never goes back."""

    def __init__(self, limits: Batching) -> None:
        self.limits = limits
        self._queues: dict[Hashable, deque[Batch[T]]] = {}
        self._in_flight: dict[Hashable, list[Batch[T]]] = {}

    def append(self, partition: Hashable, record: T, size_bytes: int, now: int) -> None:
        """Put a record into the partition's open batch, or begin a new one."""
        queue = self._queues.setdefault(partition, deque())
        if not queue or not queue[-1].has_room(size_bytes, self.limits):
            if queue:
                _hurry(queue[-1], now)
            queue.append(Batch(partition, due_ms=now + self.limits.linger_ms))
        open_batch = queue[-1]
        open_batch.records.append(record)
        open_batch.size_bytes += size_bytes
        if not open_batch.has_room(1, self.limits):
            _hurry(open_batch, now)

    def flush(self, now: int) -> None:
        """End the linger of all waiting batches; failed ones keep their backoff."""
        for queue in self._queues.values():
            for batch in queue:
                _hurry(batch, now)

    def drain(self, now: int) -> list[Batch[T]]:
        """The batches that leave now, each partition's in order. Each must end in `answered` or `failed`."""
        leaving: list[Batch[T]] = []
        for partition, queue in self._queues.items():
            under_way = self._in_flight.setdefault(partition, [])
            while queue and len(under_way) < self.limits.max_in_flight and queue[0].due_ms <= now:
                under_way.append(queue.popleft())
                leaving.append(under_way[-1])
        return leaving

    def next_deadline(self) -> int | None:
        """When `drain` next returns a batch, if nothing else happens before; None where time alone changes nothing."""
        dues = [
            queue[0].due_ms
            for partition, queue in self._queues.items()
            if queue and len(self._in_flight.get(partition, ())) < self.limits.max_in_flight
        ]
        return min(dues, default=None)

    def answered(self, batch: Batch[T]) -> None:
        """Remove a batch that was written, or given up. Errors: ValueError for one that is not in flight."""
        self._land(batch)

    def failed(self, batch: Batch[T], now: int) -> None:
        """Queue the batch again, before all that wait. Errors: ValueError for one that is not in flight."""
        self._land(batch)
        batch.attempts += 1
        batch.due_ms = now + self.limits.retry_backoff_ms
        self._queues[batch.partition].appendleft(batch)

    def waiting(self) -> int:
        """How many records wait to leave, for the first time or again."""
        return sum(len(batch.records) for queue in self._queues.values() for batch in queue)

    def _land(self, batch: Batch[T]) -> None:
        under_way = self._in_flight.get(batch.partition, [])
        if batch not in under_way:
            raise ValueError(f"a batch of {batch.partition} that is not in flight")
        under_way.remove(batch)


def _hurry(batch: Batch[T], now: int) -> None:
    """End a batch's linger, but not the backoff of one that has failed."""
    if batch.attempts == 0:
        batch.due_ms = min(batch.due_ms, now)
