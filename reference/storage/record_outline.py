"""Positions of a batch's records in its bytes, and the fields that compaction needs, as columns; no other field is read.

The batches come from the log, and the append has proven their records well-formed. As in that proof (see
`protocol.records.record`), the twins of a record that was read are not read one by one. Twins are neighbours of one size whose
keys have one size, and whose timestamps and offsets differ in their lowest seven bits only.
"""

from collections.abc import Sequence
from struct import unpack_from
from typing import NamedTuple

from reference.protocol.records.errors import InvalidRecord
from reference.protocol.records.record import ALONE, EVEN, count_alike, lowest_bytes
from reference.protocol.records.varint import VARLONG_BYTES, in_64_bits, read_raw, varint


class Outlines(NamedTuple):
    """A batch's records, column by column: a list takes twins as a whole, where tuples would be made one by one."""

    bounds: list[int]
    """Where each record begins, and where the last one ends."""
    timestamp_deltas: list[int]
    offset_deltas: list[int]
    keys: list[bytes | None]
    tombstones: list[int]
    """Indexes of the records without a value."""


def outlines(data: bytes, count: int) -> Outlines:
    """The outlines of a batch's (unpacked) records.

    Errors: InvalidRecord when the data are not `count` records and nothing else.
    """
    found = bounds, timestamps, offsets, keys, tombstones = Outlines([0], [], [], [], [])
    position = index = last_size = 0
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
            timestamp = data[timestamp_at]
            position += 2
            if timestamp >= 0x80:
                if (more := data[position]) < 0x80:
                    timestamp += (more << 7) - 0x80
                    position += 1
                else:
                    timestamp, position = read_raw(data, timestamp_at, VARLONG_BYTES)
            timestamp = (timestamp >> 1) ^ -(timestamp & 1)
            offset_at = position
            offset = data[position]
            position += 1
            if offset >= 0x80:
                if (more := data[position]) < 0x80:
                    offset += (more << 7) - 0x80
                    position += 1
                else:
                    offset, position = read_raw(data, offset_at)
            key_size = data[position]
            position += 1
            if key_size >= 0x80:
                key_size, position = read_raw(data, position - 1)
            key_at = position
            if key_size & 1:
                key = None
            else:
                position += key_size >> 1
                key = data[key_at:position]
            bounds.append(end)
            timestamps.append(timestamp)
            offsets.append(offset >> 1)
            keys.append(key)
            if is_tombstone := data[position] & 1:
                tombstones.append(index)
            index += 1
            if size == last_size and position < end and index < count and data[end] == data[start]:
                shape = (
                    *range(offset_at + 1, key_at), *range(start, timestamp_at - 1), *range(timestamp_at + 1, offset_at), position,
                )  # fmt: skip
                twins = _add_twins(found, data, shape, (timestamp_at, offset_at, key_at), count - index + 1)
                if twins and is_tombstone:
                    tombstones.extend(range(index, index + twins))
                index += twins
                end += twins * (end - start)
            position, last_size = end, size
    except IndexError:
        raise InvalidRecord(f"record {index} of {count} is cut off") from None
    if position != len(data):
        raise InvalidRecord(f"the {count} records end at {position} of {len(data)} bytes")
    return found


def _add_twins(found: Outlines, data: bytes, shape: tuple[int, ...], places: tuple[int, int, int], most: int) -> int:
    """Add the twins of the last record to all columns but the tombstones; returns how many there are.

    Input: positions of the record's shape, and of its timestamp delta, offset delta and key; the number of records from it on.
    """
    timestamp_at, offset_at, key_at = places
    start, end = found.bounds[-2:]
    size, key = end - start, found.keys[-1]
    alike = count_alike(data, shape, size, min(most, len(ALONE)))
    timestamps = lowest_bytes(data, timestamp_at, size, alike)
    offsets = lowest_bytes(data, offset_at, size, alike)
    if not timestamps or not offsets:
        return 0
    twins = alike - 1
    found.bounds.extend(range(end + size, end + twins * size + 1, size))
    found.timestamp_deltas.extend(_numbers(timestamps, found.timestamp_deltas[-1]))
    found.offset_deltas.extend(_numbers(offsets, found.offset_deltas[-1]))
    found.keys.extend(
        [None] * twins
        if key is None
        else unpack_from(f"{size - len(key)}x{len(key)}s" * twins, data, key_at + len(key))
    )
    return twins


def _numbers(lowest: bytes, first: int) -> Sequence[int]:
    """The numbers of a record's twins, from the lowest bytes of all and the record's own number."""
    if lowest == EVEN[lowest[0] >> 1 :][: len(lowest)]:
        return range(first + 1, first + len(lowest))
    if lowest.count(lowest[0]) == len(lowest):
        return [first] * (len(lowest) - 1)
    base = first - (lowest[0] >> 1)
    return [base + (byte >> 1) for byte in lowest[1:]]


def with_timestamp_delta(record: bytes, delta: int) -> bytes:
    """The bytes of a record with another timestamp delta."""
    _, attributes_at = read_raw(record, 0)
    _, rest_at = read_raw(record, attributes_at + 1, VARLONG_BYTES)
    body = record[attributes_at : attributes_at + 1] + varint(in_64_bits(delta)) + record[rest_at:]
    return varint(len(body)) + body
