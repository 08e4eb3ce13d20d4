"""One segment of a log: a file of batches and its three indexes, all named by the segment's base offset.

Only the last segment of a log, the active one, grows. Its indexes have their full length until it is closed. The batches
since the last index entry are remembered in memory, so that the reader at the log's end never searches.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from reference.protocol.primitives import FIRST_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from reference.protocol.records.batch import HEADER_BYTES, LENGTH_END, MAGIC_AT, BatchHeader, read_header, records_of
from reference.protocol.records.errors import CorruptBatch
from reference.storage.config import LogConfig
from reference.storage.disk import Disk, File
from reference.storage.flushing import PendingFlush
from reference.storage.offset_index import OffsetIndex
from reference.storage.segment_checksums import SegmentChecksum, checksum_of
from reference.storage.time_index import TimeIndex
from reference.storage.transaction_index import TransactionIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
"""Suffix of a file that is to be removed, at the latest by the next start."""
CLEANED_SUFFIX = ".cleaned"
"""Suffix of a compacted segment that is not complete."""
SWAP_SUFFIX = ".swap"
"""Suffix of a complete and durable compacted segment, which is to replace its originals."""
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
MAX_RELATIVE_OFFSET = 2**31 - 1
"""A segment's last offset exceeds its base offset by at most this much: indexes keep the difference in 32 bits."""
MAX_OFFSET = Offset(2**63 - 1)

REBUILT_INTERVAL_BYTES = 4096
"""Bytes between two entries of an index that is rebuilt while its log is open (log.index.interval.bytes)."""
SCAN_BYTES = 4096
"""Bytes of one read while stepping from header to header."""
_STEP = struct.Struct(">qi")
MAGIC = 2
_LAST_OFFSET_DELTA = struct.Struct(">i")


def file_name(base_offset: Offset, suffix: str) -> str:
    """Kafka's names: twenty digits and a suffix."""
    return f"{base_offset:020d}{suffix}"


def remove_files(disk: Disk, folder: Path, base_offset: Offset, ending: str) -> None:
    """Remove the files of a segment that is not open, the log first. Errors: OSError."""
    for suffix in SUFFIXES:
        disk.remove(folder / (file_name(base_offset, suffix) + ending))


def _say_nothing(_: str) -> None:
    pass


class Position(NamedTuple):
    """A batch's position in its segment's file."""

    position: int
    size: int


class StoredBatch(NamedTuple):
    """A batch read from a segment."""

    header: BatchHeader
    position: int
    data: memoryview


