"""Checks a segment's indexes against its batches: their last entries, and the headers after these."""

from __future__ import annotations

from pathlib import Path

from reference.protocol.primitives import Offset
from reference.protocol.records.errors import RecordsError
from reference.storage.disk import Disk
from reference.storage.offset_index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from reference.storage.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment, file_name
from reference.storage.time_index import ENTRY_BYTES as TIME_INDEX_ENTRY_BYTES


def has_indexes(disk: Disk, folder: Path, base: Offset) -> bool:
    """Whether a segment has both indexes, of whole entries. Errors: OSError."""
    for suffix, entry_bytes in ((INDEX_SUFFIX, INDEX_ENTRY_BYTES), (TIME_INDEX_SUFFIX, TIME_INDEX_ENTRY_BYTES)):
        path = folder / file_name(base, suffix)
        if not disk.exists(path) or disk.size_of(path) % entry_bytes:
            return False
    return True


def sound_end(segment: Segment) -> Offset | None:
    """Where a segment ends; None where its indexes' last entries refer to no batches, or a header behind them is not whole."""
    try:
        end = _end_by_offset_index(segment)
        return end if end is not None and _time_index_fits(segment, end) else None
    except RecordsError:
        return None


def _end_by_offset_index(segment: Segment) -> Offset | None:
    """The segment's end; None where no batch begins at the last entry's position, or its offset is not in that batch or after it.

    An append of several batches has one entry: the position of its first batch, and the last offset of its last. The last
    entry must be greater than the first one. Errors: CorruptBatch where no whole batch header is at that position, or after it.
    """
    count = segment.offset_index.count
    if count == 0:
        return segment.next_offset()
    (first, first_position), (last, position) = (segment.offset_index.entry(slot) for slot in (0, count - 1))
    if not first_position <= position < segment.size or (count > 1 and first >= last):
        return None
    end = segment.next_offset()
    return end if segment.header_at(position).base_offset <= last < end else None


def _time_index_fits(segment: Segment, end: Offset) -> bool:
    """Whether the last entry's timestamp is the largest of the batch that it refers to, and above the first entry's, and no batch
    behind the offset index has a larger one: with a stale index retention would delete younger records.

    An empty index fits only where the first batch has no timestamp. Errors: CorruptBatch.
    """
    count = segment.time_index.count
    if count == 0:
        first_timestamp = segment.read_first_timestamp()
        return first_timestamp is None or first_timestamp < 0
    (first, _), (last, offset) = (segment.time_index.entry(slot) for slot in (0, count - 1))
    is_newest = all(header.max_timestamp <= last for header in segment.last_headers(end))
    return is_newest and (count == 1 or first < last) and segment.has_timestamp(last, offset)
