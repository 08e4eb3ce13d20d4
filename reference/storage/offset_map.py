"""The last offset of each key in the section of a log that is to be compacted.

The map has a limit of memory: where the section holds more keys than fit, the map ends before the section does, and
records behind its end are left as they are. Kafka's map holds hashes of the keys; this one holds the keys themselves.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import filterfalse

from reference.protocol.primitives import Offset
from reference.protocol.records.batch import HEADER_BYTES, check_crc
from reference.protocol.records.compression import decompress
from reference.storage.cleaned_transactions import CleanedTransactions
from reference.storage.record_outline import outlines
from reference.storage.segment import Segment, StoredBatch

ENTRY_BYTES = 160
"""The most memory of an entry besides the key's bytes: its place in a growing table, and two objects. (Measured.)"""


class OffsetMap:
    """The last offset of each key from `start` up to `end`."""

    def __init__(self, start: Offset, max_bytes: int) -> None:
        self.start = start
        self.end = start
        """The map knows all records from `start` up to here."""
        self.last: dict[bytes, Offset] = {}
        self._key_bytes = 0
        self._max_bytes = max_bytes

    @property
    def size_bytes(self) -> int:
        """The most memory that the map takes."""
        return ENTRY_BYTES * len(self.last) + self._key_bytes

    @property
    def is_full(self) -> bool:
        """Whether no further batch should be read; the one that filled it is in the map as a whole."""
        return self.size_bytes >= self._max_bytes

    def read(self, batch: StoredBatch) -> None:
        """Add the keys of a batch. Errors: RecordsError, also for a wrong checksum."""
        header = batch.header
        check_crc(batch.data, header)
        base, from_delta = header.base_offset, self.start - header.base_offset
        found = {
            key: base + delta
            for _, _, _, delta, key, _ in outlines(record_bytes(batch), header.record_count)
            if key is not None and delta >= from_delta
        }
        # Not set(found).difference(last): PyPy goes through all keys of `last` for it.
        self._key_bytes += sum(map(len, filterfalse(self.last.__contains__, found)))
        self.last.update(found)


def record_bytes(batch: StoredBatch) -> bytes:
    """The bytes of a batch's records, decompressed. Errors: RecordsError."""
    return bytes(decompress(batch.header.codec, batch.data[HEADER_BYTES : batch.header.size]))


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
            if not transactions.may_drop(batch) and not header.is_control:
                keys.read(batch)
            keys.end = header.next_offset
            yield len(batch.data)
            if keys.is_full:
                return keys
    keys.end = max(keys.end, end)
    return keys
