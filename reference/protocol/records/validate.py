"""A leader's validation of a producer's batch, and the rewriting that a topic's configuration requires.

The order of the checks, and so the error that a batch with several faults gets, is Kafka's: the request's shape (one batch
of magic 2), then length and checksum, then the header's fields, then each record. Requirements PRD-03 to PRD-20, ACK-10
and ACK-11.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from reference.protocol.checksum import crc32c
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, Buffer, TimestampMs
from reference.protocol.records.batch import (
    CODEC,
    CONTROL,
    CRC_FROM,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC_AT,
    TIMESTAMP_TYPE,
    BatchHeader,
    BatchProducer,
    build,
    check_crc,
    header_at,
    read_header,
    records_of,
    set_max_timestamp,
    whole_batch_size,
)
from reference.protocol.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, codec_of, decompress
from reference.protocol.records.errors import InvalidRecord, NoSingleBatch, RecordError, RecordsError
from reference.protocol.records.record import walk

MIN_LONG = -(2**63)
MAX_LONG = 2**63 - 1
HOUR_MS = 3_600_000
MAX_RECORD_ERRORS = 1000
"""How many refused records a response names; the rest are counted in its message."""


class Origin(Enum):
    """The origin of a batch, which decides how much is validated."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    """Group and transaction coordinators: control batches, and producer ids without sequence numbers."""
    RAFT_LEADER = "raft leader"
    REPLICATION = "replication"
    """A follower: the leader has validated the batch."""


@dataclass(frozen=True, slots=True)
class ProduceRules:
    """The part of a topic's configuration that decides about a producer's batch; defaults are Kafka 4's."""

    max_message_bytes: int = 1_048_588
    """max.message.bytes"""
    compacted: bool = False
    """cleanup.policy holds compact: records need keys."""
    log_append_time: bool = False
    """message.timestamp.type is LogAppendTime."""
    before_max_ms: int = MAX_LONG
    """message.timestamp.before.max.ms"""
    after_max_ms: int = HOUR_MS
    """message.timestamp.after.max.ms"""
    codec: Codec | None = None
    """compression.type; None keeps the producer's codec."""
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES


class Validated(NamedTuple):
    """A batch that may be stored once it has its offsets."""

    header: BatchHeader
    """As the producer sent it, except for a codec and length that the topic changed."""
    batch: memoryview
    """Writable; a view of the given records wherever nothing had to be rewritten."""
    max_timestamp: TimestampMs


def validate(records: Buffer, rules: ProduceRules, now: TimestampMs, origin: Origin = Origin.CLIENT) -> Validated:
    """Validate a producer's batch: `records` is the field of a produce request (v3 and later).

    It sets the batch's max timestamp and timestamp type in place. Where the topic requires another codec, or the producer
    numbered its records wrongly, it rebuilds the batch.
    Errors: RecordsError with Kafka's code, message and record errors; nothing has then been written.
    """
    view = memoryview(records)
    header = _the_one_batch(view)
    is_client = origin is Origin.CLIENT
    if is_client and header.base_offset != 0:
        raise InvalidRecord(f"the base offset of a sent batch is 0, not {header.base_offset}")
    size = LENGTH_END + header.length
    if size != len(view):
        view = view[:size]
    if size > rules.max_message_bytes:
        raise _too_large(size, rules)
    if crc32c(view[CRC_FROM:]) != header.crc:
        check_crc(view, header)
    if is_client:
        _check_header(header)

    attributes = header.attributes
    data = view[HEADER_BYTES:]
    source = codec_of(attributes) if attributes & CODEC else Codec.NONE
    if source:
        data = decompress(source, data, rules.max_decompressed_bytes)
    lowest, highest, in_sequence, null_keys = walk(bytes(data), header.record_count)
    if attributes & TIMESTAMP_TYPE:
        lowest = highest = header.max_timestamp
    else:
        lowest = header.base_timestamp + lowest
        highest = header.base_timestamp + highest
        if header.record_count and (lowest < MIN_LONG or highest > MAX_LONG):
            timestamps = [record.timestamp for record in records_of(view, rules.max_decompressed_bytes)]
            lowest, highest = min(timestamps), max(timestamps)

    log_append_time = rules.log_append_time
    if (
        (null_keys and rules.compacted)
        or (attributes & TIMESTAMP_TYPE and (log_append_time or lowest == NO_TIMESTAMP))
        or (not log_append_time and (now - lowest > rules.before_max_ms or highest - now > rules.after_max_ms))
    ):
        _refuse_records(view, header, rules, now)

    converts = rules.codec is not None and rules.codec is not source and not attributes & CONTROL
    if source and not in_sequence and not converts:
        raise InvalidRecord("the offset deltas of a compressed batch's records do not count up from 0")  # PRD-21
    if converts or not in_sequence:
        return _rebuild(view, header, rules, now)
    if view.readonly:
        view = memoryview(bytearray(view))
    if log_append_time:
        highest = now
    elif highest < NO_TIMESTAMP:
        highest = NO_TIMESTAMP
    if highest != header.max_timestamp or bool(attributes & TIMESTAMP_TYPE) != log_append_time:
        set_max_timestamp(view, highest, log_append_time)
    return Validated(header, view, highest)


