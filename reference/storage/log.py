"""One partition on disk: the log that replication, fetches and coordinators work on.

A log is a row of segments; only the last one grows. An append validates, gives offsets, writes and indexes, in this order:
whatever raises has changed nothing. Times come in as `now`; nothing here looks at a clock, sleeps or runs beside its caller.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import (
    NO_UUID,
    Buffer,
    Epoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TimestampMs,
)
from reference.protocol.records.batch import CONTROL, BatchHeader, assign, check_crc, read_batches, records_of
from reference.protocol.records.control import EndTransaction, read_end_transaction
from reference.protocol.records.validate import Origin, validate
from reference.storage.checkpoints import read_topic_id, write_topic_id
from reference.storage.config import DAY_MS, LogConfig
from reference.storage.disk import Disk, File
from reference.storage.epoch_cache import EpochCache
from reference.storage.errors import LogError, OffsetOutOfRange, StorageError
from reference.storage.producer_state import CachedBatch, ProducerState, marker_of
from reference.storage.recovery import load, replay
from reference.storage.retention import breaching_segments
from reference.storage.segment import MAX_RELATIVE_OFFSET, Segment
from reference.storage.transaction_index import AbortedTransaction

EXPIRY_CHECK_MS = 600_000
"""How often idle producers are looked for (producer.id.expiration.check.interval.ms)."""


class AppendInfo(NamedTuple):
    """What an append did; for a duplicate, what the first append of the same batch did."""

    first_offset: Offset
    last_offset: Offset
    max_timestamp: TimestampMs
    log_append_time: TimestampMs
    """The append's time in a topic with LogAppendTime, else -1 (as the produce response says it)."""
    log_start_offset: Offset
    size_bytes: int
    is_duplicate: bool = False


class LogSlice:
    """Batches in one segment's file: what a fetch answers with; the last one may be cut off.

    It stays readable after its segment was deleted: it pins the file until it is released or dropped.
    """

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File | None, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        """The descriptor for sendfile. Errors: OSError on a simulated disk."""
        return self._file().fileno()

    def read(self) -> bytes:
        """The bytes. Errors: OSError."""
        return self._file().read(self.position, self.size)

    def release(self) -> None:
        """Let go of the file."""
        self.file = None

    def _file(self) -> File:
        if self.file is None:
            raise ValueError("a slice that was released")
        return self.file


class ReadResult(NamedTuple):
    """What a read found: no bytes where there is nothing below the bound."""

    records: LogSlice | bytes


NOTHING = ReadResult(b"")


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch of its batch (-1 when unknown)."""

    timestamp: TimestampMs
    offset: Offset
    leader_epoch: Epoch


class EpochEndOffset(NamedTuple):
    """Answer of OffsetForLeaderEpoch: both -1 when the epoch is newer than any known, or none is known."""

    leader_epoch: Epoch
    end_offset: Offset


class ActiveProducer(NamedTuple):
    """One row of DescribeProducers."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: Sequence
    last_timestamp: TimestampMs
    coordinator_epoch: Epoch
    current_transaction_start_offset: Offset
    """-1 when no transaction is open."""


def _nothing() -> None:
    pass


class PendingFlush:
    """Closed segments that are to be made durable: `run` may take long and may run in another thread, `finish` may not."""

    def __init__(self, log: Log, segments: list[Segment], end: Offset) -> None:
        self._log = log
        self._segments = segments
        self._end = end

    def run(self) -> None:
        """Wait for the disk; touches nothing but files that no longer change. Errors: OSError."""
        for segment in self._segments:
            segment.flush()
        self._log.sync_folder()

    def finish(self, error: OSError | None = None) -> None:
        """Move the recovery point, unless the disk failed or the log was truncated meanwhile."""
        self._log.flushed(self, self._end, error)


def run_now(flush: PendingFlush) -> None:
    """Flush at once. Errors: OSError."""
    flush.run()
    flush.finish()


