"""The segments of a log: opened, rolled, flushed, kept in order, closed. Only the last one, active, grows."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from reference.protocol.primitives import AT_ONCE, NO_UUID, Offset, TimestampMs
from reference.storage.checkpoints import read_topic_id, write_topic_id
from reference.storage.config import DAY_MS, LogConfig
from reference.storage.disk import Disk
from reference.storage.epoch_cache import open_epochs
from reference.storage.errors import StorageError
from reference.storage.flushing import PendingFlush, run_now
from reference.storage.producer_state import ProducerState
from reference.storage.recovery import PreviousRun, load
from reference.storage.segment import Segment
from reference.storage.segment_checksums import SegmentChecksum

NO_PREVIOUS_RUN = PreviousRun()


class LogIdentity(NamedTuple):
    """The partition and topic id of a log."""

    topic: str
    partition: int
    topic_id: UUID | None = None
    """Written into a folder without a topic id."""


class ProducerExpiry(NamedTuple):
    """When a producer's state is forgotten."""

    expiration_ms: Callable[[], int] = lambda: DAY_MS
    """producer.id.expiration.ms since the last batch; may change while the log is open."""
    check_ms: int = 600_000
    """producer.id.expiration.check.interval.ms."""

    @classmethod
    def of(cls, integer: Callable[[str], int]) -> ProducerExpiry:
        """The settings, by the names of their properties."""
        return cls(lambda: integer("producer.id.expiration.ms"), integer("producer.id.expiration.check.interval.ms"))


def _nothing() -> None:
    pass


