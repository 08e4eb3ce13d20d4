"""Transactions that are over for their coordinator, and have no marker in one of their partitions.

Apache Kafka 4.3.1 leaves them behind when a transaction ends while a partition has no leader (KAFKA-20734, see TXV-23): a
node on its own that is killed and comes back is such a case. The next marker of that producer then decides over both
transactions: what was aborted is read as committed, or the other way round. Until it comes, all that lies behind is hidden
from readers of committed records.

    unmarked({0: batches(log)}, {17: "txn-1", 18: "txn-2"})     # transactions by the values of their records
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.batches import CONTROL, TRANSACTIONAL, Batch


@dataclass(frozen=True, slots=True)
class Unmarked:
    """A transaction without an end in a partition."""

    partition: int
    transaction: str
    first_offset: int
    hides: bool
    """Nothing of its producer follows: the last stable offset stands still at `first_offset`."""


def unmarked(logs: Mapping[int, Sequence[Batch]], transaction_of: Mapping[int, str]) -> list[Unmarked]:
    """Those in the whole logs of partitions, of which the producers are done; by partition and offset.

    `transaction_of` gives the transaction of each record by its value. Records of other transactions are left alone.
    """
    return [each for partition, log in sorted(logs.items()) for each in _in_partition(partition, log, transaction_of)]


def _in_partition(partition: int, log: Sequence[Batch], transaction_of: Mapping[int, str]) -> Iterator[Unmarked]:
    open_of: dict[int, tuple[str, int]] = {}
    for batch in log:
        if batch.attributes & CONTROL:
            open_of.pop(batch.producer_id, None)
        elif batch.attributes & TRANSACTIONAL and (name := _transaction(batch, transaction_of)):
            known, since = open_of.setdefault(batch.producer_id, (name, batch.base_offset))
            if known != name:
                yield Unmarked(partition, known, since, hides=False)
                open_of[batch.producer_id] = name, batch.base_offset
    for name, since in open_of.values():
        yield Unmarked(partition, name, since, hides=True)


def _transaction(batch: Batch, transaction_of: Mapping[int, str]) -> str:
    value = batch.records()[0].value or b""
    return transaction_of.get(int(value), "") if value.isdigit() else ""
