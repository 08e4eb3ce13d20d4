"""Guarantees of both disks, and losses of the simulated one."""

import errno
import os
import random
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from reference.protocol.primitives import Buffer
from reference.runtime import folders
from reference.runtime.folders import run_side_by_side
from reference.storage import posix_disk
from reference.storage.disk import Disk
from reference.storage.making_durable import MOST_POSTPONED
from reference.storage.posix_disk import PosixDisk
from reference.storage.simulated_disk import SimulatedDisk


@pytest.fixture(params=["posix", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return PosixDisk() if request.param == "posix" else SimulatedDisk()


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> Path:
    disk.make_folder(tmp_path / "data")
    return tmp_path / "data"


def test_a_file_grows_and_is_cut(disk: Disk, folder: Path) -> None:
    file = disk.open_file(folder / "a")
    file.append(b"hello ")
    file.append(memoryview(b"world"))
    assert file.size == disk.size_of(folder / "a") == 11
    assert file.read(6, 99) == b"world"
    file.truncate(5)
    file.append(b"!")
    assert disk.read_file(folder / "a") == b"hello!"
    assert disk.open_file(folder / "a").size == 6


def test_a_mapped_file_reads_zeros_where_nothing_was_written(disk: Disk, folder: Path) -> None:
    file = disk.map_file(folder / "index")
    file.resize(16)
    file.write_at(8, b"12345678")
    assert bytes(file.buffer) == bytes(8) + b"12345678"
    file.resize(12)
    assert bytes(file.buffer) == bytes(8) + b"1234"
    file.resize(0)
    assert bytes(file.buffer) == b""
    file.flush()


def test_a_small_file_is_replaced_as_a_whole(disk: Disk, folder: Path) -> None:
    disk.write_file(folder / "f", b"one")
    disk.write_file(folder / "f", b"two")
    assert disk.read_file(folder / "f") == b"two"
    assert disk.list_folder(folder) == ["f"]
    with pytest.raises(FileNotFoundError):
        disk.read_file(folder / "other")


def test_what_is_flushed_side_by_side_is_durable_at_the_end_and_not_before(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    disk.make_folder(Path("/data"))
    disk.sync_folder(Path("/"))
    file = disk.open_file(Path("/data/a"))
    file.append(b"whole")
    with disk.side_by_side():
        file.flush()
        disk.write_file(Path("/data/f"), b"one")
        disk.write_file(Path("/data/f"), b"two")
        disk.sync_folder(Path("/data"))
    disk.lose_power(random.Random(1))
    assert disk.read_file(Path("/data/a")) == b"whole"
    assert disk.read_file(Path("/data/f")) == b"two"


def test_of_what_is_flushed_side_by_side_the_rest_is_done_where_one_fails(disk: Disk, folder: Path) -> None:
    with pytest.raises(FileNotFoundError), disk.side_by_side():
        disk.write_file(folder / "before", b"1")
        disk.write_file(folder / "nowhere" / "f", b"2")
        disk.write_file(folder / "after", b"3")
    assert disk.list_folder(folder) == ["after", "before"]
    disk.write_file(folder / "at once", b"4")
    assert disk.read_file(folder / "at once") == b"4"


def test_threads_flush_side_by_side_what_one_would_flush(tmp_path: Path) -> None:
    disk = PosixDisk(run_side_by_side)
    files = [disk.map_file(tmp_path / f"{number}") for number in range(MOST_POSTPONED + 50)]
    with disk.side_by_side():
        for number, file in enumerate(files):
            file.resize(8)
            file.write_at(0, number.to_bytes(8))
            file.flush()
            disk.write_file(tmp_path / f"{number}.note", str(number).encode())
    assert [int.from_bytes(disk.read_file(tmp_path / f"{number}")) for number in range(len(files))] == [
        *range(len(files))
    ]
    assert all(disk.read_file(tmp_path / f"{number}.note") == str(number).encode() for number in range(len(files)))
    with pytest.raises(IsADirectoryError), disk.side_by_side():
        (tmp_path / "folder").mkdir()
        disk.write_file(tmp_path / "folder", b"")
    assert isinstance(disk.failure, IsADirectoryError)


def test_without_threads_acts_run_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may limit them; a thread that cannot be started must not end the node."""
    started: list[Thread] = []

    def start(thread: Thread) -> None:
        if len(started) >= 3:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        begin(thread)

    begin, done = Thread.start, list[int]()
    monkeypatch.setattr(Thread, "start", start)
    folders._threads.cache_clear()
    try:
        run_side_by_side([partial(done.append, number) for number in range(20)])
    finally:
        folders._threads.cache_clear()
    assert done == [*range(20)]
    for each in started:
        each.join(10)
        assert not each.is_alive()


def test_names(disk: Disk, folder: Path) -> None:
    disk.make_folder(folder / "b" / "c")
    disk.open_file(folder / "b" / "x").append(b"1")
    assert disk.is_folder(folder / "b")
    assert not disk.is_folder(folder / "b" / "x")
    assert disk.list_folder(folder / "b") == ["c", "x"]
    disk.rename(folder / "b", folder / "d")
    assert not disk.exists(folder / "b")
    assert disk.read_file(folder / "d" / "x") == b"1"
    disk.remove(folder / "d" / "x")
    disk.remove(folder / "d" / "x")
    disk.remove_folder(folder / "d")
    disk.remove_folder(folder / "d")
    assert disk.list_folder(folder) == []


def test_who_reads_a_file_keeps_it_when_it_is_removed(disk: Disk, folder: Path) -> None:
    file = disk.open_file(folder / "a")
    file.append(b"still here")
    disk.remove(folder / "a")
    disk.open_file(folder / "a").append(b"another")
    assert file.read(0, 99) == b"still here"


def test_descriptors_are_closed(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    disk = PosixDisk()
    for number in range(50):
        disk.open_file(tmp_path / str(number)).append(b"x")
        mapped = disk.map_file(tmp_path / str(number))
        assert mapped.buffer[0:1] == b"x"
    del mapped
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


# ---- power


def survivors(flush: bool, sync: bool, in_any_order: bool = False) -> set[bytes | None]:
    """The possible contents of a file with two writes after a power failure; None if its name is lost."""
    found: set[bytes | None] = set()
    for seed in range(300):
        disk = SimulatedDisk()
        disk.make_folder(Path("/d"))
        disk.sync_folder(Path("/"))
        file = disk.open_file(Path("/d/f"))
        if sync:
            disk.sync_folder(Path("/d"))
        file.append(b"ab")
        if flush:
            file.flush()
        file.append(b"cd")
        disk.lose_power(random.Random(seed), in_any_order)
        found.add(disk.read_file(Path("/d/f")) if disk.exists(Path("/d/f")) else None)
    return found


def test_what_was_flushed_stays_and_a_prefix_of_the_rest() -> None:
    flushed = survivors(flush=True, sync=True)
    assert flushed == {b"ab", b"abc", b"abcd", b"ab\0\0", b"abc\0"}
    assert survivors(flush=False, sync=True) > flushed | {b"", b"a"}
    assert None in survivors(flush=True, sync=False)


def test_of_writes_in_any_order_the_earlier_one_may_be_lost_alone() -> None:
    assert b"\0\0cd" in survivors(flush=False, sync=True, in_any_order=True) - survivors(flush=False, sync=True)
    assert survivors(flush=True, sync=True, in_any_order=True) <= survivors(flush=True, sync=True)


def test_a_rename_is_one_step() -> None:
    outcomes: set[int] = set()
    for seed in range(50):
        disk = SimulatedDisk()
        disk.write_file(Path("/f"), b"old")
        disk.write_file(Path("/new"), b"new")
        disk.rename(Path("/new"), Path("/f"))
        disk.lose_power(random.Random(seed))
        kept = {name: disk.read_file(Path("/") / name) for name in disk.list_folder(Path("/"))}
        assert kept in ({"f": b"old", "new": b"new"}, {"f": b"new"})
        outcomes.add(len(kept))
    assert outcomes == {1, 2}


def test_what_survived_one_failure_survives_the_next() -> None:
    survived: set[bytes] = set()
    for seed in range(50):
        disk = SimulatedDisk()
        disk.open_file(Path("/f")).append(b"abcdef")
        disk.lose_power(random.Random(seed))
        kept = [(name, disk.read_file(Path("/") / name)) for name in disk.list_folder(Path("/"))]
        disk.lose_power(random.Random(seed + 1))
        assert kept == [(name, disk.read_file(Path("/") / name)) for name in disk.list_folder(Path("/"))]
        survived |= {data for _, data in kept}
    assert {b"", b"abc", b"abcdef"} <= survived


def test_a_full_disk_and_a_read_only_one() -> None:
    disk = SimulatedDisk(capacity_bytes=10)
    file = disk.open_file(Path("/f"))
    file.append(b"12345678")
    with pytest.raises(OSError, match="full") as full:
        file.append(b"abc")
    assert full.value.errno == errno.ENOSPC
    assert file.size == 8
    file.append(b"ab")
    disk.read_only = True
    for change in (
        lambda: file.append(b"x"),
        lambda: file.truncate(0),
        lambda: disk.open_file(Path("/g")),
        lambda: disk.remove(Path("/f")),
        lambda: disk.rename(Path("/f"), Path("/g")),
        lambda: disk.make_folder(Path("/h")),
    ):
        with pytest.raises(OSError, match="read-only") as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert file.read(0, 10) == b"12345678ab"


def test_what_a_failed_flush_left_in_the_cache_is_durable_only_when_it_is_written_again() -> None:
    """Linux marks the pages as written: the next flush succeeds without making them durable."""
    for rewritten in (False, True):
        disk = SimulatedDisk()
        disk.make_folder(Path("/d"))
        disk.sync_folder(Path("/"))
        file = disk.open_file(Path("/d/f"))
        disk.sync_folder(Path("/d"))
        file.append(b"kept")
        file.flush()
        assert disk.failure is None
        file.append(b"lost")
        disk.flushes_fail = True
        with pytest.raises(OSError, match="flush"):
            file.flush()
        assert disk.failure is not None
        disk.flushes_fail = False
        if rewritten:
            file.rewrite(0, file.read(0, file.size))
        file.append(b"next")
        file.flush()
        assert file.read(0, 12) == b"keptlostnext"
        disk.lose_power(random.Random(1))
        assert disk.read_file(Path("/d/f")) == (b"keptlostnext" if rewritten else b"kept\0\0\0\0next")


def test_a_file_that_is_not_there_is_no_failure_of_the_disk_and_one_that_cannot_be_written_is(tmp_path: Path) -> None:
    disk = PosixDisk()
    with pytest.raises(FileNotFoundError):
        disk.read_file(tmp_path / "nothing")
    assert disk.failure is None
    with pytest.raises(OSError, match="directory"):
        disk.open_file(tmp_path)
    first = disk.failure
    with pytest.raises(OSError, match="directory"):
        disk.write_file(tmp_path, b"")
    assert first is not None and disk.failure is first


READ_A_HOLE = """
import sys
from collections.abc import Sequence
from pathlib import Path
from reference.storage.posix_disk import PosixDisk
file = PosixDisk().map_file(Path(sys.argv[1]))
print(file.buffer[0], file.buffer[len(file.buffer) - 1])
file.write_at(8, b"x")
print(file.buffer[8], len(file.buffer))
"""


@pytest.mark.process
def test_a_hole_is_read_on_a_full_file_system_in_memory(tmp_path: Path) -> None:
    """Reading a hole through a map of the file took a page there, and the process died by SIGBUS."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    try:
        file = PosixDisk().map_file(tmp_path / "index")
        file.resize(1 << 20)
        file.write_at(0, b"\x07")
        del file
        with suppress(OSError):
            (tmp_path / "filler").write_bytes(bytes(1 << 20))
        read = subprocess.run(
            [sys.executable, "-c", READ_A_HOLE, tmp_path / "index"], capture_output=True, text=True, check=False
        )
        assert (read.returncode, read.stdout) == (0, f"7 0\n{ord('x')} {1 << 20}\n"), read.stderr
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


@pytest.mark.parametrize("limit", [1, 5, 11])
def test_what_the_system_takes_in_parts_is_written_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    def pwrite(descriptor: int, data: Buffer, position: int) -> int:
        return os.pwrite(descriptor, bytes(data)[:limit], position)

    monkeypatch.setattr(posix_disk, "write_at", pwrite)
    disk, entry = PosixDisk(), b"twelve bytes"
    file, index = disk.open_file(tmp_path / "log"), disk.map_file(tmp_path / "index")
    file.append(entry)
    file.append(entry)
    file.rewrite(0, entry[::-1])
    index.resize(24)
    index.write_at(12, entry)
    assert disk.read_file(tmp_path / "log") == entry[::-1] + entry
    assert disk.read_file(tmp_path / "index") == bytes(12) + entry


def test_an_index_entry_of_which_the_disk_takes_a_part_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full behind the page in which the entry begins."""

    def pwrite(descriptor: int, data: Buffer, position: int) -> int:
        room = 4096 - position
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.pwrite(descriptor, bytes(data)[:room], position)

    monkeypatch.setattr(posix_disk, "write_at", pwrite)
    disk = PosixDisk()
    index = disk.map_file(tmp_path / "index")
    index.resize(1 << 20)
    index.write_at(4080, b"twelve bytes")
    with pytest.raises(OSError, match="No space left"):
        index.write_at(4092, b"twelve bytes")
    assert disk.failure is not None and disk.failure.errno == errno.ENOSPC
