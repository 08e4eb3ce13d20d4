"""A log on a disk that is full, refuses or breaks in the middle of a step."""

import contextlib

import pytest

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import FIRST_OFFSET, Offset
from reference.storage.config import LogConfig
from reference.storage.errors import StorageError
from reference.storage.log import AbortedTransaction, Log
from reference.storage.simulated_disk import SimulatedDisk
from tests.storage.breaking_disk import BreakingDisk
from tests.storage.logs import NOW, append, append_as, end_transaction, offsets, open_log


def aborted_in(log: Log) -> list[AbortedTransaction]:
    return log.aborted_transactions(FIRST_OFFSET, Offset(9))


@pytest.mark.parametrize("left", range(0, 700, 50))
def test_a_full_disk_leaves_the_log_as_it_was(disk: SimulatedDisk, left: int) -> None:
    log = open_log(disk, LogConfig(segment_bytes=300, index_interval_bytes=0, segment_index_bytes=96))
    disk.capacity_bytes = disk.used_bytes + left
    written = 0
    for _ in range(20):
        size, end = log.size_bytes, log.log_end_offset
        try:
            append(log, 1, epoch=written)
            written += 1
        except StorageError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert (log.size_bytes, log.log_end_offset) == (size, end)
    assert written < 20
    assert offsets(log) == list(range(written))
    disk.capacity_bytes = None
    append(log)
    assert offsets(log) == list(range(written + 1))
    assert offsets(open_log(disk)) == list(range(written + 1))


def test_a_read_only_disk_still_reads(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, 2)
    disk.read_only = True
    for change in (
        lambda: append(log),
        lambda: log.roll(NOW),
        lambda: log.truncate_to(Offset(0)),
        lambda: open_log(disk),
    ):
        with pytest.raises(StorageError):
            change()
    assert offsets(log) == [0, 1]


@pytest.mark.parametrize("left", range(0, 130, 10))
def test_a_marker_that_the_disk_refuses_aborts_when_it_is_written_again(disk: SimulatedDisk, left: int) -> None:
    """There may be room for the marker and none for the index of aborted transactions, and none for the marker's undoing."""
    log = open_log(disk, LogConfig(flush_messages=1))
    append_as(log, 1, 0, count=2, transactional=True)
    disk.capacity_bytes = disk.used_bytes + left
    with contextlib.suppress(StorageError):
        end_transaction(log, 1, commit=False)
    disk.capacity_bytes = None
    end_transaction(log, 1, commit=False)
    (aborted,) = aborted_in(log)
    assert (aborted.first_offset, log.last_stable_offset(log.log_end_offset)) == (0, log.log_end_offset)
    assert aborted_in(open_log(disk)) == [aborted], "after a crash"
    log.close()
    assert aborted_in(open_log(disk, clean=True)) == [aborted]


def test_a_marker_that_a_breaking_disk_refuses_leaves_no_note_behind() -> None:
    refused = 0
    for changes in range(8):
        disk = BreakingDisk()
        log = open_log(disk, LogConfig(flush_messages=1))
        append_as(log, 1, 0, count=2, transactional=True)
        disk.changes_left = changes
        try:
            end_transaction(log, 1, commit=False)
        except StorageError:
            refused += 1
        disk.changes_left = None
        end_transaction(log, 1, commit=False)
        (aborted,) = aborted_in(log)
        log.close()
        assert aborted_in(open_log(disk, clean=True)) == [aborted]
    assert 0 < refused < 8


def test_a_batch_whose_flush_failed_is_known_and_flushed_before_it_is_acknowledged_again() -> None:
    refused = 0
    for changes in range(8):
        disk = BreakingDisk()
        log = open_log(disk, LogConfig(flush_messages=1))
        append_as(log, 1, 0)
        disk.changes_left = changes
        try:
            append_as(log, 1, 1)
        except StorageError:
            refused += 1
        disk.changes_left = None
        info = append_as(log, 1, 1)
        assert (info.first_offset, log.log_end_offset, log.recovery_point) == (1, 2, 2)
    assert 0 < refused < 8


def test_a_segment_whose_removal_has_begun_is_removed() -> None:
    """Otherwise the log would continue in files without names, and a clean stop would lose the aborted transactions."""
    ends = set()
    for changes in range(12):
        disk = BreakingDisk()
        log = open_log(disk)
        append(log)
        append(log)
        log.roll(NOW)
        append_as(log, 1, 0, transactional=True)
        end_transaction(log, 1, commit=False)
        aborted = aborted_in(log)
        disk.changes_left = changes
        with contextlib.suppress(StorageError):
            log.truncate_to(Offset(1))
        disk.changes_left = None
        end = log.log_end_offset
        ends.add(end)
        append(log)
        log.close()
        again = open_log(disk, clean=True)
        assert (again.recovered_bytes, offsets(again)) == (0, list(range(end + 1)))
        assert aborted_in(again) == (aborted if end == 4 else [])
    assert ends == {1, 4}
