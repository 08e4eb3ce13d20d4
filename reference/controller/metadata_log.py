"""The cluster's metadata log: records of `__cluster_metadata`, which the active controller appends and every node replays.

With one voter every flushed record is committed. The records of a decision are one batch, so that they commit together.
Source: KIP-500, KIP-595, KIP-631.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reference.controller.metadata_records import NEWEST_LEVEL, decode_metadata_record, encode_metadata_record
from reference.protocol.codec import CodecError, encode
from reference.protocol.messages.leader_change_message import LeaderChangeMessage
from reference.protocol.primitives import LeaderEpoch, NodeId, Offset, TimestampMs
from reference.protocol.records.batch import Batch, build, check_crc, read_batches, records_of
from reference.protocol.records.control import ControlType, control_key
from reference.protocol.records.errors import CorruptBatch, RecordsError
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.protocol.schema import Message
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.log import AppendInfo, Log

MAX_RECORDS_IN_BATCH = 10_000
READ_BYTES = 1 << 20


class MetadataLog:
    """The one partition of `__cluster_metadata` on this node."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def begin_epoch(
        self,
        epoch: LeaderEpoch,
        leader: NodeId,
        voters: Sequence[NodeId],
        now: TimestampMs,
        granting: Sequence[NodeId] | None = None,
        more: Sequence[tuple[ControlType, Message]] = (),
    ) -> None:
        """Append the first record of a leader's epoch: the leader, and the voters that elected it (all if None; KIP-595).

        `more` has control records for the same batch. Errors: StorageError; then nothing was appended.
        """
        message = LeaderChangeMessage(
            leader_id=leader,
            voters=[LeaderChangeMessage.Voter(voter_id=voter) for voter in voters],
            granting_voters=[
                LeaderChangeMessage.Voter(voter_id=voter) for voter in (voters if granting is None else granting)
            ],
        )
        self.append_control([(ControlType.LEADER_CHANGE, message), *more], epoch, now)

    def append_control(
        self, records: Sequence[tuple[ControlType, Message]], epoch: LeaderEpoch, now: TimestampMs
    ) -> Offset:
        """Append control records durably, in one batch; return the offset of the first. Errors: StorageError."""
        batch = build(
            [
                Record(Offset(index), now, control_key(kind), encode(message, 0))
                for index, (kind, message) in enumerate(records)
            ],
            control=True,
        )
        return self._append_durably(batch, epoch, now).first_offset

    def append(
        self, records: Sequence[Message], epoch: LeaderEpoch, now: TimestampMs, level: int = NEWEST_LEVEL
    ) -> Offset:
        """Append records durably, for nodes at a level of metadata.version; return the offset of the first.

        Errors: StorageError; then nothing was appended. The caller must not pass more than MAX_RECORDS_IN_BATCH.
        """
        assert 0 < len(records) <= MAX_RECORDS_IN_BATCH
        batch = build(
            [
                Record(Offset(index), now, None, encode_metadata_record(each, level))
                for index, each in enumerate(records)
            ]
        )
        return self._append_durably(batch, epoch, now).first_offset

    def _append_durably(self, batch: bytearray, epoch: LeaderEpoch, now: TimestampMs) -> AppendInfo:
        end = self.log.log_end_offset
        try:
            info = self.log.append_as_leader(batch, epoch, now, Origin.RAFT_LEADER)
            self.log.flush()
        except StorageError:
            # Records that are not durable must not count, and the epoch of the failed write must not be kept.
            self.log.truncate_to(end)
            raise
        return info

    def control_records(self, start: Offset) -> Iterator[tuple[Offset, Record]]:
        """The control records from an offset on. Errors: as `replay`."""
        for batch in self._batches(start, self.log.log_end_offset):
            if batch.header.is_control:
                for record in records_of(batch.data):
                    yield record.offset, record

    def replay(self, start: Offset, end: Offset | None = None) -> Iterator[tuple[Offset, Message]]:
        """The records from an offset up to `end` (the log end offset if None), with their offsets.

        Control records are omitted.
        Errors: CorruptFile that names the log and the offset; OffsetOutOfRange below the log's start; StorageError.
        """
        bound = self.log.log_end_offset if end is None else end
        for batch in self._batches(start, bound):
            try:
                yield from _records_of(batch, start, bound)
            except (RecordsError, CodecError) as error:
                raise self._corrupt(batch.header.base_offset, error) from error

    def _batches(self, start: Offset, bound: Offset) -> Iterator[Batch]:
        """The whole batches with the offsets from `start` up to `bound`. Errors: as `replay`."""
        offset = start
        try:
            while offset < bound:
                before = offset
                for batch in read_batches(self._read(offset, bound)):
                    if not batch.header.base_offset <= offset <= batch.header.last_offset:
                        raise CorruptBatch(f"a batch from {batch.header.base_offset} to {batch.header.last_offset}")
                    yield batch
                    offset = batch.header.next_offset
                if offset == before:
                    raise CorruptBatch("a batch that is cut off")
        except (RecordsError, CodecError) as error:
            raise self._corrupt(offset, error) from error

    def _corrupt(self, offset: Offset, error: Exception) -> CorruptFile:
        return CorruptFile(f"{self.log.folder}: no metadata at offset {offset}: {error}")

    def _read(self, offset: Offset, bound: Offset) -> bytes:
        found = self.log.read(offset, READ_BYTES, bound).records
        if isinstance(found, bytes):
            return found
        try:
            return found.read()
        except OSError as error:
            raise StorageError(f"{self.log.folder}: {error.strerror or error}") from error
        finally:
            found.release()


def _records_of(batch: Batch, start: Offset, bound: Offset) -> Iterator[tuple[Offset, Message]]:
    """The metadata records of a batch in a range of offsets. Errors: RecordsError, CodecError."""
    check_crc(batch.data, batch.header)
    if batch.header.is_control:
        return
    for record in records_of(batch.data):
        if start <= record.offset < bound and record.value is not None:
            yield record.offset, decode_metadata_record(record.value)
