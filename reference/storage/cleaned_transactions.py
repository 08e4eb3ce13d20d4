"""The transactions of a log during a compaction: which were aborted, and which markers are no longer needed.

The pass reads batches in log order and asks for each whether the compaction may drop it. It may drop records of an aborted
transaction at once. It may drop a marker when it has read no batch of the transaction, so only in a later pass.
Source: org.apache.kafka.storage.internals.log.CleanedTransactionMetadata; requirement CMP-08.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from reference.protocol.primitives import Offset, ProducerId
from reference.storage.producer_state import marker_of
from reference.storage.segment import StoredBatch
from reference.storage.transaction_index import AbortedTransaction, TransactionIndex


class CleanedTransactions:
    """The transactions of one pass."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` are the aborted transactions with a record in the section that the pass reads."""
        self.index: TransactionIndex | None = None
        """The index of the segment being written: receives the aborted transactions whose batches the pass has read."""
        self._coming = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted: dict[ProducerId, AbortedTransaction] = {}
        """Transactions whose first offset the pass has reached, and whose marker it has not."""
        self._met: set[ProducerId] = set()
        """Producers with an open transaction of which the pass has read a batch."""

    def may_drop(self, batch: StoredBatch) -> bool:
        """Whether a compaction may drop a batch's records: of an aborted transaction, or a marker without batches.

        Errors: OSError when an aborted transaction cannot be written to the index.
        """
        header = batch.header
        self._pass(header.last_offset)
        if header.is_control:
            return self._may_drop_marker(batch)
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        return header.producer_id in self._aborted

    def _pass(self, offset: Offset) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            begun = self._coming.popleft()
            self._aborted[begun.producer_id] = begun

    def _may_drop_marker(self, batch: StoredBatch) -> bool:
        marker = marker_of(batch.header, batch.data)
        if marker is None:
            return True
        producer = batch.header.producer_id
        was_met = producer in self._met
        self._met.discard(producer)
        if not marker.committed:
            aborted = self._aborted.pop(producer, None)
            if was_met and aborted is not None and self.index is not None:
                self.index.append(aborted)
        return not was_met
