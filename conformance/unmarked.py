"""Transactions that are over for their coordinator, and have no marker in one of their partitions.

Apache Kafka 4.3.1 leaves them behind when a transaction ends while a partition has no leader (KAFKA-20734, see TXV-23): a
node on its own that is killed and comes back is such a case. The next marker of that producer then decides over both
transactions: what was aborted is read as committed, or the other way round. Until it comes, all that lies behind is hidden
from readers of committed records.

    unmarked({0: batches(log)}, {17: "txn-1", 18: "txn-2"})     # transactions by the values of their records

The last one of a producer may be open still; whether it is over the coordinator says (`over`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.batches import CONTROL, TRANSACTIONAL, Batch
from conformance.broker import Broker
from reference.protocol.messages.list_transactions import ListTransactionsRequest

OVER = ("CompleteCommit", "CompleteAbort", "Empty")
"""States of a transactional id in which all markers have been written, for all its coordinator knows."""


@dataclass(frozen=True, slots=True)
class Unmarked:
    """A transaction without an end in a partition."""

    partition: int
    transaction: str
    first_offset: int
    producer_id: int
    hides: bool
    """Nothing of its producer follows: the last stable offset stands still at `first_offset`."""


def unmarked(logs: Mapping[int, Sequence[Batch]], transaction_of: Mapping[int, str]) -> list[Unmarked]:
    """Those in the whole logs of partitions, of which the producers are done; by partition and offset.

    `transaction_of` gives the transaction of each record by its value. Records of other transactions are left alone.
    """
    return [each for partition, log in sorted(logs.items()) for each in _in_partition(partition, log, transaction_of)]


def over(broker: Broker, found: Sequence[Unmarked]) -> list[Unmarked]:
    """Those of which a coordinator says that they are over, or that were followed by another one of their producer."""
    asked = {each.producer_id for each in found if each.hides}
    still_open = _open_producers(broker, asked) if asked else asked
    return [each for each in found if not each.hides or each.producer_id not in still_open]


def _open_producers(broker: Broker, producer_ids: set[int]) -> set[int]:
    """Those with a transaction that is not over. Who has no ListTransactions (before 3.0) is taken at no word: all."""
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
