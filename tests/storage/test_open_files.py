"""A disk of any number of files holds a bounded number of descriptors and maps, and loses no data by closing files."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from reference.storage.making_durable import Act, run_in_turn
from reference.storage.posix_disk import FLUSHED_TOGETHER, MOST_OPEN_MAPS, PosixDisk


def held_in(folder: Path) -> int:
    """The number of this process's descriptors of files in a folder."""
    links = [*Path("/proc/self/fd").iterdir()]
    return sum(str(folder) in str(link.readlink()) for link in links if link.is_symlink())


def test_files_without_end_hold_a_bounded_number_of_descriptors_and_lose_nothing(tmp_path: Path) -> None:
    disk, count, most = PosixDisk(most_open_files=5), 40, 5
    files = [disk.open_file(tmp_path / str(number)) for number in range(count)]
    for round in range(3):
        for number, file in enumerate(files):
            file.append(bytes([number, round]))
            assert held_in(tmp_path) <= most
    for number, file in enumerate(files):
        file.flush()
        assert file.size == 6 and file.read(0, 9) == bytes([number, 0, number, 1, number, 2])
    with disk.side_by_side():
        for file in files:
            file.flush()
        assert held_in(tmp_path) <= most + count, "what is flushed at the end of the block is open until then"
    assert held_in(tmp_path) <= most and disk.failure is None
    files.clear()
    del file
    assert held_in(tmp_path) == 0


