"""Cleaned segments replace the old ones, whenever a crash or the disk interrupts that."""

import contextlib
import random

from reference.protocol.primitives import Offset, ProducerEpoch, ProducerId
from reference.protocol.records.batch import BatchProducer
from reference.storage.cleaning import Cleaning
from reference.storage.errors import StorageError
from reference.storage.simulated_disk import SimulatedDisk
from tests.storage.breaking_disk import BreakingDisk
from tests.storage.logs import FOLDER, NOW, names, open_log
from tests.storage.test_cleaning import COMPACT, MAP_BYTES, put, rows, section_of


def test_a_swap_that_a_crash_cut_in_two_is_completed_or_undone_at_every_step() -> None:
    """The disk breaks after each number of changes; what a start finds holds the last of each key, and reads whole."""
    outcomes: set[tuple[int, ...]] = set()
    for changes in range(60):
        for loses_power in (False, True):
            disk = BreakingDisk()
            disk.make_folder(FOLDER.parent)
            for folder in (*FOLDER.parent.parents, FOLDER.parent):
                disk.sync_folder(folder)
            log = open_log(disk, COMPACT)
            for number in range(4):
                put(log, ("k", str(number)), (f"own{number}", "x"))
                log.roll(NOW)
            log.flush()
            cleaning = Cleaning(log, section_of(log), NOW, MAP_BYTES)
            disk.changes_left = changes
            with contextlib.suppress(OSError, StorageError):
                for _ in cleaning.steps():
                    pass
            disk.changes_left = None
            if loses_power:
                disk.lose_power(random.Random(changes))
            again = open_log(disk, COMPACT, recovery_point=8)
            assert again.lost_bytes == 0
            assert again.log_end_offset == 8
            left = rows(again)
            assert {(6, "k", "3"), *((2 * number + 1, f"own{number}", "x") for number in range(4))} <= set(left)
            assert set(left) <= {
                row
                for number in range(4)
                for row in ((2 * number, "k", str(number)), (2 * number + 1, f"own{number}", "x"))
            }
            assert not names(again, ".swap") + names(again, ".cleaned") + names(again, ".deleted")
            outcomes.add(tuple(segment.base_offset for segment in again.closed_segments))
    assert outcomes == {(0, 2, 4, 6), (0,)}


def test_a_swap_that_the_disk_interrupts_is_gone_on_with() -> None:
    interrupted = 0
    for changes in range(60):
        disk = BreakingDisk()
        log = open_log(disk, COMPACT)
        for number in range(4):
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
        cleaning.abandon()
        log.tick(NOW)
        assert rows(log)[-1] == (3, "k", "3")
        log.truncate_to(Offset(2))
        put(log, ("k", "new"))
        log.close()
        assert rows(open_log(disk, COMPACT, clean=True, recovery_point=3))[-1] == (2, "k", "new")
    assert 0 < interrupted < 60


def test_what_a_failing_removal_leaves_is_still_the_logs() -> None:
    """A segment that cannot be removed stays, and the log is what its segments are."""
    ends: set[int] = set()
    for changes in range(25):
        disk = BreakingDisk()
        log = open_log(disk, COMPACT)
        for number in range(5):
            put(log, (f"k{number}", "x"), producer=BatchProducer(ProducerId(1), ProducerEpoch(0), number))
            log.roll(NOW)
        disk.changes_left = changes
        with contextlib.suppress(StorageError):
            log.truncate_to(Offset(2))
        disk.changes_left = None
        end = log.log_end_offset
        ends.add(end)
        assert [row[0] for row in rows(log)] == list(range(end))
        put(log, ("next", "x"), producer=BatchProducer(ProducerId(1), ProducerEpoch(0), end))
        assert [row[0] for row in rows(log)] == list(range(end + 1))
        assert [row[0] for row in rows(open_log(disk, COMPACT))] == list(range(end + 1))
    assert ends == {2, 5}


def test_nothing_is_swapped_in_that_kafka_had_not_finished_splitting(disk: SimulatedDisk) -> None:
    """A swap counts only if nothing at or before its base is still being written (KAFKA-6264)."""
    log = open_log(disk, COMPACT)
    for number in range(3):
        put(log, ("k", str(number)))
        log.roll(NOW)
    log.close()
    data = disk.read_file(FOLDER / names(log, ".log")[1])
    for name in ("00000000000000000001.log.swap", "00000000000000000000.log.cleaned"):
        disk.open_file(FOLDER / name).append(data)
    again = open_log(disk, COMPACT, clean=True, recovery_point=3)
    assert rows(again) == [(0, "k", "0"), (1, "k", "1"), (2, "k", "2")]
    assert not names(again, ".swap") + names(again, ".cleaned")
