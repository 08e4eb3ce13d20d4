"""What partitioners and linger make of the same records: how many batches, how evenly spread, in what order."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TypeAlias

from linearizability.workload.batching import Accumulator, Batching
from linearizability.workload.partitioning.partitioners import (
    Outgoing,
    Partitioner,
    RoundRobin,
    Sticky,
    Topic,
    by_key,
)

RECORDS = 3_000
SIZE_BYTES = 100
CUSTOMERS = 40
"""Keys in turn: each 40th record is of the same customer."""
TOPIC = Topic("orders", 6)
LINGERS_MS = (0, 5, 50)
BATCH_SIZE_BYTES = 1_000
HEAD = ("partitioner", "linger.ms", "batches", "records in the fullest partition", "customers in order")

Record: TypeAlias = tuple[int, int]
"""A customer, and how many records that customer had before."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one producer's records, one a millisecond."""

    batches: int
    fullest: int
    in_order: int
    """Customers whose records all lie in one partition, in the order in which they were sent."""


def partitioners() -> dict[str, Partitioner]:
    """Fresh ones, by name; the record's own partition needs no comparison."""
    return {
        "by key": by_key,
        "round robin": RoundRobin(),
        "sticky": Sticky(BATCH_SIZE_BYTES, random.Random(1)),
    }


def outcome(choose: Partitioner, linger_ms: int) -> Outcome:
    """Produce all records through one partitioner and one accumulator, with a broker that answers at once."""
    accumulator: Accumulator[Record] = Accumulator(Batching(linger_ms=linger_ms, batch_size_bytes=BATCH_SIZE_BYTES))
    logs: dict[object, list[Record]] = {}
    batches = 0
    for now in range(RECORDS + linger_ms + 1):
        if now < RECORDS:
            seen_before, customer = divmod(now, CUSTOMERS)
            record = Outgoing(f"customer-{customer}".encode(), SIZE_BYTES)
            accumulator.append(choose(record, TOPIC), (customer, seen_before), SIZE_BYTES, now)
        for batch in accumulator.drain(now):
            batches += 1
            logs.setdefault(batch.partition, []).extend(batch.records)
            accumulator.answered(batch)
    return Outcome(batches, max(map(len, logs.values())), _customers_in_order(logs))


def table() -> str:
    """The comparison in Markdown."""
    rows = [HEAD, ("---",) * len(HEAD)]
    for name in partitioners():
        for linger_ms in LINGERS_MS:
            found = outcome(partitioners()[name], linger_ms)
            in_order = f"{found.in_order} of {CUSTOMERS}"
            rows.append((name, str(linger_ms), f"{found.batches:,}", f"{found.fullest:,}", in_order))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _customers_in_order(logs: dict[object, list[Record]]) -> int:
    found: dict[int, list[list[int]]] = {}
    for log in logs.values():
        for customer in {customer for customer, _ in log}:
            found.setdefault(customer, []).append([number for whose, number in log if whose == customer])
    return sum(len(parts) == 1 and parts[0] == sorted(parts[0]) for parts in found.values())
