"""Zigzag variable-length integers: seven bits a byte, lowest first; small numbers of either sign take one byte.

A number before the zigzag is undone is called raw: twice the number, or for a negative one twice its complement plus 1.
"""

from typing import TypeVar, cast

from reference.protocol.primitives import Buffer
from reference.protocol.records.errors import InvalidRecord

N = TypeVar("N", bound=int)

VARINT_BYTES = 5
"""Bytes of the longest varint (32 bits)."""

VARLONG_BYTES = 10
"""Bytes of the longest varlong (64 bits)."""

_HALF = 1 << 63
_BITS = {VARINT_BYTES: 0xFFFFFFFF, VARLONG_BYTES: 0xFFFFFFFFFFFFFFFF}


def read_raw(data: Buffer, position: int, max_bytes: int = VARINT_BYTES) -> tuple[int, int]:
    """Read one raw number; returns it and the position after it.

    Errors: InvalidRecord when it has more than `max_bytes`; IndexError when the data end inside of it.
    """
    raw = data[position]
    if raw < 0x80:
        return raw, position + 1
    raw = 0
    for shift in range(0, 7 * max_bytes, 7):
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw & _BITS[max_bytes], position
    raise InvalidRecord(f"a number at byte {position - max_bytes} has more than {max_bytes} bytes")


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read one number of 32 bits; returns it and the position after it. Errors: as for `read_raw`."""
    raw, position = read_raw(data, position)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Read one number of 64 bits; returns it and the position after it. Errors: as for `read_raw`."""
    raw, position = read_raw(data, position, VARLONG_BYTES)
    return (raw >> 1) ^ -(raw & 1), position


def in_64_bits(value: N) -> N:
    """A sum or difference of two 64-bit numbers in Java's arithmetic, where an overflow wraps around."""
    return value if -_HALF <= value < _HALF else cast("N", (value + _HALF) % (2 * _HALF) - _HALF)


def varint(value: int) -> bytes:
    """The shortest bytes of a number, of 32 or 64 bits alike."""
    raw = value << 1 if value >= 0 else (~value << 1) | 1
    if raw < 0x80:
        return _ONE_BYTE[raw]
    if raw < 0x4000:
        return bytes((raw & 0x7F | 0x80, raw >> 7))
    written = bytearray()
    while raw >= 0x80:
        written.append((raw & 0x7F) | 0x80)
        raw >>= 7
    written.append(raw)
    return bytes(written)


_ONE_BYTE = tuple(bytes((raw,)) for raw in range(0x80))
