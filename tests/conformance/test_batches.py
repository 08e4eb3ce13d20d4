"""The suite's record batches against the reference's reader: what is meant to be valid is, and reads back equal."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.batches import (
    CODECS,
    MOST_UNPACKED_BYTES,
    Record,
    batch,
    batches,
    compress,
    decompress,
    idempotent,
    message_set,
    next_offset,
    patched,
    records,
    stored_as,
    values,
    varint,
    without_rest,
)
from conformance.message_sets import stored
from conformance.wire import Failed
from reference.protocol.primitives import Buffer
from reference.protocol.records.batch import read_all_records

some_bytes = st.none() | st.binary(max_size=40)
some_records = st.lists(
    st.builds(
        Record,
        value=some_bytes,
        key=some_bytes,
        headers=st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3).map(tuple),
        timestamp=st.integers(0, 2**45),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(some_records, st.sampled_from(list(CODECS.values())))
def test_what_is_written_reads_back(written: list[Record], codec: int) -> None:
    (read,) = batches(batch(*written, codec=codec))
    assert read.crc_holds
    assert [(r.value, r.key, r.headers, r.timestamp) for r in read.records()] == [
        (r.value, r.key, r.headers, r.timestamp) for r in written
    ]
    assert [r.offset for r in read.records()] == list(range(len(written)))
    assert read.max_timestamp == max(r.timestamp or 0 for r in written)


def test_every_field_can_be_a_lie() -> None:
    (lied,) = batches(batch(b"x", crc=7, count=9, producer_id=5, base_sequence=-3))
    assert (lied.crc, lied.count, lied.producer_id, lied.base_sequence, lied.crc_holds) == (7, 9, 5, -3, False)
    with pytest.raises(TypeError, match="no field"):
        batch(b"x", colour=3)


def test_a_patched_batch_has_a_right_crc_unless_it_is_patched_too() -> None:
    data = batch(b"x")
    assert batches(patched(data, count=7))[0].crc_holds
    assert not batches(patched(data, crc=0))[0].crc_holds
    assert patched(data) == data


def test_a_cut_off_batch_is_left_out() -> None:
    data = batch(b"a") + patched(batch(b"b"), base_offset=1)
    assert values(data) == [b"a", b"b"]
    assert values(data[:-1]) == [b"a"]
    assert next_offset(data) == 2
    with pytest.raises(Failed, match="no whole batch"):
        next_offset(data[:20])


@pytest.mark.parametrize(
    "whole", [batch(b"a") + batch(b"b", base_offset=1), message_set(b"a", 1) + message_set(b"b", 1)]
)
def test_a_cut_off_end_is_taken_off(whole: bytes) -> None:
    assert [without_rest(whole + whole[:cut]) for cut in (0, 5, 11, 12, 30)] == [whole] * 5
    assert without_rest(b"") == b""
    assert without_rest(whole + bytes(20)) == whole + bytes(20), "what has no length is left to who reads it"


def test_what_a_broker_stores_differs_in_offset_and_epoch_only() -> None:
    sent = idempotent([b"a", b"b"], 4, 0, 0)
    stored = batches(patched(sent, base_offset=17, partition_leader_epoch=3))[0]
    assert stored_as(sent, stored) == stored.data
    assert [r.offset for r in records(stored.data)] == [17, 18]


def test_log_append_time_gives_every_record_the_batch_s() -> None:
    (read,) = batches(batch(Record(b"a", timestamp=5), Record(b"b", timestamp=9), attributes=8, max_timestamp=77))
    assert [r.timestamp for r in read.records()] == [77, 77]


@pytest.mark.parametrize(("value", "data"), [(0, "00"), (-1, "01"), (1, "02"), (-65, "8101"), (300, "d804")])
def test_varints_are_zigzag(value: int, data: str) -> None:
    assert varint(value).hex() == data


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_large_and_incompressible_data_comes_back(codec: int) -> None:
    data = random.Random(1).randbytes(200_000) + bytes(200_000)
    assert decompress(compress(data, codec), codec) == data
    (read,) = batches(batch(data, codec=codec))
    assert read.records()[0].value == data


def test_snappy_is_read_with_and_without_java_s_framing() -> None:
    import cramjam

    assert decompress(bytes(cramjam.snappy.compress_raw(b"x" * 99)), CODECS["snappy"]) == b"x" * 99


@pytest.mark.parametrize("codec", list(CODECS.values())[1:], ids=list(CODECS)[1:])
def test_what_unpacks_to_more_than_the_suite_writes_is_a_failure_of_the_target(codec: int) -> None:
    bomb = compress(bytes(MOST_UNPACKED_BYTES + 1), codec)
    (read,) = batches(batch(payload=bomb, codec=codec, count=1))
    with pytest.raises(Failed, match="unpack to more than 16777216 bytes"):
        read.records()
    with pytest.raises(Failed, match="cannot be unpacked"):
        decompress(b"\x05" + bytes(9), codec)


def test_what_announces_more_than_its_bytes_hold_is_read_no_further() -> None:
    (read,) = batches(batch(b"x", count=1 << 30))
    with pytest.raises(Failed, match="1073741824 records are announced"):
        read.records()
    with pytest.raises(Failed, match="unknown codec: 7"):
        batches(batch(b"x", attributes=7))[0].records()


@pytest.mark.parametrize("read", [values, stored], ids=["lenient", "strict"])
def test_messages_that_make_no_sense_are_failures(read: Callable[[bytes], object]) -> None:
    whole = message_set(b"value", 1)
    for bad in (
        whole[:8] + (-12).to_bytes(4, "big", signed=True) + whole[12:],
        message_set(compress(message_set(compress(whole, 1), 1, attributes=1), 1), 1, attributes=1),
        message_set(b"no gzip", 1, attributes=1),
    ):
        with pytest.raises(Failed):
            read(bad)


@settings(max_examples=50, deadline=None)
@given(some_records, st.sampled_from(list(CODECS.values())))
def test_the_reference_reads_them_alike(written: list[Record], codec: int) -> None:
    data = batch(*written, codec=codec)
    theirs = list(read_all_records(data))
    ours = records(data)
    assert [(r.offset, r.timestamp, _plain(r.key), _plain(r.value)) for r in theirs] == [
        (r.offset, r.timestamp, r.key, r.value) for r in ours
    ]


def _plain(data: Buffer | None) -> bytes | None:
    return None if data is None else bytes(data)


def test_old_message_sets_have_their_crc() -> None:
    import struct
    import zlib

    for magic in (0, 1):
        data = message_set(b"v", magic)
        assert struct.unpack_from(">I", data, 12)[0] == zlib.crc32(data[16:])
        assert struct.unpack_from(">i", data, 8)[0] == len(data) - 12
