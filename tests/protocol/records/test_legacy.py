"""Message sets; Java's are read and written in test_against_java, kafka-python's in test_other_clients."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.primitives import FIRST_OFFSET
from reference.protocol.records.compression import Codec
from reference.protocol.records.errors import CorruptBatch, InvalidRecord, RecordsError
from reference.protocol.records.legacy import read_message_set, write_message_set
from tests.protocol.records.random_records import TIME, record_at

RECORDS = [record_at(10 + index, TIME + index, b"key", b"value" * index) for index in range(4)]
RECORDS[1] = RECORDS[1]._replace(key=None, value=None)
LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def test_a_message_of_magic_1_by_bytes() -> None:
    data = write_message_set([record_at(5, TIME, b"k", None)], 1)
    assert data[:12].hex() == "000000000000000500000017"
    assert data[16:].hex() == "01000000018bcfe56800000000016bffffffff"


def test_headers_and_zstd_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="headers"):
        write_message_set([record_at(0, 0, None, None, ((b"h", None),))], 1)
    with pytest.raises(ValueError, match="zstd"):
        write_message_set(RECORDS, 1, Codec.ZSTD)


def test_damage_is_found() -> None:
    data = bytearray(write_message_set(RECORDS[:1], 1))
    for position in range(12, len(data)):
        data[position] ^= 1
        with pytest.raises(CorruptBatch):
            list(read_message_set(bytes(data)))
        data[position] ^= 1


def test_wrappers_in_wrappers_and_empty_ones() -> None:
    inner = write_message_set(RECORDS, 1, Codec.GZIP)
    from reference.protocol.records.compression import compress
    from reference.protocol.records.legacy import _written

    for value in (compress(Codec.GZIP, inner), compress(Codec.GZIP, b""), None, b"rubbish"):
        with pytest.raises(InvalidRecord):
            list(read_message_set(_written(FIRST_OFFSET, 1, int(Codec.GZIP), TIME, None, value)))


def test_a_bomb_is_bounded() -> None:
    bomb = write_message_set([record_at(0, TIME, None, bytes(5_000_000))], 1, Codec.GZIP)
    with pytest.raises(RecordsError, match="more than"):
        list(read_message_set(bomb, max_bytes=100_000))


@given(
    st.binary(max_size=200), st.randoms(use_true_random=False), st.sampled_from([0, 1]), st.sampled_from(LEGACY_CODECS)
)
def test_random_bytes_raise_our_errors_only(data: bytes, chance: random.Random, magic: int, codec: Codec) -> None:
    damaged = bytearray(write_message_set(RECORDS, magic, codec))
    damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    for given_bytes in (data, bytes(damaged), bytes(damaged)[: chance.randrange(len(damaged))]):
        try:
            list(read_message_set(given_bytes))
        except RecordsError as error:
            assert error.message
