"""Message sets: the formats before record batches, magic 0 (Kafka 0.8) and magic 1 (0.10, KIP-32).

    message set = (offset size message)*
    message     = crc magic attributes [timestamp] key value       timestamp: magic 1 only
    key, value  = size bytes                                       size -1: null

All numbers are big-endian and of fixed width; the checksum is CRC-32 (IEEE) of what follows it. A compressed set is the value
of one message, the wrapper, which bears the offset of the last message in it; in magic 1 the inner offsets count from 0, in
magic 0 they are absolute. Attributes: bits 0-2 codec, bit 3 timestamp type (then all inner messages have the wrapper's time).

A broker of Kafka 4 neither takes nor stores these; they are here to read old logs and to speak to old brokers and clients.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence

from reference.protocol.primitives import FIRST_OFFSET, NO_TIMESTAMP, Buffer, Offset, TimestampMs
from reference.protocol.records.batch import TIMESTAMP_TYPE
from reference.protocol.records.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    LZ4_HEADER,
    Codec,
    codec_of,
    compress,
    decompress,
    too_large,
)
from reference.protocol.records.errors import CorruptBatch, InvalidRecord
from reference.protocol.records.record import Record

_ENTRY = struct.Struct(">qi")
_START = struct.Struct(">Ibb")
_TIMESTAMP = struct.Struct(">q")
_SIZE = struct.Struct(">i")
CRC_BYTES = 4
LZ4_FRAME_MAGIC_BYTES = 4


def read_message_set(data: Buffer, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The messages of a set, unpacked, with absolute offsets; a last one that is cut off is left out.

    Messages of magic 0 have no timestamps: -1.
    Errors: CorruptBatch, InvalidRecord; RecordsError (MESSAGE_TOO_LARGE) when a wrapper unpacks to more than `max_bytes`.
    """
    view = memoryview(data)
    for offset, message in _entries(view):
        magic, attributes, timestamp, key, value = _read_message(message)
        codec = codec_of(attributes)
        if codec is Codec.NONE:
            yield Record(offset, timestamp, key, value)
        else:
            append_time = timestamp if attributes & TIMESTAMP_TYPE else None
            yield from _unwrap(offset, magic, codec, value, append_time, max_bytes)


def _entries(view: memoryview) -> Iterator[tuple[Offset, memoryview]]:
    position = 0
    while position + _ENTRY.size <= len(view):
        offset, size = _ENTRY.unpack_from(view, position)
        position += _ENTRY.size
        if size < 0:
            raise CorruptBatch(f"a message of {size} bytes")
        if position + size > len(view):
            return
        yield offset, view[position : position + size]
        position += size


def _read_message(
    message: memoryview,
) -> tuple[int, int, TimestampMs, memoryview | None, memoryview | None]:
    """Magic, attributes, timestamp, key and value. Errors: CorruptBatch."""
    try:
        crc, magic, attributes = _START.unpack_from(message)
        if magic not in (0, 1):
            raise CorruptBatch(f"magic {magic} in a message set")
        if crc != zlib.crc32(message[CRC_BYTES:]):
            raise CorruptBatch("a message's checksum is not that of its bytes")
        position, timestamp = _START.size, NO_TIMESTAMP
        if magic == 1:
            (timestamp,) = _TIMESTAMP.unpack_from(message, position)
            position += _TIMESTAMP.size
        key, position = _read_bytes(message, position)
        value, position = _read_bytes(message, position)
    except struct.error:
        raise CorruptBatch(f"a message is cut off after {len(message)} bytes") from None
    if position != len(message):
        raise CorruptBatch(f"{len(message) - position} bytes after a message's value")
    return magic, attributes, timestamp, key, value


def _read_bytes(message: memoryview, position: int) -> tuple[memoryview | None, int]:
    (size,) = _SIZE.unpack_from(message, position)
    position += _SIZE.size
    if size < 0:
        return None, position
    if position + size > len(message):
        raise CorruptBatch(f"{size} bytes where {len(message) - position} are left")
    return message[position : position + size], position + size


