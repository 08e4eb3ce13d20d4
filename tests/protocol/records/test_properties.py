"""Properties of all records: each format reads back what was written, and a truncation removes only the tail."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from reference.protocol.records.batch import build, check_crc, read_batches, read_header, records_of
from reference.protocol.records.compression import Codec
from reference.protocol.records.control import (
    ControlType,
    EndTransaction,
    build_end_transaction,
    control_key,
    control_type,
    read_end_transaction,
)
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.legacy import read_message_set, write_message_set
from reference.protocol.records.record import Record
from reference.protocol.records.validate import MAX_LONG, ProduceRules, validate
from reference.protocol.records.varint import read_varint, read_varlong
from tests.protocol.records.random_records import TIME, plain, record_at

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
DATA = st.none() | st.binary(max_size=70)
HEADERS = st.lists(st.tuples(st.binary(max_size=5), DATA), max_size=2).map(tuple)
LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


@st.composite
def records(draw: st.DrawFn, *, headers: bool = True, times: st.SearchStrategy[int] = INT64) -> list[Record]:
    """A few records at rising offsets with gaps."""
    offset = draw(st.integers(0, 2**62))
    found: list[Record] = []
    for _ in range(draw(st.integers(1, 6))):
        found.append(record_at(offset, draw(times), draw(DATA), draw(DATA), draw(HEADERS) if headers else ()))
        offset += draw(st.integers(1, 2**20))
    return found


# ---- batches


@given(records(), st.sampled_from(Codec))
@example([record_at(0, -1, None, None), record_at(1, 2**63 - 1, None, None)], Codec.NONE)
@example([record_at(0, 2**63 - 1, None, None), record_at(1, -(2**63), None, None)], Codec.NONE)
def test_a_batch_is_read_back_as_its_records(given_records: list[Record], codec: Codec) -> None:
    """Also with timestamps whose difference exceeds 64 bits: deltas wrap, as in Java."""
    batch = memoryview(build(given_records, codec=codec))
    header = read_header(batch)
    check_crc(batch, header)
    assert plain(list(records_of(batch))) == plain(given_records)
    assert header.max_timestamp == max(record.timestamp for record in given_records)
    assert (header.base_offset, header.last_offset) == (given_records[0].offset, given_records[-1].offset)


@given(st.lists(records(), min_size=1, max_size=3), st.sampled_from(Codec), st.data())
def test_a_cut_takes_only_the_batch_that_it_hits(sets: list[list[Record]], codec: Codec, data: st.DataObject) -> None:
    batches = [bytes(build(each, codec=codec)) for each in sets]
    joined = b"".join(batches)
    cut = data.draw(st.integers(0, len(joined)))
    whole = [batch for index, batch in enumerate(batches) if len(b"".join(batches[: index + 1])) <= cut]
    assert [bytes(batch.data) for batch in read_batches(joined[:cut])] == whole


@given(records(times=st.just(TIME)), st.sampled_from(Codec), st.integers(1, 60))
def test_a_batch_that_is_cut_is_refused_whole(given_records: list[Record], codec: Codec, cut: int) -> None:
    batch = build(given_records, codec=codec)
    with pytest.raises(RecordsError):
        validate(batch[:-cut], ProduceRules(), TIME)


@given(INT64, INT64, st.booleans(), st.booleans())
@example(2**63 - 1, -(2**63), False, False)
@example(-(2**63), 2**63 - 1, False, True)
def test_any_timestamps_are_stored_or_refused(first: int, second: int, append_time: bool, bounded: bool) -> None:
    """Timestamps whose sum overflows 64 bits must neither fail the broker nor be stored."""
    batch = build([record_at(0, first, None, b"a"), record_at(1, second, None, b"b")])
    base = struct.pack(">q", second)
    rules = ProduceRules(log_append_time=append_time, after_max_ms=3_600_000 if bounded else MAX_LONG)
    for damaged in (batch, batch[:27] + base + batch[35:]):
        try:
            found = validate(_with_crc(bytearray(damaged)), rules, TIME)
        except RecordsError as error:
            assert error.code is ErrorCode.INVALID_TIMESTAMP
            continue
        stored = [record.timestamp for record in records_of(found.batch)]
        assert read_header(found.batch).max_timestamp == max(-1, *stored) == found.max_timestamp


def _with_crc(batch: bytearray) -> bytearray:
    from crc32c import crc32c

    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


# ---- message sets


@given(
    records(headers=False), st.sampled_from([0, 1]), st.sampled_from(LEGACY_CODECS), st.none() | st.integers(0, TIME)
)
@example([record_at(0, 5, b"k", b"v")], 1, Codec.NONE, 0)
@example([record_at(0, 5, b"k", b"v")], 1, Codec.GZIP, 0)
def test_a_message_set_is_read_back_as_its_records(
    given_records: list[Record], magic: int, codec: Codec, append_time: int | None
) -> None:
    logged = None if append_time is None else TimestampMs(append_time)
    found = list(read_message_set(write_message_set(given_records, magic, codec, logged)))
    if magic == 0:
        expected = [record._replace(timestamp=-1) for record in given_records]
    elif append_time is not None:
        expected = [record._replace(timestamp=append_time) for record in given_records]
    else:
        expected = given_records
    assert plain(found) == plain(expected)


@given(records(headers=False), st.sampled_from([0, 1]), st.data())
def test_a_cut_takes_only_the_messages_that_it_hits(
    given_records: list[Record], magic: int, data: st.DataObject
) -> None:
    whole = write_message_set(given_records, magic)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [len(write_message_set(given_records[: count + 1], magic)) for count in range(len(given_records))]
    assert len(list(read_message_set(whole[:cut]))) == sum(end <= cut for end in ends)


# ---- control records and varints


@given(st.booleans(), INT32, INT64, st.integers(0, 2**15 - 1), st.integers(0, 2**62))
def test_a_marker_is_read_back_as_written(
    committed: bool, coordinator: int, producer: int, epoch: int, offset: int
) -> None:
    marker = EndTransaction(committed, LeaderEpoch(coordinator))
    built = build_end_transaction(marker, ProducerId(producer), ProducerEpoch(epoch), TIME, Offset(offset))
    batch = memoryview(built)
    header = read_header(batch)
    (record,) = records_of(batch)
    assert read_end_transaction(record) == marker
    assert (record.offset, header.producer_id, header.producer_epoch) == (offset, producer, epoch)
    assert header.is_control
    assert header.is_transactional


@given(st.sampled_from(ControlType))
def test_a_control_key_is_read_back_as_its_type(kind: ControlType) -> None:
    assert control_type(record_at(0, 0, control_key(kind), None)) == kind


@given(st.binary(min_size=1, max_size=12))
def test_a_varint_of_any_bytes_fits_its_width(data: bytes) -> None:
    for read, most, bits in ((read_varint, 5, 32), (read_varlong, 10, 64)):
        try:
            value, end = read(data, 0)
        except (RecordsError, IndexError):
            assert all(byte >= 0x80 for byte in data[:most])
            continue
        assert -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
        assert end <= most
        assert data[end - 1] < 0x80