class Segment:
    """A segment's files. Opening reads no records: the caller decides whether its indexes can be trusted."""

    def __init__(self, disk: Disk, folder: Path, base_offset: Offset, now: TimestampMs, ending: str = "") -> None:
        """Open a segment, and create missing files. Errors: OSError, CorruptFile (transaction index).

        `ending` is appended to the files' names while a compaction writes them.
        """
        self._disk = disk
        self._folder = folder
        self._ending = ending
        self.base_offset = base_offset
        self.created_at = now
        self.file: File = disk.open_file(self.path(LOG_SUFFIX))
        self.offset_index = OffsetIndex(disk, self.path(INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX_SUFFIX), base_offset)
        self.transaction_index = TransactionIndex(disk, self.path(TRANSACTION_INDEX_SUFFIX))
        self.max_timestamp = self.time_index.last_timestamp
        self.max_timestamp_offset = self.time_index.last_offset
        self.first_timestamp: TimestampMs | None = None
        """Max timestamp of the first batch, once it was read."""
        self._checksum: SegmentChecksum | None = None
        self.on_repair: Callable[[str], None] = _say_nothing
        """Called with a message when a look-up finds a damaged index."""
        self._bytes_since_entry = 0
        self._recent_last_offsets: list[Offset] = []
        self._recent_positions: list[int] = []
        self._recent_from: Offset | None = None
        """Lowest offset that the batches in memory cover; None when there are none."""

    def path(self, suffix: str) -> Path:
        """The path of one of the segment's files."""
        return self._folder / (file_name(self.base_offset, suffix) + self._ending)

    @property
    def size(self) -> int:
        """Bytes of the log file."""
        return self.file.size

    # ---- growing

    def activate(self, index_bytes: int) -> None:
        """Extend the indexes to the length that an active segment's have. Errors: OSError."""
        self._checksum = None
        self.offset_index.reserve(index_bytes)
        self.time_index.reserve(index_bytes)
        self.forget_from(MAX_OFFSET)
        self.read_first_timestamp()

    def append(
        self,
        data: memoryview,
        first_offset: Offset,
        last_offset: Offset,
        max_timestamp: TimestampMs,
        index_interval: int,
    ) -> None:
        """Write one batch at the end. Errors: OSError, and the segment is as it was."""
        file = self.file
        position = file.size
        file.append(data)
        try:
            self.index(first_offset, last_offset, position, len(data), max_timestamp, index_interval)
        except OSError:
            self.cut(position, first_offset)
            raise

    def index(
        self,
        first_offset: Offset,
        last_offset: Offset,
        position: int,
        size: int,
        max_timestamp: TimestampMs,
        interval: int,
    ) -> None:
        """Remember a batch of the file; add index entries when more than `interval` bytes follow the last ones."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
        if self._bytes_since_entry > interval:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self._bytes_since_entry = 0
            self._recent_from = None
        if self._recent_from is None:
            self._recent_from = first_offset
            self._recent_last_offsets = []
            self._recent_positions = []
            if position == 0:
                self.first_timestamp = max_timestamp
        self._recent_last_offsets.append(last_offset)
        self._recent_positions.append(position)
        self._bytes_since_entry += size

    def has_place_for(self, last_offset: Offset) -> bool:
        """Whether the indexes can express an offset."""
        return last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def is_over(self, max_timestamp: TimestampMs, now: TimestampMs, config: LogConfig) -> bool:
        """Whether a batch must go into a new segment: indexes are full, or the segment is too old.

        Age is that of records where they have timestamps: the batch's against the first batch's.
        """
        first = self.first_timestamp
        age = now - self.created_at if first is None or first < 0 else max_timestamp - first
        return (
            age > config.max_segment_ms - config.segment_jitter_ms
            or self.offset_index.is_full
            or self.time_index.is_full
        )

    @property
    def largest_timestamp(self) -> TimestampMs:
        """The largest timestamp of its records; if they have none, the time of the file's last change."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._disk.modified_at(self.path(LOG_SUFFIX))

    def close(self) -> None:
        """Add the greatest timestamp to the time index and trim the indexes; no append follows. Errors: OSError."""
        self.note_largest_timestamp()
        self.offset_index.trim()
        self.time_index.trim()

    def note_largest_timestamp(self) -> None:
        """Add the greatest timestamp to the time index. Errors: OSError."""
        self.time_index.append_last(self.max_timestamp, self.max_timestamp_offset)

    @property
    def checksum(self) -> SegmentChecksum:
        """The entry of a closed and flushed segment for `segment-checksums`. Errors: OSError."""
        if self._checksum is None:
            self._checksum = checksum_of(self.file, self.transaction_index.data)
        return self._checksum

    def flush(self) -> None:
        """Make the segment durable."""
        self.file.flush()
        self.offset_index.flush()
        self.time_index.flush()
        self.transaction_index.flush()

    def pending_flush(self, finish: Callable[[PendingFlush, OSError | None], None]) -> PendingFlush:
        """A flush whose wait another thread may do."""
        return PendingFlush(self._disk, self.flush, finish)

    # ---- searching

    def find(self, offset: Offset) -> Position | None:
        """The first batch whose last offset is at least this; None when the segment ends before it."""
        if self._recent_from is not None and offset >= self._recent_from:
            slot = bisect_left(self._recent_last_offsets, offset)
            positions = self._recent_positions
            if slot == len(positions):
                return None
            end = positions[slot + 1] if slot + 1 < len(positions) else self.file.size
            return Position(positions[slot], end - positions[slot])
        return self._scan(self._position_before(offset), offset)

    def _position_before(self, offset: Offset) -> int:
        """The position of a batch at or before the one that holds an offset.

        An entry that does not match the batch at its position shows a damaged index, which is rebuilt: it would skip records.
        """
        noted, position = self.offset_index.lookup(offset)
        if position and not self._has_batch(noted, position):
            self.rebuild_indexes()
            position = self.offset_index.lookup(offset)[1]
        return position

    def _has_batch(self, offset: Offset, position: int) -> bool:
        """Whether a batch begins at this position, with a base offset of at most `offset`."""
        data = self.file.read(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES or data[MAGIC_AT] != MAGIC:
            return False
        return self.base_offset <= _STEP.unpack_from(data)[0] <= offset

    def rebuild_indexes(self) -> None:
        """Rebuild offset and time index from the batches' headers, within their capacity.

        Errors: OSError, CorruptBatch.
        """
        self.on_repair(f"{self.path(INDEX_SUFFIX).name} was damaged, and is made again")
        offsets, times = self.offset_index, self.time_index
        interval = max(REBUILT_INTERVAL_BYTES, self.file.size // max(1, min(offsets.capacity, times.capacity - 1)))
        offsets.count = times.count = 0
        times.last_timestamp, times.last_offset = NO_TIMESTAMP, self.base_offset
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        position = self._bytes_since_entry = 0
        for header in self._headers(0):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
            if self._bytes_since_entry > interval:
                offsets.append(header.last_offset, position)
                times.append(self.max_timestamp, self.max_timestamp_offset)
                self._bytes_since_entry = 0
            position, self._bytes_since_entry = position + header.size, self._bytes_since_entry + header.size
        times.append(self.max_timestamp, self.max_timestamp_offset)

    def _scan(self, position: int, offset: Offset) -> Position | None:
        """Step from header to header from a position on until a batch reaches the offset."""
        read, end = self.file.read, self.file.size
        chunk, chunk_from = b"", position
        while position + HEADER_BYTES <= end:
            at = position - chunk_from
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_from, at = read(position, SCAN_BYTES), position, 0
            base_offset, length = _STEP.unpack_from(chunk, at)
            if length < HEADER_BYTES - LENGTH_END:
                raise CorruptBatch(f"{self.path(LOG_SUFFIX).name} holds no batch at {position}")
            size = LENGTH_END + length
            if base_offset + _LAST_OFFSET_DELTA.unpack_from(chunk, at + 23)[0] >= offset:
                return Position(position, size)
            position += size
        return None

    def batches(self, position: int = 0) -> Iterator[StoredBatch]:
        """The batches from a position on, up to the first that is not whole. Errors: CorruptBatch."""
        return batches_of(self.file, position)

    def batch_start(self, offset: Offset) -> Offset:
        """The base offset of the batch that holds an offset; where none does, the offset. Errors: CorruptBatch."""
        if self._recent_from is not None and offset > self._recent_from:
            slot = bisect_left(self._recent_last_offsets, offset)
            if slot and self._recent_last_offsets[slot - 1] == offset - 1:
                return offset  # as with nearly every follower's fetch: the file need not be read
        found = self.find(offset)
        return offset if found is None else min(offset, self.header_at(found.position).base_offset)

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch at a position. Errors: CorruptBatch."""
        header = next(self._headers(position), None)
        if header is None:
            raise CorruptBatch(f"{self.path(LOG_SUFFIX).name} ends at {self.size}, before {position}")
        return header

    def next_offset(self) -> Offset:
        """The offset behind the last batch; reads from the last index entry on. Errors: CorruptBatch."""
        count = self.offset_index.count
        position = self.offset_index.entry(count - 1)[1] if count else 0
        offset = self.base_offset
        for header in self._headers(position):
            offset = header.next_offset
        return offset

    def end_below(self, offset: Offset) -> Offset:
        """The end of the last batch that begins below an offset. Errors: CorruptBatch."""
        end = self.base_offset
        for header in self.last_headers(offset):
            end = header.next_offset
        return end

    def last_headers(self, offset: Offset) -> Iterator[BatchHeader]:
        """The headers of the last batches below an offset, from the last index entry on. Errors: CorruptBatch."""
        for header in self._headers(self._position_before(offset - 1)):
            if header.base_offset >= offset:
                break
            yield header

    def epoch_starts(self, start: Offset, end: Offset) -> Iterator[tuple[LeaderEpoch, Offset]]:
        """The leader epoch of each batch with offsets from `start` up to `end`, and the first of these. Errors: CorruptBatch."""
        found = self.find(start)
        for header in self._headers(found.position) if found is not None else ():
            if header.base_offset >= end:
                return
            yield header.leader_epoch, max(start, header.base_offset)

    def _headers(self, position: int) -> Iterator[BatchHeader]:
        while position < self.file.size:
            header_bytes = self.file.read(position, HEADER_BYTES)
            size = LENGTH_END + _STEP.unpack_from(header_bytes)[1] if len(header_bytes) == HEADER_BYTES else 0
            if not HEADER_BYTES <= size <= self.file.size - position:
                raise CorruptBatch(f"{self.path(LOG_SUFFIX).name} holds no batch at {position}")
            yield BatchHeader(*_HEADER.unpack(header_bytes))
            position += size

    def read_first_timestamp(self) -> TimestampMs | None:
        """Max timestamp of the first batch; None for an empty segment."""
        if self.first_timestamp is None and self.file.size:
            self.first_timestamp = self.header_at(0).max_timestamp
        return self.first_timestamp

    def find_timestamp(
        self, timestamp: TimestampMs, from_offset: Offset
    ) -> tuple[TimestampMs, Offset, LeaderEpoch] | None:
        """Timestamp, offset and leader epoch of the first record from an offset on with at least this timestamp."""
        noted = self.time_index.lookup(timestamp)
        if noted is not None and not self.has_timestamp(*noted):
            self.rebuild_indexes()
            noted = self.time_index.lookup(timestamp)
        start = max(noted[1] if noted is not None else self.base_offset, from_offset)
        position = self._position_before(start)
        for batch in self.batches(position):
            if batch.header.max_timestamp < timestamp or batch.header.last_offset < from_offset:
                continue
            for record in records_of(batch.data):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return record.timestamp, record.offset, batch.header.leader_epoch
        return None

    def has_timestamp(self, timestamp: TimestampMs, offset: Offset) -> bool:
        """Whether the batch that holds an offset has this greatest timestamp. Errors: CorruptBatch."""
        found = self.find(offset) if offset >= self.base_offset else None
        return found is not None and self.header_at(found.position).max_timestamp == timestamp

    # ---- truncation and removal

    def truncate_to(self, offset: Offset) -> Offset:
        """Drop the batches from the one that holds `offset` on; returns the segment's new end. Errors: OSError."""
        if (found := self.find(offset)) is not None:
            header = self.header_at(found.position)
            offset = min(offset, header.base_offset)
            self._recent_from = None  # also after an error below, the memory must not list truncated batches
            self.file.truncate(found.position)
        self.forget_from(offset)
        return offset

    def cut(self, position: int, offset: Offset) -> None:
        """Drop all bytes from a position on; `offset` is the first one dropped. Errors: OSError."""
        self.file.truncate(position)
        self.forget_from(offset)

    def clear_indexes(self, index_bytes: int) -> None:
        """Empty the indexes, to fill them again from the log file. Errors: OSError."""
        for index in (self.offset_index, self.time_index):
            index.clear(index_bytes)
        self.transaction_index.truncate_to(FIRST_OFFSET)
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._bytes_since_entry = 0
        self._recent_from = None

    def forget_from(self, offset: Offset) -> None:
        """Remove offsets from this one on from the indexes and the memory, after the file was cut there."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.max_timestamp = self.time_index.last_timestamp
        self.max_timestamp_offset = self.time_index.last_offset
        position = self.offset_index.entry(self.offset_index.count - 1)[1] if self.offset_index.count else 0
        self._bytes_since_entry = self.file.size - position
        for header in self._headers(position):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        self._recent_from = None
        if self.file.size == 0:
            self.first_timestamp = None

    def remove(self) -> None:
        """Remove the files, the offset index first and the log last. Errors: OSError, and it may be tried again.

        A start that finds a log without `.index` rebuilds all its indexes, whichever of them are left.
        """
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX):
            self._disk.remove(self.path(suffix))

    @property
    def is_whole(self) -> bool:
        """Whether no removal has begun: without its first file, a segment can only be removed."""
        return self._disk.exists(self.path(INDEX_SUFFIX))

    def rename(self, ending: str) -> None:
        """Rename the files to another suffix, the log file last: if it has the new name, all have. May be tried again.

        Errors: OSError; some files may have their new names then.
        """
        self._rename(reversed(SUFFIXES), ending)

    def mark_deleted(self) -> None:
        """Rename the files to `.deleted`, the log file first, so that no start opens them. Errors: as for `rename`."""
        self._rename(SUFFIXES, DELETED_SUFFIX)

    def _rename(self, suffixes: Iterable[str], ending: str) -> None:
        if ending == self._ending:
            return  # another segment may have this one's former names already
        for suffix in suffixes:
            path, moved = self.path(suffix), self._folder / (file_name(self.base_offset, suffix) + ending)
            if self._disk.exists(path):
                self._disk.rename(path, moved)
            if suffix == LOG_SUFFIX:
                self.file.moved(moved)
        self._ending = ending
        self.offset_index.moved(self.path(INDEX_SUFFIX))
        self.time_index.moved(self.path(TIME_INDEX_SUFFIX))
        self.transaction_index.moved(self.path(TRANSACTION_INDEX_SUFFIX))

    def remove_deleted(self) -> None:
        """Remove the renamed files; open readers keep theirs. Errors: OSError."""
        for suffix in SUFFIXES:
            self._disk.remove(self.path(suffix))


def batches_of(file: File, position: int = 0) -> Iterator[StoredBatch]:
    """The batches of a log file from a position on, up to the first that is not whole. Errors: CorruptBatch."""
    while position < file.size:
        prefix = file.read(position, LENGTH_END)
        if len(prefix) < LENGTH_END:
            raise CorruptBatch(f"{len(prefix)} bytes at the end of a log file")
        size = LENGTH_END + _STEP.unpack(prefix)[1]
        if not HEADER_BYTES <= size <= file.size - position:
            raise CorruptBatch(f"a batch of {size} bytes at {position} of a log file of {file.size}")
        data = memoryview(file.read(position, size))
        yield StoredBatch(read_header(data), position, data)
        position += size


_HEADER = struct.Struct(">qiibIhiqqqhii")
