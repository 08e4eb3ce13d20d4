"""Operations that shorten a log: truncation, advancing the log start, retention, and the swap of a compaction."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from reference.protocol.primitives import FIRST_OFFSET, LONG_AGO, Offset, TimestampMs
from reference.storage.errors import OffsetOutOfRange
from reference.storage.recovery import replay
from reference.storage.retention import breaching_segments
from reference.storage.segment import CLEANED_SUFFIX, SWAP_SUFFIX, Segment
from reference.storage.segment_list import SegmentList, storage_error


class Cut(NamedTuple):
    """A truncation that has begun."""

    end: Offset
    """The log's end after the truncation."""
    starts_over: bool
    """Whether the truncation drops all records."""
    now: TimestampMs


class Swap(NamedTuple):
    """A compacted segment that is replacing its originals."""

    cleaned: Segment
    originals: Sequence[Segment]
    delete_at: TimestampMs


class Shortening(SegmentList):
    """The operations that shorten a log. One that a disk error interrupts is completed before any other."""

    _cut: Cut | None = None
    _swap: Swap | None = None

    def _resume(self) -> None:
        if self._cut is not None:
            self._finish_cut(self._cut)
        if self._swap is not None:
            self._finish_swap(self._swap)

    # ---- cutting

    def truncate_to(self, offset: Offset, now: TimestampMs = LONG_AGO) -> bool:
        """Drop everything from `offset` on, durably; False when there is nothing to drop.

        Errors: StorageError; a truncation that has begun counts, and is completed before any append.
        """
        try:
            self._resume()
            if offset >= self.log_end_offset:
                # A leader that appended nothing may have left its epoch here.
                self._epochs.truncate_from_end(self.log_end_offset)
                return False
            starts_over = offset < self._bases[0]
            self._begin_cut(Cut(offset if starts_over else self.batch_start(offset), starts_over, now))
        except OSError as error:
            raise storage_error(self.folder, error) from error
        return True

    def truncate_fully_and_start_at(self, offset: Offset, now: TimestampMs = LONG_AGO) -> None:
        """Drop everything and go on from `offset`. Errors: StorageError, as for `truncate_to`."""
        try:
            self._resume()
            self._begin_cut(Cut(offset, True, now))
        except OSError as error:
            raise storage_error(self.folder, error) from error

    def batch_start(self, offset: Offset) -> Offset:
        """The base offset of the batch that holds an offset; in a gap, the offset. Errors: StorageError, RecordsError."""
        try:
            return self._segment_of(offset).batch_start(offset)
        except OSError as error:
            raise storage_error(self.folder, error) from error

    def _segment_of(self, offset: Offset) -> Segment:
        """The segment that holds an offset, or would hold it."""
        return self._segments[bisect_right(self._bases, offset) - 1]

    def _begin_cut(self, cut: Cut) -> None:
        """Begin a truncation. Errors: OSError; where the first change of a segment failed, nothing is truncated."""
        self.times_shortened += 1
        self.changed()
        start, end, extent = self.log_start_offset, self.log_end_offset, self._extent
        # The checkpoint before the cut: a crash between the two in the other order would leave a recovery point beyond the log's
        # end, and the next start would take the cut records for lost ones.
        # A log that starts over loses its segments one by one, and may end at any of them then.
        left = min(cut.end, self._bases[0]) if cut.starts_over else self._segment_of(cut.end).end_below(cut.end)
        self._lower_checkpoints(cut.end, left)
        try:
            # Before the segments, too: to a log that has started over one at its new start would seem its own.
            self._remove_snapshots_from(FIRST_OFFSET if cut.starts_over else Offset(cut.end + 1))
            self.log_end_offset, self._cut = cut.end, cut
            self._finish_cut(cut)
        except OSError:
            if self._extent == extent:
                self.log_start_offset, self.log_end_offset, self._cut = start, end, None
            raise

    @property
    def _extent(self) -> tuple[int, int, bool]:
        """The number of segments, the size of the last one, and whether no removal of it has begun."""
        return len(self._segments), self._active.size, self._active.is_whole

    def _lower_checkpoints(self, end: Offset, stored_end: Offset) -> None:
        """Lower recovery point and log start before a truncation: after a crash, rewritten offsets must be scanned.

        The last batch that is left may end below the log's end, before a gap: a start takes the batch's end as the log's.
        """
        self._pending_flush = None
        if stored_end < self.recovery_point or end < self.log_start_offset:
            self.recovery_point = min(self.recovery_point, stored_end)
            self.log_start_offset = min(self.log_start_offset, end)
            self.checkpoint()

    def _remove_snapshots_from(self, first: Offset) -> None:
        for offset in self._producers.snapshot_offsets():
            if offset >= first:
                self._producers.remove_snapshot(offset)

    def _finish_cut(self, cut: Cut) -> None:
        """Truncate the files, then the epochs and the producer state. Errors: OSError; a later call completes it."""
        if cut.starts_over:
            self._begin_again(cut)
        else:
            self._drop_until(lambda: self._active.base_offset <= cut.end)
            self._active.truncate_to(cut.end)
        stored_end = self._active.next_offset()
        self._gap_begins = stored_end if stored_end < cut.end else None
        self._active.activate(self.config.segment_index_bytes)
        # Durable before anything is appended in its place: a loss of power could bring the old tail back, whole and with the
        # right checksums, and recovery would take it for this log's.
        self._active.flush()
        self._epochs.truncate_from_end(cut.end)
        self._epochs.store(min(cut.end, self.recovery_point))
        self._producers.load(self.log_start_offset, cut.end)
        replay(self._producers, self._segments, cut.end)
        self._disk.sync_folder(self.folder)
        self._folder_changed = False
        self._cut = None

    def _begin_again(self, cut: Cut) -> None:
        self._drop_until(lambda: len(self._segments) == 1)
        oldest = self._active
        if oldest.base_offset == cut.end:
            oldest.cut(0, cut.end)
        else:
            self._add_segment(cut.end, cut.now)
            oldest.remove()
            del self._segments[0], self._bases[0]
        self._epochs.clear()
        self.log_start_offset = self.recovery_point = cut.end

    def _drop_until(self, is_enough: Callable[[], bool]) -> None:
        """Drop last segments until `is_enough`. Errors: OSError; a segment that could not be removed stays in the log."""
        while not is_enough():
            self._active.remove()
            del self._segments[-1], self._bases[-1]
            self._active = self._segments[-1]

    def advance_log_start_offset(self, offset: Offset) -> bool:
        """Hide records below `offset` (DeleteRecords, or the leader's start on a follower); never moves back.

        The next `delete_old_segments` deletes their segments. Errors: OffsetOutOfRange past the log's end; StorageError.
        """
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        try:
            self._epochs.truncate_from_start(offset)
        except OSError as error:
            raise storage_error(self.folder, error) from error
        return True

    def delete_old_segments(self, now: TimestampMs, high_watermark: Offset) -> int:
        """Apply retention by time and size, and the log's start; returns the number of segments deleted.

        Only closed segments below the high watermark are deleted; the active one is closed first when it is due. The
        files are renamed now and removed by `tick` after file.delete.delay.ms. Errors: StorageError.
        """
        due = breaching_segments(
            self._segments, self.config, self.log_start_offset, self.log_end_offset, high_watermark, now
        )
        if due == 0:
            return 0
        try:
            self._resume()
            self.times_shortened += 1
            self.changed()
            if due == len(self._segments):
                self._roll(self.log_end_offset, now)
            for _ in range(due):
                # After a disk error the segment stays in the log: only a renamed one leaves it.
                segment = self._segments[0]
                segment.mark_deleted()
                del self._segments[0], self._bases[0]
                self.log_start_offset = max(self.log_start_offset, self._bases[0])
                self._folder_changed = True
                self._deleted.append((now + self.config.file_delete_delay_ms, segment))
                self._producers.remove_snapshot(segment.base_offset)
            self._epochs.truncate_from_start(self.log_start_offset)
        except OSError as error:
            raise storage_error(self.folder, error) from error
        return due

    # ---- compaction

    @property
    def closed_segments(self) -> Sequence[Segment]:
        """All but the active one, oldest first."""
        return self._segments[:-1]

    def new_cleaned_segment(self, base_offset: Offset, now: TimestampMs) -> Segment:
        """An empty segment for a compaction to write, not yet a part of the log. Errors: OSError.

        Files that an earlier compaction left are removed first: a start would treat them as parts of this one.
        """
        for name in self._disk.list_folder(self.folder):
            if name.endswith(CLEANED_SUFFIX):
                self._disk.remove(self.folder / name)
        segment = Segment(self._disk, self.folder, base_offset, now, CLEANED_SUFFIX)
        segment.clear_indexes(self.config.segment_index_bytes)
        return segment

    def replace_segments(self, originals: Sequence[Segment], cleaned: Segment, now: TimestampMs) -> None:
        """Replace adjacent segments, the first with the same base offset, by a complete and durable compacted one.

        Once the files end in `.swap` the swap counts, and is completed here or at the next start in any case.
        Errors: StorageError; the next upkeep completes a swap that counts.
        """
        try:
            self._resume()
            cleaned.rename(SWAP_SUFFIX)
            slot = self._segments.index(originals[0])
            self._segments[slot : slot + len(originals)] = [cleaned]
            self._bases[slot : slot + len(originals)] = [cleaned.base_offset]
            self.changed()
            self._swap = Swap(cleaned, originals, now + self.config.file_delete_delay_ms)
            self._finish_swap(self._swap)
        except OSError as error:
            raise storage_error(self.folder, error) from error

    def _finish_swap(self, swap: Swap) -> None:
        """Complete a swap that has begun. Errors: OSError; a later call completes it."""
        cleaned, originals, delete_at = swap
        # The replacement must be durable before the originals lose their names.
        self._disk.sync_folder(self.folder)
        for segment in originals:
            segment.mark_deleted()
        cleaned.rename("")
        self._disk.sync_folder(self.folder)
        self._swap = None
        self._deleted += [(delete_at, segment) for segment in originals]
        for segment in originals[1:]:
            self._producers.remove_snapshot(segment.base_offset)
