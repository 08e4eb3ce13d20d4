"""The transactions of a log during a compaction: which were aborted, and whose marker is needed no more.

The pass reads batches in their order and asks of each whether compaction may drop it. Records of an aborted transaction
may go at once. A marker may go when the pass has met none of its transaction's batches, so only in a later pass than they.
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
        """`aborted` are those with a record in what the pass reads."""
        self.index: TransactionIndex | None = None
        """Where aborted transactions are noted of which batches are left, while a segment is written."""
        self._coming = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted: dict[ProducerId, AbortedTransaction] = {}
        """Those of which the pass has passed the first offset and not the marker."""
        self._met: set[ProducerId] = set()
        """Producers of whose open transaction the pass has met a batch."""

    def may_drop(self, batch: StoredBatch) -> bool:
        """Whether a batch's records are of no use: those of an aborted transaction, or a marker without any.

        Errors: OSError when an aborted transaction cannot be noted.
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
