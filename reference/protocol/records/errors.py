"""The errors of reading or validating records, each with the error code for a produce response."""

from typing import NamedTuple

from reference.protocol.errors import ErrorCode


class RecordError(NamedTuple):
    """One record of a batch that was refused (the `record_errors` of a produce response, KIP-467)."""

    batch_index: int
    """Position of the record in its batch, from 0."""
    message: str


class RecordsError(ValueError):
    """Records that cannot be read or may not be stored."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = record_errors


class CorruptBatch(RecordsError):
    """The bytes are not a batch: too few, a wrong length, an unknown magic, a wrong checksum."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class InvalidRecord(RecordsError):
    """The bytes are a batch with a field or a record that is not allowed."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message, record_errors)


class NoSingleBatch(InvalidRecord):
    """A produce request's field is not one batch of the current format; Kafka checks this before any partition."""