def test_of_two_files_that_which_was_used_lately_stays_open(tmp_path: Path) -> None:
    disk = PosixDisk(most_open_files=3)
    busy, idle = disk.open_file(tmp_path / "busy"), disk.open_file(tmp_path / "idle")
    disk.open_file(tmp_path / "0")
    opened: list[object] = []
    for number in range(1, 6):
        disk.open_file(tmp_path / str(number)).append(b"x")
        opened.append(busy.opened())
    links = {each.readlink().name for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    assert "busy" in links and "idle" not in links and len({*map(id, opened)}) == 1
    idle.append(b"x")
    assert idle.size == 1


def test_a_file_is_durable_before_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the close no operation of this process would get a later error of the disk."""
    disk, files, flushed = PosixDisk(most_open_files=3), [], []
    fdatasync = os.fdatasync

    def flush(descriptor: int) -> None:
        flushed.append(name_of(descriptor))
        fdatasync(descriptor)

    def open_another() -> None:
        files.append(disk.open_file(tmp_path / f"{len(files)}.log"))

    monkeypatch.setattr(os, "fdatasync", flush)
    for _ in range(20):
        open_another()
        files[-1].append(b"x")
        is_open = {name_of(int(each.name)) for each in descriptors()}
        closed = {f"{number}.log" for number in range(len(files))} - is_open
        assert closed <= {*flushed} and len(closed) == max(0, len(files) - 3)
    files[0].flush()
    for _ in range(5):
        open_another()
    assert len(flushed) == len({*flushed}) + 1, "what is durable is closed as it is"

    def breaks(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", breaks)
    with pytest.raises(OSError, match="Input/output error"):
        for _ in range(5):
            open_another()
            files[-1].append(b"x")
    assert disk.failure is not None


def test_files_that_are_closed_next_are_flushed_with_one(tmp_path: Path) -> None:
    """Thousands of partitions take a record each: a node that waits for the disk for each of them serves nothing meanwhile."""
    together: list[int] = []

    def run_all(acts: Sequence[Act]) -> None:
        together.append(len(acts))
        run_in_turn(acts)

    disk, most, count = PosixDisk(run_all, most_open_files=100), 100, 500
    files = [disk.open_file(tmp_path / str(number)) for number in range(most)]
    for number in range(count):
        files.append(disk.open_file(tmp_path / f"next-{number}"))
        files[-1].append(b"x")
        assert held_in(tmp_path) <= most
    assert sum(together) <= count and max(together) == FLUSHED_TOGETHER
    assert len(together) <= count / (FLUSHED_TOGETHER / 2)
    files.clear()


def test_files_without_entries_share_a_map(tmp_path: Path) -> None:
    """A process has 65,530 maps by default: two for each partition, and it can open no further index."""
    disk, count = PosixDisk(most_open_maps=50), 400
    files = [disk.map_file(tmp_path / str(number)) for number in range(count)]
    before = maps()
    for file in files:
        file.resize(8 << 20)
        assert file.buffer[-1] == 0
    assert maps() <= before + 2
    for number, file in enumerate(files):
        file.write_at(number % 8, b"x")
        assert file.buffer[number % 8] == ord("x") and file.buffer[-1] == 0
    assert maps() <= before + 2 * 50
    for number, file in enumerate(files):
        assert file.buffer[number % 8] == ord("x") and file.buffer[-1] == 0
        file.clear(8 << 20)
        assert file.buffer[number % 8] == 0 and len(file.buffer) == 8 << 20


def test_what_is_all_zeros_is_cleared_without_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = PosixDisk()
    file = disk.map_file(tmp_path / "index")
    file.resize(1 << 20)
    cuts: list[int] = []
    ftruncate = os.ftruncate
    monkeypatch.setattr(os, "ftruncate", lambda descriptor, size: (cuts.append(size), ftruncate(descriptor, size)))
    file.clear(1 << 20)
    assert not cuts
    file.write_at(0, b"x")
    file.clear(1 << 20)
    assert cuts == [0, 1 << 20] and file.buffer[0] == 0


def maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def descriptors() -> list[Path]:
    return [each for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]


def name_of(descriptor: int) -> str:
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink().name
    except OSError:
        return ""


def test_a_reader_keeps_a_file_that_was_closed_renamed_and_removed(tmp_path: Path) -> None:
    disk = PosixDisk(most_open_files=1)
    file = disk.open_file(tmp_path / "a")
    file.append(b"abc")
    reader = file.opened()
    disk.open_file(tmp_path / "b").append(b"x")
    disk.open_file(tmp_path / "c").append(b"x")
    disk.rename(tmp_path / "a", tmp_path / "a.deleted")
    disk.remove(tmp_path / "a.deleted")
    assert reader.read(0, 9) == b"abc" and os.pread(reader.fileno(), 9, 1) == b"bc"
    with pytest.raises(FileNotFoundError):
        file.append(b"d")
    assert file.size == 3 and disk.failure is None
    del reader
    assert held_in(tmp_path) == 0


def test_a_file_that_was_closed_is_found_under_its_new_name_and_no_other_is_taken_for_it(tmp_path: Path) -> None:
    disk = PosixDisk()
    file = disk.open_file(tmp_path / "a")
    file.append(b"abc")
    file.close()
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a").write_bytes(b"another")
    with pytest.raises(FileNotFoundError):
        file.append(b"d")
    file.moved(tmp_path / "b")
    file.append(b"d")
    assert (tmp_path / "b").read_bytes() == b"abcd" and (tmp_path / "a").read_bytes() == b"another"
    assert disk.failure is None


def test_mapped_files_without_end_hold_a_bounded_number_of_descriptors(tmp_path: Path) -> None:
    disk, count = PosixDisk(), MOST_OPEN_MAPS + 50

    files = [disk.map_file(tmp_path / str(number)) for number in range(count)]
    for round in range(2):
        for number, file in enumerate(files):
            file.resize(2)
            file.write_at(round, bytes([number % 251]))
            file.flush()
            assert file.buffer[round] == number % 251
    assert held_in(tmp_path) <= 2 * MOST_OPEN_MAPS
    assert all(file.buffer[:2] == bytes([number % 251] * 2) for number, file in enumerate(files))
    files.clear()
    del file
    assert held_in(tmp_path) == 0


def test_a_mapped_file_that_was_closed_is_found_under_its_new_name_and_no_other_is_taken_for_it(tmp_path: Path) -> None:
    disk = PosixDisk()
    file = disk.map_file(tmp_path / "index")
    file.resize(4)
    file.write_at(0, b"abcd")
    file.close()
    (tmp_path / "index").rename(tmp_path / "index.swap")
    disk.map_file(tmp_path / "index").resize(4)
    with pytest.raises(FileNotFoundError):
        file.write_at(0, b"x")
    file.moved(tmp_path / "index.swap")
    file.write_at(1, b"x")
    assert (tmp_path / "index.swap").read_bytes() == file.buffer[:] == b"axcd"
    assert disk.failure is None
