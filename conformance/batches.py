"""Record batches as the suite writes and reads them: every header field can be given a false value.

Independent of the reference's own module (`reference.protocol.records`) on purpose: the suite must write invalid batches, and
a reader that shares the target's rules would not see the target's errors.

    batch(b"one", Record(b"two", key=b"k"), codec=GZIP)      # a valid batch
    batch(b"one", crc=0, magic=1)                            # any header field, written unchanged
    patched(data, last_offset_delta=7)                       # another value in an existing batch, the CRC computed again
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import cramjam
from crc32c import crc32c

from conformance.wire import Failed

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
"""Bits of a batch's attributes."""

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
FIELDS = (
    "base_offset", "length", "partition_leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip
"""The header's fields in the order of the wire."""
CRC_FROM = 21
"""The CRC covers everything from the attributes on."""
MAGIC_AT = 16
"""The position of the magic byte, in record batches and in the older message formats."""
MESSAGE_OVERHEAD = 26
"""Bytes of the smallest message of format 0: offset, size, CRC, magic, attributes, and the sizes of key and value."""
LENGTH_FROM = 12
"""The `length` field counts the bytes from here on."""
MOST_UNPACKED_BYTES = 16 << 20
"""The most bytes that a batch or a wrapper may decompress to. The suite writes at most 4 MB at once, so more is the target's
error; without a limit some kilobytes could exhaust this machine's memory."""
LEAST_RECORD_BYTES = 7
"""A size, attributes, two deltas, a null key, a null value, and a count of no headers."""
RECENT_MS = int(time.time() * 1000) - 600_000
"""Ten minutes ago. Records with this timestamp survive also where the suite cannot set a topic's retention."""


@dataclass(frozen=True)
class Record:
    """One record. Without a timestamp it is written with the batch's."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    offset: int = -1
    """The record's offset in the log; -1 for a record that was not read from one."""


@dataclass(frozen=True)
class Batch:
    """A batch as read from fetched bytes: the header's fields and the batch's bytes."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    data: bytes = field(repr=False)

    @property
    def codec(self) -> int:
        """The codec of the records."""
        return self.attributes & CODEC_MASK

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last one."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def crc_holds(self) -> bool:
        """Whether the CRC-32C fits the bytes."""
        return crc32c(self.data[CRC_FROM:]) == self.crc

    def expect_crc(self) -> None:
        """Require that the CRC fits the bytes: FET-10 is about that. Errors: Failed."""
        if not self.crc_holds:
            computed = crc32c(self.data[CRC_FROM:])
            failure = Failed(
                f"the batch at offset {self.base_offset} has the CRC {self.crc:#x}, its bytes {computed:#x}"
            )
            failure.built_on = "FET-10"
            raise failure

    @property
    def payload(self) -> bytes:
        """The records' bytes, uncompressed."""
        return decompress(self.data[HEADER_BYTES:], self.codec)

    def records(self) -> list[Record]:
        """The records with their offsets and timestamps; under LogAppendTime every timestamp is the batch's max_timestamp.

        Errors: Failed where the bytes cannot be decoded as records.
        """
        try:
            return self._read()
        except (IndexError, ValueError, OverflowError, MemoryError, struct.error) as error:
            raise Failed(f"the records of the batch at {self.base_offset} cannot be read: {error}") from error

    def _read(self) -> list[Record]:
        data, position = self.payload, 0
        found: list[Record] = []
        if self.count * LEAST_RECORD_BYTES > len(data):
            raise ValueError(f"{self.count} records are announced, in {len(data)} bytes")
        for _ in range(self.count):
            record, position = _read_record(data, position, self)
            found.append(record)
        if position != len(data):
            raise ValueError(f"{len(data) - position} bytes after the last record of the batch at {self.base_offset}")
        return found


# ---- writing


def batch(
    *records: Record | bytes,
    codec: int = NONE,
    timestamp: int | None = None,
    payload: bytes | None = None,
    tail: bytes = b"",
    **header: int,
) -> bytes:
    """A batch of these records. A header field that the caller gives is written unchanged, also where it is false.

    `payload` replaces the records' bytes (after compression); `tail` is appended to the uncompressed ones.
    """
    now = int(time.time() * 1000) if timestamp is None else timestamp
    listed = [record if isinstance(record, Record) else Record(record) for record in records]
    stamps = [now if record.timestamp is None else record.timestamp for record in listed] or [now]
    body = b"".join(write_record(record, delta, stamps[delta] - stamps[0]) for delta, record in enumerate(listed))
    body = compress(body + tail, codec) if payload is None else payload
    values = {
        "base_offset": 0,
        "length": HEADER_BYTES - LENGTH_FROM + len(body),
        "partition_leader_epoch": -1,
        "magic": 2,
        "crc": None,
        "attributes": codec,
        "last_offset_delta": len(listed) - 1,
        "base_timestamp": stamps[0],
        "max_timestamp": max(stamps),
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": len(listed),
    } | header
    if unknown := set(header) - set(FIELDS):
        raise TypeError(f"a batch has no field {', '.join(sorted(unknown))}")
    return _sealed(values, body)


def patched(data: bytes, **header: int) -> bytes:
    """The same batch with other values in its header. The CRC is computed again, unless the caller gives one."""
    values = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True))
    return _sealed(values | {"crc": None} | header, data[HEADER_BYTES:])


