"""The disk of the operating system: files by their descriptors, indexes in mapped memory."""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections import OrderedDict, deque
from functools import partial
from itertools import islice
from pathlib import Path

from reference.protocol.buffers import write_at
from reference.protocol.primitives import Buffer, TimestampMs
from reference.storage.disk import TEMPORARY
from reference.storage.making_durable import Act, Failing, RunAll, run_in_turn

SEEK_DATA, SEEK_HOLE = getattr(os, "SEEK_DATA", 3), getattr(os, "SEEK_HOLE", 4)
"""Linux's numbers, which PyPy has no names for."""


class OpenFile:
    """A descriptor that is closed with the last reference to it, so that a reader can keep it."""

    __slots__ = ("_disk", "descriptor")

    def __init__(self, descriptor: int, disk: Failing) -> None:
        self.descriptor = descriptor
        self._disk = disk

    def read(self, position: int, size: int) -> bytes:
        """See `disk.OpenFile`."""
        try:
            return os.pread(self.descriptor, size, position)
        except OSError as error:
            self._disk.failed(error)
            raise

    def fileno(self) -> int:
        """See `disk.OpenFile`."""
        return self.descriptor

    def flush(self) -> None:
        """Wait for the disk. Errors: OSError."""
        os.fdatasync(self.descriptor)

    def __del__(self) -> None:
        os.close(self.descriptor)


class PosixFile:
    """A file that is opened on use; while too many are open, files that were not used lately are closed."""

    __slots__ = ("__weakref__", "_disk", "_durable", "_identity", "_open", "_path", "_writes", "is_used", "size")

    def __init__(self, path: Path, disk: PosixDisk) -> None:
        self._disk = disk
        self._path = path
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._open: OpenFile | None = OpenFile(descriptor, disk)
        self.is_used = True
        """Whether it was used since the disk last looked for a file to close."""
        self._writes = self._durable = 0
        """How often the file was changed, and up to which change it is durable."""
        found = os.fstat(descriptor)
        self.size = found.st_size
        self._identity = found.st_dev, found.st_ino
        disk.file_opened(self)

    def opened(self) -> OpenFile:
        """See `File`."""
        self.is_used = True
        return self._open or self._open_again()

    def _open_again(self) -> OpenFile:
        with self._disk.noticed():
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            opened = OpenFile(descriptor, self._disk)
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != self._identity:
                raise another_file(self._path)
        self._open = opened
        self._disk.file_opened(self)
        return opened

    @property
    def is_durable(self) -> bool:
        return self._durable == self._writes

    def close(self) -> None:
        """Close the descriptor until the file is used again; readers keep theirs. Errors: OSError."""
        if (flush := self.pending_flush()) is not None:
            # An error of the disk after this could be reported to no flush: the system may forget it with the file.
            with self._disk.noticed():
                flush()
        self._open = None

    def pending_flush(self) -> Act | None:
        """A call that makes the open file durable, for any thread; None where it is durable, or not open."""
        opened = self._open
        return None if opened is None or self.is_durable else partial(self._flushed_by, opened, self._writes)

    def moved(self, path: Path) -> None:
        """See `File`."""
        self._path = path

    def append(self, data: Buffer) -> None:
        """See `File`."""
        size, length = self.size, len(data)
        descriptor = self.opened().descriptor
        self._writes += 1
        try:
            _write_all(descriptor, data, size)
        except OSError as error:
            self._disk.failed(error)
            # Half a batch at the end would be in the way of the next append: recovery cuts a log at the first batch
            # that is not whole.
            os.ftruncate(descriptor, size)
            raise
        self.size = size + length

    def read(self, position: int, size: int) -> bytes:
        """See `File`."""
        return self.opened().read(position, size)

    def rewrite(self, position: int, data: Buffer) -> None:
        """See `File`."""
        opened = self.opened()
        self._writes += 1
        with self._disk.noticed():
            _write_all(opened.descriptor, data, position)

    def truncate(self, size: int) -> None:
        """See `File`."""
        opened = self.opened()
        self._writes += 1
        with self._disk.noticed():
            os.ftruncate(opened.descriptor, size)
        self.size = size

    def flush(self) -> None:
        """See `File`."""
        self._disk.make_durable(self, partial(self._flushed_by, self.opened(), self._writes))

    def _flushed_by(self, opened: OpenFile, writes: int) -> None:
        opened.flush()
        self._durable = max(self._durable, writes)


