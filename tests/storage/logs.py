"""Logs for tests, on a simulated disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reference.protocol.primitives import FIRST_EPOCH, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from reference.protocol.records.batch import BatchProducer, build, read_all_records
from reference.protocol.records.control import EndTransaction, build_end_transaction
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.storage.config import LogConfig
from reference.storage.disk import Disk
from reference.storage.log import AppendInfo, Log
from reference.storage.recovery import PreviousRun
from reference.storage.segment_list import LogIdentity
from reference.storage.simulated_disk import SimulatedDisk

NOW = TimestampMs(1_700_000_000_000)
FOLDER = Path("/data/t-0")

T_0 = LogIdentity("t", 0)


def open_log(
    disk: Disk | None = None, config: LogConfig | None = None, now: TimestampMs = NOW, **arguments: Any
) -> Log:
    """A log `t-0` in /data; the arguments are those of `PreviousRun`, or of a log."""
    disk = disk or SimulatedDisk()
    disk.make_folder(FOLDER.parent)
    disk.sync_folder(Path("/"))
    of_run = {name: arguments.pop(name) for name in PreviousRun._fields if name in arguments}
    return Log(disk, FOLDER, config or LogConfig(), now, T_0, PreviousRun(**of_run), **arguments)


def batch(count: int = 1, *, time: TimestampMs = NOW, size: int = 10, **arguments: Any) -> bytearray:
    """A batch as a producer sends it."""
    return build([Record(Offset(index), time, b"k", bytes(size)) for index in range(count)], **arguments)


def append(log: Log, count: int = 1, *, epoch: int = 0, now: TimestampMs = NOW, **arguments: Any) -> AppendInfo:
    return log.append_as_leader(batch(count, **arguments), LeaderEpoch(epoch), now)


def append_as(
    log: Log, producer: int, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
) -> AppendInfo:
    return append(
        log,
        count,
        producer=BatchProducer(ProducerId(producer), ProducerEpoch(epoch), sequence, transactional=transactional),
    )


def end_transaction(log: Log, producer: int, *, commit: bool, epoch: int = 0, version: int = 0) -> AppendInfo:
    ended = EndTransaction(commit, FIRST_EPOCH)
    marker = build_end_transaction(ended, ProducerId(producer), ProducerEpoch(epoch), NOW)
    return log.append_as_leader(marker, FIRST_EPOCH, NOW, Origin.COORDINATOR, version)


def offsets(log: Log, start: int | None = None) -> Sequence[Offset]:
    """The offsets of all records that a reader gets."""
    at, found = log.log_start_offset if start is None else Offset(start), list[Offset]()
    while at < log.log_end_offset:
        data = log.read(at, 1 << 20).records
        read = [record.offset for record in read_all_records(data if isinstance(data, bytes) else data.read())]
        if not read:
            break
        found += [offset for offset in read if offset >= at]
        at = read[-1] + 1
    return found


def names(log: Log, suffix: str) -> list[str]:
    """The names of a log's files with a suffix."""
    return [name for name in log._disk.list_folder(log.folder) if name.endswith(suffix)]
