"""One compaction of one log, in small steps.

It first reads the keys of the dirty section into a map. Then it rewrites all segments from the log's start up to the map's end
without superseded records, adjacent small segments as one. Each rewritten group replaces its originals when it is complete and
durable. A step ends after each batch: the caller may stop there and continue later. Between steps the log may be appended to
and read. A truncation ends the compaction; groups that were swapped before are kept.
Source: Kafka's documentation, "Log Compaction"; org.apache.kafka.storage.internals.log.Cleaner; requirements CMP-*.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from reference.protocol.primitives import FIRST_OFFSET, Offset, TimestampMs
from reference.protocol.records.batch import BatchHeader
from reference.storage.batch_filter import BatchFilter
from reference.storage.cleanable import Cleanable, groups
from reference.storage.cleaned_transactions import CleanedTransactions
from reference.storage.config import LogConfig
from reference.storage.flushing import PendingFlush, RunFlush, run_now
from reference.storage.log import Log
from reference.storage.offset_map import read_keys
from reference.storage.segment import Segment

WRITE_BYTES = 256 * 1024
"""Bytes that are buffered before a write."""


class Done(NamedTuple):
    """The result of a compaction."""

    end: Offset
    """Up to here the log is clean."""
    read_bytes: int
    """Bytes of the original segments."""
    left_bytes: int
    """Bytes of the segments that replaced them."""


class Cleaning:
    """One compaction of a log."""

    def __init__(
        self, log: Log, section: Cleanable, now: TimestampMs, map_bytes: int, run_flush: RunFlush = run_now
    ) -> None:
        """`section` is the dirty section; the map of its keys takes `map_bytes`, or as much as one batch needs."""
        self.log = log
        self.done: Done | None = None
        """The result; None until the compaction has ended."""
        self._section = section
        self._now = now
        self._map_bytes = map_bytes
        self._shortened = log.times_shortened
        self._writing: SegmentWriter | None = None
        self._run_flush = run_flush
        self._pending: PendingFlush | None = None
        self._flush_error: OSError | None = None

    @property
    def is_flushing(self) -> bool:
        """Whether a segment's flush is under way; a step does nothing before it ends."""
        return self._pending is not None

    def steps(self) -> Iterator[int]:
        """Run the compaction; each step yields the bytes that it has read. Errors: OSError, RecordsError, LogError."""
        log, section = self.log, self._section
        config = log.config
        dirty = [each for each in log.closed_segments if each.base_offset < section.end]
        aborted = log.aborted_transactions(section.start, section.end)
        keys = yield from read_keys(dirty, section.start, section.end, CleanedTransactions(aborted), self._map_bytes)
        concerned = [each for each in log.closed_segments if each.base_offset < keys.end]
        transactions = CleanedTransactions(log.aborted_transactions(FIRST_OFFSET, section.end))
        kept = BatchFilter(keys, transactions, log.last_written, self._now, config.delete_retention_ms)
        read = left = 0
        for group in groups(concerned, config, section.end):
            read += sum(segment.size for segment in group)
            left += yield from self._clean(group, kept, transactions, config)
        self.done = Done(keys.end, read, left)

    def _clean(
        self, group: list[Segment], kept: BatchFilter, transactions: CleanedTransactions, config: LogConfig
    ) -> Generator[int, None, int]:
        """Rewrite a group of segments as one; returns its bytes."""
        writer = self._writing = SegmentWriter(self.log.new_cleaned_segment(group[0].base_offset, self._now), config)
        transactions.index = writer.segment.transaction_index
        for segment in group:
            for batch in segment.batches():
                found = kept.kept(batch)
                if found is not None:
                    writer.append(*found)
                yield len(batch.data)
        writer.finish()
        yield from self._flush(writer.segment)
        self._writing = None
        self.log.replace_segments(group, writer.segment, self._now)
        return writer.segment.size

    def _flush(self, segment: Segment) -> Iterator[int]:
        """Errors: OSError."""

        def finish(flush: PendingFlush, error: OSError | None) -> None:
            self._pending, self._flush_error = None, error

        self._pending = segment.pending_flush(finish)
        self._run_flush(self._pending)
        while self.is_flushing:
            yield 0
        if self._flush_error is not None:
            raise self._flush_error

    @property
    def is_stale(self) -> bool:
        """Whether the log was shortened meanwhile, or is no longer to be compacted: no further step may follow."""
        return self.log.times_shortened != self._shortened or not self.log.config.compacts

    def abandon(self) -> None:
        """Remove the unfinished segment. Errors: OSError; then the next start removes it."""
        if self._writing is not None:
            self._writing.segment.remove()


class SegmentWriter:
    """Writes the batches of a compacted segment."""

    def __init__(self, segment: Segment, config: LogConfig) -> None:
        self.segment = segment
        self._interval = config.index_interval_bytes
        self._gathered: list[memoryview | bytes] = []
        self._gathered_bytes = 0

    def append(self, header: BatchHeader, data: memoryview | bytes) -> None:
        """Buffer a batch, and write the buffer when it is full. Errors: OSError."""
        position = self.segment.size + self._gathered_bytes
        self.segment.index(
            header.base_offset, header.last_offset, position, len(data), header.max_timestamp, self._interval
        )
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= WRITE_BYTES:
            self._write()

    def finish(self) -> None:
        """Write the buffer and close the segment. Errors: OSError."""
        self._write()
        self.segment.close()

    def _write(self) -> None:
        if self._gathered:
            self.segment.file.append(b"".join(self._gathered))
        self._gathered, self._gathered_bytes = [], 0
