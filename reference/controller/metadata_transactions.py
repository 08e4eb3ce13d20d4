"""Transactions of the metadata log: records in several batches that take effect together (KIP-868).

Only Apache Kafka's controllers begin them: for the first records of a new cluster, and for migrations. A new active controller
aborts an open one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reference.protocol.messages.abort_transaction_record import AbortTransactionRecord
from reference.protocol.messages.begin_transaction_record import BeginTransactionRecord
from reference.protocol.messages.end_transaction_record import EndTransactionRecord
from reference.protocol.primitives import Offset
from reference.protocol.schema import Message


class SettledRecords:
    """The records of a part of the log, in order, without those of aborted transactions and of a transaction that is open at
    its end."""

    def __init__(self, records: Iterable[tuple[Offset, Message]]) -> None:
        self._records = records
        self.open_since: Offset | None = None
        """The start of the transaction that is open at the end; only records below it are yielded."""

    def __iter__(self) -> Iterator[tuple[Offset, Message]]:
        held: list[tuple[Offset, Message]] = []
        for offset, record in self._records:
            if isinstance(record, BeginTransactionRecord):
                self.open_since, held = offset, []
            elif isinstance(record, EndTransactionRecord):
                self.open_since = None
                yield from held
            elif isinstance(record, AbortTransactionRecord):
                self.open_since = None
            elif self.open_since is not None:
                held.append((offset, record))
            else:
                yield offset, record