def _sealed(values: dict[str, int | None], body: bytes) -> bytes:
    packed = HEADER.pack(*(0 if values[name] is None else values[name] for name in FIELDS)) + body
    crc = crc32c(packed[CRC_FROM:]) if values["crc"] is None else values["crc"]
    return packed[:17] + struct.pack(">I", crc & 0xFFFFFFFF) + packed[CRC_FROM:]


def write_record(record: Record, offset_delta: int, timestamp_delta: int = 0) -> bytes:
    """One record as bytes, its size first."""
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + _sized(record.key) + _sized(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += _sized(name.encode()) + _sized(value)
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    """A zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def idempotent(records: Sequence[Record | bytes], producer_id: int, epoch: int, sequence: int) -> bytes:
    """A batch of an idempotent producer."""
    return batch(*records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def message_set(
    value: bytes | None,
    magic: int,
    *,
    offset: int = 0,
    timestamp: int = 0,
    key: bytes | None = None,
    attributes: int = 0,
) -> bytes:
    """One message in the formats before record batches: magic 0 (no timestamp) or 1."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += b"".join(struct.pack(">i", -1 if part is None else len(part)) + (part or b"") for part in (key, value))
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


# ---- compression


def compress(data: bytes, codec: int) -> bytes:
    """Compress as Kafka's clients do; snappy in Java's framing."""
    match codec:
        case 0:
            return data
        case 1:
            return bytes(cramjam.gzip.compress(data))
        case 2:
            block = bytes(cramjam.snappy.compress_raw(data))
            return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
        case 3:
            return _lz4(data)
        case 4:
            return bytes(cramjam.zstd.compress(data))
        case _:
            raise ValueError(f"no codec {codec}")


def _lz4(data: bytes) -> bytes:
    """An LZ4 frame of independent blocks of 64 KiB without checksums: Java's reader refuses linked blocks."""
    out = bytearray(bytes.fromhex("04224d18 604082"))
    for at in range(0, len(data), 1 << 16):
        plain = data[at : at + (1 << 16)]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += struct.pack("<I", len(block)) + block
        else:
            out += struct.pack("<I", len(plain) | 1 << 31) + plain
    return bytes(out) + struct.pack("<I", 0)


def decompress(data: bytes, codec: int) -> bytes:
    """Decompress; snappy with or without Java's framing. Errors: Failed for bytes that are not in this codec, or that
    decompress to more than `MOST_UNPACKED_BYTES`."""
    if codec not in CODECS.values():
        raise Failed(f"{len(data)} bytes are compressed by an unknown codec: {codec}")
    unpack = UNPACKED_INTO.get(codec)
    try:
        return _unpacked(data, unpack) if unpack else _unsnappy(data) if codec == SNAPPY else data
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        name = next(name for name, number in CODECS.items() if number == codec)
        raise Failed(f"{len(data)} bytes of {name} cannot be unpacked: {error}") from error


UNPACKED_INTO: dict[int, Callable[[bytes, bytearray], int]] = {
    GZIP: cramjam.gzip.decompress_into, LZ4: cramjam.lz4.decompress_into, ZSTD: cramjam.zstd.decompress_into,
}  # fmt: skip


def _unpacked(data: bytes, unpack: Callable[[bytes, bytearray], int]) -> bytes:
    """Decompress into a buffer, and retry with a larger one where it is too small."""
    for size in (1 << 16, 1 << 20, MOST_UNPACKED_BYTES):
        room = bytearray(size)
        try:
            return bytes(memoryview(room)[: unpack(data, room)])
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
    raise _bomb()


def _bomb() -> Failed:
    return Failed(f"an answer's records unpack to more than {MOST_UNPACKED_BYTES} bytes: the suite wrote less")


def _unsnappy(data: bytes) -> bytes:
    if not data.startswith(b"\x82SNAPPY\x00"):
        return _unsnapped(data, MOST_UNPACKED_BYTES)
    out, position = bytearray(), 16
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        if size < 0:
            raise ValueError(f"a snappy block of {size} bytes")
        out += _unsnapped(data[position + 4 : position + 4 + size], MOST_UNPACKED_BYTES - len(out))
        position += 4 + size
    return bytes(out)


def _unsnapped(block: bytes, most: int) -> bytes:
    """Decompress one snappy block, whose first bytes hold its decompressed length."""
    if cramjam.snappy.decompress_raw_len(block) > most:
        raise _bomb()
    return bytes(cramjam.snappy.decompress_raw(block))


# ---- reading


def batches(data: bytes) -> list[Batch]:
    """The whole batches in fetched bytes. Leaves out an incomplete last one, as clients do."""
    return list(_walk(bytes(data)))


def _walk(data: bytes) -> Iterator[Batch]:
    position = 0
    while position + HEADER_BYTES <= len(data):
        values = HEADER.unpack_from(data, position)
        end = position + LENGTH_FROM + values[1]
        if end > len(data) or values[1] < HEADER_BYTES - LENGTH_FROM:
            return
        yield Batch(*values, data=data[position:end])
        position = end


def without_rest(data: bytes) -> bytes:
    """Fetched bytes without an incomplete last batch or message: a broker may cut it off at fetch.max.bytes."""
    position = 0
    while position + LENGTH_FROM <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        if length <= 0:
            return data
        if position + LENGTH_FROM + length > len(data):
            break
        position += LENGTH_FROM + length
    return data[:position]


def records(data: bytes) -> list[Record]:
    """The records of all whole batches without the control batches, or the messages of formats 0 and 1."""
    if is_message_set(data):
        return list(messages(data))
    return [r for one in batches(data) if not one.attributes & CONTROL for r in one.records()]


def values(data: bytes) -> list[bytes | None]:
    """The values of all records in fetched bytes."""
    return [record.value for record in records(data)]


def next_offset(data: bytes) -> int:
    """The offset after the last whole batch or message. Errors: Failed where there is none."""
    if is_message_set(data):
        found = list(messages(data))
        if found:
            return found[-1].offset + 1
    elif whole := batches(data):
        return whole[-1].next_offset
    raise Failed(f"{len(data)} fetched bytes hold no whole batch")


def is_empty(data: bytes) -> bool:
    """Whether fetched bytes are batches without a record and without an offset: some brokers answer so at the log end."""
    found = [] if is_message_set(data) else batches(data)
    return bool(found) and all(one.count == 0 and one.next_offset <= 0 for one in found)


def in_order(data: bytes) -> bool:
    """Whether each whole batch in fetched bytes starts after the end of the one before it. Always true of formats 0 and 1."""
    if is_message_set(data):
        return True
    found = batches(data)
    return all(after.base_offset >= before.next_offset for before, after in pairwise(found))


def stored_as(sent: bytes, stored: Batch) -> bytes:
    """The bytes that a broker stores for a batch that it does not rewrite: it sets only the base offset and the leader
    epoch."""
    one = next(_walk(sent))
    placed = replace(one, base_offset=stored.base_offset, partition_leader_epoch=stored.partition_leader_epoch)
    return HEADER.pack(*(getattr(placed, name) for name in FIELDS)) + sent[HEADER_BYTES:]


def is_message_set(data: bytes) -> bool:
    """Whether fetched bytes begin with a message of format 0 or 1."""
    return len(data) > MAGIC_AT and data[MAGIC_AT] < 2


def messages(data: bytes) -> Iterator[Record]:
    """The messages of formats 0 and 1. Messages inside compressed wrappers get their offsets in the log (KIP-31).

    Errors: Failed where the bytes cannot be decoded as messages, or a wrapper holds another wrapper.
    """
    try:
        yield from _messages(data, nested=False)
    except (IndexError, struct.error) as error:
        raise Failed(f"{len(data)} fetched bytes hold a message that cannot be read: {error}") from error


def _messages(data: bytes, *, nested: bool) -> Iterator[Record]:
    position = 0
    while position + MESSAGE_OVERHEAD <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        if size < MESSAGE_OVERHEAD - LENGTH_FROM:
            raise Failed(f"a message of {size} bytes at offset {offset}")
        body = data[position + LENGTH_FROM : position + LENGTH_FROM + size]
        if len(body) < size:
            return
        position += LENGTH_FROM + size
        magic, attributes = body[4], body[5]
        key, at = _read_int_sized(body, 14 if magic else 6)
        value, _ = _read_int_sized(body, at)
        stamp = struct.unpack_from(">q", body, 6)[0] if magic else -1
        if not attributes & CODEC_MASK:
            yield Record(value, key, timestamp=stamp, offset=offset)
            continue
        if nested:
            raise Failed(f"the wrapper at offset {offset} is inside of another one")
        inner = list(_messages(decompress(value or b"", attributes & CODEC_MASK), nested=True))
        first = offset - inner[-1].offset if magic and inner else 0
        yield from (replace(one, offset=first + one.offset) for one in inner)


def as_messages(data: bytes, magic: int) -> bytes:
    """The records of batches as uncompressed messages of an older format, which has no record headers."""
    return b"".join(
        message_set(r.value, magic, key=r.key, timestamp=r.timestamp or 0, offset=n)
        for n, r in enumerate(records(data))
    )


def _read_int_sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, position)
    position += 4
    return (None, position) if size < 0 else (data[position : position + size], position + size)


def _read_record(data: bytes, position: int, owner: Batch) -> tuple[Record, int]:
    size, position = _read_varint(data, position)
    end = position + size
    timestamp_delta, position = _read_varint(data, position + 1)
    offset_delta, position = _read_varint(data, position)
    key, position = _read_sized(data, position)
    value, position = _read_sized(data, position)
    count, position = _read_varint(data, position)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_sized(data, position)
        held, position = _read_sized(data, position)
        headers.append(((name or b"").decode(), held))
    if position != end:
        raise ValueError(f"a record of {size} bytes ends {position - end} bytes off")
    appended = owner.attributes & LOG_APPEND_TIME
    timestamp = owner.max_timestamp if appended else owner.base_timestamp + timestamp_delta
    return Record(value, key, tuple(headers), timestamp, owner.base_offset + offset_delta), position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")


def _read_sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size
