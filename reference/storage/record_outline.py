"""Where the records of a batch lie in its bytes, and what compaction must know of each; nothing else of them is read.

The batches come from the log: who appended them has proven their records well-formed (see `protocol.records.record`).
"""

from collections.abc import Iterator

from reference.protocol.records.errors import InvalidRecord
from reference.protocol.records.varint import VARLONG_BYTES, in_64_bits, read_raw, varint

Outline = tuple[int, int, int, int, bytes | None, bool]
"""Where a record begins and ends, its timestamp and offset deltas, its key, and whether it has a value.

A plain tuple: one is made for every record of a log, and a named one would take twice the time.
"""


def outlines(data: bytes, count: int) -> Iterator[Outline]:
    """The outlines of a batch's (unpacked) records.

    Errors: InvalidRecord when the data are not `count` records and nothing else.
    """
    position = index = 0
    try:
        for index in range(count):  # noqa: B007 (the error names it)
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
            position += 1
            timestamp = data[position]
            position += 1
            if timestamp >= 0x80:
                if (more := data[position]) < 0x80:
                    timestamp += (more << 7) - 0x80
                    position += 1
                else:
                    timestamp, position = read_raw(data, position - 1, VARLONG_BYTES)
            offset = data[position]
            position += 1
            if offset >= 0x80:
                if (more := data[position]) < 0x80:
                    offset += (more << 7) - 0x80
                    position += 1
                else:
                    offset, position = read_raw(data, position - 1)
            key_size = data[position]
            position += 1
            if key_size >= 0x80:
                key_size, position = read_raw(data, position - 1)
            if key_size & 1:
                key = None
            else:
                key = data[position : position + (key_size >> 1)]
                position += key_size >> 1
            yield start, end, (timestamp >> 1) ^ -(timestamp & 1), offset >> 1, key, not data[position] & 1
            position = end
    except IndexError:
        raise InvalidRecord(f"record {index} of {count} is cut off") from None
    if position != len(data):
        raise InvalidRecord(f"the {count} records end at {position} of {len(data)} bytes")


def with_timestamp_delta(data: bytes, start: int, end: int, delta: int) -> bytes:
    """The bytes of a record with another timestamp delta."""
    _, attributes_at = read_raw(data, start)
    _, rest_at = read_raw(data, attributes_at + 1, VARLONG_BYTES)
    body = data[attributes_at : attributes_at + 1] + varint(in_64_bits(delta)) + data[rest_at:end]
    return varint(len(body)) + body
