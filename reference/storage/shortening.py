"""What makes a log shorter: truncation, its start's advance, retention, and the swap that ends a compaction."""

from __future__ import annotations

from reference.protocol.primitives import Offset, TimestampMs
from reference.storage.errors import OffsetOutOfRange
from reference.storage.recovery import replay
from reference.storage.retention import breaching_segments
from reference.storage.segment_row import SegmentRow, storage_error


class Shortening(SegmentRow):
    """The steps after which a log holds less."""

    def truncate_to(self, offset: Offset, now: TimestampMs = 0) -> bool:
        """Drop everything from `offset` on, durably; False when there is nothing to drop. Errors: StorageError."""
        try:
            if offset >= self.log_end_offset:
                # A leader that appended nothing may have left its epoch here.
                self._epochs.truncate_from_end(self.log_end_offset)
                return False
            if offset < self._bases[0]:
                self._start_over_at(offset, now)
                return True
            self._lower_checkpoints(offset)
            while self._active.base_offset > offset:
                self._drop_active()
            end = self._active.truncate_to(offset)
            self._active.activate(self.config.segment_index_bytes)
            self._active.flush()
            self._end_at(end)
        except OSError as error:
            raise storage_error(self.folder, error) from error
        return True

    def truncate_fully_and_start_at(self, offset: Offset, now: TimestampMs = 0) -> None:
        """Drop everything and go on from `offset`. Errors: StorageError."""
        try:
            self._start_over_at(offset, now)
        except OSError as error:
            raise storage_error(self.folder, error) from error

    def _start_over_at(self, offset: Offset, now: TimestampMs) -> None:
        self._lower_checkpoints(offset)
        while self._segments:
            self._drop_active()
        self._add_segment(offset, now)
        self._epochs.clear()
        for stale in self._producers.snapshot_offsets():
            self._producers.remove_snapshot(stale)
        self.log_start_offset = offset
        self._producers.clear(offset)
        self._end_at(offset)
        self.recovery_point = offset

    def _lower_checkpoints(self, offset: Offset) -> None:
        """Before the log shrinks: what will be written again must be scanned after a crash, and not lie before its start."""
        self._pending_flush = None
        if offset < self.recovery_point or offset < self.log_start_offset:
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self._checkpoint()

    def _drop_active(self) -> None:
        segment = self._segments.pop()
        self._bases.pop()
        segment.remove()
        if self._segments:
            self._active = self._segments[-1]

    def _end_at(self, end: Offset) -> None:
        """Bring everything else to the log's new end."""
        self.log_end_offset = end
        self._lower_checkpoints(end)
        self._epochs.truncate_from_end(end)
        for offset in self._producers.snapshot_offsets():
            if offset > end:
                self._producers.remove_snapshot(offset)
        self._producers.load(self.log_start_offset, end)
        replay(self._producers, self._segments, end)
        self._disk.sync_folder(self.folder)
        self._folder_changed = False

    def advance_log_start_offset(self, offset: Offset) -> bool:
        """Hide records below `offset` (DeleteRecords, or the leader's start on a follower); never moves back.

        Their segments go with the next `delete_old_segments`. Errors: OffsetOutOfRange past the log's end; StorageError.
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
        """Apply retention by time and size, and the log's start; gives the number of segments deleted.

        Only closed segments below the high watermark go; the active one is closed first when all of it is due. The
        files are renamed now and removed by `tick` after file.delete.delay.ms. Errors: StorageError.
        """
        due = breaching_segments(self._segments, self.config, self.log_start_offset, self.log_end_offset,
                                 high_watermark, now)  # fmt: skip
        if due == 0:
            return 0
        try:
            if due == len(self._segments):
                self._roll(self.log_end_offset, now)
            for _ in range(due):
                # A disk that refuses leaves the segment in the log: only what is renamed is gone.
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
