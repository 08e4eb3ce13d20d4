"""One partition on disk: the log that replication, fetches and coordinators work on.

A log is a list of segments; only the last one grows. An append validates, assigns offsets, writes and indexes, in this order:
a step that raises has changed nothing. The caller passes the time as `now`; no function reads a clock, sleeps or starts a
thread.
"""

from __future__ import annotations

from bisect import bisect_right

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import (
    NEVER,
    NO_TIMESTAMP,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TimestampMs,
)
from reference.protocol.records.batch import (
    CONTROL,
    TRANSACTIONAL,
    assign,
    check_crc,
    read_batches,
    records_of,
)
from reference.protocol.records.control import read_end_transaction
from reference.protocol.records.validate import Origin, validate
from reference.storage.answers import (
    NOTHING,
    ActiveProducer,
    AppendInfo,
    EpochEndOffset,
    LastWritten,
    LogSlice,
    ReadResult,
    TimestampOffset,
)
from reference.storage.errors import LogError, OffsetOutOfRange
from reference.storage.flushing import PendingFlush, run_now
from reference.storage.last_stable import last_stable_offset
from reference.storage.producer_state import CachedBatch, marker_of
from reference.storage.segment import MAX_RELATIVE_OFFSET
from reference.storage.segment_list import LogIdentity, ProducerExpiry, storage_error
from reference.storage.shortening import Shortening
from reference.storage.transaction_index import AbortedTransaction
from reference.storage.verification import NOT_REQUIRED, Guard

__all__ = [
    "AbortedTransaction",
    "ActiveProducer",
    "AppendInfo",
    "EpochEndOffset",
    "Log",
    "LogIdentity",
    "LogSlice",
    "PendingFlush",
    "ProducerExpiry",
    "ReadResult",
    "TimestampOffset",
    "run_now",
]


