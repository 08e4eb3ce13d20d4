"""The codecs, Java's framings, and bounds on data that a client compressed."""

import contextlib
import random
import struct
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.errors import ErrorCode
from reference.protocol.records.compression import XERIAL_HEADER, Codec, codec_of, compress, decompress
from reference.protocol.records.errors import InvalidRecord, RecordsError

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024, 65_537, 300_000])
def test_round_trip(codec: Codec, size: int) -> None:
    for data in (bytes(size), random.Random(size).randbytes(size)):
        assert bytes(decompress(codec, compress(codec, memoryview(data)))) == data


def test_names_and_numbers() -> None:
    assert {codec.name: codec.value for codec in Codec} == {"NONE": 0, "GZIP": 1, "SNAPPY": 2, "LZ4": 3, "ZSTD": 4}
    assert codec_of(0b101_1011) is Codec.LZ4
    with pytest.raises(InvalidRecord):
        codec_of(5)


def test_raw_snappy_is_read_too() -> None:
    data = b"raw snappy without a frame" * 10
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)))) == data


def test_snappys_frame_is_javas() -> None:
    packed = compress(Codec.SNAPPY, bytes(70_000))
    assert packed[:16].hex() == "82534e41505059000000000100000001"
    sizes, position = [], 16
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        sizes.append(size)
        position += 4 + size
    assert len(sizes) == 3, "blocks of 32 KiB"


def test_lz4s_frame_has_independent_blocks() -> None:
    packed = compress(Codec.LZ4, bytes(70_000))
    assert packed[:7].hex() == "04224d18604082"
    assert packed[-4:] == bytes(4)


@pytest.mark.parametrize("frame", [{}, {"level": 9}])
def test_frames_of_other_writers(frame: dict[str, int]) -> None:
    data = b"some text that repeats itself, some text that repeats itself" * 2000
    assert bytes(decompress(Codec.LZ4, bytes(cramjam.lz4.compress(data, **frame)))) == data
    assert bytes(decompress(Codec.GZIP, bytes(cramjam.gzip.compress(data, **frame)))) == data
    assert bytes(decompress(Codec.ZSTD, bytes(cramjam.zstd.compress(data, **frame)))) == data


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_bounded(codec: Codec) -> None:
    bomb = compress(codec, bytes(20_000_000))
    tracemalloc.start()
    with pytest.raises(RecordsError) as refused:
        decompress(codec, bomb, 100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 3_000_000


@pytest.mark.parametrize("codec", PACKED)
def test_exactly_the_bound_is_allowed(codec: Codec) -> None:
    packed = compress(codec, bytes(100_000))
    assert len(decompress(codec, packed, 100_000)) == 100_000
    with pytest.raises(RecordsError):
        decompress(codec, packed, 99_999)


@pytest.mark.parametrize("codec", PACKED)
def test_truncations_and_rubbish_raise_our_error(codec: Codec) -> None:
    packed = compress(codec, b"0123456789" * 30)
    refused = 0
    for end in range(len(packed)):
        try:
            assert (b"0123456789" * 30).startswith(bytes(decompress(codec, packed[:end])))
        except RecordsError:
            refused += 1
    assert refused > len(packed) // 2
    chance = random.Random(1)
    for _ in range(300):
        damaged = bytearray(packed)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        with contextlib.suppress(RecordsError):
            assert len(decompress(codec, bytes(damaged), 100_000)) <= 100_000


@given(st.sampled_from(PACKED), st.binary(max_size=200))
def test_random_bytes(codec: Codec, data: bytes) -> None:
    for sent in (data, XERIAL_HEADER + data, b"\x04\x22\x4d\x18" + data, b"\x28\xb5\x2f\xfd" + data):
        try:
            decompress(codec, sent, 10_000)
        except RecordsError as error:
            assert error.code in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
