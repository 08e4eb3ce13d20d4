"""Starts on the files of the last process; random ends are in test_log_machine."""

import random
import struct
from dataclasses import replace
from typing import cast

import pytest

from reference.protocol.primitives import Chance, LeaderEpoch, Offset
from reference.protocol.records.batch import assign, build
from reference.protocol.records.record import Record
from reference.storage.checkpoints import LEADER_EPOCHS, read_lines
from reference.storage.config import LogConfig
from reference.storage.errors import CorruptFile
from reference.storage.log import Log
from reference.storage.recovery import check
from reference.storage.segment_checksums import SegmentChecksum
from reference.storage.simulated_disk import SimulatedDisk
from tests.storage.logs import FOLDER, NOW, append, append_as, batch, end_transaction, names, offsets, open_log

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=0, segment_index_bytes=1200)
LOG, INDEX, TIMES = ".log", ".index", ".timeindex"


def written(disk: SimulatedDisk, batches: int = 12, *, close: bool = False) -> Log:
    log = open_log(disk, CONFIG)
    for step in range(batches):
        append(log, 2, epoch=step // 5, time=NOW + step)
    if close:
        log.close()
    return log


def damage(disk: SimulatedDisk, name: str, position: int, data: bytes | None = None) -> None:
    """Overwrite bytes of a file, or truncate it."""
    file = disk.map_file(FOLDER / name)
    file.resize(position) if data is None else file.write_at(position, data)


def test_a_clean_start_reads_little(disk: SimulatedDisk) -> None:
    end = written(disk, close=True).log_end_offset
    log = open_log(disk, CONFIG, clean=True, recovery_point=end)
    assert (log.recovered_bytes, log.lost_bytes, log.log_end_offset, log.recovery_point) == (0, 0, 24, 24)
    assert append(log)[:2] == (24, 24)


def test_after_a_crash_only_what_was_not_flushed_is_read(disk: SimulatedDisk) -> None:
    log = written(disk, 8)
    log.flush()
    point = log.recovery_point
    before = log.size_bytes
    for _ in range(4):
        append(log, 2)
    again = open_log(disk, CONFIG, recovery_point=point)
    assert 0 < again.recovered_bytes <= log.size_bytes - before + CONFIG.segment_bytes
    assert again.recovered_bytes < log.size_bytes
    assert offsets(again) == list(range(24))


class NothingStays:
    """A random source with which a power failure keeps as little data as possible that is not durable."""

    def randrange(self, start: int, stop: int) -> int:
        return start


def test_by_flush_messages_what_a_crash_left_is_durable_before_it_is_read(disk: SimulatedDisk) -> None:
    written(disk)
    assert open_log(disk, CONFIG).recovery_point == 0, "nothing asks for a flush"
    config = replace(CONFIG, flush_messages=1)
    again = open_log(disk, config)
    assert (again.log_end_offset, again.recovery_point) == (24, 24)
    disk.lose_power(cast(Chance, NothingStays()))
    assert open_log(disk, config, recovery_point=24).log_end_offset == 24


@pytest.mark.parametrize("cut", [1, 30, 61, 80])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(disk: SimulatedDisk, cut: int) -> None:
    log = written(disk)
    last = names(log, LOG)[-1]
    damage(disk, last, disk.size_of(FOLDER / last) - cut)
    again = open_log(disk, CONFIG)
    assert again.log_end_offset == 22
    assert again.lost_bytes > 0
    assert append(again, 2)[:2] == (22, 23)
    assert offsets(again) == list(range(24))


def test_zeros_behind_the_tail_are_cut(disk: SimulatedDisk) -> None:
    log = written(disk)
    disk.open_file(FOLDER / names(log, LOG)[-1]).append(bytes(500))
    assert offsets(open_log(disk, CONFIG)) == list(range(24))


def test_what_lies_behind_damage_goes(disk: SimulatedDisk) -> None:
    log = written(disk)
    first = names(log, LOG)[0]
    damage(disk, first, 150, b"\x12\x34")
    again = open_log(disk, CONFIG)
    assert again.log_end_offset == 2
    assert names(again, LOG) == [first]
    assert offsets(again) == [0, 1]


def test_a_segment_that_is_missing_ends_the_log(disk: SimulatedDisk) -> None:
    """A gap is a loss in a log that is not compacted: a prefix is kept."""
    log = written(disk)
    segments = names(log, LOG)
    assert len(segments) >= 3
    for name in disk.list_folder(FOLDER):
        if name.startswith(segments[1][:20]):
            disk.remove(FOLDER / name)
    again = open_log(disk, CONFIG)
    assert names(again, LOG) == segments[:1]
    assert again.log_end_offset == int(segments[1][:20])


def test_a_time_index_that_is_too_old_is_made_again(disk: SimulatedDisk) -> None:
    """With its largest timestamp retention would delete younger records, and look-ups would miss them."""
    log = written(disk, close=True)
    path = FOLDER / names(log, TIMES)[0]
    disk.map_file(path).resize(disk.size_of(path) - 12)
    again = open_log(disk, CONFIG, clean=True)
    assert again._segments[0].max_timestamp == log._segments[0].max_timestamp
    assert [again.offset_for_timestamp(NOW + step) for step in range(12)] == [
        log.offset_for_timestamp(NOW + step) for step in range(12)
    ]


@pytest.mark.parametrize("damaged", [bytes(34), "from another segment"], ids=["zeros", "swapped"])
def test_a_transaction_index_of_no_such_transactions_is_made_again(disk: SimulatedDisk, damaged: bytes | str) -> None:
    """Kafka's folders have no checksum of it; read_committed consumers would get aborted records."""
    log = open_log(disk, CONFIG)
    for number in range(4):
        append_as(log, 1, 2 * number, 2, transactional=True)
        end_transaction(log, 1, commit=False)
        log.roll(NOW)
    log.close()
    expected = log.aborted_transactions(Offset(0), log.log_end_offset)
    assert len(expected) == 4
    first, second = (FOLDER / name for name in names(log, ".txnindex")[:2])
    disk.write_file(second, damaged if isinstance(damaged, bytes) else disk.read_file(first))
    again = open_log(disk, CONFIG, clean=True, checksums=None)
    assert again.aborted_transactions(Offset(0), again.log_end_offset) == expected


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("checksums", [None, {}], ids=["kafkas", "ours"])
def test_segments_that_overlap_are_not_of_one_log(clean: bool, checksums: dict[Offset, SegmentChecksum] | None) -> None:
    """A foreign log in place of another one would be truncated to its first segment, with a wrong end."""
    disk = SimulatedDisk()
    log = written(disk, close=True)
    _, second, third, *_ = names(log, LOG)
    for suffix in (LOG, INDEX, TIMES):
        former, other = (FOLDER / name.replace(LOG, suffix) for name in (second, third))
        data = disk.read_file(other)
        disk.remove(former)
        if suffix == LOG:
            disk.open_file(former).append(data)
    with pytest.raises(CorruptFile, match=f"{third} begins before offset .* where the segment before it ends"):
        open_log(disk, CONFIG, clean=clean, checksums=checksums)
    if clean:
        with pytest.raises(CorruptFile, match=f"{third} begins before offset"):
            check(disk, FOLDER, NOW)


def test_a_segment_that_overlaps_the_empty_active_one_is_the_last(disk: SimulatedDisk) -> None:
    """A crash while the log starts over leaves an empty segment at the new start."""
    log = written(disk, close=True)
    end, last = log.log_end_offset, names(log, LOG)[-1]
    disk.open_file(FOLDER / f"{end - 1:020d}{LOG}")
    again = open_log(disk, CONFIG, checksums=None)
    assert (again.log_end_offset, names(again, LOG)[-1], again.lost_bytes) == (end, last, 0)


@pytest.mark.parametrize("flushed", [False, True])
def test_a_gap_in_a_compacted_log_is_a_loss_where_it_was_not_flushed(disk: SimulatedDisk, flushed: bool) -> None:
    """A power failure may take the end of a segment and spare the next; compaction only works on what is durable."""
    config = replace(CONFIG, cleanup_policy="compact")
    log = open_log(disk, config)
    for step in range(12):
        append(log, 2, time=NOW + step)
    first, second = names(log, LOG)[:2]
    whole = offsets(log)
    start_of_second = int(second[: -len(LOG)])
    damage(disk, first, len(batch(2)))
    for name in names(log, INDEX)[:1] + names(log, TIMES)[:1]:
        disk.remove(FOLDER / name)
    again = open_log(disk, config, recovery_point=log.log_end_offset if flushed else 0)
    kept = [offset for offset in whole if offset < 2 or offset >= start_of_second]
    assert offsets(again) == (kept if flushed else [0, 1])


@pytest.mark.parametrize("rolls_by", ["size", "request"])
def test_a_segment_that_was_rolled_behind_a_gap_is_no_loss(disk: SimulatedDisk, rolls_by: str) -> None:
    """A follower was cut back to the end of a gap that compaction has left on its leader, and then rolled: nothing is missing."""
    log = open_log(disk, CONFIG)
    log.append_as_follower(fetched(0, 200), NOW)
    log.append_as_follower(fetched(10, 10), NOW)
    assert log.truncate_to(Offset(10))
    assert log.log_end_offset == 10
    if rolls_by == "request":
        log.roll(NOW)
    log.append_as_follower(fetched(10, 200), NOW)
    log.append_as_follower(fetched(11, 10), NOW)
    assert log.segment_count == 2
    again = open_log(disk, CONFIG)
    assert again.lost_bytes == 0
    assert offsets(again) == [0, 10, 11]


def test_no_gap_is_a_loss_in_a_folder_of_kafka(disk: SimulatedDisk) -> None:
    """Its LogLoader looks for none. A topic that is no longer compacted keeps the gaps of when it was."""
    log = open_log(disk, CONFIG)
    for offset in range(3):
        log.append_as_follower(fetched(offset, 300), NOW)
    for name in disk.list_folder(FOLDER):
        if name.startswith(f"{1:020d}"):
            disk.remove(FOLDER / name)
    assert offsets(open_log(disk, CONFIG, checksums=None)) == [0, 2]
    assert offsets(open_log(disk, CONFIG)) == [0]


FAR = 3_000_000_000
"""An offset too large for the indexes of a segment with base offset 0."""


@pytest.mark.parametrize("first", [(), (0,)])
def test_a_segment_whose_first_batch_had_no_place_in_the_one_before_is_no_loss(first: tuple[int, ...]) -> None:
    """Compaction on the leader may leave gaps of any size, at the beginning too."""
    disk = SimulatedDisk()
    log = open_log(disk, CONFIG)
    fetch = [*first, FAR, FAR + 1, FAR + 2]
    for offset in fetch:
        log.append_as_follower(fetched(offset, 100), NOW)
    assert offsets(log) == fetch
    again = open_log(disk, CONFIG)
    assert (again.lost_bytes, again.log_start_offset, offsets(again)) == (0, 0, fetch)
    again.close()
    clean = open_log(disk, CONFIG, clean=True, recovery_point=again.log_end_offset)
    assert (clean.log_start_offset, offsets(clean)) == (0, fetch)


def test_what_lies_far_behind_damage_goes(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    for offset in (0, FAR, FAR + 1):
        log.append_as_follower(fetched(offset, 300), NOW)
    damage(disk, f"{FAR:020d}{LOG}", 100, b"\x12\x34")
    again = open_log(disk, CONFIG)
    assert offsets(again) == [0]
    assert not again.read(again.log_start_offset + 1, 1000).records


def test_a_crash_while_the_log_is_cut_in_a_gap_leaves_no_recovery_point_beyond_its_end(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    log.append_as_follower(fetched(0, 100), NOW)
    log.append_as_follower(fetched(10, 10), NOW)
    log.flush()
    written: list[int] = []
    log.checkpoint = lambda: written.append(log.recovery_point)
    assert log.truncate_to(Offset(10))
    assert written == [1], "where a start finds that the log ends, before anything is cut"
    assert open_log(disk, CONFIG, recovery_point=1).log_end_offset == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_indexes_of_a_segment_that_is_closed_in_a_gap_are_durable(disk: SimulatedDisk, seed: int) -> None:
    log = open_log(disk, CONFIG)
    for offset in (0, 1, 10):
        log.append_as_follower(fetched(offset, 10), NOW)
    log.flush()
    log.truncate_to(Offset(10))
    log.roll(NOW)
    log.append_as_follower(fetched(10, 10), NOW)
    log.flush()
    disk.lose_power(random.Random(seed))
    assert [disk.size_of(FOLDER / name) for name in names(log, INDEX)][:1] == [8]


def fetched(offset: int, size: int) -> bytearray:
    return build([Record(Offset(offset), NOW, b"k", bytes(size))], leader_epoch=LeaderEpoch(0))


def test_a_batch_whose_offset_goes_back_is_damage(disk: SimulatedDisk) -> None:
    written(disk, 1)
    stray = batch(2)
    assign(stray, Offset(0), LeaderEpoch(0))
    disk.open_file(FOLDER / f"{0:020d}.log").append(stray)
    again = open_log(disk, CONFIG)
    assert again.log_end_offset == 2


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("suffix", "how"),
    [(TIMES, "empty"), *((suffix, how) for suffix in (INDEX, TIMES) for how in ("missing", "torn", "zeros"))],
)
@pytest.mark.parametrize("count", [1, None], ids=["one", "all"])
def test_indexes_are_built_again(disk: SimulatedDisk, count: int | None, how: str, suffix: str, clean: bool) -> None:
    """Rebuilt indexes equal the appended ones. A power failure may keep a file's length without its bytes. An offset index
    without entries is sound."""
    log = written(disk, close=True)
    before = {name: disk.read_file(FOLDER / name) for name in names(log, INDEX) + names(log, TIMES)}
    for name in names(log, suffix)[:count]:
        if how == "missing":
            disk.remove(FOLDER / name)
        elif how == "zeros":
            damage(disk, name, 0, bytes(len(before[name])))
        else:
            damage(disk, name, 5 if how == "torn" else 0)
    open_log(disk, CONFIG, clean=clean).close()
    assert {name: disk.read_file(FOLDER / name) for name in before} == before


ENTRY_BYTES = {INDEX: 8, TIMES: 12}
WRONG_LAST_ENTRIES = {
    "zeros": {INDEX: bytes(8), TIMES: bytes(12)},
    "before the segment": {INDEX: struct.pack(">ii", -5, 0), TIMES: struct.pack(">qi", NOW + 50, -5)},
    "behind the segment": {INDEX: struct.pack(">ii", 2, 1 << 20), TIMES: struct.pack(">qi", NOW + 50, 1 << 20)},
    "inside of a batch": {INDEX: struct.pack(">ii", 5, 99), TIMES: struct.pack(">qi", NOW + 50, 3)},
    "of no batch": {INDEX: struct.pack(">ii", 1000, 0), TIMES: struct.pack(">qi", NOW - 50, 3)},
    "negative": {INDEX: struct.pack(">ii", 5, -99), TIMES: struct.pack(">qi", -7, 3)},
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [INDEX, TIMES])
@pytest.mark.parametrize("what", WRONG_LAST_ENTRIES)
@pytest.mark.parametrize("slot", [0, -1])
def test_indexes_without_an_entry_are_built_again(slot: int, what: str, suffix: str, clean: bool) -> None:
    """A closed segment's index is trusted by its length: the log's end and age come from it."""
    disk = SimulatedDisk()
    log = written(disk, close=True)
    end = log.log_end_offset
    before = {name: disk.read_file(FOLDER / name) for name in names(log, INDEX) + names(log, TIMES)}
    name = names(log, suffix)[slot]
    damage(disk, name, len(before[name]) - ENTRY_BYTES[suffix], WRONG_LAST_ENTRIES[what][suffix])
    again = open_log(disk, CONFIG, clean=clean, recovery_point=end)
    assert offsets(again) == list(range(end))
    assert append(again)[:1] == (end,)
    if slot == 0:
        assert disk.read_file(FOLDER / name) == before[name]


def test_aborted_transactions_are_found_again(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    for turn in range(4):
        append_as(log, 7, turn, transactional=True)
        append_as(log, 8, turn, transactional=True)
        end_transaction(log, 7, commit=turn % 2 == 0)
        end_transaction(log, 8, commit=False)
    before = log.aborted_transactions(Offset(0), log.log_end_offset)
    assert len(before) == 6
    for name in names(log, ".txnindex"):
        disk.write_file(FOLDER / name, b"rubbish")
    again = open_log(disk, CONFIG)
    assert again.aborted_transactions(Offset(0), log.log_end_offset) == before
    assert again.last_stable_offset(again.log_end_offset) == again.log_end_offset


def test_epochs_are_found_again_and_those_of_lost_records_forgotten(disk: SimulatedDisk) -> None:
    log = written(disk)
    disk.remove(FOLDER / LEADER_EPOCHS)
    assert open_log(disk, CONFIG).end_offset_for_epoch(LeaderEpoch(1)) == (1, 20)
    last = names(log, LOG)[-1]
    damage(disk, last, 0)
    assert open_log(disk, CONFIG).leader_epoch < 2


def test_epochs_of_records_that_were_deleted_and_came_back_are_in_the_file(disk: SimulatedDisk) -> None:
    """The recovery point has passed them: a later recovery need not read their batches."""
    config = replace(CONFIG, segment_bytes=4000)
    log = open_log(disk, config)
    for step in range(12):
        append(log, 2, epoch=step // 5, time=NOW + step)
    log.flush()
    known = log.end_offset_for_epoch(LeaderEpoch(0)), log.end_offset_for_epoch(LeaderEpoch(1))
    log.advance_log_start_offset(log.log_end_offset)
    open_log(disk, config, log_start=24, recovery_point=24)
    assert read_lines(disk, FOLDER / LEADER_EPOCHS, 2) == []
    again = open_log(disk, config, log_start=0, recovery_point=24)
    assert (again.log_start_offset, again.recovery_point) == (0, 24)
    assert (again.end_offset_for_epoch(LeaderEpoch(0)), again.end_offset_for_epoch(LeaderEpoch(1))) == known
    assert read_lines(disk, FOLDER / LEADER_EPOCHS, 2) == [["0", "0"], ["1", "10"], ["2", "20"]]


def test_rubbish_is_removed(disk: SimulatedDisk) -> None:
    written(disk, close=True)
    for name in ("00000000000000000777.log.deleted", "leader-epoch-checkpoint.tmp", "00000000000000000000.log.cleaned",
                 "00000000000000000777.index", "00000000000000000777.timeindex"):  # fmt: skip
        disk.open_file(FOLDER / name).append(b"x")
    again = open_log(disk, CONFIG, clean=True)
    assert offsets(again) == list(range(24))
    left = disk.list_folder(FOLDER)
    assert not [name for name in left if name.endswith((".deleted", ".tmp", ".cleaned")) or "777" in name]


def test_a_log_that_ends_before_its_start_begins_again(disk: SimulatedDisk) -> None:
    """DeleteRecords moved the start, then power failed before the records below it were on disk."""
    written(disk, 3)
    log = open_log(disk, CONFIG, log_start=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert names(log, LOG) == [f"{50:020d}.log"]


@pytest.mark.parametrize("slot", [0, -1])
@pytest.mark.parametrize("how", ["torn", "size of nothing", "other bytes", "an offset that no index can express"])
def test_what_was_whole_at_a_clean_end_is_not_cut(disk: SimulatedDisk, slot: int, how: str) -> None:
    """All of it was acknowledged: an operator has to decide."""
    log = written(disk, close=True)
    name = names(log, LOG)[slot]
    last_batch = disk.size_of(FOLDER / name) - len(batch(2))
    match how:
        case "torn":
            damage(disk, name, disk.size_of(FOLDER / name) - 3)
        case "size of nothing":
            damage(disk, name, last_batch + 8, bytes(4))
        case "an offset that no index can express":
            damage(disk, name, last_batch, b"\x40")
        case _:
            damage(disk, name, last_batch + 8, b"\xff" * 4)
    before = disk.read_file(FOLDER / name)
    reported = f"{name} .* damaged at byte {last_batch} of {len(before)}"
    with pytest.raises(CorruptFile, match=reported):
        check(disk, FOLDER, NOW)
    with pytest.raises(CorruptFile, match=reported):
        open_log(disk, CONFIG, clean=True)
    assert disk.read_file(FOLDER / name) == before
    assert open_log(disk, CONFIG).lost_bytes > 0, "after a crash it is the log's end"
