"""Flushes in other threads: the node's own thread waits for none, and their errors become failures of the disk."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from reference.protocol.primitives import TimestampMs
from reference.runtime.flush_threads import FlushThreads
from reference.storage.config import LogConfig
from reference.storage.errors import StorageError
from reference.storage.log import Log
from reference.storage.log_directory import LogDirectory
from reference.storage.posix_disk import PosixDisk
from tests.storage.logs import append
from tests.storage.test_log_directory import A

NOW = TimestampMs(1_700_000_000_000)


def flush_closed_segment(folder: Path, is_over: Callable[[Log], bool], disk: PosixDisk | None = None) -> Log:
    """Close a segment, begin its flush, and wait until the flush is over."""

    async def run() -> Log:
        flushes = FlushThreads(asyncio.get_running_loop(), lambda act: act())
        directory = LogDirectory(disk or PosixDisk(), folder)
        directory.load(NOW)
        log = directory.get_or_create("t", 0, A, LogConfig(), NOW)
        directory.run_flush = flushes.run
        append(log, 2)
        log.roll(NOW)
        append(log)
        waits.clear()
        log.tick(NOW)
        while not is_over(log):
            await asyncio.sleep(0.001)
        flushes.close()
        return log

    return asyncio.run(run())


waits: list[int] = []
"""The threads that waited for files."""


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    fdatasync = os.fdatasync

    def counting(descriptor: int) -> None:
        waits.append(threading.get_ident())
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", counting)


def test_the_nodes_thread_does_not_wait_for_a_closed_segment(tmp_path: Path) -> None:
    log = flush_closed_segment(tmp_path, lambda log: log.recovery_point == 2)
    assert len(waits) == 3 and threading.get_ident() not in waits, "the log file and two indexes"
    assert not log.is_flushing


def test_a_failure_in_a_thread_is_the_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fdatasync(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    disk = PosixDisk()
    log = flush_closed_segment(tmp_path, lambda log: not log.is_flushing, disk)
    assert log.recovery_point == 0
    assert disk.failure is not None and disk.failure.errno == errno.EIO


def test_any_other_end_of_a_flush_is_the_disks_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fdatasync(descriptor: int) -> None:
        raise MemoryError

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    disk = PosixDisk()
    log = flush_closed_segment(tmp_path, lambda log: not log.is_flushing, disk)
    assert log.recovery_point == 0
    assert disk.failure is not None and "MemoryError" in str(disk.failure)


def test_a_thread_that_cannot_be_started_is_an_error_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(StorageError, match="can't start new thread"):
        flush_closed_segment(tmp_path, lambda log: not log.is_flushing)