def _unwrap(
    last_offset: Offset,
    magic: int,
    codec: Codec,
    value: memoryview | None,
    append_time: TimestampMs | None,
    max_bytes: int,
) -> Iterator[Record]:
    if value is None:
        raise InvalidRecord("a compressed message without a value")
    packed = with_right_checksum(value) if codec is Codec.LZ4 and magic == 0 else value
    inner: list[tuple[Offset, TimestampMs, memoryview | None, memoryview | None]] = []
    unpacked = memoryview(decompress(codec, packed, max_bytes))
    if len(unpacked) > max_bytes:
        raise too_large(max_bytes)
    for offset, message in _entries(unpacked):
        inner_magic, attributes, timestamp, key, inner_value = _read_message(message)
        if inner_magic != magic or attributes & 0x07:
            raise InvalidRecord("a wrapped message of another magic, or one that is a wrapper itself")
        inner.append((offset, timestamp, key, inner_value))
    if not inner:
        raise InvalidRecord("a compressed message without messages in it")
    base = last_offset - inner[-1][0] if magic == 1 else 0
    for offset, timestamp, key, inner_value in inner:
        yield Record(offset + base, timestamp if append_time is None else append_time, key, inner_value)


def write_message_set(
    records: Sequence[Record], magic: int, codec: Codec = Codec.NONE, log_append_time: TimestampMs | None = None
) -> bytes:
    """Encode records as a message set, which cannot carry headers.

    Errors: ValueError for records with headers, or a codec that the format does not have (zstd).
    """
    if any(record.headers for record in records):
        raise ValueError(f"messages of magic {magic} have no headers")
    if codec is Codec.ZSTD:
        raise ValueError(f"messages of magic {magic} know no zstd")
    type_bit = TIMESTAMP_TYPE if log_append_time is not None and magic == 1 else 0
    if codec is Codec.NONE:
        return b"".join(
            _written(
                r.offset, magic, type_bit, r.timestamp if log_append_time is None else log_append_time, r.key, r.value
            )
            for r in records
        )
    base = records[0].offset if magic == 1 else FIRST_OFFSET
    inner = b"".join(_written(Offset(r.offset - base), magic, 0, r.timestamp, r.key, r.value) for r in records)
    packed = compress(codec, inner)
    if codec is Codec.LZ4 and magic == 0:
        packed = _with_broken_checksum(packed)
    newest = max(record.timestamp for record in records) if log_append_time is None else log_append_time
    return _written(records[-1].offset, magic, codec | type_bit, newest, None, packed)


def _written(
    offset: Offset, magic: int, attributes: int, timestamp: TimestampMs, key: Buffer | None, value: Buffer | None
) -> bytes:
    checked = struct.pack(">bb", magic, attributes)
    if magic == 1:
        checked += _TIMESTAMP.pack(timestamp)
    for data in (key, value):
        checked += _SIZE.pack(-1) if data is None else _SIZE.pack(len(data)) + bytes(data)
    message = struct.pack(">I", zlib.crc32(checked)) + checked
    return _ENTRY.pack(offset, len(message)) + message


# ---- LZ4 in magic 0


def with_right_checksum(frame: Buffer) -> bytes:
    """An LZ4 frame with the right header checksum; Kafka's of magic 0 covers the frame's magic too (KIP-57)."""
    data = bytearray(frame)
    if len(data) < len(LZ4_HEADER):
        raise InvalidRecord(f"an LZ4 frame of {len(data)} bytes")
    end = LZ4_FRAME_MAGIC_BYTES + 2 + (8 if data[LZ4_FRAME_MAGIC_BYTES] & 0x08 else 0)
    if end >= len(data):
        raise InvalidRecord("an LZ4 frame that ends in its header")
    data[end] = _header_checksum(data[LZ4_FRAME_MAGIC_BYTES:end])
    return bytes(data)


def _with_broken_checksum(frame: bytes) -> bytes:
    end = len(LZ4_HEADER) - 1
    return frame[:end] + bytes((_header_checksum(frame[:end]),)) + frame[end + 1 :]


def _header_checksum(data: Buffer) -> int:
    """The second lowest byte of xxHash-32 of less than 16 bytes."""
    prime1, prime2, prime3, prime4, prime5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mask = 0xFFFFFFFF
    hashed = (prime5 + len(data)) & mask
    words = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", bytes(data[:words])):
        hashed = (hashed + word * prime3) & mask
        hashed = ((hashed << 17 | hashed >> 15) * prime4) & mask
    for byte in data[words:]:
        hashed = (hashed + byte * prime5) & mask
        hashed = ((hashed << 11 | hashed >> 21) * prime1) & mask
    hashed = ((hashed ^ hashed >> 15) * prime2) & mask
    hashed = ((hashed ^ hashed >> 13) * prime3) & mask
    return (hashed ^ hashed >> 16) >> 8 & 0xFF
