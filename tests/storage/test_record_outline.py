"""Outlines of records agree with reading them one by one, also where runs of equal shape are skipped."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.primitives import FIRST_OFFSET, Offset, TimestampMs
from reference.protocol.records.errors import InvalidRecord
from reference.protocol.records.record import Record, write_record
from reference.protocol.records.varint import read_varint, read_varlong
from reference.storage import record_outline
from reference.storage.record_outline import Outlines, outlines


def one_by_one(data: bytes, count: int) -> Outlines:
    """The outlines, by reading one record after another."""
    position = 0
    found = Outlines([0], [], [], [], [])
    try:
        for index in range(count):
            start = position
            size, position = read_varint(data, start)
            end = position + size if size >= 0 else position + ~size
            timestamp, position = read_varlong(data, position + 1)
            offset, position = read_varint(data, position)
            key_size, position = read_varint(data, position)
            key = None if key_size < 0 else data[position : position + key_size]
            position += max(0, key_size)
            if data[position] & 1:
                found.tombstones.append(index)
            found.bounds.append(end)
            found.timestamp_deltas.append(timestamp)
            found.offset_deltas.append(offset if offset >= 0 else ~offset)
            found.keys.append(key)
            position = end
    except IndexError:
        raise InvalidRecord("a record is cut off") from None
    if position != len(data):
        raise InvalidRecord("there are other bytes")
    return found


def written(records: list[Record]) -> bytes:
    return b"".join(write_record(record, Offset(0), TimestampMs(0)) for record in records)


RUNS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 63, 64, 100, 8191, 8192, -1, -64, -65, 1 << 40]),
        st.sampled_from([0, 0, 1, 3, -1]),
        st.sampled_from([1, 1, 1, 2, 5, 70]),
        st.sampled_from([3, 3, 0, None, 63, 64]),
        st.sampled_from([b"v" * 20, b"v" * 20, b"", None, b"v" * 8200]),
        st.sampled_from([(), (), ((b"h", None),)]),
        st.sampled_from([1, 2, 3, 70, 130]),
    ),
    min_size=1,
    max_size=5,
)
"""Timestamp of the first record, and how it and the offset rise; size of the keys, value, headers, and how many."""


def records_of(chance: random.Random, runs: list[tuple]) -> list[Record]:
    records: list[Record] = []
    offset = FIRST_OFFSET
    for timestamp, rises, gap, key_size, value, headers, times in runs:
        for step in range(times):
            key = None if key_size is None else chance.randbytes(key_size)
            records.append(Record(offset, timestamp + rises * step, key, value, headers))
            offset += gap
    return records


@given(st.randoms(use_true_random=False), RUNS)
def test_outlines_are_what_reading_one_by_one_finds(chance: random.Random, runs: list[tuple]) -> None:
    records = records_of(chance, runs)
    data = written(records)
    found = outlines(data, len(records))
    assert found == one_by_one(data, len(records))
    assert found.timestamp_deltas == [record.timestamp for record in records]
    assert found.offset_deltas == [record.offset for record in records]
    assert found.keys == [record.key for record in records]
    assert found.tombstones == [index for index, record in enumerate(records) if record.value is None]


@given(st.randoms(use_true_random=False), RUNS, st.integers(1, 3))
def test_damaged_bytes_are_found_the_same(chance: random.Random, runs: list[tuple], changes: int) -> None:
    records = records_of(chance, runs)
    data = bytearray(written(records))
    for _ in range(changes):
        data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    damaged = bytes(data[: chance.choice((len(data), len(data), chance.randrange(len(data))))])
    try:
        expected = one_by_one(damaged, len(records))
    except InvalidRecord:
        with pytest.raises(InvalidRecord):
            outlines(damaged, len(records))
        return
    assert outlines(damaged, len(records)) == expected


def test_a_run_of_twins_is_looked_at_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 records of one shape: one is read for each 64 offsets, whatever the timestamps."""
    counts: list[int] = []
    original = record_outline._add_twins

    def counted(*given: Any) -> int:
        counts.append(original(*given))
        return counts[-1]

    monkeypatch.setattr(record_outline, "_add_twins", counted)
    chance = random.Random(3)
    data = written(
        [
            Record(Offset(index), TimestampMs(index // 10), chance.randbytes(16), chance.randbytes(50))
            for index in range(600)
        ]
    )
    assert outlines(data, 600) == one_by_one(data, 600)
    assert len(counts) <= 12
    assert sum(counts) > 570