class Log:
    """One partition's log. Not for several threads. Slices and results stay valid whatever is done to the log later."""

    def __init__(
        self, disk: Disk, folder: Path, config: LogConfig, now: TimestampMs, *, topic: str, partition: int,
        topic_id: UUID | None = None, log_start: Offset = 0, recovery_point: Offset = 0, clean: bool = False,
        producer_expiration_ms: int = DAY_MS,
        expiry_check_ms: int = EXPIRY_CHECK_MS, checkpoint: Callable[[], None] = _nothing,
    ) -> None:  # fmt: skip
        """Open the log of a folder, making it if it is not there, recovering it unless its last end was `clean`.

        `log_start` and `recovery_point` are what the checkpoints say; `checkpoint` writes them when a truncation has
        moved the recovery point back.
        Errors: StorageError, CorruptFile.
        """
        self._disk = disk
        self.folder = folder
        self.config = config
        self.topic = topic
        self.partition = partition
        self.producer_expiration_ms = producer_expiration_ms
        self.expiry_check_ms = expiry_check_ms
        self._checkpoint = checkpoint
        try:
            if not disk.exists(folder):
                disk.make_folder(folder)
                disk.sync_folder(folder.parent)
            self.topic_id: UUID = self._identify(topic_id)
            self._epochs = EpochCache(disk, folder)
            self._producers = ProducerState(disk, folder)
            loaded = load(
                disk, folder, config, self._epochs, self._producers,
                log_start=log_start, recovery_point=recovery_point, clean=clean, now=now,
            )  # fmt: skip
        except OSError as error:
            raise _storage_error(folder, error) from error
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._active = self._segments[-1]
        self.log_start_offset: Offset = loaded.log_start
        self.log_end_offset: Offset = loaded.log_end
        self.recovery_point: Offset = loaded.log_end if clean else min(recovery_point, loaded.log_end)
        self.recovered_bytes = loaded.recovered_bytes
        self.lost_bytes = loaded.lost_bytes
        self._folder_changed = True
        self._deleted: list[tuple[TimestampMs, Segment]] = []
        self.run_flush: Callable[[PendingFlush], None] = run_now
        """Who waits for the disk when closed segments are flushed; the runtime lets a thread do it."""
        self._pending_flush: PendingFlush | None = None
        self._last_flush = now
        self._next_expiry = now + self.expiry_check_ms

    def _identify(self, topic_id: UUID | None) -> UUID:
        known = read_topic_id(self._disk, self.folder)
        if known is None and topic_id is not None:
            write_topic_id(self._disk, self.folder, topic_id)
        return known or topic_id or NO_UUID

    # ---- questions

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    @property
    def leader_epoch(self) -> Epoch:
        """Latest epoch that the log knows; -1 if there is none."""
        return self._epochs.latest

    def epoch_at(self, offset: Offset) -> Epoch:
        """The leader epoch of an offset; -1 when unknown."""
        return self._epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: Epoch) -> EpochEndOffset:
        """The largest known epoch up to this one, and the offset at which it ended (KIP-101)."""
        return EpochEndOffset(*self._epochs.end_offset_for(epoch, self.log_end_offset))

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The first offset of the oldest transaction that is not decided below the high watermark, else that."""
        if not self._producers.has_transactions:
            return high_watermark
        first = self._producers.first_unstable_offset(high_watermark)
        return high_watermark if first is None else min(first, high_watermark)

    def aborted_transactions(self, start: Offset, end: Offset) -> list[AbortedTransaction]:
        """Aborted transactions with a record in [start, end), in the order in which they were decided."""
        found: list[AbortedTransaction] = []
        for segment in self._segments[max(0, bisect_right(self._bases, start) - 1) :]:
            for aborted in segment.transaction_index.entries:
                if aborted.last_offset >= start and aborted.first_offset < end:
                    found.append(aborted)
                if aborted.last_stable_offset >= end:
                    return found
        return found

    def active_producers(self) -> list[ActiveProducer]:
        """The producers that the log knows."""
        return [
            ActiveProducer(
                producer_id, producer.epoch, producer.last_sequence, producer.last_timestamp,
                producer.coordinator_epoch, producer.transaction_start,
            )
            for producer_id, producer in self._producers.producers.items()
        ]  # fmt: skip

    # ---- appending

    def append_as_leader(
        self, records: Buffer, leader_epoch: Epoch, now: TimestampMs, origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> AppendInfo:  # fmt: skip
        """Validate one batch, give it the next offsets and write it. `records` is changed in place if it is writable.

        `transaction_version` is that of a marker's transaction (2 with KIP-890).
        Errors, each leaving the log as it was: RecordsError (code, message, record_errors), LogError
        (RECORD_LIST_TOO_LARGE), RefusedByProducerState (45, 47, 48 ...), StorageError (56).
        """
        config = self.config
        header, data, max_timestamp = validate(records, config.produce_rules, now, origin)
        if len(data) > config.segment_bytes:
            raise LogError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {len(data)} bytes in segments of {config.segment_bytes}"
            )
        marker = None
        if header.producer_id >= 0:
            if header.attributes & CONTROL:
                marker = read_end_transaction(next(records_of(data)))
                self._producers.check_marker(header, marker, transaction_version)
            elif origin is Origin.CLIENT and (known := self._producers.find_duplicate(header)) is not None:
                return self._repeated(known, len(data))
            else:
                self._producers.check_data(header, origin)
        first = self.log_end_offset
        last = first + header.last_offset_delta
        assign(data, first, leader_epoch)
        self._write(data, first, last, max_timestamp, leader_epoch, now)
        self._remember(header, marker, first, max_timestamp)
        append_time = now if config.produce_rules.log_append_time else -1
        return AppendInfo(first, last, max_timestamp, append_time, self.log_start_offset, len(data))

    def _repeated(self, known: CachedBatch, size: int) -> AppendInfo:
        return AppendInfo(
            known.first_offset, known.last_offset, known.timestamp, known.timestamp, self.log_start_offset, size,
            is_duplicate=True,
        )  # fmt: skip

    def append_as_follower(self, records: Buffer, now: TimestampMs) -> AppendInfo:
        """Write the batches that a leader sent, offsets and epochs as they are; a last one cut off is left out.

        Batches before one that raises stay written: each is a step of its own.
        Errors: RecordsError for corrupt bytes; LogError when offsets do not go on from the log's end; StorageError.
        """
        first, newest, size = self.log_end_offset, -1, 0
        for header, _, data in read_batches(records):
            check_crc(data, header)
            if header.base_offset < self.log_end_offset or header.last_offset_delta < 0:
                raise LogError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"offset {header.base_offset} was sent where the log ends at {self.log_end_offset}",
                )
            marker = marker_of(header, data)
            if size == 0:
                first = header.base_offset
            self._write(data, header.base_offset, header.last_offset, header.max_timestamp, header.leader_epoch, now)
            self._remember(header, marker, header.base_offset, header.max_timestamp)
            newest, size = max(newest, header.max_timestamp), size + len(data)
        return AppendInfo(first, self.log_end_offset - 1, newest, -1, self.log_start_offset, size)

    def _write(
        self, data: memoryview, first: Offset, last: Offset, max_timestamp: TimestampMs, epoch: Epoch, now: TimestampMs
    ) -> None:
        """Write a batch at the log's end, into a new segment if need be. Errors: StorageError, and nothing has changed."""
        config, active = self.config, self._active
        try:
            if active.file.size and (
                active.file.size + len(data) > config.segment_bytes or active.is_over(last, max_timestamp, now, config)
            ):
                too_far = last - self.log_end_offset > MAX_RELATIVE_OFFSET
                if too_far:
                    self.flush(now)  # recovery takes a gap between segments that were not flushed for a loss
                active = self._roll(first if too_far else self.log_end_offset, now)
            if epoch > self._epochs.latest or first < self._epochs.latest_start:
                self._epochs.assign(epoch, first)
            active.append(data, first, last, max_timestamp, config.index_interval_bytes)
        except OSError as error:
            raise _storage_error(self.folder, error) from error
        self.log_end_offset = last + 1
        if last + 1 - self.recovery_point >= config.flush_messages:
            self.flush(now)

    def _remember(
        self, header: BatchHeader, marker: EndTransaction | None, first: Offset, max_timestamp: TimestampMs
    ) -> None:
        """Take a written batch into the producers' state. Errors: StorageError, and the batch is gone again."""
        aborted = self._producers.append(header, marker, first, max_timestamp)
        if aborted is not None:
            try:
                self._active.transaction_index.append(aborted)
            except OSError as error:
                self.truncate_to(first)
                raise _storage_error(self.folder, error) from error

    def assign_epoch_start(self, epoch: Epoch, start_offset: Offset) -> None:
        """Record that an epoch begins here (a new leader does so at its log's end). Errors: StorageError."""
        try:
            self._epochs.assign(epoch, start_offset)
        except OSError as error:
            raise _storage_error(self.folder, error) from error

    # ---- reading

    def read(
        self, offset: Offset, max_bytes: int, max_offset: Offset | None = None, minimum_one_message: bool = True
    ) -> ReadResult:
        """Batches from the one that holds `offset`, of one segment, below `max_offset` (the log's end if None).

        At most `max_bytes`, which may cut off the last batch; but all of the first one when `minimum_one_message`, and
        nothing rather than a part of it otherwise.
        Errors: OffsetOutOfRange when `offset` is below the log's start or above its end; StorageError.
        """
        log_end = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end:
            raise OffsetOutOfRange(offset, self.log_start_offset, log_end)
        bound = log_end if max_offset is None or max_offset > log_end else max_offset
        if offset >= bound:
            return NOTHING
        segments = self._segments
        slot = len(segments) - 1 if offset >= self._active.base_offset else bisect_right(self._bases, offset) - 1
        try:
            found = segments[slot].find(offset)
            while found is None:
                # Compaction took the last records of the segment.
                slot += 1
                if slot == len(segments) or segments[slot].base_offset >= bound:
                    return NOTHING
                found = segments[slot].find(offset)
            end = segments[slot].file.size
            if bound < (self._bases[slot + 1] if slot + 1 < len(segments) else log_end):
                last = segments[slot].find(bound)
                end = last.position if last is not None else end
        except OSError as error:
            raise _storage_error(self.folder, error) from error
        size = min(end - found.position, max_bytes)
        if size < found.size:
            if not minimum_one_message or end <= found.position:
                return NOTHING
            size = found.size
        return ReadResult(LogSlice(segments[slot].file, found.position, size))

    def offset_for_timestamp(self, timestamp: TimestampMs) -> TimestampOffset | None:
        """The first record, by offset, whose timestamp is at least this. Errors: StorageError, RecordsError."""
        try:
            for segment in self._segments:
                if segment.max_timestamp >= timestamp:
                    found = segment.find_timestamp(timestamp, self.log_start_offset)
                    if found is not None:
                        return TimestampOffset(*found)
        except OSError as error:
            raise _storage_error(self.folder, error) from error
        return None

    def latest_timestamp(self) -> TimestampOffset | None:
        """The first record with the log's largest timestamp (ListOffsets -3). Errors: as for `offset_for_timestamp`."""
        newest = max(segment.max_timestamp for segment in self._segments)
        return self.offset_for_timestamp(newest) if newest >= 0 else None

    # ---- cutting

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
            raise _storage_error(self.folder, error) from error
        return True

    def truncate_fully_and_start_at(self, offset: Offset, now: TimestampMs = 0) -> None:
        """Drop everything and go on from `offset`. Errors: StorageError."""
        try:
            self._start_over_at(offset, now)
        except OSError as error:
            raise _storage_error(self.folder, error) from error

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
            raise _storage_error(self.folder, error) from error
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
            raise _storage_error(self.folder, error) from error
        return due

    # ---- upkeep

    def roll(self, now: TimestampMs) -> None:
        """Close the active segment, if it holds anything, and open the next. Errors: StorageError."""
        if self._active.file.size:
            try:
                self._roll(self.log_end_offset, now)
            except OSError as error:
                raise _storage_error(self.folder, error) from error

    def _roll(self, base: Offset, now: TimestampMs) -> Segment:
        """Close the active segment and open the next; where the disk does not let it, the old one goes on."""
        self._producers.end_offset = self.log_end_offset
        self._producers.take_snapshot()
        previous = self._active
        previous.close()
        if self.recovery_point >= self.log_end_offset:
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
        self._segments.append(segment)
        self._bases.append(base)
        self._active = segment
        return segment

    def flush(self, now: TimestampMs | None = None) -> None:
        """Make everything durable; the recovery point becomes the log's end. Errors: StorageError."""
        self._flush_segments(self._segments, self.log_end_offset)
        if now is not None:
            self._last_flush = now

    def _flush_segments(self, segments: list[Segment], end: Offset) -> None:
        if self.recovery_point >= end:
            return
        try:
            for segment in segments[max(0, bisect_right(self._bases, self.recovery_point) - 1) :]:
                segment.flush()
            if self._folder_changed:
                self._disk.sync_folder(self.folder)
                self._folder_changed = False
        except OSError as error:
            raise _storage_error(self.folder, error) from error
        self.recovery_point = end

    def _flush_closed(self) -> None:
        first = max(0, bisect_right(self._bases, self.recovery_point) - 1)
        flush = PendingFlush(self, self._segments[first:-1], self._active.base_offset)
        self._pending_flush = flush
        try:
            self.run_flush(flush)
        except OSError as error:
            self._pending_flush = None
            raise _storage_error(self.folder, error) from error

    def flushed(self, flush: PendingFlush, end: Offset, error: OSError | None) -> None:
        """What a pending flush reports: everything below `end` is durable, or the disk failed."""
        if self._pending_flush is flush:
            self._pending_flush = None
            if error is None:
                self.recovery_point = max(self.recovery_point, end)

    def sync_folder(self) -> None:
        """Make the files' names durable. Errors: OSError."""
        self._disk.sync_folder(self.folder)

    def tick(self, now: TimestampMs) -> None:
        """What time brings: flush by flush.ms and of closed segments, removal of deleted files, expiry of producers.

        Errors: StorageError.
        """
        if now - self._last_flush >= self.config.flush_ms:
            self.flush(now)
        elif self.recovery_point < self._active.base_offset and self._pending_flush is None:
            self._flush_closed()
        while self._deleted and self._deleted[0][0] <= now:
            try:
                self._deleted[0][1].remove_deleted()
            except OSError as error:
                raise _storage_error(self.folder, error) from error
            del self._deleted[0]
        if now >= self._next_expiry:
            self._producers.expire(now, self.producer_expiration_ms)
            self._next_expiry = now + self.expiry_check_ms

    def next_deadline(self) -> TimestampMs:
        """When `tick` has something to do next."""
        deadline = self._next_expiry
        if self.recovery_point < self.log_end_offset:
            deadline = min(deadline, self._last_flush + self.config.flush_ms)
            if self.recovery_point < self._active.base_offset and self._pending_flush is None:
                return 0
        return min(deadline, self._deleted[0][0]) if self._deleted else deadline

    def close(self) -> None:
        """A clean end: everything durable, the producers' state written, the indexes trimmed. Errors: StorageError."""
        try:
            self._producers.end_offset = self.log_end_offset
            self._producers.take_snapshot()
            self._active.close()
            self._active.flush()
            self._flush_segments(self._segments, self.log_end_offset)
            for _, segment in self._deleted:
                segment.remove_deleted()
        except OSError as error:
            raise _storage_error(self.folder, error) from error
        self._deleted = []


def _storage_error(folder: Path, error: OSError) -> StorageError:
    return StorageError(f"{folder.name}: {error.strerror or error}")
