"""The walk over a batch's records agrees with reading them one by one, and refuses each malformed record."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.primitives import FIRST_OFFSET, TimestampMs
from reference.protocol.records.errors import InvalidRecord
from reference.protocol.records.record import Record, Walk, read_records, walk, write_record
from tests.protocol.records.random_records import random_records, record_at

ZERO = TimestampMs(0)


def written(records: list[Record]) -> bytes:
    return b"".join(write_record(record, FIRST_OFFSET, ZERO) for record in records)


def found_by_reading(data: bytes, count: int) -> Walk:
    records = list(read_records(memoryview(data), count, FIRST_OFFSET, ZERO))
    times = [record.timestamp for record in records]
    return Walk(
        min(times),
        max(times),
        [record.offset for record in records] == list(range(count)),
        any(record.key is None for record in records),
    )


RECORDS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 63, 64, 100, 8191, 8192, -1, -64, -65, 1 << 40]),
        st.sampled_from([b"k", b"k", b"", None, b"x" * 63, b"x" * 64]),
        st.sampled_from([b"v" * 20, b"v" * 20, b"v" * 64, b"", None, b"v" * 8200]),
        st.sampled_from([(), (), (), ((b"h", None),), ((b"", b""), (b"h" * 70, b"x"))]),
        st.sampled_from([1, 1, 1, 1, 70, 130]),
    ),
    min_size=1,
    max_size=6,
)


@given(RECORDS, st.booleans())
def test_the_walk_agrees_with_reading(runs: list[tuple], rising: bool) -> None:
    """Runs of equal shape, with equal or rising timestamps, between records of other shapes."""
    records: list[Record] = []
    for delta, key, value, headers, times in runs:
        for step in range(times):
            records.append(record_at(len(records), delta + (step if rising else 0), key, value, headers))
    data = written(records)
    assert walk(data, len(records)) == found_by_reading(data, len(records))


@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_walk_and_reading_agree_on_every_changed_byte(chance: random.Random, changes: int) -> None:
    records = random_records(chance)
    data = bytearray(
        written([record._replace(timestamp=record.timestamp - records[0].timestamp) for record in records])
    )
    for _ in range(changes):
        data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    damaged = bytes(data)
    try:
        expected = found_by_reading(damaged, len(records))
    except InvalidRecord:
        with pytest.raises(InvalidRecord):
            walk(damaged, len(records))
        return
    assert walk(damaged, len(records)) == expected


@given(st.binary(max_size=300), st.integers(-1, 400))
def test_random_bytes_raise_nothing_else(data: bytes, count: int) -> None:
    for read in (lambda: walk(data, count), lambda: list(read_records(memoryview(data), count, FIRST_OFFSET, ZERO))):
        try:
            read()
        except InvalidRecord as error:
            assert error.message


def test_every_truncation_is_refused() -> None:
    records = [record_at(index, index, b"key", b"value", ((b"h", b"v"),)) for index in range(3)]
    records += [record_at(3 + index, 0, b"key", b"value") for index in range(3)]
    data = written(records)
    for end in range(len(data)):
        with pytest.raises(InvalidRecord):
            walk(data[:end], len(records))
        with pytest.raises(InvalidRecord):
            list(read_records(memoryview(data)[:end], len(records), FIRST_OFFSET, ZERO))
    for count in (5, 7):
        with pytest.raises(InvalidRecord):
            walk(data, count)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ("0c 00 00 00 01 01 00", "one record of 6 bytes that has 7"),
        ("0e 00 00 00 01 01 00", "its size is one more than it has"),
        ("0d 00 00 00 01 01 00", "a negative size"),
        ("0c 00 00 00 01 01 02", "a header that is not there"),
        ("10 00 00 00 01 01 01 00", "a negative number of headers"),
        ("12 00 00 00 01 01 02 01 01", "a header whose key is null"),
        ("0c 00 00 00 20 01 00", "a key that reaches past the record"),
        ("80 80 80 80 80 00", "a size of six bytes"),
    ],
)
def test_malformed_records(record: str, why: str) -> None:
    data = bytes.fromhex(record)
    if why.startswith("one"):
        assert walk(data, 1) == Walk(0, 0, True, True)
        data += b"\x00"
    with pytest.raises(InvalidRecord):
        walk(data, 1)


def test_a_header_bomb_is_refused_at_once() -> None:
    data = bytes.fromhex("16 00 00 00 01 01 feffffff0f".replace(" ", ""))
    began = time.process_time()
    with pytest.raises(InvalidRecord):
        walk(data, 1)
    with pytest.raises(InvalidRecord):
        list(read_records(memoryview(data), 1, FIRST_OFFSET, ZERO))
    assert time.process_time() - began < 1
