"""The metadata log of one member: a log, and snapshots that replace its beginning.

A record is identified by its offset and epoch; two histories with one record in common are equal up to it. A history's *end*
is its last record's epoch and the offset after it; ends compare by epoch first. Each fetch has the follower's end, and
`compare` decides the leader's response: records, the point of divergence, or a snapshot.
Source: KIP-595, KIP-630; org.apache.kafka.raft.ReplicatedLog, KafkaMetadataLog.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from reference.controller.metadata_log import MetadataLog
from reference.controller.quorum_rules import truncation_offset
from reference.controller.quorum_snapshots import BOOTSTRAP, SnapshotId, SnapshotReceipt, Snapshots
from reference.controller.quorum_voters import VOTER_RECORDS, Entry, VoterHistory, VoterSet, voter_records
from reference.protocol.codec import CodecError, decode
from reference.protocol.primitives import (
    FIRST_EPOCH,
    FIRST_OFFSET,
    NO_EPOCH,
    NO_OFFSET,
    Buffer,
    LeaderEpoch,
    NodeId,
    Offset,
    TimestampMs,
)
from reference.protocol.records.batch import Batch, header_at, read_batches, records_of
from reference.protocol.records.control import ControlType, control_type
from reference.protocol.records.record import Record
from reference.protocol.schema import Message
from reference.storage.disk import Disk
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.log import Log, LogSlice

CLEANING_INTERVAL_MS = 60_000
"""The interval between cleanings of old snapshots and segments (org.apache.kafka.raft.KafkaRaftClient,
RaftMetadataLogCleaner)."""


class Verdict(Enum):
    """The kind of response to a follower with some end: records, a diverging epoch, or a snapshot."""

    IN_LINE = "in line"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class Comparison(NamedTuple):
    """A verdict, with the largest epoch not above the follower's and its end, or the id of the snapshot to fetch."""

    verdict: Verdict
    epoch: LeaderEpoch = NO_EPOCH
    end_offset: Offset = NO_OFFSET


IN_LINE = Comparison(Verdict.IN_LINE)


