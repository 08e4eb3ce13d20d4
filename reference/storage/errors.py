"""The errors of storage besides `RecordsError`, each with the error code for a response."""

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import Offset
from reference.protocol.records.errors import RecordsError


class LogError(Exception):
    """An operation that a log refused; the log is unchanged."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class OffsetOutOfRange(LogError):
    """An offset before the log's start or after its end."""

    def __init__(self, offset: Offset, start: Offset, end: Offset) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in the log from {start} to {end}")


class StorageError(LogError):
    """A disk error: the disk is full, read-only or broken."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class RefusedByProducerState(LogError):
    """A batch that does not follow from its producer's earlier ones (sequence, epoch, transaction)."""


class CorruptFile(Exception):
    """A file of a log directory is damaged or missing. Indexes, snapshots and most checkpoints can be rebuilt."""


__all__ = ["CorruptFile", "LogError", "OffsetOutOfRange", "RecordsError", "RefusedByProducerState", "StorageError"]
