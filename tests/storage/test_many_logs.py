"""The number of times that a log waits for the disk, which decides the cost of thousands of logs."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest

from reference.protocol.primitives import LeaderEpoch
from reference.storage.checkpoints import LEADER_EPOCHS
from reference.storage.config import LogConfig
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.log import Log
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk, _Inode
from tests.storage.logs import NOW, append, offsets

ROOT = Path("/data")
TOPIC = UUID(int=10)


class CountingDisk(SimulatedDisk):
    """Counts the flushes of files and folders that a process would wait for."""

    waits = 0

    def flush(self, inode: _Inode) -> None:
        self.waits += 1
        super().flush(inode)

    def sync_folder(self, path: Path) -> None:
        self.waits += 1
        super().sync_folder(path)


def load(disk: SimulatedDisk) -> LogDirectory:
    disk.make_folder(ROOT)
    disk.sync_folder(Path("/"))
    made = LogDirectory(disk, ROOT)
    made.load(NOW)
    return made


def lead(logs: LogDirectory, epoch: int) -> Log:
    """Open the log of a partition, and begin a leader epoch."""
    log = logs.get_or_create("t", 0, TOPIC, LogConfig(), NOW)
    log.assign_epoch_start(LeaderEpoch(epoch), log.log_end_offset)
    return log


def in_file(disk: SimulatedDisk) -> list[str]:
    path = ROOT / "t-0" / LEADER_EPOCHS
    return disk.read_file(path).decode().splitlines()[2:] if disk.exists(path) else []


def test_a_new_replica_waits_three_times_and_an_election_does_not() -> None:
    """The folder's name, the topic's id, and the name of the file that holds it."""
    disk = CountingDisk()
    logs = load(disk)
    before = disk.waits
    log = lead(logs, 0)
    append(log)
    assert disk.waits == before + 3
    for epoch in range(1, 20):
        lead(logs, epoch)
        append(log, epoch=epoch)
    assert disk.waits == before + 3


def logs_of(disk: SimulatedDisk, count: int) -> LogDirectory:
    logs = load(disk)
    for partition in range(count):
        append(logs.get_or_create("t", partition, TOPIC, LogConfig(), NOW))
    return logs


def open_all(disk: CountingDisk, count: int) -> tuple[LogDirectory, int]:
    """Open the logs at the next start; return them, and the number of waits for the disk."""
    logs, before = load(disk), disk.waits
    for partition in range(count):
        logs.get_or_create("t", partition, TOPIC, LogConfig(), NOW)
    return logs, disk.waits - before


def test_a_start_after_a_crash_waits_for_no_log_that_has_lost_nothing() -> None:
    disk = CountingDisk()
    logs_of(disk, 5)
    _, waits = open_all(disk, 5)
    assert waits == 0


def test_a_start_waits_for_a_folder_from_which_it_removes_something() -> None:
    disk = CountingDisk()
    logs_of(disk, 5)
    with_rubbish = ROOT / "t-3"
    disk.write_file(with_rubbish / "leader-epoch-checkpoint.tmp", b"")
    disk.waits = 0
    logs, waits = open_all(disk, 5)
    assert waits == 1
    assert logs.logs["t", 3].log_end_offset == 1
    disk.lose_power(Nothing())
    assert not [name for name in disk.list_folder(with_rubbish) if name.endswith(".tmp")]


def test_a_clean_end_flushes_each_file_of_a_log_once() -> None:
    """Three files of its segment, two small files with their names, and the folder."""
    disk = CountingDisk()
    ends: list[int] = []
    for count in (3, 4):
        disk = CountingDisk()
        logs = logs_of(disk, count)
        disk.waits = 0
        logs.shut_down({}, NOW)
        ends.append(disk.waits)
    assert ends[1] - ends[0] == 8


def test_a_clean_end_whose_flush_fails_is_none_and_moves_no_recovery_point() -> None:
    disk = CountingDisk()
    logs = logs_of(disk, 3)
    disk.flushes_fail = True
    with pytest.raises(StorageError):
        logs.shut_down({}, NOW)
    assert [log.recovery_point for log in logs.logs.values()] == [0, 0, 0]
    disk.flushes_fail, disk.failure = False, None
    disk.lose_power(Nothing())
    again = load(disk)
    assert again.last_broker_epoch is None, "the start is one after a crash"


class Nothing(random.Random):
    """A random source with which a power failure loses all data that is not durable."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0


