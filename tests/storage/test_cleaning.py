"""Compaction of one log: kept and removed records, and their times; random runs are in test_log_machine."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reference.protocol.primitives import (
    FIRST_EPOCH,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from reference.protocol.records.batch import (
    Batch,
    BatchHeader,
    BatchProducer,
    build,
    check_crc,
    read_batches,
    read_header,
    records_of,
)
from reference.protocol.records.compression import Codec
from reference.protocol.records.record import Record
from reference.storage import offset_map
from reference.storage.cleanable import Cleanable, cleanable, groups
from reference.storage.cleaning import Cleaning, Done
from reference.storage.config import DAY_MS, LogConfig
from reference.storage.errors import StorageError
from reference.storage.log import Log
from reference.storage.offset_map import ENTRY_BYTES, OffsetMap
from reference.storage.posix_disk import PosixDisk
from reference.storage.record_outline import Outlines, outlines
from reference.storage.recovery import PreviousRun
from reference.storage.segment import StoredBatch
from reference.storage.simulated_disk import SimulatedDisk
from tests.storage.breaking_disk import BreakingDisk
from tests.storage.logs import FOLDER, NOW, T_0, end_transaction, names, open_log

COMPACT = LogConfig(cleanup_policy="compact", segment_index_bytes=4096, index_interval_bytes=0)
MAP_BYTES = 1 << 20
Row = tuple[int, str, str | None]


def put(log: Log, *pairs: tuple[str, str | None], time: TimestampMs = NOW, **batch: Any) -> None:
    """Append one batch of these keys and values."""
    records = [
        Record(Offset(index), time + index, key.encode(), None if value is None else value.encode())
        for index, (key, value) in enumerate(pairs)
    ]
    log.append_as_leader(build(records, **batch), FIRST_EPOCH, time)


def section_of(log: Log, *, clean_to: int = 0, stable: int | None = None, now: TimestampMs = NOW) -> Cleanable:
    limit = min(log.log_end_offset if stable is None else Offset(stable), log.recovery_point)
    return cleanable(
        log.closed_segments, log.config, log.active_base, log.log_start_offset, Offset(clean_to), limit, now
    )


def compact(
    log: Log, *, clean_to: int = 0, now: TimestampMs = NOW, rolls: bool = True, map_bytes: int = MAP_BYTES
) -> Done:
    if rolls:
        log.roll(now)
        log.flush(now)
    cleaning = Cleaning(log, section_of(log, clean_to=clean_to, now=now), now, map_bytes)
    for _ in cleaning.steps():
        pass
    assert cleaning.done is not None
    return cleaning.done


def headers(log: Log) -> list[BatchHeader]:
    return [batch.header for batch in batches(log)]


def batches(log: Log) -> Sequence[Batch]:
    found, at = list[Batch](), log.log_start_offset
    while at < log.log_end_offset:
        data = log.read(at, 1 << 20).records
        whole = list(read_batches(data if isinstance(data, bytes) else data.read()))
        if not whole:
            break
        found += whole
        at = whole[-1].header.next_offset
    for batch in found:
        check_crc(batch.data, batch.header)
    return found


def rows(log: Log) -> list[Row]:
    return [
        (
            record.offset,
            bytes(record.key or b"").decode(),
            record.value if record.value is None else bytes(record.value).decode(),
        )
        for batch in batches(log)
        if not batch.header.is_control
        for record in records_of(batch.data)
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_the_last_of_each_key_stays_at_its_offset(codec: Codec) -> None:
    log = open_log(config=COMPACT)
    put(log, ("a", "1"), ("b", "2"), ("c", "3"), codec=codec)
    put(log, ("b", "4"), ("c", "5"), ("d", "6"), codec=codec)
    done = compact(log)
    assert (done.end, log.log_end_offset) == (6, 6)
    assert rows(log) == [(0, "a", "1"), (3, "b", "4"), (4, "c", "5"), (5, "d", "6")]
    assert [(one.base_offset, one.next_offset, one.codec) for one in headers(log)] == [(0, 3, codec), (3, 6, codec)]
    assert headers(log)[0].max_timestamp == NOW
    assert done.left_bytes < done.read_bytes


def test_neighbours_become_one_segment_and_its_files_are_durable(disk: SimulatedDisk) -> None:
    log = open_log(disk, COMPACT)
    for step in range(5):
        put(log, ("k", str(step)), (f"own{step}", "x"))
        log.roll(NOW)
    compact(log)
    assert names(log, ".log") == ["00000000000000000000.log", "00000000000000000010.log"]
    assert names(log, ".snapshot") == ["00000000000000000010.snapshot"]
    before = rows(log)
    again = open_log(disk, COMPACT, recovery_point=10)
    assert (again.recovered_bytes, again.lost_bytes) == (0, 0)
    assert rows(again) == before
    log.tick(NOW + COMPACT.file_delete_delay_ms)
    assert names(log, ".deleted") == []


def test_a_reader_keeps_the_file_that_was_replaced() -> None:
    log = open_log(config=COMPACT)
    put(log, ("k", "old"))
    put(log, ("k", "new"))
    taken = log.read(Offset(0), 1 << 20).records
    compact(log)
    log.tick(NOW + DAY_MS)
    assert not isinstance(taken, bytes)
    assert [
        bytes(record.value or b"") for batch in read_batches(taken.read()) for record in records_of(batch.data)
    ] == [
        b"old",
        b"new",
    ]


# ---- tombstones


@pytest.mark.parametrize("time", [-(2**63) + 2 * NOW, -1, NOW])
def test_timestamps_and_retention_may_be_as_large_as_they_like(time: int) -> None:
    log = open_log(config=replace(COMPACT, delete_retention_ms=2**63 - 1))
    records = [
        Record(Offset(0), TimestampMs(time), b"k", b"1"),
        Record(Offset(1), TimestampMs(time + 2), b"k", None),
        Record(Offset(2), TimestampMs(time + 1), b"a", b"1"),
    ]
    log.append_as_leader(build(records), LeaderEpoch(0), NOW)
    for _ in range(2):
        compact(log)
        (batch,) = batches(log)
        assert batch.header.delete_horizon == 2**63 - 1
        assert [(one.offset, one.timestamp) for one in records_of(batch.data)] == [(1, time + 2), (2, time + 1)]
        assert batch.header.max_timestamp == time + 2


def test_the_end_stays_though_the_last_record_goes(disk: SimulatedDisk) -> None:
    """The last batch of a round keeps its header: without it a restart, and every follower, would end before (CMP-10)."""
    log = open_log(disk, replace(COMPACT, delete_retention_ms=0))
    put(log, ("k", "1"))
    put(log, ("gone", "1"), ("gone", None))
    compact(log)
    compact(log)
    assert rows(log) == [(0, "k", "1")]
    assert [(one.base_offset, one.next_offset, one.record_count) for one in headers(log)] == [(0, 1, 1), (1, 3, 0)]
    for suffix in (".log", ".index", ".timeindex"):
        disk.remove(FOLDER / names(log, suffix)[-1])
    again = open_log(disk, COMPACT, recovery_point=3)
    assert (again.log_end_offset, again.lost_bytes) == (3, 0)
    put(again, ("k", "2"))
    compact(again)
    assert [one.base_offset for one in headers(again)] == [3]


def test_a_record_without_a_key_is_removed() -> None:
    """It was written before the topic was compacted."""
    log = open_log(config=LogConfig())
    log.append_as_leader(
        build([Record(Offset(0), NOW, None, b"v"), Record(Offset(1), NOW, b"k", b"v")]), LeaderEpoch(0), NOW
    )
    log.config = COMPACT
    compact(log)
    assert rows(log) == [(1, "k", "v")]


# ---- producers and transactions


def test_the_last_batch_of_a_producer_stays_without_records(disk: SimulatedDisk) -> None:
    log = open_log(disk, COMPACT)
    put(log, ("k", "1"), ("k", "2"), producer=BatchProducer(ProducerId(7), ProducerEpoch(3), 5))
    put(log, ("k", "3"), ("end", "x"))
    compact(log)
    first = headers(log)[0]
    assert (first.base_offset, first.next_offset, first.record_count) == (0, 2, 0)
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.last_sequence) == (7, 3, 5, 6)
    for name in names(log, ".snapshot"):
        disk.remove(FOLDER / name)
    again = open_log(disk, COMPACT)
    assert [(row.producer_id, row.producer_epoch, row.last_sequence) for row in again.active_producers()] == [(7, 3, 6)]
    put(again, ("k", "4"), producer=BatchProducer(ProducerId(7), ProducerEpoch(3), 7))
    compact(again)
    assert [one.base_offset for one in headers(again)] == [2, 4]


def transaction(log: Log, producer: int, sequence: int, *pairs: tuple[str, str | None], commit: bool) -> None:
    put(log, *pairs, producer=BatchProducer(ProducerId(producer), ProducerEpoch(0), sequence, transactional=True))
    end_transaction(log, producer, commit=commit)


def test_an_aborted_transaction_behind_the_end_of_the_map_stays_known() -> None:
    log = open_log(config=COMPACT)
    put(log, *((f"key{number}", "x") for number in range(10)))
    transaction(log, 1, 0, ("k", "aborted"), commit=False)
    put(log, ("end", "x"))
    done = compact(log, map_bytes=10)
    assert done.end == 10
    assert (10, "k", "aborted") not in rows(log)
    assert [row.first_offset for row in log.aborted_transactions(Offset(0), Offset(20))] == [10]


# ---- what may be compacted


def segmented(config: LogConfig, times: Sequence[int]) -> Log:
    log = open_log(config=config)
    for number, time in enumerate(times):
        put(log, ("k", str(number)), time=TimestampMs(time))
        log.roll(TimestampMs(time))
    log.flush()
    return log


def test_neither_the_active_segment_nor_what_is_not_stable_nor_what_is_not_flushed() -> None:
    log = segmented(COMPACT, [NOW] * 4)
    assert section_of(log)[:2] == (0, 4)
    assert section_of(log, stable=3)[:2] == (0, 3)
    put(log, ("k", "x"), ("k", "y"))
    assert section_of(log)[:2] == (0, 4)
    log.roll(NOW)
    assert section_of(log)[:2] == (0, 4)
    log.flush()
    assert section_of(log)[:2] == (0, 6)
    assert section_of(log, stable=5)[:2] == (0, 4)
    assert section_of(log, clean_to=4)[:2] == (4, 6)
    assert section_of(log, clean_to=99)[:2] == (0, 6)
    log.advance_log_start_offset(Offset(2))
    assert section_of(log)[:2] == (2, 6)


def test_young_segments_wait_and_overdue_ones_do_not() -> None:
    waits = replace(COMPACT, min_compaction_lag_ms=100)
    log = segmented(waits, [NOW, NOW + 50, NOW + 10])
    assert section_of(log, now=NOW + 120)[:2] == (0, 1)
    assert section_of(log, now=NOW + 150)[:2] == (0, 3)
    soon = replace(COMPACT, max_compaction_lag_ms=100)
    log.config = soon
    assert not section_of(log, clean_to=1, now=NOW + 110).is_overdue
    assert section_of(log, clean_to=1, now=NOW + 151).is_overdue
    assert section_of(log, now=NOW + 101).is_due(replace(soon, min_cleanable_dirty_ratio=1.0))
    assert (soon.max_segment_ms, COMPACT.max_segment_ms) == (100, COMPACT.segment_ms)


def test_the_dirty_ratio_decides() -> None:
    log = segmented(COMPACT, [NOW] * 4)
    section = section_of(log, clean_to=3)
    assert section.dirty_ratio == 0.25
    assert section.is_due(replace(COMPACT, min_cleanable_dirty_ratio=0.2))
    assert not section.is_due(replace(COMPACT, min_cleanable_dirty_ratio=0.25))
    assert not section_of(log, clean_to=4).is_due(replace(COMPACT, min_cleanable_dirty_ratio=0.0))


def test_groups_are_no_larger_than_a_segment_may_be() -> None:
    log = segmented(COMPACT, [NOW] * 5)
    size = log.closed_segments[0].size
    found = groups(log.closed_segments, replace(COMPACT, segment_bytes=2 * size), Offset(5))
    assert [[each.base_offset for each in group] for group in found] == [[0, 1], [2, 3], [4]]
    found = groups(log.closed_segments, replace(COMPACT, segment_index_bytes=24), Offset(5))
    assert [len(group) for group in found] == [2, 2, 1]
    assert [len(group) for group in groups(log.closed_segments, COMPACT, Offset(2**31 + 1))] == [4, 1]


# ---- in steps


def test_it_goes_on_where_it_stopped_while_the_log_grows() -> None:
    log = segmented(COMPACT, [NOW] * 6)
    cleaning = Cleaning(log, section_of(log), NOW, MAP_BYTES)
    for number, _ in enumerate(cleaning.steps()):
        put(log, ("new", str(number)))
    assert cleaning.done is not None
    assert rows(log)[:2] == [(5, "k", "5"), (6, "new", "0")]


@pytest.mark.parametrize("shorten", ["truncate", "retention", "policy"])
def test_it_is_stale_when_the_log_was_shortened(shorten: str) -> None:
    log = segmented(replace(COMPACT, cleanup_policy="compact,delete", retention_bytes=0), [NOW] * 6)
    cleaning = Cleaning(log, section_of(log), NOW, MAP_BYTES)
    steps = cleaning.steps()
    for _ in range(7):
        next(steps)
    assert not cleaning.is_stale
    if shorten == "truncate":
        log.truncate_to(Offset(5))
    elif shorten == "retention":
        assert log.delete_old_segments(NOW, Offset(3)) == 3
    else:
        log.config = LogConfig()
    assert cleaning.is_stale
    assert names(log, ".cleaned")
    cleaning.abandon()
    assert not names(log, ".cleaned")


def test_a_map_that_is_full_ends_early_and_leaves_what_it_does_not_know() -> None:
    log = segmented(COMPACT, [NOW] * 6)
    done = compact(log, rolls=False, map_bytes=1)
    assert done.end == 1
    assert len(rows(log)) == 6
    for clean_to in range(1, 6):
        assert compact(log, clean_to=clean_to, rolls=False, map_bytes=1).end == clean_to + 1
    assert rows(log) == [(5, "k", "5")]


def test_a_tombstone_behind_the_end_of_the_map_stays() -> None:
    """Also when it is due: the map does not know that the value before it is superseded."""
    log = open_log(config=COMPACT)
    for key, value in (("a", "1"), ("k", "old"), ("k", None)):
        put(log, (key, value))
    compact(log, map_bytes=1)
    due = TimestampMs(NOW + COMPACT.delete_retention_ms)
    assert compact(log, clean_to=1, now=due, rolls=False, map_bytes=1).end == 2
    assert rows(log) == [(0, "a", "1"), (1, "k", "old"), (2, "k", None)]
    compact(log, clean_to=2, now=due, rolls=False)
    assert rows(log) == [(0, "a", "1")]


def test_segments_whose_indexes_are_full_together_are_trusted_at_the_next_start() -> None:
    """The first batch of a segment has no entry, and gets one as a later batch of the merged segment."""
    disk = SimulatedDisk()
    config = replace(COMPACT, segment_index_bytes=64)
    log = open_log(disk, config)
    for first, count in ((0, 3), (3, 4)):
        for number in range(first, first + count):
            put(log, (str(number), "v"), time=NOW + number)
        log.roll(NOW)
    log.flush()
    compact(log, rolls=False)
    assert [segment.base_offset for segment in log.closed_segments] == [0]
    expected = rows(log)
    log.close()
    log = open_log(disk, config, clean=True)
    assert (log.recovered_bytes, rows(log)) == (0, expected)
    found = log.offset_for_timestamp(NOW + 6)
    assert found is not None and found.offset == 6


class NeverWalked(dict[bytes, int]):
    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("a batch costs what it holds, not what the map holds")


def test_the_map_takes_a_batch_without_a_walk_over_its_keys() -> None:
    """PyPy did that for `set.difference(a dict)`: 200,000 keys took 15 ms a batch."""
    keys = OffsetMap(Offset(0), MAP_BYTES)
    keys.last = NeverWalked()
    data = memoryview(build([Record(Offset(index), NOW, key, b"") for index, key in enumerate((b"a", b"bc"))]))
    for _ in range(2):
        keys.read(StoredBatch(read_header(data), 0, data))
    assert keys.size_bytes == 2 * ENTRY_BYTES + 3 + 4


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_batch_that_stays_or_goes_as_a_whole_is_read_once(monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    log = open_log(config=COMPACT)
    put(log, ("a", "1"), ("b", "1"), codec=codec)
    put(log, ("a", "2"), ("c", "2"), codec=codec)
    put(log, ("a", "3"), ("b", "3"), codec=codec)
    stays = bytes(batches(log)[-1].data)
    read: list[bytes] = []

    def noted(data: bytes, count: int) -> Outlines:
        read.append(data)
        return outlines(data, count)

    monkeypatch.setattr(offset_map, "outlines", noted)
    compact(log)
    assert len(read) == 4
    assert read[3] == read[1]
    assert rows(log) == [(3, "c", "2"), (4, "a", "3"), (5, "b", "3")]
    assert bytes(batches(log)[-1].data) == stays


def test_records_below_the_start_of_the_section_are_superseded_by_its_keys_and_supersede_none() -> None:
    log = open_log(config=replace(COMPACT, cleanup_policy="compact,delete"))
    put(log, ("a", "0"), ("b", "1"))
    put(log, ("a", "2"), ("b", "3"), ("c", "4"), ("d", "5"), ("c", "6"))
    put(log, ("d", "7"), ("e", "8"))
    log.roll(NOW)
    log.flush()
    for keys in compacted_from(log, 5), compacted_from(log, 4):
        assert keys == "a0 b1 a2 b3 c6 d7 e8"


def compacted_from(log: Log, start: int) -> str:
    cleaning = Cleaning(log, Cleanable(Offset(start), log.active_base, 0, 1, False), NOW, MAP_BYTES)
    assert list(cleaning.steps())
    return " ".join(f"{key}{value}" for _, key, value in rows(log))


def test_on_the_operating_systems_files(tmp_path: Path) -> None:
    log = Log(PosixDisk(), tmp_path / "t-0", COMPACT, NOW, T_0)
    for number in range(50):
        put(log, (f"k{number % 7}", "x" * 100), codec=list(Codec)[number % 5])
        if number % 9 == 0:
            log.roll(NOW)
    compact(log)
    before = rows(log)
    assert len(before) == 7
    log.close()
    again = Log(PosixDisk(), tmp_path / "t-0", COMPACT, NOW, T_0, PreviousRun(clean=True))
    assert rows(again) == before
    assert again.log_end_offset == 50


# ---- half-done swaps and cuts


def test_nothing_is_dirty_of_a_segment_in_which_the_log_begins_and_that_is_not_flushed() -> None:
    log = open_log(config=replace(COMPACT, cleanup_policy="compact,delete"))
    put(log, ("k", "0"))
    log.roll(NOW)
    put(log, ("k", "1"), ("k", "2"))
    log.roll(NOW)
    log.advance_log_start_offset(Offset(2))
    log.delete_old_segments(NOW, Offset(3))
    assert [segment.base_offset for segment in log.closed_segments] == [1]
    section = section_of(log)
    assert (section.start, section.end, section.dirty_bytes) == (2, 2, 0)
    log.flush()
    section = section_of(log)
    assert (section.start, section.end, section.dirty_bytes) == (2, 3, log.size_bytes)


def test_leftovers_of_an_earlier_compaction_spoil_no_later_one() -> None:
    """A start would treat the leftover as an incomplete swap, and remove both the swap and its originals."""
    interrupted = 0
    for changes in range(60):
        disk = BreakingDisk()
        log = open_log(disk, COMPACT)
        put(log, ("k", "0"))
        log.roll(NOW)
        log.flush()
        disk.write_file(log.folder / "00000000000000000000.log.cleaned", b"")
        log.truncate_fully_and_start_at(Offset(1))
        for number in (1, 2):
            put(log, ("k", str(number)))
            log.roll(NOW)
        log.flush()
        cleaning = Cleaning(log, section_of(log), NOW, MAP_BYTES)
        disk.changes_left = changes
        try:
            for _ in cleaning.steps():
                pass
        except (OSError, StorageError):
            interrupted += 1
        disk.changes_left = None
        assert rows(open_log(disk, COMPACT, recovery_point=3, log_start=1))[-1] == (2, "k", "2")
    assert 0 < interrupted < 60
