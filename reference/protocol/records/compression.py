"""The codecs of record batches, each with a bound on decompressed bytes.

A producer chooses the codec; the broker unpacks to validate, and packs again only where the topic's `compression.type`
names another codec. Snappy is framed as Java's library does it ("xerial": a magic, two versions, then blocks behind their
lengths); raw snappy blocks, as other clients have sent them, are read too.
"""

import struct
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cramjam

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import Buffer
from reference.protocol.records.errors import InvalidRecord, RecordsError

DEFAULT_MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""Limit of one batch's decompressed bytes. Kafka sets no such limit before 4.4 (max.decompressed.message.bytes); a reference that
promises bounded memory needs one."""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
"""Bytes that Java's library compresses into one block by default."""

LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Magic; version 1 with independent blocks; blocks of 64 KiB; the checksum of these two. Kafka's Java clients read no
frames of dependent blocks, which the codec's own framing writes."""
LZ4_BLOCK_BYTES = 64 * 1024
LZ4_STORED = 0x80000000
"""The bit of a block's length that marks an uncompressed block."""


IS_PYPY = sys.implementation.name == "pypy"


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes; the names are those of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(attributes: int) -> Codec:
    """The codec that a batch's attributes name. Errors: RecordsError for numbers that no codec has."""
    number = attributes & 0x07
    if number > Codec.ZSTD:
        raise InvalidRecord(f"unknown compression codec {number}")
    return Codec(number)


def compress(codec: Codec, data: Buffer) -> bytes:
    """Compress bytes; `Codec.NONE` returns them unchanged. Levels are the codecs' own defaults, as Kafka's are."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _compress_xerial(data)
    if codec is Codec.LZ4:
        return _compress_lz4(data)
    return _taken(_COMPRESS[codec](_given(data)))


def _given(data: Buffer) -> Buffer:
    """The argument for a codec: PyPy never frees a buffer that was passed to a C extension, unless it is of `bytes`."""
    return bytes(data) if IS_PYPY else data


def _taken(answer: cramjam.Buffer) -> bytes:
    """The bytes of a codec's result, read by its own method: PyPy never frees a C extension's buffer that it has accessed."""
    answer.seek(0)
    return answer.read()


def decompress(codec: Codec, data: Buffer, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Buffer:
    """Decompress to no more than `max_bytes`; `Codec.NONE` returns the bytes unchanged.

    Errors: InvalidRecord for bytes that the codec cannot unpack; RecordsError (MESSAGE_TOO_LARGE) past the bound.
    """
    if codec is Codec.NONE:
        return data
    if codec is Codec.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    return _decompress_into(_DECOMPRESS[codec], codec, data, max_bytes)


def _decompress_into(unpack: Callable[[Any, Any], int], codec: Codec, data: Buffer, max_bytes: int) -> Buffer:
    """Unpack into a buffer that grows fourfold while it is too small: at most a third more work, never past the bound."""
    size, given = min(max_bytes, max(4096, 4 * len(data))), _given(data)
    while True:
        room = bytearray(size)
        try:
            return memoryview(room)[: unpack(given, room)]
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise InvalidRecord(f"{codec.name.lower()} data cannot be unpacked: {error}") from None
        if size >= max_bytes:
            raise too_large(max_bytes)
        size = min(max_bytes, 4 * size)


def too_large(max_bytes: int) -> RecordsError:
    """The error for data that unpack to more than the bound."""
    return RecordsError(ErrorCode.MESSAGE_TOO_LARGE, f"records unpack to more than {max_bytes} bytes")


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = _taken(cramjam.snappy.compress_raw(_given(view[start : start + XERIAL_BLOCK_BYTES])))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [LZ4_HEADER]
    for start in range(0, len(view), LZ4_BLOCK_BYTES):
        plain = view[start : start + LZ4_BLOCK_BYTES]
        block = _taken(cramjam.lz4.compress_block(_given(plain), store_size=False))
        if len(block) < len(plain):
            parts += (struct.pack("<I", len(block)), block)
        else:
            parts += (struct.pack("<I", len(plain) | LZ4_STORED), bytes(plain))
    parts.append(bytes(4))
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes)
    unpacked = bytearray()
    position = len(XERIAL_HEADER)
    while position < len(view):
        if position + 4 > len(view):
            raise InvalidRecord("snappy data end inside a block's length")
        (size,) = struct.unpack_from(">i", view, position)
        position += 4
        if size < 0 or position + size > len(view):
            raise InvalidRecord(f"snappy block of {size} bytes where {len(view) - position} are left")
        unpacked += _decompress_snappy_block(view[position : position + size], max_bytes - len(unpacked))
        position += size
    return memoryview(unpacked)


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> Buffer:
    given = _given(block)
    try:
        if cramjam.snappy.decompress_raw_len(given) > max_bytes:
            raise too_large(max_bytes)
        return _taken(cramjam.snappy.decompress_raw(given))
    except cramjam.DecompressionError as error:
        raise InvalidRecord(f"snappy data cannot be unpacked: {error}") from None


_COMPRESS: dict[Codec, Callable[[Any], Any]] = {
    Codec.GZIP: cramjam.gzip.compress,
    Codec.ZSTD: cramjam.zstd.compress,
}

_DECOMPRESS: dict[Codec, Callable[[Any, Any], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
