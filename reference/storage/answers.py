"""Results of a log's operations: appends, reads, offsets by time and by epoch, producers."""

from typing import NamedTuple

from reference.protocol.primitives import LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from reference.storage.disk import OpenFile


class AppendInfo(NamedTuple):
    """The result of an append; for a duplicate, that of the first append of the same batch."""

    first_offset: Offset
    last_offset: Offset
    max_timestamp: TimestampMs
    log_append_time: TimestampMs
    """The append's time in a topic with LogAppendTime, else -1 (as in the produce response)."""
    log_start_offset: Offset
    size_bytes: int
    is_duplicate: bool = False


class LogSlice:
    """A slice of batches in one segment's file, for a fetch response; the last one may be cut off.

    It stays readable after its segment was deleted: it pins the file until it is released or dropped.
    """

    __slots__ = ("file", "position", "size")

    def __init__(self, file: OpenFile | None, position: int, size: int) -> None:
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
        """Drop the reference to the file."""
        self.file = None

    def _file(self) -> OpenFile:
        if self.file is None:
            raise ValueError("a slice that was released")
        return self.file


class ReadResult(NamedTuple):
    """The result of a read: no bytes where there is nothing below the bound."""

    records: LogSlice | bytes


NOTHING = ReadResult(b"")


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch of its batch (-1 when unknown)."""

    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch


class EpochEndOffset(NamedTuple):
    """Result of OffsetForLeaderEpoch: both -1 when the epoch is newer than any known, or none is known."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


class ActiveProducer(NamedTuple):
    """One row of DescribeProducers."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: Sequence
    last_timestamp: TimestampMs
    coordinator_epoch: LeaderEpoch
    current_transaction_start_offset: Offset
    """-1 when no transaction is open."""


class LastWritten(NamedTuple):
    """A producer's last batch, from which its state is restored after a restart."""

    data_offset: Offset | None
    """Last offset of its last data batch; None when only a marker shows its epoch."""
    epoch: ProducerEpoch
