"""One record, and the walk that proves the records of a batch well-formed.

    record  = size attributes timestamp_delta offset_delta key value headers
    key     = size bytes             (size < 0: null)
    value   = size bytes             (size < 0: null)
    headers = count (key value)*     (a header's key is never null)

Sizes, deltas and counts are zigzag varints; a record's size counts what follows it. Attributes are one byte without a
meaning so far.

A broker must walk every record of every batch that a producer sends, and Python takes about half a microsecond for one.
Neighbours, however, mostly have one shape: equal sizes of record, key and value, no headers, and deltas that differ in
their lowest seven bits only. After a record that it has read, the walk therefore asks how many of the next ones are its
twins: the bytes that make up the shape are compared column by column (`data[at::size]`), up to 64 records at a time,
which is as far as the lowest seven bits of an offset delta go. A record that is no twin is read like the first.

The walk is one function: a call for each number of two bytes takes twice the time on records of different sizes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from reference.protocol.primitives import Buffer, Offset, TimestampMs
from reference.protocol.records.errors import InvalidRecord
from reference.protocol.records.varint import VARLONG_BYTES, in_64_bits, read_raw, read_varint, read_varlong, varint

Header = tuple[Buffer, Buffer | None]
"""A header's key (UTF-8) and its value. Keys may repeat."""


class Record(NamedTuple):
    """One record as a consumer sees it; its buffers are views of the batch where it was read from one."""

    offset: Offset
    timestamp: TimestampMs
    key: Buffer | None
    value: Buffer | None
    headers: tuple[Header, ...] = ()


class Walk(NamedTuple):
    """The result of a walk over a batch's records. Timestamps are deltas to the batch's base timestamp."""

    lowest_timestamp_delta: int
    highest_timestamp_delta: int
    in_sequence: bool
    """Whether the offset deltas are 0, 1, 2 ..."""
    null_keys: bool
    """Whether some record has no key."""


EVEN = bytes(range(0, 256, 2))
"""First bytes of the zigzag varints 0, 1, 2 ... 63, and then of those whose lowest seven bits are these."""
ALONE, MORE_FOLLOW = EVEN[:64], EVEN[64:]


def walk(data: bytes, count: int) -> Walk:
    """Prove that `data` are `count` well-formed records and nothing else, in time bounded by their length.

    Errors: InvalidRecord that says which record is malformed.
    """
    position = index = timestamp = 0
    lowest, highest, last_delta = 1 << 63, -1 << 63, -1
    in_sequence, null_keys = True, False
    try:
        while index < count:
            start = position
            size = data[position]
            position += 1
            if size >= 0x80:
                if (more := data[position]) < 0x80:
                    size += (more << 7) - 0x80
                    position += 1
                else:
                    size, position = read_raw(data, start)
            end = position + (size >> 1)

            timestamp_at = position + 1
            delta = data[timestamp_at]
            position += 2
            if delta >= 0x80:
                if (more := data[position]) < 0x80:
                    delta += (more << 7) - 0x80
                    position += 1
                else:
                    delta, position = read_raw(data, timestamp_at, VARLONG_BYTES)
            if delta != last_delta:
                last_delta = delta
                timestamp = (delta >> 1) ^ -(delta & 1)
                if timestamp > highest:
                    highest = timestamp
                if timestamp < lowest:
                    lowest = timestamp

            offset_at = position
            offset = data[position]
            position += 1
            if offset >= 0x80:
                if (more := data[position]) < 0x80:
                    offset += (more << 7) - 0x80
                    position += 1
                else:
                    offset, position = read_raw(data, offset_at)
            if offset != index << 1:
                in_sequence = False

            key = data[position]
            position += 1
            if key >= 0x80:
                key, position = read_raw(data, position - 1)
            key_from = position
            if key & 1:
                null_keys = True
            else:
                position += key >> 1

            value_at = position
            value = data[position]
            position += 1
            if value >= 0x80:
                if (more := data[position]) < 0x80:
                    value += (more << 7) - 0x80
                    position += 1
                else:
                    value, position = read_raw(data, value_at)
            value_from = position
            if not value & 1:
                position += value >> 1

            headers = data[position]
            position = position + 1 if headers == 0 else _skip_headers(data, position)
            if position != end or size & 1:
                raise InvalidRecord(f"record {index} of {count} does not fill its size")
            index += 1

            if index < count and data[end] == data[start] and headers == 0 and in_sequence:
                shape = (
                    *range(start, timestamp_at - 1), *range(timestamp_at + 1, offset_at),
                    *range(offset_at + 1, key_from), *range(value_at, value_from), end - 1,
                )  # fmt: skip
                size = end - start
                deltas = _twins(data, shape, offset_at, timestamp_at, size, count - index + 1)
                if (twins := len(deltas)) > 1:
                    if deltas.count(deltas[0]) != twins:
                        highest = max(highest, timestamp + ((max(deltas) - deltas[0]) >> 1))
                        lowest = min(lowest, timestamp - ((deltas[0] - min(deltas)) >> 1))
                    index += twins - 1
                    position += (twins - 1) * size
    except IndexError:
        raise InvalidRecord(f"record {index} of {count} is cut off") from None
    if position != len(data):
        raise InvalidRecord(f"{len(data) - position} bytes after the last of {count} records")
    return Walk(lowest, highest, in_sequence, null_keys)


