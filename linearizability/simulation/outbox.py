"""Queue between an application and its producer: gives each record a partition and collects batches
(`linearizability.workload.partitioning`, `linearizability.workload.batching`)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import cast

from linearizability.simulation.client import Key
from linearizability.simulation.schedule import Partitioned
from linearizability.workload.batching import Accumulator, Batching
from linearizability.workload.partitioning.partitioners import Outgoing, Topic, named

CUSTOMERS = 7
"""Records' keys are this many customers, in turn."""
RECORD_BYTES = 50
STICKS_FOR_BYTES = 200


def customer_of(value: int) -> bytes:
    """Return the key of the record with this value."""
    return b"customer %d" % (value % CUSTOMERS)


class Outbox:
    """Records on their way into batches. `now_ms` never goes back."""

    def __init__(
        self, name: Partitioned, linger_ms: int, batch_records: int, topics: Mapping[str, int], chance: random.Random
    ) -> None:
        self._choose = named(name, STICKS_FOR_BYTES, chance)
        self._topics = [Topic(topic, partitions) for topic, partitions in topics.items()]
        self._chance = chance
        self._waiting: Accumulator[int] = Accumulator(Batching(linger_ms=linger_ms, batch_records=batch_records))

    def put(self, value: int, now_ms: int) -> None:
        """Add a record of the application to one of the topics."""
        topic = self._topics[self._chance.randrange(len(self._topics))]
        index = self._choose(Outgoing(customer_of(value), RECORD_BYTES), topic)
        self._waiting.append((topic.name, index), value, RECORD_BYTES, now_ms)

    def flush(self, now_ms: int) -> None:
        """Make all waiting records due."""
        self._waiting.flush(now_ms)

    def take(self, now_ms: int) -> list[tuple[Key, list[int]]]:
        """Remove and return the batches that are due. The sender keeps their order."""
        taken: list[tuple[Key, list[int]]] = []
        while leaving := self._waiting.drain(now_ms):
            for batch in leaving:
                self._waiting.answered(batch)
                taken.append((cast("Key", batch.partition), batch.records))
        return taken

    def next_deadline_ms(self) -> int | None:
        return self._waiting.next_deadline()
