"""Message sets, the formats before record batches: magic 0 (no timestamp) and magic 1, plain and in compressed wrappers.

Independent of the reference's own module, as `batches` is. A wrapper is a message whose value is a compressed message set. Its
own offset is that of its last inner message. The inner offsets are absolute in magic 0 and relative, from 0 on, in magic 1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.batches import CODEC_MASK, compress, decompress
from conformance.wire import Failed

LOG_APPEND_TIME = 0x08
"""The attribute bit of a magic 1 message whose timestamp is the time of the append."""
NO_TIMESTAMP = -1


@dataclass(frozen=True)
class Message:
    """One message as a client sees it. Magic 0 has no timestamp."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    offset: int = 0


@dataclass(frozen=True)
class Stored:
    """A message as read, uncompressed or from a wrapper."""

    message: Message
    magic: int
    attributes: int
    """The message's attributes; for an inner message those of its wrapper."""
    wrapped: bool


def message_set(messages: Sequence[Message], magic: int, *, codec: int = 0, attributes: int = 0) -> bytes:
    """Encode messages one after the other, with offsets from 0 on; with a codec, inside one wrapper."""
    plain = b"".join(
        _written(message.value, message.key, magic, at, message.timestamp, 0 if codec else attributes)
        for at, message in enumerate(messages)
    )
    if not codec:
        return plain
    latest = max(message.timestamp for message in messages)
    return _written(compress(plain, codec), None, magic, len(messages) - 1, latest, attributes | codec)


def _written(value: bytes | None, key: bytes | None, magic: int, offset: int, timestamp: int, attributes: int) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


def stored(data: bytes) -> list[Stored]:
    """All messages, also those inside wrappers, with absolute offsets. Leaves out an incomplete last one, as clients do.

    Errors: Failed for other magics, wrong checksums and bytes that are no message.
    """
    return [one for offset, body in _walk(data) for one in _read(offset, body)]


def _walk(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        if size < 14:
            raise Failed(f"a message of {size} bytes")
        if position + 12 + size > len(data):
            return
        yield offset, data[position + 12 : position + 12 + size]
        position += 12 + size


def _read(offset: int, message: bytes, *, nested: bool = False) -> Iterator[Stored]:
    crc, magic, attributes = struct.unpack_from(">Ibb", message)
    if magic not in (0, 1):
        raise Failed(f"a message of magic {magic} among messages")
    if zlib.crc32(message[4:]) != crc:
        raise Failed(f"the CRC of the message at offset {offset} is wrong")
    timestamp = struct.unpack_from(">q", message, 6)[0] if magic else NO_TIMESTAMP
    key, position = _sized(message, 14 if magic else 6)
    value, position = _sized(message, position)
    if position != len(message):
        raise Failed(f"{len(message) - position} bytes behind the value of the message at offset {offset}")
    codec = attributes & CODEC_MASK
    if not codec:
        yield Stored(Message(value, key, timestamp, offset), magic, attributes, wrapped=False)
        return
    if nested:
        raise Failed(f"the wrapper at offset {offset} is inside of another one")
    inner = [one for at, body in _walk(decompress(value or b"", codec)) for one in _read(at, body, nested=True)]
    if not inner:
        raise Failed(f"the wrapper at offset {offset} is empty")
    first = offset - inner[-1].message.offset if magic else 0
    for one in inner:
        own = one.message
        late = timestamp if attributes & LOG_APPEND_TIME else own.timestamp
        yield Stored(Message(own.value, own.key, late, first + own.offset), one.magic, attributes, wrapped=True)


def _sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    if position + 4 > len(data):
        raise Failed(f"a message of {len(data)} bytes ends before the size of a field")
    (size,) = struct.unpack_from(">i", data, position)
    position += 4
    if size < 0:
        return None, position
    if position + size > len(data):
        raise Failed(f"a field of {size} bytes in a message of {len(data)}")
    return data[position : position + size], position + size