def test_a_folder_whose_name_a_kill_left_in_memory_is_durable_after_the_next_start() -> None:
    disk = CountingDisk()
    load(disk)
    disk.make_folder(ROOT / "t-0")  # and the process is killed
    log = load(disk).get_or_create("t", 0, TOPIC, LogConfig(), NOW)
    append(log)
    log.flush()
    disk.lose_power(Nothing())
    assert load(disk).get_or_create("t", 0, TOPIC, LogConfig(), NOW).log_end_offset == 1


def test_new_replicas_wait_together_for_their_folders() -> None:
    disk = CountingDisk()
    manager = LogManager([load(disk)])
    keys = [("t", partition) for partition in range(5)]
    manager.make_folders(dict.fromkeys(keys, TOPIC))
    disk.waits = 0
    logs = [manager.get_or_create(key, TOPIC, LogConfig(), NOW) for key in keys]
    assert disk.waits == 0
    for log in logs:
        append(log)
        log.flush()
    disk.lose_power(Nothing())
    again = LogManager([load(disk)])
    found = [again.get_or_create(key, TOPIC, LogConfig(), NOW) for key in keys]
    assert [(log.topic_id, log.log_end_offset) for log in found] == [(TOPIC, 1)] * 5


def test_a_folder_that_is_there_or_was_lost_is_not_made_again() -> None:
    disk = CountingDisk()
    manager = LogManager([load(disk)])
    log = manager.get_or_create(("t", 0), TOPIC, LogConfig(), NOW)
    append(log)
    manager.shut_down({}, NOW, None)
    manager = LogManager([load(disk)])
    disk.remove_folder(ROOT / "t-0")
    manager.make_folders({("t", 0): TOPIC, ("t", 1): TOPIC})
    assert not disk.exists(ROOT / "t-0")
    with pytest.raises(CorruptFile, match="was flushed"):
        manager.get_or_create(("t", 0), TOPIC, LogConfig(), NOW)


def test_an_epoch_is_in_the_file_before_the_recovery_point_passes_its_first_record() -> None:
    disk = CountingDisk()
    log = lead(load(disk), 4)
    append(log, 2, epoch=4)
    assert in_file(disk) == []
    log.flush()
    log.assign_epoch_start(LeaderEpoch(5), log.log_end_offset)
    assert in_file(disk) == ["4 0"] and log.recovery_point == 2
    append(log, epoch=5)
    assert in_file(disk) == ["4 0"]
    log.flush()
    assert in_file(disk) == ["4 0", "5 2"]


def test_a_loss_of_power_leaves_each_record_with_its_epoch() -> None:
    """Whatever of the unflushed records is left, recovery finds their epochs in the batches."""
    for seed in range(20):
        disk = CountingDisk()
        logs = load(disk)
        for epoch in range(1, 6):
            log = lead(logs, epoch)
            append(log, 2, epoch=epoch)
            if epoch == 2:
                log.flush()
        disk.lose_power(random.Random(seed), in_any_order=seed % 2 == 1)
        again = lead(load(disk), 9)
        assert 4 <= again.log_end_offset <= 10
        assert [again.epoch_at(offset) for offset in offsets(again)] == [
            1 + offset // 2 for offset in range(again.log_end_offset)
        ]


def test_a_flush_that_finds_no_room_for_the_epochs_holds_the_recovery_point_back() -> None:
    """The records are durable; without their epochs in the file they must be read again after a crash."""
    disk = CountingDisk()
    log = lead(load(disk), 4)
    append(log, 2, epoch=4)
    disk.capacity_bytes = disk.used_bytes
    log.flush()
    assert log.recovery_point == 0 and in_file(disk) == []
    with pytest.raises(StorageError):
        log.close()
    disk.capacity_bytes = None
    log.flush()
    assert log.recovery_point == 2 and in_file(disk) == ["4 0"]