class SegmentList:
    """A log's segments, leader epochs, producers and recovery point."""

    _gap_begins: Offset | None = None
    """The end of the last batch, where a truncation left the log's end beyond it; else None. The recovery point stays below
    that gap: a start treats a log that ends below its recovery point as one that has lost records."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        config: LogConfig,
        now: TimestampMs,
        of: LogIdentity,
        previous: PreviousRun = NO_PREVIOUS_RUN,
        producer_expiry: ProducerExpiry = ProducerExpiry(),
    ) -> None:
        """Open the log of a folder: create it if it does not exist, recover it unless the last shutdown was clean.

        Errors: StorageError, CorruptFile.
        """
        self._disk = disk
        self.folder = folder
        self.config = config
        self.topic, self.partition, topic_id = of
        self.producer_expiry = producer_expiry
        self.changed: Callable[[], None] = _nothing
        """To be called where `next_deadline` may be sooner than it was."""
        self.checkpoint: Callable[[], None] = _nothing
        """Writes the checkpoints, when a truncation has moved the recovery point back."""
        try:
            if not disk.exists(folder):
                disk.make_folder(folder)
                disk.sync_folder(folder.parent)
            self.topic_id: UUID = self._identify(topic_id)
            self._epochs, repairs = open_epochs(disk, folder)
            self._producers = ProducerState(disk, folder)
            loaded = load(disk, folder, config, self._epochs, self._producers, previous, now)
        except OSError as error:
            raise storage_error(folder, error) from error
        self.repairs = [*repairs, *loaded.repairs]
        """Messages about rebuilt files that are not reported yet."""
        self._segments = loaded.segments
        for segment in self._segments:
            segment.on_repair = self._repaired
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._active = self._segments[-1]
        self.log_start_offset: Offset = loaded.log_start
        self.log_end_offset: Offset = loaded.log_end
        self.recovery_point: Offset = loaded.log_end if previous.clean else min(previous.recovery_point, loaded.log_end)
        self.recovered_bytes = loaded.recovered_bytes
        self.lost_bytes = loaded.lost_bytes
        self._folder_changed = True
        self._deleted: list[tuple[TimestampMs, Segment]] = []
        self.times_shortened: int = 0
        """A counter of removals: code that works on segments over several calls must compare it."""
        self.run_flush: Callable[[PendingFlush], None] = run_now
        """Runs the flush of closed segments; the runtime does it in a thread."""
        self._pending_flush: PendingFlush | None = None
        self._last_flush = now
        self._next_expiry = now + producer_expiry.check_ms
        try:
            # Records that were deleted come back when the raised log start is lost: then their epochs are not in the file.
            self.recovery_point = self._store_epochs(self.recovery_point)
        except OSError as error:
            raise storage_error(folder, error) from error
        if not previous.clean:
            # Records that a crash left may be only in the page cache. Under flush.messages no consumer reads them before they
            # are durable: a power failure would remove records that consumers have seen. Kafka 4.3.1 does not flush here.
            self._flush_when_due(now)

    def _identify(self, topic_id: UUID | None) -> UUID:
        known = read_topic_id(self._disk, self.folder)
        if known is None and topic_id is not None:
            write_topic_id(self._disk, self.folder, topic_id)
        return known or topic_id or NO_UUID

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    def checksums(self, is_closed: bool) -> dict[Offset, SegmentChecksum]:
        """The checksums of closed segments that are flushed; of all segments after `close`. Errors: OSError."""
        flushed = len(self._segments) if is_closed else max(0, bisect_right(self._bases, self.recovery_point) - 1)
        return {segment.base_offset: segment.checksum for segment in self._segments[:flushed]}

    @property
    def active_base(self) -> Offset:
        """The base offset of the active segment."""
        return self._active.base_offset

    @property
    def _stored_end(self) -> Offset:
        """The end of the last batch. The next segment begins there: recovery treats a gap between segments as a loss."""
        return self.log_end_offset if self._gap_begins is None else self._gap_begins

    # ---- upkeep

    def roll(self, now: TimestampMs) -> None:
        """Close the active segment, if it holds anything, and open the next. Errors: StorageError."""
        if self._active.file.size:
            try:
                self._resume()
                self._roll(self._stored_end, now)
            except OSError as error:
                raise storage_error(self.folder, error) from error

    def _roll(self, base: Offset, now: TimestampMs) -> Segment:
        """Close the active segment and open the next; after a disk error the old one stays active."""
        self._producers.end_offset = self.log_end_offset
        self._producers.take_snapshot()
        previous = self._active
        previous.close()
        if self.recovery_point >= base:
            # No later flush reaches this segment, and it must not come back with indexes that end in zeros.
            previous.flush()
        try:
            return self._add_segment(base, now)
        except OSError:
            previous.activate(self.config.segment_index_bytes)
            raise

    def _add_segment(self, base: Offset, now: TimestampMs) -> Segment:
        self._folder_changed = True
        segment = Segment(self._disk, self.folder, base, now)
        segment.activate(self.config.segment_index_bytes)
        segment.on_repair = self._repaired
        self._segments.append(segment)
        self._bases.append(base)
        self._active = segment
        self.changed()
        return segment

    def _repaired(self, what: str) -> None:
        self.repairs.append(what)
        self.changed()

    def flush(self, now: TimestampMs | None = None) -> None:
        """Make everything durable; the recovery point becomes the log's end. Errors: StorageError."""
        self.resume()
        self._flush_segments(self._segments, self.log_end_offset)
        if now is not None:
            self._last_flush = now

    def _flush_when_due(self, now: TimestampMs) -> None:
        """Flush by flush.messages. Errors: StorageError."""
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush(now)

    def _flush_segments(self, segments: list[Segment], end: Offset) -> None:
        if self.recovery_point >= end:
            return
        try:
            for segment in segments[max(0, bisect_right(self._bases, self.recovery_point) - 1) :]:
                segment.flush()
            end = self._store_epochs(end)
            if self._folder_changed:
                self._disk.sync_folder(self.folder)
                self._folder_changed = False
        except OSError as error:
            raise storage_error(self.folder, error) from error
        # Last: what lies below the recovery point is not scanned after a crash.
        self.recovery_point = max(self.recovery_point, end if self._gap_begins is None else min(end, self._gap_begins))

    def _flush_closed(self) -> None:
        first = max(0, bisect_right(self._bases, self.recovery_point) - 1)
        try:
            end = self._store_epochs(self._active.base_offset)
            self._begin_flush(self._segments[first:-1], end)
        except OSError as error:
            self._pending_flush = None
            raise storage_error(self.folder, error) from error

    def begin_flush(self, now: TimestampMs) -> None:
        """Start to make everything durable; `run_flush` may wait for the disk in another thread. Errors: StorageError."""
        self.resume()
        if self.recovery_point >= self.log_end_offset or self._pending_flush is not None:
            return
        first = max(0, bisect_right(self._bases, self.recovery_point) - 1)
        try:
            end = self._store_epochs(self.log_end_offset)
            self._begin_flush(self._segments[first:], end if self._gap_begins is None else min(end, self._gap_begins))
            self._last_flush = now
        except OSError as error:
            self._pending_flush = None
            raise storage_error(self.folder, error) from error

    def _begin_flush(self, segments: list[Segment], end: Offset) -> None:
        """Errors: OSError."""

        def flush() -> None:
            for segment in segments:
                segment.flush()
            self._disk.sync_folder(self.folder)

        def finish(flush: PendingFlush, error: OSError | None) -> None:
            # Unless the log was truncated meanwhile.
            if self._pending_flush is flush:
                self._pending_flush = None
                if error is None:
                    self.recovery_point = max(self.recovery_point, end)
                self.changed()

        self._pending_flush = PendingFlush(self._disk, flush, finish)
        self.run_flush(self._pending_flush)

    def is_durable_to(self, end: Offset) -> bool:
        """Whether all batches below an offset are durable."""
        return self.recovery_point >= (end if self._gap_begins is None else min(end, self._gap_begins))

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is under way."""
        return self._pending_flush is not None

    def _store_epochs(self, end: Offset) -> Offset:
        """Write the epochs of the records below `end`; returns how far the recovery point may advance. Errors: OSError.

        Recovery reads the batches from the recovery point on, and finds their epochs in them. The epochs of other batches must
        be in the file before the recovery point passes them. Where the disk has no room for the file, the recovery point stays.
        """
        try:
            self._epochs.store(end)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        return min(end, self._epochs.unstored_from(end))

    def _resume(self) -> None:
        """Complete an operation that a disk error interrupted. Errors: OSError."""

    def resume(self) -> None:
        """Complete an operation that a disk error interrupted; every append does so first. Errors: StorageError."""
        try:
            self._resume()
        except OSError as error:
            raise storage_error(self.folder, error) from error

    def tick(self, now: TimestampMs) -> None:
        """Periodic work: flush by flush.ms and of closed segments, removal of deleted files, expiry of producers.

        Errors: StorageError.
        """
        self.resume()
        if now - self._last_flush >= self.config.flush_ms:
            self.flush(now)
        elif self.recovery_point < self._active.base_offset and self._pending_flush is None:
            self._flush_closed()
        try:
            while self._deleted and self._deleted[0][0] <= now:
                self._deleted[0][1].remove_deleted()
                del self._deleted[0]
        except OSError as error:
            raise storage_error(self.folder, error) from error
        if now >= self._next_expiry:
            self._producers.expire(now, self.producer_expiry.expiration_ms())
            self._next_expiry = now + self.producer_expiry.check_ms

    def next_deadline(self) -> TimestampMs:
        """When `tick` has something to do next."""
        deadline = self._next_expiry
        if self.recovery_point < self.log_end_offset:
            deadline = min(deadline, self._last_flush + self.config.flush_ms)
            if self.recovery_point < self._active.base_offset and self._pending_flush is None:
                return AT_ONCE
        return min(deadline, self._deleted[0][0]) if self._deleted else deadline

    def close(self) -> None:
        """Close cleanly: make everything durable, write the producer snapshot, trim the indexes. Errors: StorageError."""
        try:
            self._resume()
            self._producers.end_offset = self.log_end_offset
            self._producers.take_snapshot()
            self._active.close()
            if self.recovery_point >= self.log_end_offset:
                self._active.flush()  # its trimmed indexes; else it is flushed with what is not yet durable
            self._epochs.store(self.log_end_offset)  # no batch is read after a clean end
            self._flush_segments(self._segments, self.log_end_offset)
            for _, segment in self._deleted:
                segment.remove_deleted()
        except OSError as error:
            raise storage_error(self.folder, error) from error
        self._deleted = []


def storage_error(folder: Path, error: OSError) -> StorageError:
    """The log's error for an error of its disk."""
    return StorageError(f"{folder.name}: {error.strerror or error}")
