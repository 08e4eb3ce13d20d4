"""A record batch of magic 2: its header, its records, and the fields that a broker writes.

    bytes  field                    bytes  field
    0-8    base offset              23-27  last offset delta
    8-12   length of what follows   27-35  base timestamp
    12-16  partition leader epoch   35-43  max timestamp
    16     magic (2)                43-51  producer id
    17-21  CRC-32C of 21-end        51-53  producer epoch
    21-23  attributes               53-57  base sequence
                                    57-61  record count

The checksum does not cover base offset, length and leader epoch, so that a broker can write them without reading the records
again. Attributes: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 the base timestamp is a delete
horizon (KIP-534).
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reference.protocol.checksum import crc32c
from reference.protocol.primitives import (
    NO_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from reference.protocol.primitives import Sequence as SequenceNumber
from reference.protocol.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, codec_of, compress, decompress
from reference.protocol.records.errors import CorruptBatch
from reference.protocol.records.record import Record, read_records, write_record

HEADER_BYTES = 61
LENGTH_END = 12
"""Bytes that the length field does not count: itself and the base offset."""
MAGIC_AT = 16
PREFIX_BYTES = 17
"""Bytes after which length and magic are known, in every format."""
CRC_FROM = 21
"""Where the bytes begin that the checksum covers."""
MIN_LEGACY_LENGTH = 14
"""The least length of a message of magic 0: checksum, magic, attributes, two sizes."""

CODEC = 0x07
TIMESTAMP_TYPE = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_CHECKED = struct.Struct(">hiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_CRC = struct.Struct(">I")


class BatchHeader(NamedTuple):
    """The 61-byte header of a batch."""

    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: SequenceNumber
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, or of the last that there was before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> Offset:
        """Offset at which the next batch may begin."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> SequenceNumber:
        """Sequence number of the last record; -1 where there are none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> Codec:
        """The codec that packed the records. Errors: InvalidRecord for a number that no codec has."""
        return codec_of(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records bear the time of their append, which is the max timestamp."""
        return bool(self.attributes & TIMESTAMP_TYPE)

    @property
    def is_transactional(self) -> bool:
        """Whether the records are visible to committed reads only once their transaction is."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the records are markers, which no application sees."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon(self) -> TimestampMs | None:
        """When compaction may drop the batch's tombstones and marker; None before the first cleaning."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


class BatchProducer(NamedTuple):
    """The producer that a batch's header names, and where the batch is in that producer's sequence."""

    id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    base_sequence: SequenceNumber = NO_SEQUENCE
    transactional: bool = False


NOT_IDEMPOTENT = BatchProducer()


class Batch(NamedTuple):
    """A batch and its position."""

    header: BatchHeader
    position: int
    """Where the batch begins in its buffer."""
    data: memoryview
    """The whole batch."""


def add_to_sequence(sequence: SequenceNumber, delta: int) -> SequenceNumber:
    """The number that is `delta` after another; 0 follows 2147483647."""
    return (sequence + delta) & MAX_SEQUENCE


