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

from reference.protocol.checksum import crc32c
from reference.protocol.primitives import NO_TIMESTAMP, ProducerId, TimestampMs
from reference.protocol.records.batch import (
    CODEC,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_END,
    PREFIX_BYTES,
    BatchHeader,
    check_crc,
)
from reference.protocol.records.compression import compress
from reference.protocol.records.validate import MAX_LONG
from reference.protocol.records.varint import in_64_bits
from reference.storage.answers import LastWritten
from reference.storage.cleaned_transactions import CleanedTransactions
from reference.storage.offset_map import OffsetMap, record_bytes
from reference.storage.record_outline import Outline, outlines, with_timestamp_delta
from reference.storage.segment import StoredBatch

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")


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

    def kept(self, batch: StoredBatch) -> tuple[BatchHeader, memoryview | bytes] | None:
        """The filtered batch: as it is, with fewer records, or without records; None when it is removed.

        Call it for all batches, in the order of the log. Errors: OSError, RecordsError.
        """
        header = batch.header
        is_useless = self._transactions.may_drop(batch)
        if header.record_count == 0:
            return self._shell(header)
        if header.is_control:
            return self._kept_marker(batch, is_useless)
        if is_useless:
            return self._shell(header)
        data = record_bytes(batch)
        rows, has_tombstone = self._survivors(header, data)
        needs_horizon = has_tombstone and header.delete_horizon is None
        if len(rows) == header.record_count and not needs_horizon:
            return header, batch.data
        return self._rewritten(batch, data, rows, needs_horizon) if rows else self._shell(header)

    def _kept_marker(self, batch: StoredBatch, is_useless: bool) -> tuple[BatchHeader, memoryview | bytes] | None:
        """Keep a marker until its delete horizon, which the first compaction without a batch of its transaction sets."""
        header, horizon = batch.header, batch.header.delete_horizon
        if is_useless and horizon is None:
            data = record_bytes(batch)
            return self._rewritten(batch, data, [*outlines(data, header.record_count)], True)
        if is_useless and horizon is not None and horizon <= self._now:
            return self._shell(header)
        return header, batch.data

    def _survivors(self, header: BatchHeader, data: bytes) -> tuple[list[Outline], bool]:
        """The records of a data batch to keep, and whether a tombstone is among them."""
        rows: list[Outline] = []
        has_tombstone = False
        last, end, base = self._keys.last, self._keys.end, header.base_offset
        horizon = header.delete_horizon
        are_tombstones_due = horizon is not None and horizon <= self._now
        for row in outlines(data, header.record_count):
            _, _, _, delta, key, has_value = row
            offset = base + delta
            if offset < end and (
                key is None or last.get(key, offset) > offset or (are_tombstones_due and not has_value)
            ):
                continue
            rows.append(row)
            has_tombstone = has_tombstone or not has_value
        return rows, has_tombstone

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
        self, batch: StoredBatch, data: bytes, rows: list[Outline], needs_horizon: bool
    ) -> tuple[BatchHeader, bytes]:
        """The batch with only these records, and with a new delete horizon if `needs_horizon`."""
        header = batch.header
        check_crc(batch.data, header)
        base = header.base_timestamp
        if not header.is_log_append_time:
            header = header._replace(max_timestamp=in_64_bits(base + max([row[2] for row in rows])))
        if needs_horizon:
            horizon = min(MAX_LONG, self._now + self._delete_retention_ms)
            records = b"".join(with_timestamp_delta(data, row[0], row[1], base + row[2] - horizon) for row in rows)
            header = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon)
        else:
            records = b"".join([data[row[0] : row[1]] for row in rows])
        return _written(header._replace(record_count=len(rows)), compress(header.codec, records))


def _written(header: BatchHeader, records: bytes) -> tuple[BatchHeader, bytes]:
    """Encode a batch of this header and these (compressed) records; sets length and checksum."""
    batch = bytearray(HEADER_BYTES + len(records))
    header = header._replace(length=len(batch) - LENGTH_END)
    _HEADER.pack_into(batch, 0, *header)
    batch[HEADER_BYTES:] = records
    crc = crc32c(memoryview(batch)[CRC_FROM:])
    _CRC.pack_into(batch, PREFIX_BYTES, crc)
    return header._replace(crc=crc), bytes(batch)
