"""The three index files of a segment: bytes, look-ups, truncation."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.protocol.primitives import Offset, ProducerId, TimestampMs
from reference.storage.errors import CorruptFile
from reference.storage.offset_index import OffsetIndex
from reference.storage.posix_disk import PosixDisk
from reference.storage.simulated_disk import SimulatedDisk
from reference.storage.time_index import TimeIndex
from reference.storage.transaction_index import AbortedTransaction, TransactionIndex

INDEX = Path("/00000000000000001000.index")
TIMES = Path("/00000000000000001000.timeindex")
ABORTED = Path("/00000000000000001000.txnindex")


def test_offset_index_is_kafkas_bytes(disk: SimulatedDisk) -> None:
    index = OffsetIndex(disk, INDEX, Offset(1000))
    index.reserve(100)
    index.append(Offset(1007), 4200)
    index.append(Offset(1300), 9000)
    assert disk.size_of(INDEX) == 96
    index.trim()
    assert disk.read_file(INDEX).hex() == "00000007000010680000012c00002328"
    again = OffsetIndex(disk, INDEX, Offset(1000))
    assert [again.entry(slot) for slot in range(again.count)] == [(1007, 4200), (1300, 9000)]


@given(st.lists(st.integers(0, 500), unique=True).map(sorted), st.integers(-5, 510), st.integers(-5, 510))
def test_offset_index_finds_the_last_entry_up_to(offsets: list[int], wanted: int, cut: int) -> None:
    index = OffsetIndex(SimulatedDisk(), INDEX, Offset(1000))
    index.reserve(8 * 600)
    for offset in offsets:
        index.append(Offset(1000 + offset), offset * 10)
    assert index.lookup(Offset(1000 + wanted))[1] == max(
        (10 * offset for offset in offsets if offset <= wanted), default=0
    )
    index.truncate_to(Offset(1000 + cut))
    assert index.count == sum(offset < cut for offset in offsets)


def test_indexes_are_full_in_time(disk: SimulatedDisk) -> None:
    index, times = OffsetIndex(disk, INDEX, Offset(0)), TimeIndex(disk, TIMES, Offset(0))
    for each in (index, times):
        each.reserve(36)
    for step in range(4):
        assert not index.is_full
        index.append(Offset(step), step)
    assert index.is_full
    for step in range(2):
        assert not times.is_full
        times.append(TimestampMs(step), Offset(step))
    assert times.is_full, "the last slot is kept for the entry that a roll adds"
    times.append(TimestampMs(7), Offset(7))
    assert times.count == 2
    times.append_last(TimestampMs(8), Offset(8))
    times.append_last(TimestampMs(9), Offset(9))
    assert (times.count, times.last_offset) == (3, 8)


def test_time_index_is_kafkas_bytes_and_grows_only(disk: SimulatedDisk) -> None:
    times = TimeIndex(disk, TIMES, Offset(1000))
    times.reserve(120)
    times.append(TimestampMs(0x0102030405), Offset(1007))
    times.append(TimestampMs(0x0102030405), Offset(1020))
    times.append(TimestampMs(0x0102030404), Offset(1030))
    times.append(TimestampMs(0x0102030406), Offset(1040))
    times.trim()
    assert disk.read_file(TIMES).hex() == "000000010203040500000007000000010203040600000028"
    assert (times.last_timestamp, times.last_offset) == (0x0102030406, 1040)
    times.truncate_to(Offset(1040))
    assert (times.last_timestamp, times.last_offset) == (0x0102030405, 1007)
    times.truncate_to(Offset(0))
    assert (times.last_timestamp, times.last_offset) == (-1, 1000)


def test_time_index_never_looks_too_far() -> None:
    times = TimeIndex(SimulatedDisk(), TIMES, Offset(0))
    times.reserve(1200)
    for step in range(10):
        times.append(TimestampMs(step * 10), Offset(step * 5))
    found = [times.lookup(TimestampMs(timestamp)) for timestamp in (-1, 0, 1, 10, 11, 1000)]
    assert [each[1] if each else 0 for each in found] == [0, 0, 0, 0, 5, 45]


def test_mapped_index_on_a_real_disk(tmp_path: Path) -> None:
    path = tmp_path / INDEX.name
    index = OffsetIndex(PosixDisk(), path, Offset(0))
    index.reserve(10 * 1024 * 1024)
    for step in range(1000):
        index.append(Offset(step * 10 + 9), step * 4096)
    assert index.lookup(Offset(5000))[1] == 499 * 4096
    assert path.stat().st_blocks * 512 < 100_000, "what was never written takes no room"
    index.trim()
    assert path.stat().st_size == 8000
    assert index.lookup(Offset(5000))[1] == 499 * 4096


# ---- aborted transactions


def test_transaction_index_is_kafkas_bytes(disk: SimulatedDisk) -> None:
    index = TransactionIndex(disk, ABORTED)
    assert not disk.exists(ABORTED)
    rows = [
        AbortedTransaction(ProducerId(7), Offset(10), Offset(20), Offset(15)),
        AbortedTransaction(ProducerId(8), Offset(15), Offset(30), Offset(31)),
    ]
    for row in rows:
        index.append(row)
    assert disk.read_file(ABORTED)[:34].hex() == "0000" + "".join(f"{number:016x}" for number in (7, 10, 20, 15))
    assert TransactionIndex(disk, ABORTED).entries == rows
    index.truncate_to(Offset(30))
    assert TransactionIndex(disk, ABORTED).entries == rows[:1]


@pytest.mark.parametrize(
    "data", [b"x", bytes(35), b"\x00\x01" + bytes(32), b"\x00\x00" + bytes(15) + b"\x09" + bytes(16)]
)
def test_a_damaged_transaction_index_is_named(disk: SimulatedDisk, data: bytes) -> None:
    disk.write_file(ABORTED, data)
    with pytest.raises(CorruptFile):
        TransactionIndex(disk, ABORTED)