def _twins(data: bytes, shape: tuple[int, ...], offset_at: int, timestamp_at: int, size: int, most: int) -> bytes:
    """The lowest bytes of the timestamp deltas of a record and of those after it that are its twins, with the next offsets.

    Input: where the record's shape, offset delta and timestamp delta lie; its size, which its twins share; how many
    records there are from it on. Output: one byte for each twin, the record itself among them.
    """
    offset = data[offset_at]
    most = count_alike(data, shape, size, min(most, len(ALONE) - ((offset & 0x7F) >> 1)))
    if data[offset_at : offset_at + most * size : size] != EVEN[offset >> 1 : (offset >> 1) + most]:
        return b""
    return lowest_bytes(data, timestamp_at, size, most)


def count_alike(data: bytes, shape: tuple[int, ...], size: int, most: int) -> int:
    """How many records of one size, of `most` from one on, have its bytes at the places of its shape; 0 for it alone."""
    for at in shape:
        column = data[at : at + most * size : size]
        most = len(column) - len(column.lstrip(column[:1]))
        if most < 2:
            return 0
    return most


def lowest_bytes(data: bytes, at: int, size: int, count: int) -> bytes:
    """The first bytes of a number of each of `count` twins; none where the numbers differ in more than their lowest seven bits.

    The bytes of the number after the first belong to the twins' shape.
    """
    column = data[at : at + count * size : size]
    return column if not column.translate(None, ALONE if column[:1] < b"\x80" else MORE_FOLLOW) else b""


def _skip_headers(data: Buffer, position: int) -> int:
    """The position after a record's headers. Errors: InvalidRecord; IndexError when the data end inside of them."""
    count, position = read_varint(data, position)
    if not 0 <= count <= len(data) - position:
        raise InvalidRecord(f"a record has {count} headers")
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise InvalidRecord(f"a header's key has size {size}")
        size, position = read_varint(data, position + size)
        position += max(0, size)
    return position


def read_records(data: memoryview, count: int, base_offset: Offset, base_timestamp: TimestampMs) -> Iterator[Record]:
    """The records of a batch's (unpacked) data, with views of their keys, values and headers.

    Errors: InvalidRecord when the data are not `count` records and nothing else.
    """
    position = index = 0
    try:
        while index < count:
            size, start = read_varint(data, position)
            delta, position = read_varlong(data, start + 1)
            offset_delta, position = read_varint(data, position)
            key, position = _read_bytes(data, position)
            value, position = _read_bytes(data, position)
            if data[position] == 0:
                headers, position = (), position + 1
            else:
                headers, position = _read_headers(data, position)
            if position != start + size:
                raise InvalidRecord(f"record {index} of {count} does not fill its size")
            yield Record(base_offset + offset_delta, in_64_bits(base_timestamp + delta), key, value, headers)
            index += 1
    except IndexError:
        raise InvalidRecord(f"record {index} of {count} is cut off") from None
    if position != len(data):
        raise InvalidRecord(f"{len(data) - position} bytes after the last of {count} records")


def _read_bytes(data: memoryview, position: int) -> tuple[memoryview | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    if position + size > len(data):
        raise IndexError
    return data[position : position + size], position + size


def _read_headers(data: memoryview, position: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= len(data) - position:
        raise InvalidRecord(f"a record has {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_bytes(data, position)
        if key is None:
            raise InvalidRecord("a header's key is null")
        value, position = _read_bytes(data, position)
        headers.append((key, value))
    return tuple(headers), position


NULL = varint(-1)
"""The size of a null key or value."""


def write_record(record: Record, base_offset: Offset, base_timestamp: TimestampMs) -> bytes:
    """The bytes of one record in a batch with these bases."""
    key, value = record.key, record.value
    body: list[Buffer] = [
        b"\x00",
        varint(in_64_bits(record.timestamp - base_timestamp)),
        varint(record.offset - base_offset),
        NULL if key is None else varint(len(key)),
        b"" if key is None else key,
        NULL if value is None else varint(len(value)),
        b"" if value is None else value,
        varint(len(record.headers)),
    ]
    for name, content in record.headers:
        body += varint(len(name)), name
        body += (NULL,) if content is None else (varint(len(content)), content)
    joined = b"".join(body)
    return varint(len(joined)) + joined