FIRST_PRODUCE_WITH_ZSTD = 7


def check_form(records: Buffer | None, version: int) -> BatchHeader:
    """The header of the only batch of a partition in a produce request.

    Source: org.apache.kafka.common.requests.ProduceRequest.validateRecords. Errors: NoSingleBatch; RecordsError
    UNSUPPORTED_COMPRESSION_TYPE for zstd before version 7 (KIP-110).
    """
    if records is None:
        raise NoSingleBatch("a produce request needs exactly one record batch for a partition")
    header = _the_one_batch(memoryview(records))
    if version < FIRST_PRODUCE_WITH_ZSTD and header.attributes & CODEC == Codec.ZSTD:
        raise RecordsError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "produce requests before version 7 must not use zstd compression"
        )
    return header


def _the_one_batch(view: memoryview) -> BatchHeader:
    """The header of the only batch of a request's field. Bytes too few to be one more are ignored, as Kafka does."""
    if len(view) > HEADER_BYTES:
        header = header_at(view, 0)
        if header.length + LENGTH_END == len(view) and header.magic == 2:
            return header
    size = whole_batch_size(view, 0)
    if size is None:
        raise NoSingleBatch("a produce request holds exactly one record batch for a partition; here is none")
    if view[MAGIC_AT] != 2:
        raise NoSingleBatch(f"a produce request holds record batches of magic 2, not {view[MAGIC_AT]}")
    if size != len(view) and whole_batch_size(view, size) is not None:
        raise NoSingleBatch("a produce request holds exactly one record batch for a partition; here are more")
    return read_header(view)


def _check_header(header: BatchHeader) -> None:
    count, last_delta = header.record_count, header.last_offset_delta
    if last_delta < 0:
        raise InvalidRecord(f"the batch's last offset delta is {last_delta}")
    if count != last_delta + 1:
        raise InvalidRecord(f"the batch counts {count} records and its last offset delta is {last_delta}")
    if header.attributes & CONTROL:
        raise InvalidRecord("clients must not write control records")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise InvalidRecord(
            f"the batch of producer {header.producer_id} has the sequence number {header.base_sequence}"
        )


def _refuse_records(view: memoryview, header: BatchHeader, rules: ProduceRules, now: TimestampMs) -> None:
    """Raise RecordsError for the records that the topic refuses; returns if only timestamps of -1 seemed too old."""
    codes: list[ErrorCode] = []
    errors: list[RecordError] = []
    for index, record in enumerate(records_of(view, rules.max_decompressed_bytes)):
        if rules.compacted and record.key is None:
            codes.append(ErrorCode.INVALID_RECORD)
            errors.append(RecordError(index, "a compacted topic accepts no record without a key"))
        elif not rules.log_append_time and record.timestamp != NO_TIMESTAMP:
            least, most = now - rules.before_max_ms, now + rules.after_max_ms
            if not least <= record.timestamp <= most:
                codes.append(ErrorCode.INVALID_TIMESTAMP)
                errors.append(RecordError(index, f"timestamp {record.timestamp} is not within [{least}, {most}]"))
        elif header.is_log_append_time:
            codes.append(ErrorCode.INVALID_TIMESTAMP)
            errors.append(RecordError(index, "a producer must not set the timestamp type LogAppendTime"))
    if not errors:
        return
    code = ErrorCode.INVALID_TIMESTAMP if ErrorCode.INVALID_TIMESTAMP in codes else ErrorCode.INVALID_RECORD
    message = f"{len(errors)} of {header.record_count} records are refused; the first: {errors[0].message}"
    raise RecordsError(code, message, tuple(errors[:MAX_RECORD_ERRORS]))


def _rebuild(view: memoryview, header: BatchHeader, rules: ProduceRules, now: TimestampMs) -> Validated:
    """The same records in the topic's codec, numbered 0, 1, 2 ...

    Errors: RecordsError UNKNOWN_SERVER_ERROR for a producer that no batch can be built for; as it was sent it is taken.
    Source: org.apache.kafka.common.record.MemoryRecordsBuilder.validateProducerState.
    """
    if header.is_transactional if header.producer_id == NO_PRODUCER_ID else header.producer_epoch == NO_PRODUCER_EPOCH:
        raise RecordsError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the batch of producer {header.producer_id} in epoch {header.producer_epoch} cannot be packed again",
        )
    records = [
        record._replace(offset=header.base_offset + index)
        for index, record in enumerate(records_of(view, rules.max_decompressed_bytes))
    ]
    codec = header.codec if rules.codec is None else rules.codec
    batch = build(
        records,
        codec=codec,
        producer=BatchProducer(
            header.producer_id, header.producer_epoch, header.base_sequence, transactional=header.is_transactional
        ),
        control=header.is_control,
        log_append_time=now if rules.log_append_time else None,
    )
    if len(batch) > rules.max_message_bytes:
        raise _too_large(len(batch), rules)
    rebuilt = read_header(batch)
    return Validated(rebuilt, memoryview(batch), rebuilt.max_timestamp)


def _too_large(size: int, rules: ProduceRules) -> RecordsError:
    return RecordsError(
        ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes where {rules.max_message_bytes} are allowed"
    )
