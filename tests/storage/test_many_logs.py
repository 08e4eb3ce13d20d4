"""How often logs wait for the disk, and how many are visited: what thousands of logs cost. Counted, not timed."""

import random
from pathlib import Path
from uuid import UUID

import pytest

from reference.protocol.primitives import TimestampMs
from reference.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, read_topic_id
from reference.storage.config import LogConfig
from reference.storage.disk import SimulatedDisk
from reference.storage.log import Log
from reference.storage.log_directory import LogDirectory
from reference.storage.segment_row import SegmentRow
from tests.storage.logs import NOW, append, offsets

ROOT = Path("/data")
CONFIG = LogConfig(segment_bytes=500)
TOPIC = UUID(int=10)


class CountingDisk(SimulatedDisk):
    """Counts the flushes of files, folders, and the whole file system that a process would wait for."""

    waits = 0

    def flush(self, inode: object) -> None:
        if not self.flushes_at_end:
            self.waits += 1
        super().flush(inode)  # type: ignore[arg-type]

    def sync_folder(self, path: Path) -> None:
        if not self.flushes_at_end:
            self.waits += 1
        super().sync_folder(path)

    def _flush_all(self, folder: object) -> None:
        waited = self.waits
        super()._flush_all(folder)  # type: ignore[arg-type]
        self.waits = waited + (folder is self._root)


def load(disk: SimulatedDisk) -> LogDirectory:
    disk.make_folder(ROOT)
    disk.sync_folder(Path("/"))
    made = LogDirectory(disk, ROOT)
    made.load(NOW)
    return made


def take_up(logs: LogDirectory, index: int, epoch: int = 0) -> Log:
    """Open a log, or make it, and lead it."""
    log = logs.get_or_create("t", index, TOPIC, CONFIG, NOW)
    log.assign_epoch_start(epoch, log.log_end_offset)
    return log


def filled(disk: SimulatedDisk, count: int) -> LogDirectory:
    logs = load(disk)
    for index in range(count):
        append(take_up(logs, index), 2)
    return logs


def test_a_new_log_waits_for_the_disk_before_its_first_record_and_not_again() -> None:
    disk = CountingDisk()
    logs = load(disk)
    disk.waits = 0
    log = take_up(logs, 0)
    assert disk.waits == 0 and not disk.exists(log.folder / PARTITION_METADATA)
    append(log, 2)
    assert disk.waits == 2 and read_topic_id(disk, log.folder) == TOPIC
    append(log, 2)
    log.assign_epoch_start(7, log.log_end_offset)
    append(log, 2)
    assert disk.waits == 2


def test_a_start_after_a_kill_does_not_wait_for_the_disk() -> None:
    disk = CountingDisk()
    filled(disk, 1)
    logs = load(disk)
    disk.waits = 0
    assert offsets(take_up(logs, 0, epoch=3)) == [0, 1]
    assert disk.waits == 0


@pytest.mark.parametrize("seed", range(40))
def test_after_a_loss_of_power_what_was_flushed_is_there_with_its_epochs(seed: int) -> None:
    disk = SimulatedDisk()
    logs = filled(disk, 2)
    log = logs.logs["t", 0]
    log.assign_epoch_start(4, 2)
    append(log, 2, epoch=4)
    log.flush(NOW)
    log.assign_epoch_start(5, 4)
    append(log, 2, epoch=5)
    disk.lose_power(random.Random(seed), in_any_order=seed % 2 == 1)
    again = take_up(load(disk), 0, epoch=9)
    kept = offsets(again)
    assert kept[:4] == [0, 1, 2, 3] and read_topic_id(disk, again.folder) == TOPIC
    assert [again.epoch_at(offset) for offset in kept] == [0, 0, 4, 4, 5, 5][: len(kept)]
    other = load(disk).get_or_create("t", 1, TOPIC, CONFIG, NOW)
    assert offsets(other) in ([], [0, 1]), "it was not flushed"
    assert not other.log_end_offset or read_topic_id(disk, other.folder) == TOPIC


def waits_of_a_clean_end(count: int) -> int:
    disk = CountingDisk()
    logs = filled(disk, count)
    disk.waits = 0
    logs.shut_down({}, NOW)
    waits = disk.waits
    disk.lose_power(random.Random(1))
    again = load(disk)
    assert again.last_broker_epoch is not None
    assert all(offsets(take_up(again, index, epoch=1)) == [0, 1] for index in range(count))
    return waits


def test_a_clean_end_waits_for_the_disk_as_often_for_many_logs_as_for_few() -> None:
    assert waits_of_a_clean_end(30) == waits_of_a_clean_end(3)


def test_a_clean_end_whose_flush_fails_is_none() -> None:
    disk = SimulatedDisk()
    logs = filled(disk, 2)
    disk.flushes_fail = True
    with pytest.raises(Exception, match="flush"):
        logs.shut_down({}, NOW)
    disk.flushes_fail = False
    disk.lose_power(random.Random(1))
    assert load(disk).last_broker_epoch is None


def test_upkeep_visits_the_logs_that_have_work_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = filled(SimulatedDisk(), 20)
    visited: list[int] = []
    tick = SegmentRow.tick

    def count(self: SegmentRow, now: TimestampMs) -> None:
        visited.append(self.partition)
        tick(self, now)

    monkeypatch.setattr(SegmentRow, "tick", count)
    now = NOW + 1_000
    logs.tick(now)
    visited.clear()  # each was made since the last tick
    for _ in range(3):
        now += 1_000
        logs.tick(now)
    assert not visited
    logs.logs["t", 7].roll(now)
    logs.tick(now + 1_000)
    logs.tick(now + 2_000)
    assert visited == [7] and logs.logs["t", 7].recovery_point == 2
    logs.logs["t", 5].configure(LogConfig(flush_ms=5_000))
    logs.logs["t", 5].flush()
    append(logs.logs["t", 5], 2)
    for _ in range(7):
        now += 1_000
        logs.tick(now)
    assert {*visited} == {5, 7} and logs.logs["t", 5].recovery_point == 4


def test_an_epoch_without_records_is_not_kept() -> None:
    disk = SimulatedDisk()
    logs = filled(disk, 1)
    logs.logs["t", 0].assign_epoch_start(6, 2)
    logs.shut_down({}, NOW)
    assert disk.read_file(ROOT / "t-0" / LEADER_EPOCHS) == b"0\n1\n0 0\n"


def test_the_ids_of_all_new_logs_are_written_at_once() -> None:
    disk = CountingDisk()
    logs = load(disk)
    for index in range(3):
        take_up(logs, index)
    logs.delete(("t", 1), NOW)
    logs.identify_new_logs()
    assert all(read_topic_id(disk, ROOT / f"t-{index}") == TOPIC for index in (0, 2))
    disk.waits = 0
    logs.identify_new_logs()
    append(logs.logs["t", 0], 2)
    assert disk.waits == 0