def header_at(data: Buffer, position: int) -> BatchHeader:
    """The header at a position, without any check. Errors: struct.error for fewer than 61 bytes."""
    return BatchHeader._make(_HEADER.unpack_from(data, position))


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the whole batch that begins here; its checksum and records are not checked.

    Errors: CorruptBatch when the bytes end too early, the length is impossible or the magic is not 2.
    """
    try:
        header = header_at(data, position)
    except struct.error:
        raise CorruptBatch(_why_no_batch(data, position)) from None
    end = position + LENGTH_END + header.length
    if header.magic != 2 or header.length < HEADER_BYTES - LENGTH_END or end > len(data):
        raise CorruptBatch(_why_no_batch(data, position))
    return header


def _why_no_batch(data: Buffer, position: int) -> str:
    left = len(data) - position
    if left < LENGTH_END:
        return f"{left} bytes are too few for a batch"
    (length,) = _LENGTH.unpack_from(data, position + 8)
    magic = data[position + MAGIC_AT] if left >= PREFIX_BYTES else 2
    if not 0 <= magic <= 2:
        return f"unknown magic {magic}"
    if length < MIN_LEGACY_LENGTH or (magic == 2 and length < HEADER_BYTES - LENGTH_END):
        return f"a length of {length} is less than a batch of magic {magic} needs"
    if LENGTH_END + length > left:
        return f"a batch of {LENGTH_END + length} bytes is cut off after {left}"
    return f"magic {magic} where 2 is expected"


def read_batches(data: Buffer) -> Iterator[Batch]:
    """The batches of a buffer in their order; a last one that is cut off, as in a fetch response, is ignored.

    Errors: CorruptBatch for an impossible length or magic. Checksums are not checked; see `check_crc`.
    """
    view = memoryview(data)
    position = 0
    while (size := whole_batch_size(view, position)) is not None:
        header = read_header(view, position)
        yield Batch(header, position, view[position : position + size])
        position += size


def whole_batch_size(data: Buffer, position: int) -> int | None:
    """Bytes of the batch or legacy message that begins here; None when it is not all there.

    Errors: CorruptBatch for an impossible length or an unknown magic.
    """
    left = len(data) - position
    if left < LENGTH_END:
        return None
    (length,) = _LENGTH.unpack_from(data, position + 8)
    if length < MIN_LEGACY_LENGTH or (left >= PREFIX_BYTES and data[position + MAGIC_AT] > 2):
        raise CorruptBatch(_why_no_batch(data, position))
    return LENGTH_END + length if LENGTH_END + length <= left else None


def check_crc(batch: memoryview, header: BatchHeader) -> None:
    """Check a batch's bytes against its checksum. Errors: CorruptBatch."""
    if (found := crc32c(batch[CRC_FROM:])) != header.crc:
        raise CorruptBatch(f"the batch's checksum is {header.crc}, that of its bytes {found}")


def records_of(batch: memoryview, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of a batch, decompressed; with log append time all have the batch's max timestamp.

    Errors: CorruptBatch, InvalidRecord; RecordsError (MESSAGE_TOO_LARGE) when they unpack to more than `max_bytes`.
    """
    header = read_header(batch)
    data = memoryview(decompress(header.codec, batch[HEADER_BYTES : header.size], max_bytes))
    found = read_records(data, header.record_count, header.base_offset, header.base_timestamp)
    if not header.is_log_append_time:
        return found
    return (record._replace(timestamp=header.max_timestamp) for record in found)


def read_all_records(data: Buffer) -> Iterator[Record]:
    """The records of all batches of a buffer. Errors: as for `read_batches` and `records_of`."""
    for batch in read_batches(data):
        yield from records_of(batch.data)


def build(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    producer: BatchProducer = NOT_IDEMPOTENT,
    control: bool = False,
    leader_epoch: LeaderEpoch = NO_EPOCH,
    log_append_time: TimestampMs | None = None,
) -> bytearray:
    """A batch of these records, at least one, with their offsets. With `log_append_time` all have that timestamp."""
    first = records[0].offset
    base_timestamp = records[0].timestamp
    producer_id, producer_epoch, base_sequence, transactional = producer
    attributes = codec | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    if log_append_time is None:
        max_timestamp = max(record.timestamp for record in records)
    else:
        max_timestamp = log_append_time
        attributes |= TIMESTAMP_TYPE
    packed = compress(codec, b"".join(write_record(record, first, base_timestamp) for record in records))
    checked = _CHECKED.pack(
        attributes,
        records[-1].offset - first,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch = bytearray(HEADER_BYTES) + packed
    batch[CRC_FROM:HEADER_BYTES] = checked
    _HEADER_START.pack_into(batch, 0, first, len(batch) - LENGTH_END, leader_epoch, 2)
    _CRC.pack_into(batch, PREFIX_BYTES, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


_HEADER_START = struct.Struct(">qiib")


def assign(batch: memoryview | bytearray, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Write a batch's base offset and leader epoch in place; the checksum does not cover them."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, 12, leader_epoch)


def set_max_timestamp(batch: memoryview | bytearray, max_timestamp: TimestampMs, log_append_time: bool) -> None:
    """Write a batch's max timestamp and timestamp type in place, and the checksum that they change."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_FROM)
    attributes = attributes | TIMESTAMP_TYPE if log_append_time else attributes & ~TIMESTAMP_TYPE
    _ATTRIBUTES.pack_into(batch, CRC_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(batch, 35, max_timestamp)
    _CRC.pack_into(batch, PREFIX_BYTES, crc32c(memoryview(batch)[CRC_FROM:]))
