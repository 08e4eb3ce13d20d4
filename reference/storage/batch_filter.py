"""Which batches and records a compaction keeps; batches that lose records are rewritten.

A compaction keeps the last record of each key. It keeps a tombstone (a record without a value) until the delete horizon, which
the first compaction that reads it writes into its batch (KIP-534). It drops the records of aborted transactions, and markers,
also after a horizon, once no batch of their transactions is left. It drops an empty batch, unless the header holds the last
sequence number of a producer, or the compaction's last offset: then the header is kept.

Offsets never change: a batch keeps its base offset and its last offset when it loses records.
Source: org.apache.kafka.storage.internals.log.Cleaner, MemoryRecords.filterTo; requirements CMP-01, -04, -08 to -10.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import compress, pairwise

from reference.protocol.checksum import crc32c
from reference.protocol.primitives import NO_TIMESTAMP, ProducerId, TimestampMs
from reference.protocol.records.batch import (
    CODEC,
    CRC_FROM,
    DELETE_HORIZON,
    LENGTH_END,
    BatchHeader,
    check_crc,
)
from reference.protocol.records.compression import compress as compressed
from reference.protocol.records.validate import MAX_LONG
from reference.protocol.records.varint import in_64_bits
from reference.storage.answers import LastWritten
from reference.storage.cleaned_transactions import CleanedTransactions
from reference.storage.offset_map import TOMBSTONE, BatchRecords, OffsetMap
from reference.storage.record_outline import with_timestamp_delta
from reference.storage.segment import StoredBatch

_HEADER = struct.Struct(">qiibIhiqqqhii")
WITH_TOMBSTONES, WITHOUT_TOMBSTONES = bytes.maketrans(b"\0\1\2", b"\1\0\1"), bytes.maketrans(b"\0\1\2", b"\1\0\0")
"""From the state of a record to whether it is kept."""


class BatchFilter:
    """Decides what one compaction keeps."""

    def __init__(
        self,
        keys: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[ProducerId, LastWritten],
        now: TimestampMs,
        delete_retention_ms: int,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._producers = producers
        self._now = now
        self._delete_retention_ms = delete_retention_ms
        self._number = 0
        """How many of the records that the map has numbers for were passed."""

    def kept(self, batch: StoredBatch) -> tuple[BatchHeader, memoryview | bytes] | None:
        """The filtered batch: as it is, with fewer records, or without records; None when it is removed.

        Call it for all batches, in the order of the log. Errors: OSError, RecordsError.
        """
        header, records = batch.header, BatchRecords(batch)
        is_useless = self._transactions.may_drop(batch)
        known = self._known_states(header)
        if header.record_count == 0:
            return self._shell(header)
        if header.is_control:
            return self._kept_marker(records, is_useless)
        if is_useless:
            return self._shell(header)
        horizon = header.delete_horizon
        states = self._keys.look_up(records) if known is None else known
        # Behind the end of the map the values before a tombstone are not known: without it they would be the last again.
        is_due = horizon is not None and horizon <= self._now and header.base_offset < self._keys.end
        is_kept = states.translate(WITHOUT_TOMBSTONES if is_due else WITH_TOMBSTONES)
        needs_horizon = horizon is None and TOMBSTONE in states
        if False not in is_kept and not needs_horizon:
            return header, batch.data
        return self._rewritten(records, is_kept, needs_horizon) if True in is_kept else self._shell(header)

    def _known_states(self, header: BatchHeader) -> bytearray | None:
        """The states of a batch's records as the map knows them; None where it knows them only by their keys."""
        if not self._keys.holds(header):
            return None
        first, self._number = self._number, self._number + header.record_count
        return self._keys.states[first : self._number] if header.base_offset >= self._keys.start else None

    def _kept_marker(self, records: BatchRecords, is_useless: bool) -> tuple[BatchHeader, memoryview | bytes] | None:
        """Keep a marker until its delete horizon, which the first compaction without a batch of its transaction sets."""
        header, horizon = records.batch.header, records.batch.header.delete_horizon
        if is_useless and horizon is None:
            return self._rewritten(records, bytes((True,)) * header.record_count, True)
        if is_useless and horizon is not None and horizon <= self._now:
            return self._shell(header)
        return header, records.batch.data

    # ---- batches without records

    def _outlives(self, header: BatchHeader) -> bool:
        """Whether the header must be kept: it holds a producer's last sequence number, or the compaction's last offset."""
        if header.next_offset == self._keys.end:
            return True
        last = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset is None:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.data_offset

    def _shell(self, header: BatchHeader) -> tuple[BatchHeader, bytes] | None:
        if not self._outlives(header):
            return None
        attributes = header.attributes & ~(CODEC | DELETE_HORIZON)
        return _written(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")

    # ---- batches with fewer records

    def _rewritten(
        self, records: BatchRecords, is_kept: bytes | bytearray, needs_horizon: bool
    ) -> tuple[BatchHeader, bytes]:
        """The batch with some of its records, and with a new delete horizon if `needs_horizon`."""
        header, data, found = records.batch.header, records.data, records.outlines
        check_crc(records.batch.data, header)
        base, deltas = header.base_timestamp, [*compress(found.timestamp_deltas, is_kept)]
        if not header.is_log_append_time:
            header = header._replace(max_timestamp=in_64_bits(base + max(deltas)))
        kept = [data[start:end] for start, end in compress(pairwise(found.bounds), is_kept)]
        if needs_horizon:
            horizon = min(MAX_LONG, self._now + self._delete_retention_ms)
            kept = [*map(with_timestamp_delta, kept, [base + delta - horizon for delta in deltas])]
            header = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon)
        return _written(header._replace(record_count=len(kept)), compressed(header.codec, b"".join(kept)))


def _written(header: BatchHeader, records: bytes) -> tuple[BatchHeader, bytes]:
    """Encode a batch of this header and these (compressed) records; sets length and checksum."""
    checked = _HEADER.pack(*header)[CRC_FROM:] + records
    header = header._replace(length=CRC_FROM + len(checked) - LENGTH_END, crc=crc32c(checked))
    return header, _HEADER.pack(*header)[:CRC_FROM] + checked
