"""Zigzag variable-length integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.records.errors import InvalidRecord
from reference.protocol.records.varint import read_varint, read_varlong, varint


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804"), (2**31 - 1, "feffffff0f"),
     (-(2**31), "ffffffff0f"), (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")],
)  # fmt: skip
def test_known_bytes(value: int, data: str) -> None:
    assert varint(value).hex() == data
    assert read_varlong(bytes.fromhex(data), 0) == (value, len(data) // 2)


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3))
def test_round_trip_of_32_bits(value: int, behind: bytes) -> None:
    data = b"??" + varint(value) + behind
    assert read_varint(data, 2) == (value, len(data) - len(behind))


@given(st.integers(-(2**63), 2**63 - 1))
def test_round_trip_of_64_bits(value: int) -> None:
    assert read_varlong(varint(value), 0) == (value, len(varint(value)))


def test_too_long() -> None:
    with pytest.raises(InvalidRecord):
        read_varint(b"\x80\x80\x80\x80\x80\x00", 0)
    with pytest.raises(InvalidRecord):
        read_varlong(b"\x80" * 10 + b"\x00", 0)
    with pytest.raises(IndexError):
        read_varint(b"\x80\x80", 0)


def test_a_longer_form_than_needed_is_read() -> None:
    assert read_varint(b"\x82\x80\x00", 0) == (1, 3)