class Log(Shortening):
    """One partition's log. Not thread-safe. Slices and results stay valid after later changes to the log."""

    # ---- questions

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Latest epoch that the log knows; -1 if there is none."""
        return self._epochs.latest

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch of an offset; -1 when unknown."""
        return self._epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochEndOffset:
        """The largest known epoch up to this one, and the offset at which it ended (KIP-101)."""
        return EpochEndOffset(*self._epochs.end_offset_for(epoch, self.log_end_offset))

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The first offset of the oldest transaction that is not decided below the high watermark, else the latter.

        No lower than the log's start: deleted records of a transaction do not hold it back.
        """
        if not self._producers.has_transactions:
            return high_watermark
        first = self._producers.first_unstable_offset(high_watermark)
        return last_stable_offset(first, min(self.log_start_offset, high_watermark), high_watermark)

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
                producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
            for producer_id, producer in self._producers.producers.items()
        ]

    @property
    def last_written(self) -> dict[ProducerId, LastWritten]:
        """The last batch of each producer that the log knows."""
        return {
            producer_id: LastWritten(producer.batches[-1].last_offset if producer.batches else None, producer.epoch)
            for producer_id, producer in self._producers.producers.items()
        }

    # ---- appending

    def begin_verification(
        self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: Sequence, adds_partition: bool, now: TimestampMs
    ) -> Guard | None:
        """The guard that the append of a transaction's first batch needs (KIP-890); None where it needs none.

        Errors: RefusedByProducerState INVALID_PRODUCER_EPOCH.
        """
        return self._producers.begin_verification(producer_id, epoch, sequence, adds_partition, now)

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: LeaderEpoch,
        now: TimestampMs,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        guard: Guard | None = NOT_REQUIRED,
    ) -> AppendInfo:
        """Validate one batch, assign it the next offsets and write it. `records` is changed in place if it is writable.

        `transaction_version` is that of a marker's transaction (2 with KIP-890); `guard` is the result of
        `begin_verification` for a batch that may open a transaction.
        Errors, each leaving the log as it was: RecordsError (code, message, record_errors), LogError
        (RECORD_LIST_TOO_LARGE), RefusedByProducerState (45, 47, 48 ...), StorageError (56). One exception: where the flush
        of flush.messages fails, StorageError is raised although the batch is in the log.
        """
        self.resume()
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
                # A coordinator that was replaced may still send its markers: those of an older coordinator epoch are fenced.
                self._producers.check_marker(header, marker, transaction_version)
            elif origin is Origin.CLIENT and (known := self._producers.find_duplicate(header)) is not None:
                self._flush_when_due(now)
                return self._repeated(known, len(data))
            else:
                if header.attributes & TRANSACTIONAL:
                    self._producers.check_opening(header, guard)
                self._producers.check_data(header, origin)
        first = self.log_end_offset
        last = first + header.last_offset_delta
        assign(data, first, leader_epoch)
        aborted = self._producers.aborted_by(header, marker, first) if marker is not None else None
        self._write(data, first, last, max_timestamp, leader_epoch, now, aborted)
        self._producers.append(header, marker, first, max_timestamp)
        self._flush_when_due(now)
        append_time = now if config.produce_rules.log_append_time else NO_TIMESTAMP
        return AppendInfo(first, last, max_timestamp, append_time, self.log_start_offset, len(data))

    def _repeated(self, known: CachedBatch, size: int) -> AppendInfo:
        return AppendInfo(
            known.first_offset,
            known.last_offset,
            known.timestamp,
            known.timestamp,
            self.log_start_offset,
            size,
            is_duplicate=True,
        )

    def append_as_follower(
        self, records: Buffer, now: TimestampMs, leader_epoch: LeaderEpoch | None = None
    ) -> AppendInfo:
        """Write the batches that a leader sent, with their offsets and epochs; ignore a last batch that is cut off.

        It stops at the first batch of a newer epoch than `leader_epoch`: a slow sender that has lost its leadership may read
        such batches from its log after truncation (KAFKA-18723). Batches before one that raises stay written.
        Errors: RecordsError for corrupt bytes; LogError when offsets do not continue at the log's end; StorageError.
        """
        self.resume()
        first, newest, size = self.log_end_offset, NO_TIMESTAMP, 0
        for header, _, data in read_batches(records):
            check_crc(data, header)
            if leader_epoch is not None and header.leader_epoch > leader_epoch:
                break
            if header.base_offset < self.log_end_offset or header.last_offset_delta < 0:
                raise LogError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"offset {header.base_offset} was sent where the log ends at {self.log_end_offset}",
                )
            marker = marker_of(header, data) if header.attributes & CONTROL else None
            if size == 0:
                first = header.base_offset
            base = header.base_offset
            aborted = self._producers.aborted_by(header, marker, base) if marker is not None else None
            self._write(data, base, header.last_offset, header.max_timestamp, header.leader_epoch, now, aborted)
            self._producers.append(header, marker, base, header.max_timestamp)
            self._flush_when_due(now)
            newest, size = max(newest, header.max_timestamp), size + len(data)
        return AppendInfo(first, self.log_end_offset - 1, newest, NO_TIMESTAMP, self.log_start_offset, size)

    def _write(
        self,
        data: memoryview,
        first: Offset,
        last: Offset,
        max_timestamp: TimestampMs,
        epoch: LeaderEpoch,
        now: TimestampMs,
        aborted: AbortedTransaction | None,
    ) -> None:
        """Write a batch at the log's end, into a new segment if need be. Errors: StorageError, and nothing has changed.

        The aborted transaction is indexed first: on a full disk an index entry can be taken back, a marker in the log cannot.
        """
        config, active = self.config, self._active
        try:
            if not active.has_place_for(last) or (
                active.file.size
                and (active.file.size + len(data) > config.segment_bytes or active.is_over(max_timestamp, now, config))
            ):
                too_far = last - self._stored_end > MAX_RELATIVE_OFFSET
                if too_far:  # recovery takes no such gap for a loss, since what is before it is durable
                    self.flush(now)
                active = self._roll(first if too_far else self._stored_end, now)
            # The epoch's start before its first record: truncation goes by it (KIP-101). It is in memory first, and in the file
            # when the record is flushed; after a crash recovery finds it in the batch.
            if epoch > self._epochs.latest or first < self._epochs.latest_start:
                self._epochs.assign(epoch, first)
            if aborted is not None:
                active.transaction_index.append(aborted)
            try:
                active.append(data, first, last, max_timestamp, config.index_interval_bytes)
            except OSError:
                active.transaction_index.truncate_to(first)
                raise
        except OSError as error:
            raise storage_error(self.folder, error) from error
        self.log_end_offset, self._gap_begins = last + 1, None
        if config.flush_ms < NEVER:
            self.changed()

    def assign_epoch_start(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Record that an epoch begins here (a new leader does so at its log's end). Errors: StorageError."""
        try:
            self._epochs.assign(epoch, start_offset)
        except OSError as error:
            raise storage_error(self.folder, error) from error

    def take_epochs(self, other: Log) -> None:
        """Copy the epochs that began at the end of the original log and appended nothing. Errors: StorageError."""
        for epoch, start in other._epochs.entries:
            if epoch > self.leader_epoch:
                self.assign_epoch_start(epoch, start)

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
            if bound < (self._bases[slot + 1] if slot + 1 < len(segments) else log_end) or self._cut is not None:
                last = segments[slot].find(bound)
                end = last.position if last is not None else end
            size = min(end - found.position, max_bytes)
            if size < found.size:
                if not minimum_one_message or end <= found.position:
                    return NOTHING
                size = found.size
            return ReadResult(LogSlice(segments[slot].file.opened(), found.position, size))
        except OSError as error:
            raise storage_error(self.folder, error) from error

    def offset_for_timestamp(self, timestamp: TimestampMs) -> TimestampOffset | None:
        """The first record, by offset, whose timestamp is at least this. Errors: StorageError, RecordsError."""
        try:
            for segment in self._segments:
                if segment.max_timestamp >= timestamp:
                    found = segment.find_timestamp(timestamp, self.log_start_offset)
                    if found is not None:
                        return TimestampOffset(*found)
        except OSError as error:
            raise storage_error(self.folder, error) from error
        return None

    def latest_timestamp(self) -> TimestampOffset | None:
        """The first record with the log's largest timestamp (ListOffsets -3). Errors: as for `offset_for_timestamp`."""
        newest = max(segment.max_timestamp for segment in self._segments)
        return self.offset_for_timestamp(newest) if newest >= 0 else None
