"""Transactions that have ended for their coordinator, but lack a marker in one of their partitions.

Apache Kafka 4.3.1 leaves them behind when a transaction ends while a partition has no leader (KAFKA-20734, see TXV-23): a
single node that is killed and restarted is such a case. The next marker of that producer then determines the outcome of both
transactions: aborted records are read as committed, or the reverse. Until then all later records are hidden from
read_committed consumers.

    unmarked({0: batches(log)}, {17: "txn-1", 18: "txn-2"})     # record value -> its transaction

The last transaction of a producer may still be open; `over` asks the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.batches import CONTROL, TRANSACTIONAL, Batch
from conformance.broker import Broker
from reference.protocol.messages.list_transactions import ListTransactionsRequest

OVER = ("CompleteCommit", "CompleteAbort", "Empty")
"""States of a transactional id in which the coordinator has had all markers written."""


@dataclass(frozen=True, slots=True)
class Unmarked:
    """A transaction without a marker in a partition."""

    partition: int
    transaction: str
    first_offset: int
    producer_id: int
    hides: bool
    """No later batch of its producer exists, so that the last stable offset remains at `first_offset`."""


def unmarked(logs: Mapping[int, Sequence[Batch]], transaction_of: Mapping[int, str]) -> list[Unmarked]:
    """The unmarked transactions in whole logs, once the producers have finished; by partition.

    `transaction_of` maps a record's value to its transaction. Other records are ignored.
    """
    return [each for partition, log in sorted(logs.items()) for each in _in_partition(partition, log, transaction_of)]


def over(broker: Broker, found: Sequence[Unmarked]) -> list[Unmarked]:
    """The transactions that have ended for their coordinator, or that another one of their producer follows."""
    asked = {each.producer_id for each in found if each.hides}
    still_open = _open_producers(broker, asked) if asked else asked
    return [each for each in found if not each.hides or each.producer_id not in still_open]


def _open_producers(broker: Broker, producer_ids: set[int]) -> set[int]:
    """The producers whose transaction has not ended; all of them where ListTransactions is not served (before 3.0)."""
    if ListTransactionsRequest.KEY not in broker.subject.api_versions:
        return producer_ids
    request = ListTransactionsRequest(producer_id_filters=sorted(producer_ids))
    listed = [
        one
        for node in broker.metadata([]).brokers
        for one in broker.call(request, broker.version_for(request), to=(node.host, node.port)).transaction_states
    ]
    over = {one.producer_id for one in listed if one.transaction_state in OVER}
    return producer_ids - over


def _in_partition(partition: int, log: Sequence[Batch], transaction_of: Mapping[int, str]) -> Iterator[Unmarked]:
    open_of: dict[int, tuple[str, int]] = {}
    for batch in log:
        if batch.attributes & CONTROL:
            open_of.pop(batch.producer_id, None)
        elif batch.attributes & TRANSACTIONAL and (name := _transaction(batch, transaction_of)):
            known, since = open_of.setdefault(batch.producer_id, (name, batch.base_offset))
            if known != name:
                yield Unmarked(partition, known, since, batch.producer_id, hides=False)
                open_of[batch.producer_id] = name, batch.base_offset
    for producer_id, (name, since) in open_of.items():
        yield Unmarked(partition, name, since, producer_id, hides=True)


def _transaction(batch: Batch, transaction_of: Mapping[int, str]) -> str:
    values = [record.value or b"" for record in batch.records()]
    value = values[0] if values else b""
    return transaction_of.get(int(value), "") if value.isdigit() else ""