def _write_all(descriptor: int, data: Buffer, position: int) -> None:
    """Write all bytes, though the system may take a part at a time: where the disk fills up at the border of two pages, also of a
    few bytes. Errors: OSError."""
    written = write_at(descriptor, data, position)
    while written < len(data):
        written += write_at(descriptor, memoryview(data)[written:], position + written)


def another_file(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "another file has this name now", str(path))


MOST_OPEN_FILES = 10_000
"""Default limit of a disk's open log files; beyond it, files that were not used lately are closed."""

MOST_LOOKED_AT = 16
"""How many files are looked at before one is closed that was used lately, or must be flushed first."""

FLUSHED_TOGETHER = 64
"""How many files are flushed together when a file to be closed is not durable."""

MOST_OPEN_MAPS = 500
"""Limit of a disk's open mapped files; the least recently used one is closed, and opened again on use."""

MOST_ZEROS = 16
"""For how many lengths a disk keeps a shared map of zeros."""

DESCRIPTORS_A_MAP = 2
"""The file's own, and that of Python's map."""


class PosixMappedFile:
    """A file whose bytes are mapped when they are first read; pages that were never written take no space.

    A file that ends in a hole is not mapped itself: to read a page of the hole, a file system in memory takes a page, and where
    it is full the process dies (SIGBUS). Its bytes before the hole are copied, and zeros without pages follow. Files that are all
    hole, as the indexes of partitions with few records, share zeros: a process may have 65,530 maps by Linux's default.
    """

    __slots__ = ("__weakref__", "_descriptor", "_disk", "_has_zeros", "_identity", "_is_copy", "_map", "_path", "_size")

    def __init__(self, path: Path, disk: PosixDisk) -> None:
        self._disk = disk
        self._path = path
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        found = os.fstat(self._descriptor)
        self._size = found.st_size
        self._identity = found.st_dev, found.st_ino
        self._map: mmap.mmap | None = None
        self._is_copy = False
        self._has_zeros = False
        """Whether the map is the disk's shared map of zeros."""
        disk.opened(self)

    def _open(self) -> int:
        """The descriptor. Errors: OSError, FileNotFoundError also where another file has the name by now."""
        if self._descriptor is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != self._identity:
                os.close(descriptor)
                raise another_file(self._path)
            self._descriptor = descriptor
        self._disk.opened(self)
        return self._descriptor

    def close(self) -> None:
        """Close descriptor and map until the file is used again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._forget_map()

    def _forget_map(self) -> None:
        self._map, self._is_copy, self._has_zeros = None, False, False

    def moved(self, path: Path) -> None:
        """See `MappedFile`."""
        self._path = path

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        """See `MappedFile`."""
        if self._map is None:
            if self._size == 0:
                return bytearray()
            descriptor = self._open()
            written = os.lseek(descriptor, 0, SEEK_HOLE)
            self._is_copy = written < self._size
            self._has_zeros = written == 0
            if self._has_zeros:
                self._map = self._disk.zeros(self._size)
            elif self._is_copy:
                self._map = mmap.mmap(-1, self._size)
                self._map[:written] = os.pread(descriptor, written, 0)
            else:
                self._map = mmap.mmap(descriptor, self._size, access=mmap.ACCESS_READ)
        return self._map

    def write_at(self, position: int, data: bytes) -> None:
        """See `MappedFile`."""
        # Storing through the map would kill the process (SIGBUS) where the disk is full.
        with self._disk.noticed():
            _write_all(self._open(), data, position)
        if self._has_zeros:
            self._forget_map()
        elif self._is_copy and self._map is not None:
            self._map[position : position + len(data)] = data

    def resize(self, size: int) -> None:
        """See `MappedFile`."""
        if size != self._size:
            self._forget_map()
            with self._disk.noticed():
                os.ftruncate(self._open(), size)
            self._size = size

    def clear(self, size: int) -> None:
        """See `MappedFile`. Most indexes that a kill leaves were never written to, and need no change."""
        if size != self._size or not self._is_hole():
            self.resize(0)
            self.resize(size)

    def _is_hole(self) -> bool:
        """Whether the file has no written byte. Errors: OSError."""
        with self._disk.noticed():
            descriptor = self._open()
            try:
                os.lseek(descriptor, 0, SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return True
        return False

    def flush(self) -> None:
        """See `MappedFile`."""
        # Of its own, because this one is closed when other files are used.
        with self._disk.noticed():
            descriptor = os.dup(self._open())
        self._disk.make_durable(self, partial(_flush_and_close, descriptor))

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.close()


def _flush_and_close(descriptor: int) -> None:
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


class PosixDisk(Failing):
    """The operating system's files."""

    def __init__(
        self,
        run_all: RunAll = run_in_turn,
        most_open_files: int = MOST_OPEN_FILES,
        most_open_maps: int = MOST_OPEN_MAPS,
    ) -> None:
        super().__init__(run_all)
        self._most_open_files = most_open_files
        self._most_open_maps = most_open_maps
        self._open_files: deque[weakref.ref[PosixFile]] = deque()
        """In the order in which they were opened."""
        self._open_maps: OrderedDict[int, weakref.ref[PosixMappedFile]] = OrderedDict()
        self._zeros: dict[int, mmap.mmap] = {}

    def zeros(self, size: int) -> mmap.mmap:
        """A map of so many zeros, which take no space. Do not write to it."""
        if size not in self._zeros:
            if len(self._zeros) == MOST_ZEROS:
                self._zeros.clear()
            self._zeros[size] = mmap.mmap(-1, size, access=mmap.ACCESS_READ)
        return self._zeros[size]

    def opened(self, file: PosixMappedFile) -> None:
        """Mark a mapped file as the most recently used, and close the least recently used beyond the limit."""
        self._open_maps[id(file)] = weakref.ref(file)
        self._open_maps.move_to_end(id(file))
        if len(self._open_maps) > self._most_open_maps:
            longest = self._open_maps.popitem(last=False)[1]()
            if longest is not None:
                longest.close()

    def file_opened(self, file: PosixFile) -> None:
        """Register an open file and, beyond the limit, close one that was not used since the last such look.

        A durable file is closed first. Errors: OSError, of a flush.
        """
        files = self._open_files
        files.append(weakref.ref(file))
        looked_at = 0
        while len(files) > self._most_open_files:
            longest = files.popleft()()
            if longest is None:
                continue  # it is closed, for nothing refers to it any more
            looked_at += 1
            if longest is file or ((longest.is_used or not longest.is_durable) and looked_at < MOST_LOOKED_AT):
                longest.is_used = False
                files.append(weakref.ref(longest))
            else:
                if not longest.is_durable:
                    self._flush_with_next(longest)
                longest.close()

    def _flush_with_next(self, file: PosixFile) -> None:
        """Flush a file together with those that will be closed next: many take little longer than one. Errors: OSError."""
        following = (each() for each in islice(self._open_files, FLUSHED_TOGETHER - 1))
        flushes = (each.pending_flush() for each in (file, *following) if each is not None)
        with self.noticed():
            self._run_all([flush for flush in flushes if flush is not None])

    def open_file(self, path: Path) -> PosixFile:
        """See `Disk`."""
        with self.noticed():
            return PosixFile(path, self)

    def map_file(self, path: Path) -> PosixMappedFile:
        """See `Disk`."""
        with self.noticed():
            return PosixMappedFile(path, self)

    def read_file(self, path: Path) -> bytes:
        """See `Disk`."""
        with self.noticed():
            return path.read_bytes()

    def write_file(self, path: Path, data: bytes) -> None:
        """See `Disk`."""
        self.make_durable(path, partial(self._replace, path, data))

    def _replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + TEMPORARY)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
        self._sync_folder(path.parent)

    def exists(self, path: Path) -> bool:
        """See `Disk`."""
        return path.exists()

    def size_of(self, path: Path) -> int:
        """See `Disk`."""
        return path.stat().st_size

    def modified_at(self, path: Path) -> TimestampMs:
        """See `Disk`."""
        return TimestampMs(path.stat().st_mtime_ns // 1_000_000)

    def list_folder(self, path: Path) -> list[str]:
        """See `Disk`."""
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries)

    def is_folder(self, path: Path) -> bool:
        """See `Disk`."""
        return path.is_dir()

    def make_folder(self, path: Path) -> None:
        """See `Disk`."""
        with self.noticed():
            path.mkdir(parents=True, exist_ok=True)

    def rename(self, path: Path, to: Path) -> None:
        """See `Disk`."""
        with self.noticed():
            path.replace(to)

    def remove(self, path: Path) -> None:
        """See `Disk`."""
        with self.noticed():
            path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """See `Disk`."""
        with self.noticed():
            if path.is_dir():
                for entry in path.iterdir():
                    if entry.is_dir():
                        self.remove_folder(entry)
                    else:
                        entry.unlink(missing_ok=True)
                path.rmdir()

    def sync_folder(self, path: Path) -> None:
        """See `Disk`."""
        self.make_durable(path, partial(self._sync_folder, path))

    def _sync_folder(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def space(self, path: Path) -> tuple[int, int]:
        """See `Disk`."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
