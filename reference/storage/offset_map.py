"""The keys of the section of a log that is to be compacted, and which records are the last of their keys.

One walk over the section looks each key up once, and notes the state of each record in a byte. That look-up costs more than
all else, for keys lie all over the memory. When the section's batches are written again, no key is needed, and no record of a
batch that stays or goes as a whole. The records before the section are superseded where the section holds their keys.

The map has a limit of memory: where the section holds more keys than fit, the map ends before the section does, and
records behind its end are left as they are. Kafka's map holds hashes of the keys; this one holds the keys themselves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from functools import cached_property

from reference.protocol.primitives import Offset
from reference.protocol.records.batch import HEADER_BYTES, BatchHeader, check_crc
from reference.protocol.records.compression import decompress
from reference.storage.cleaned_transactions import CleanedTransactions
from reference.storage.record_outline import Outlines, outlines
from reference.storage.segment import Segment, StoredBatch

ENTRY_BYTES = 160
"""The most memory of an entry besides the key's bytes: its place in a growing table, and two objects. (Measured.)"""
LIVE, SUPERSEDED, TOMBSTONE = 0, 1, 2
"""The state of a record: the last of its key; not the last, or without a key; the last of its key, and without a value."""


class BatchRecords:
    """The records of a stored batch, decompressed and read when they are first needed."""

    def __init__(self, batch: StoredBatch) -> None:
        self.batch = batch

    @cached_property
    def data(self) -> bytes:
        """Their bytes, decompressed. Errors: RecordsError."""
        header = self.batch.header
        return bytes(decompress(header.codec, self.batch.data[HEADER_BYTES : header.size]))

    @cached_property
    def outlines(self) -> Outlines:
        """Errors: RecordsError."""
        return outlines(self.data, self.batch.header.record_count)


class OffsetMap:
    """The records from `start` up to `end`, by number: the first record of the section's first batch is number 0."""

    def __init__(self, start: Offset, max_bytes: int) -> None:
        self.start = start
        self.end = start
        """The map knows all records from `start` up to here."""
        self.last: dict[bytes, int] = {}
        """The number of each key's last record."""
        self.states = bytearray()
        """The state of each record; those before `start` of its first batch are not known here."""
        self._key_bytes = 0
        self._max_bytes = max_bytes

    @property
    def size_bytes(self) -> int:
        """The most memory that the map takes."""
        return ENTRY_BYTES * len(self.last) + self._key_bytes + len(self.states)

    @property
    def is_full(self) -> bool:
        """Whether no further batch should be read; the one that filled it is in the map as a whole."""
        return self.size_bytes >= self._max_bytes

    def holds(self, header: BatchHeader) -> bool:
        """Whether the map has numbers for the records of a batch."""
        return self.start <= header.last_offset and header.base_offset < self.end

    def skip(self, header: BatchHeader) -> None:
        """Number the records of a batch, and read none of them."""
        self.states += bytes(header.record_count)
        self.end = header.next_offset

    def read(self, batch: StoredBatch) -> None:
        """Add the records of a batch. Errors: RecordsError, also for a wrong checksum."""
        header = batch.header
        check_crc(batch.data, header)
        found = BatchRecords(batch).outlines
        first, last, states = len(self.states), self.last, self.states
        self.skip(header)
        for index in found.tombstones:
            states[first + index] = TOMBSTONE
        known = bisect_left(found.offset_deltas, self.start - header.base_offset)
        for number, key in enumerate(found.keys[known:], first + known):
            if key is None:
                states[number] = SUPERSEDED
                continue
            before = last.get(key)
            if before is None:
                self._key_bytes += len(key)
            else:
                states[before] = SUPERSEDED
            last[key] = number

    def look_up(self, records: BatchRecords) -> bytearray:
        """The states of the records of a batch that begins outside of the section, before or behind it. Errors: RecordsError."""
        header, found, last = records.batch.header, records.outlines, self.last
        states = bytearray(header.record_count)
        for index in found.tombstones:
            states[index] = TOMBSTONE
        if header.base_offset < self.end:
            is_first = self.holds(header)
            for index, key in enumerate(found.keys):
                if key is None or last.get(key, -1) > (index if is_first else -1):
                    states[index] = SUPERSEDED
        return states


def read_keys(
    segments: Sequence[Segment], start: Offset, end: Offset, transactions: CleanedTransactions, max_bytes: int
) -> Generator[int, None, OffsetMap]:
    """Read the section from `start` up to `end`, which lies in these segments, or as much of it as the map has room for.

    Yields the bytes of each batch, after it. Errors: OSError, RecordsError.
    """
    keys = OffsetMap(start, max_bytes)
    for segment in segments:
        found = segment.find(start)
        for batch in segment.batches(found.position) if found is not None else ():
            header = batch.header
            if header.base_offset >= end:
                break
            if transactions.may_drop(batch) or header.is_control:
                keys.skip(header)
            else:
                keys.read(batch)
            yield len(batch.data)
            if keys.is_full:
                return keys
    keys.end = max(keys.end, end)
    return keys