class QuorumLog:
    """One member's copy of the history. All of it is durable, except an observer's."""

    def __init__(self, disk: Disk, log: Log, now: TimestampMs, configured: Sequence[NodeId] = ()) -> None:
        """Open log and snapshots, and repair their differences after a crash.

        `configured` are the voters of the configuration.
        Errors: StorageError; CorruptFile if no snapshot covers the records before the log's start.
        """
        self.log = log
        self.is_broken = False
        """Whether the disk failed within a truncation: then only a restart can recover the log."""
        self._records = MetadataLog(log)
        self.snapshots = Snapshots(disk, log.folder, log.log_start_offset)
        latest = self.snapshots.latest
        if latest is not None and latest > (self.last_epoch, self.end):
            # A crash came between the arrival of a snapshot and the restart of the log at its end.
            log.truncate_fully_and_start_at(latest.end_offset, now)
        self._take_up_start()
        # After a crash of the process alone, records may never have been flushed: a voter must flush them before it counts
        # them.
        log.flush()
        self.history = VoterHistory(configured)
        self._load_voters()
        self._next_cleaning = now + CLEANING_INTERVAL_MS

    def _load_voters(self) -> None:
        """Read the voters: from the latest snapshot, then from the log after it. Errors: CorruptFile, StorageError."""
        self.history.clear()
        latest = self.snapshots.latest
        if latest is not None:
            for record in self.snapshots.control_records(latest):
                self._take_control(Offset(latest.end_offset - 1), record)
        for offset, record in self._records.control_records(self.known_committed):
            self._take_control(offset, record)

    def _take_control(self, offset: Offset, record: Record) -> None:
        """Replay a control record of the log, or of the snapshot before it. Errors: CorruptFile."""
        form = VOTER_RECORDS.get(control_type(record))
        if form is not None:
            try:
                self.history.take(offset, decode(form, 0, record.value or b""))
            except (CodecError, ValueError) as error:
                raise CorruptFile(f"{self.log.folder}: no voters at offset {offset}: {error}") from error

    def _take_up_start(self) -> None:
        """Start the log at the end of a snapshot, unless it starts at offset 0.

        After a power loss deleted segments may exist again, but not the epochs of their records: those are lost.
        """
        for id in self.snapshots.ids:
            if self._start_is_sound():
                break
            if self.start < id.end_offset <= self.end:
                self.log.advance_log_start_offset(id.end_offset)
        self.snapshots.forget_below(self.start)
        earliest = self.snapshots.earliest
        if self.start > 0 and earliest is None:
            raise CorruptFile(f"{self.log.folder}: the log begins at {self.start}, and no snapshot reaches there")

    def _start_is_sound(self) -> bool:
        """Whether a snapshot covers all records before the log's start, and the epoch there is known."""
        replaced = self.start == 0 or any(id.end_offset == self.start for id in self.snapshots.ids)
        return replaced and (self.start == self.end or self.log.epoch_at(self.start) >= 0)

    # ---- questions

    @property
    def start(self) -> Offset:
        return self.log.log_start_offset

    @property
    def end(self) -> Offset:
        return self.log.log_end_offset

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last record, in the log or in the snapshot before it; 0 if there is none."""
        known = self.log.epoch_at(self.end - 1) if self.end > self.start else NO_EPOCH
        if known >= 0:
            return known
        latest = self.snapshots.latest
        return latest.epoch if latest is not None and latest.end_offset == self.end else FIRST_EPOCH

    @property
    def durable_end(self) -> Offset:
        """The offset up to which records survive a power loss."""
        return min(self.end, self.log.recovery_point)

    @property
    def known_committed(self) -> Offset:
        """The high watermark after a start: the end of the newest snapshot."""
        latest = self.snapshots.latest
        return max(self.start, latest.end_offset if latest is not None else FIRST_OFFSET)

    def epoch_end(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch not above this one, and its end offset; the log end if all its epochs are lower."""
        found = self.log.end_offset_for_epoch(epoch)
        if found.end_offset < 0:
            return self.last_epoch, self.end
        earliest = self.snapshots.earliest
        if earliest is not None and found.end_offset == earliest.end_offset and found.leader_epoch == epoch:
            # The epoch is older than the log, and only the snapshot has its records.
            return earliest.epoch, earliest.end_offset
        return found.leader_epoch, found.end_offset

    def compare(self, offset: Offset, epoch: LeaderEpoch) -> Comparison:
        """The response to a follower whose log ends at `offset` with a record of `epoch`."""
        latest, earliest = self.snapshots.latest, self.snapshots.earliest
        if latest is not None and offset == 0 and latest != BOOTSTRAP:
            return Comparison(Verdict.SNAPSHOT, *latest)
        if offset == 0 and self.start == 0:
            return IN_LINE
        if (
            latest is not None
            and earliest is not None
            and (offset < self.start or (offset == self.start and epoch != earliest.epoch) or epoch < earliest.epoch)
        ):
            return Comparison(Verdict.SNAPSHOT, *latest)
        own_epoch, own_end = self.epoch_end(epoch)
        if own_epoch != epoch or own_end < offset:
            return Comparison(Verdict.DIVERGING, own_epoch, own_end)
        return IN_LINE

    def read(self, offset: Offset, max_bytes: int) -> bytes:
        """Batches from an offset on, copied to memory: a later truncation of the file must not change a response in flight.

        Errors: StorageError.
        """
        found = self.log.read(offset, max_bytes).records
        if isinstance(found, bytes):
            return found
        return _taken(found)

    def records(self, start: Offset, end: Offset) -> Iterator[tuple[Offset, Message]]:
        """The metadata records from `start` up to `end`. Errors: as for `MetadataLog.replay`."""
        return self._records.replay(start, end)

    # ---- growing

    def begin_epoch(
        self,
        epoch: LeaderEpoch,
        leader: NodeId,
        voters: Sequence[NodeId],
        granting: Sequence[NodeId],
        now: TimestampMs,
        more: Sequence[tuple[ControlType, Message]] = (),
    ) -> None:
        """Append the first record of a leader's epoch, durably. Errors: StorageError."""
        start = self.end
        with self._whole_or_broken(start):
            self._records.begin_epoch(epoch, leader, voters, now, granting, more)
        self._take_appended(start + 1, more)

    def append_voters(self, voters: VoterSet, epoch: LeaderEpoch, now: TimestampMs, level: int | None = None) -> Offset:
        """Append a voter set as the leader, durably; it is in force at once. Return its offset. Errors: StorageError.

        `level` is a new kraft.version for the same batch.
        """
        if level is None:
            records = [(ControlType.KRAFT_VOTERS, voters.record())]
        else:
            records = voter_records(Entry(self.end, voters, level))
        with self._whole_or_broken(self.end):
            offset = self._records.append_control(records, epoch, now)
        self._take_appended(offset, records)
        return offset

    def _take_appended(self, offset: Offset, records: Sequence[tuple[ControlType, Message]]) -> None:
        for index, (_, record) in enumerate(records):
            self.history.take(Offset(offset + index), record)

    def append(self, records: Sequence[Message], epoch: LeaderEpoch, now: TimestampMs, level: int) -> Offset:
        """Append records as the leader, durably; return the offset of the first. Errors: StorageError, RecordsError."""
        with self._whole_or_broken(self.end):
            return self._records.append(records, epoch, now, level)

    def append_fetched(self, data: Buffer, epoch: LeaderEpoch, now: TimestampMs, *, durably: bool) -> None:
        """Append batches of a leader's response; skip batches of a newer epoch, which that epoch's leader will send.

        Errors: RecordsError, LogError (including StorageError): batches before the bad one are kept.
        """
        sound = 0
        control: list[Batch] = []
        for batch in read_batches(data):
            if batch.header.leader_epoch > epoch:
                break
            sound = batch.position + len(batch.data)
            if batch.header.is_control:
                control.append(batch)
        try:
            self.log.append_as_follower(memoryview(data)[:sound], now)
        finally:
            self._forget_unwritten_epoch()
            self._take_fetched(control)
        if durably:
            self.log.flush()

    def _take_fetched(self, control: Sequence[Batch]) -> None:
        """Take the voters from the control batches that were appended; the log has checked them."""
        for batch in control:
            if batch.header.next_offset <= self.end:
                for record in records_of(batch.data):
                    self._take_control(record.offset, record)

    def _forget_unwritten_epoch(self) -> None:
        """Drop the start of an epoch whose first batch could not be written."""
        self.log.truncate_to(self.end)

    # ---- cutting

    def truncation_offset(self, epoch: LeaderEpoch, end_offset: Offset) -> Offset:
        """The offset at which to truncate, if the leader's largest epoch not above this log's is `epoch` and ended at
        `end_offset`."""
        own_epoch, own_end = self.epoch_end(epoch)
        return truncation_offset(epoch, end_offset, own_epoch, own_end) if epoch > 0 else min(end_offset, self.end)

    def truncate(self, offset: Offset, now: TimestampMs) -> None:
        """Truncate the log to an offset, durably. Errors: StorageError."""
        with self._whole_or_broken():
            self.log.truncate_to(offset, now)
        self.history.truncate(self.end)

    @contextmanager
    def _whole_or_broken(self, end: Offset | None = None) -> Generator[None]:
        """A block whose failure leaves the log broken, unless the log end is unchanged (`end`)."""
        try:
            yield
        except StorageError:
            self.is_broken = self.is_broken or end is None or self.end != end
            raise

    # ---- snapshots

    def write_snapshot(
        self, end_offset: Offset, records: Iterable[Message], now: TimestampMs, level: int
    ) -> SnapshotId | None:
        """Write a snapshot of the log below an offset; None if one exists, or if it would replace nothing.

        Errors: ValueError for an offset within a batch or above the log end; StorageError.
        """
        if not 0 <= end_offset <= self.end:
            raise ValueError(f"a snapshot up to {end_offset} of a log that ends at {self.end}")
        latest = self.snapshots.latest
        if end_offset <= self.start or (latest is not None and end_offset <= latest.end_offset):
            return None
        if end_offset < self.end and header_at(self.read(end_offset, 0), 0).base_offset != end_offset:
            raise ValueError(f"a snapshot up to {end_offset}, which is inside of a batch")
        id = SnapshotId(self.log.epoch_at(end_offset - 1), end_offset)
        last_timestamp = header_at(self.read(end_offset - 1, 0), 0).max_timestamp
        entry = self.history.at(Offset(end_offset - 1))
        self.snapshots.write(id, records, (last_timestamp, now), level, voter_records(entry))
        return id

    def install(self, receipt: SnapshotReceipt, now: TimestampMs) -> None:
        """Restart the log at the end of a snapshot that the leader sent.

        Errors: CorruptFile if it is damaged; ValueError if the log ends later; StorageError.
        """
        receipt.check()
        if receipt.id <= (self.last_epoch, self.end):
            raise ValueError(f"snapshot {receipt.id.file_name} ends before the log does, at {self.end}")
        self.snapshots.take(receipt)
        with self._whole_or_broken():
            self.log.truncate_fully_and_start_at(receipt.id.end_offset, now)
        self.snapshots.forget_below(receipt.id.end_offset)
        self._load_voters()

    def clean(self, now: TimestampMs, high_watermark: Offset, retention_bytes: int, retention_ms: int) -> None:
        """Remove the oldest snapshots above the retention limits, and the log up to the next one; the newest is kept.

        Errors: StorageError, CorruptFile.
        """
        self._next_cleaning = now + CLEANING_INTERVAL_MS
        ids = list(self.snapshots.ids)
        snapshot_bytes = sum(self.snapshots.size_bytes(id) for id in ids) if retention_bytes >= 0 else 0
        for oldest, following in pairwise(ids):
            too_much = 0 <= retention_bytes < self.log.size_bytes + snapshot_bytes
            too_old = 0 <= retention_ms < now - self.snapshots.last_contained_timestamp(oldest)
            if not (too_much or too_old):
                return
            snapshot_bytes -= self.snapshots.size_bytes(oldest) if retention_bytes >= 0 else 0
            self.log.advance_log_start_offset(following.end_offset)
            self.log.delete_old_segments(now, high_watermark)
            self.snapshots.forget_below(following.end_offset)
            self.history.forget_before(Offset(following.end_offset - 1))

    @property
    def next_cleaning(self) -> TimestampMs:
        """The time at which `clean` is due."""
        return self._next_cleaning


def _taken(slice_: LogSlice) -> bytes:
    try:
        return slice_.read()
    except OSError as error:
        raise StorageError(f"__cluster_metadata-0: {error.strerror or error}") from error
    finally:
        slice_.release()
