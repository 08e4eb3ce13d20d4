"""The interface of a disk, for POSIX and for the simulation.

Storage calls a disk directly and without waiting for anything but the disk. Two guarantees carry all recovery:

- bytes and lengths of a file are durable after `flush` of the file;
- a folder's entries (files made, renamed, removed) are durable after `sync_folder` of the folder.

Until then a power failure may lose them; a crash of the process alone loses nothing that was written. What an OSError says
(disk full, read-only, broken) is the caller's to translate; a failed `append` has left the file as it was. After a `flush`
that failed nothing is known of what was written since the one before: Linux takes the pages for written, so that the next
`flush` succeeds and makes nothing durable. Only `rewrite` makes them ones to be written again.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections import OrderedDict
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

from reference.protocol.primitives import LONG_AGO, Buffer, Chance, TimestampMs
from reference.storage.making_durable import Failing, RunAll, run_in_turn


class File(Protocol):
    """An open file that grows at its end. It is closed when nothing refers to it any more: a reader pins it so."""

    size: int

    def append(self, data: Buffer) -> None:
        """Write at the end: everything or, with an OSError, nothing."""

    def read(self, position: int, size: int) -> bytes:
        """The bytes from a position; fewer at the end of the file."""
        ...

    def rewrite(self, position: int, data: Buffer) -> None:
        """Write bytes again that are there, so that the next `flush` makes them durable whatever became of earlier ones."""

    def truncate(self, size: int) -> None:
        """Cut the file to a length that it has already passed."""

    def flush(self) -> None:
        """Make bytes and length durable."""

    def fileno(self) -> int:
        """The descriptor that sendfile needs. Errors: OSError where there is none (simulation)."""
        ...


class MappedFile(Protocol):
    """A file of a fixed length that is read as memory. Writes go through the file, so that a full disk is an OSError."""

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        """The file's bytes; do not write to them, and ask again after `resize`."""
        ...

    def write_at(self, position: int, data: bytes) -> None:
        """Overwrite bytes inside of the file's length."""

    def resize(self, size: int) -> None:
        """Give the file another length; what is new reads as zeros."""

    def flush(self) -> None:
        """Make bytes and length durable."""

    def moved(self, path: Path) -> None:
        """The file was renamed."""


class Disk(Protocol):
    """A file system. Paths are absolute."""

    failure: OSError | None
    """The first error of a change or of reading bytes; after it what is durable is unknown, and the node must end.

    What is not there (FileNotFoundError) is no such error.
    """

    def open_file(self, path: Path) -> File:
        """Open a file to read and append, making it if it is not there."""
        ...

    def map_file(self, path: Path) -> MappedFile:
        """Open a file to read as memory and write in place, making it (empty) if it is not there."""
        ...

    def read_file(self, path: Path) -> bytes:
        """A whole small file. Errors: FileNotFoundError."""
        ...

    def write_file(self, path: Path, data: bytes) -> None:
        """Replace a whole small file, atomically and durably (a temporary file, flushed and renamed)."""

    def exists(self, path: Path) -> bool:
        """Whether there is a file or folder."""
        ...

    def size_of(self, path: Path) -> int:
        """A file's length. Errors: FileNotFoundError."""
        ...

    def modified_at(self, path: Path) -> TimestampMs:
        """When a file's bytes last changed."""
        ...

    def list_folder(self, path: Path) -> list[str]:
        """Names in a folder, sorted."""
        ...

    def is_folder(self, path: Path) -> bool:
        """Whether there is a folder."""
        ...

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents, if it does not exist."""

    def rename(self, path: Path, to: Path) -> None:
        """Rename a file or folder inside of its folder, replacing a file of the new name."""

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists; open handles stay usable."""

    def remove_folder(self, path: Path) -> None:
        """Remove a folder and the files in it, if it exists."""

    def sync_folder(self, path: Path) -> None:
        """Make a folder's entries durable."""

    def side_by_side(self) -> AbstractContextManager[None]:
        """Within it `flush`, `write_file` and `sync_folder` may wait for its end. Errors: OSError, of the first that failed."""
        ...

    def space(self, path: Path) -> tuple[int, int]:
        """Bytes of the file system that holds a folder, and how many are free; -1 where it is unknown."""
        ...


TEMPORARY = ".tmp"
"""Ending of a file that is being written; one that is found at a start is rubbish."""


# ---- POSIX


class PosixFile:
    """A file behind a descriptor."""

    __slots__ = ("_descriptor", "_disk", "size")

    def __init__(self, path: Path, disk: Failing) -> None:
        self._disk = disk
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.size = os.fstat(self._descriptor).st_size

    def append(self, data: Buffer) -> None:
        """See `File`."""
        size, length = self.size, len(data)
        try:
            written = os.pwrite(self._descriptor, data, size)
            while written < length:
                written += os.pwrite(self._descriptor, memoryview(data)[written:], size + written)
        except OSError as error:
            self._disk.failed(error)
            os.ftruncate(self._descriptor, size)
            raise
        self.size = size + length

    def read(self, position: int, size: int) -> bytes:
        """See `File`."""
        try:
            return os.pread(self._descriptor, size, position)
        except OSError as error:
            self._disk.failed(error)
            raise

    def rewrite(self, position: int, data: Buffer) -> None:
        """See `File`."""
        written = 0
        with self._disk.noticed():
            while written < len(data):
                written += os.pwrite(self._descriptor, memoryview(data)[written:], position + written)

    def truncate(self, size: int) -> None:
        """See `File`."""
        with self._disk.noticed():
            os.ftruncate(self._descriptor, size)
        self.size = size

    def flush(self) -> None:
        """See `File`."""
        self._disk.make_durable(self, self._flush)

    def _flush(self) -> None:
        os.fdatasync(self._descriptor)

    def fileno(self) -> int:
        """See `File`."""
        return self._descriptor

    def __del__(self) -> None:
        # A constructor that failed has left no descriptor.
        if (descriptor := getattr(self, "_descriptor", None)) is not None:
            os.close(descriptor)


MOST_OPEN_MAPS = 500
"""Of one disk: a mapped file that was not used for longest is closed, and opened again when it is used."""

DESCRIPTORS_A_MAP = 2
"""The file's own, and that of Python's map."""


class PosixMappedFile:
    """A file whose bytes are mapped when they are first read; pages that were never written take no space.

    A file that ends in a hole is not mapped itself: to read a page of the hole, a file system in memory takes a page, and where
    it is full the process dies (SIGBUS). Its bytes before the hole are copied, and zeros without pages follow.
    """

    __slots__ = ("__weakref__", "_descriptor", "_disk", "_identity", "_is_copy", "_map", "_path", "_size")

    def __init__(self, path: Path, disk: PosixDisk) -> None:
        self._disk = disk
        self._path = path
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        found = os.fstat(self._descriptor)
        self._size = found.st_size
        self._identity = found.st_dev, found.st_ino
        self._map: mmap.mmap | None = None
        self._is_copy = False
        disk.opened(self)

    def _open(self) -> int:
        """The descriptor. Errors: OSError, FileNotFoundError also where another file has the name by now."""
        if self._descriptor is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != self._identity:
                os.close(descriptor)
                raise FileNotFoundError(errno.ENOENT, "another file has this name now", str(self._path))
            self._descriptor = descriptor
        self._disk.opened(self)
        return self._descriptor

    def close(self) -> None:
        """Hold no descriptor until the file is used again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if not self._is_copy:
            self._map = None

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
            written = os.lseek(descriptor, 0, os.SEEK_HOLE)
            self._is_copy = written < self._size
            if self._is_copy:
                self._map = mmap.mmap(-1, self._size)
                self._map[:written] = os.pread(descriptor, written, 0)
            else:
                self._map = mmap.mmap(descriptor, self._size, access=mmap.ACCESS_READ)
        return self._map

    def write_at(self, position: int, data: bytes) -> None:
        """See `MappedFile`."""
        # Storing through the map would kill the process (SIGBUS) where the disk is full.
        with self._disk.noticed():
            os.pwrite(self._open(), data, position)
        if self._is_copy and self._map is not None:
            self._map[position : position + len(data)] = data

    def resize(self, size: int) -> None:
        """See `MappedFile`."""
        if size != self._size:
            self._map, self._is_copy = None, False
            with self._disk.noticed():
                os.ftruncate(self._open(), size)
            self._size = size

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

    def __init__(self, run_all: RunAll = run_in_turn) -> None:
        super().__init__(run_all)
        self._open_maps: OrderedDict[int, weakref.ref[PosixMappedFile]] = OrderedDict()

    def opened(self, file: PosixMappedFile) -> None:
        """A mapped file is used: it is the last to be closed."""
        self._open_maps[id(file)] = weakref.ref(file)
        self._open_maps.move_to_end(id(file))
        if len(self._open_maps) > MOST_OPEN_MAPS:
            longest = self._open_maps.popitem(last=False)[1]()
            if longest is not None:
                longest.close()

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
        return sorted(entry.name for entry in path.iterdir())

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


# ---- simulation


Change = tuple[int, bytes] | int
"""A write at a position, or a truncation to a length."""


Entries = dict[str, "_Inode | _Folder | None"]


class _Inode:
    """A file's bytes now, those that are durable, and the changes between the two in their order."""

    __slots__ = ("changes", "data", "durable", "has_lost", "modified_at")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.changes: list[Change] = []
        self.has_lost = False
        """Whether changes are in neither: their flush failed."""
        self.modified_at = LONG_AGO


class _Folder:
    """A folder's entries now, those that are durable, and the changes between the two in their order."""

    __slots__ = ("changes", "durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Folder] = {}
        self.durable: dict[str, _Inode | _Folder] = {}
        self.changes: list[Entries] = []

    def put(self, entries: Entries) -> None:
        """Change some entries in one step, which a power failure cannot divide; None removes one."""
        _put(self.entries, entries)
        self.changes.append(entries)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes = []


class SimulatedFile:
    """`File` and `MappedFile` in memory."""

    __slots__ = ("_disk", "_inode")

    def moved(self, path: Path) -> None:
        """See `MappedFile`: the inode is what it was."""

    def __init__(self, disk: SimulatedDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    @property
    def size(self) -> int:
        """See `File`."""
        return len(self._inode.data)

    @property
    def buffer(self) -> bytearray:
        """See `MappedFile`."""
        return self._inode.data

    def append(self, data: Buffer) -> None:
        """See `File`."""
        self._disk.change(self._inode, (len(self._inode.data), bytes(data)))

    def write_at(self, position: int, data: bytes) -> None:
        """See `MappedFile`."""
        self._disk.change(self._inode, (position, data))

    def rewrite(self, position: int, data: Buffer) -> None:
        """See `File`."""
        if self._inode.has_lost:  # of bytes that are durable, or on their way, it changes nothing
            self._disk.change(self._inode, (position, bytes(data)))

    def read(self, position: int, size: int) -> bytes:
        """See `File`."""
        return bytes(memoryview(self._inode.data)[position : position + size])

    def truncate(self, size: int) -> None:
        """See `File`."""
        self._disk.change(self._inode, size)

    resize = truncate

    def flush(self) -> None:
        """See `File`."""
        self._disk.flush(self._inode)

    def fileno(self) -> int:
        """See `File`."""
        raise OSError(errno.ENOTSUP, "a simulated file has no descriptor")


class SimulatedDisk(Failing):
    """A disk in memory that loses, at a power failure, what was not made durable.

    Of the changes since a file's last flush a prefix survives, in which the last write may be torn, and a longer file may
    read as zeros behind it; of a folder's changes since its last sync a prefix survives. Both are drawn from the chance
    that `lose_power` is given. With `in_any_order` some of the writes that survive are lost all the same: their place reads as it
    was before, or as zeros. Changes whose flush failed are read as before, until power is lost, and never are durable.
    """

    def __init__(self, capacity_bytes: int | None = None) -> None:
        super().__init__()
        self.capacity_bytes = capacity_bytes
        """Writes that need more fail with ENOSPC; None for no limit."""
        self.read_only = False
        """All changes fail with EROFS."""
        self.flushes_fail = False
        """All flushes of files that have changed fail with EIO."""
        self.now = LONG_AGO
        """Virtual time, for `modified_at`."""
        self._root = _Folder()

    # ---- faults

    def lose_power(self, chance: Chance, in_any_order: bool = False) -> None:
        """Fall back to what is durable, and to as much of the rest as chance leaves. Open files must be dropped."""
        self._lose_entries(self._root, chance, in_any_order)

    def _lose_entries(self, folder: _Folder, chance: Chance, in_any_order: bool) -> None:
        kept = dict(folder.durable)
        for entries in folder.changes[: chance.randrange(0, len(folder.changes) + 1)]:
            _put(kept, entries)
        folder.entries = kept
        folder.sync()
        for entry in kept.values():
            if isinstance(entry, _Folder):
                self._lose_entries(entry, chance, in_any_order)
            else:
                _lose_bytes(entry, chance, in_any_order)

    @property
    def used_bytes(self) -> int:
        """Bytes of all files (zeros that were never written among them)."""
        return _bytes_in(self._root)

    # ---- files

    def change(self, inode: _Inode, change: Change) -> None:
        """Apply a write or truncation. Errors: OSError when the disk is read-only or full."""
        self._require_writable()
        if self.capacity_bytes is not None and not isinstance(change, int):
            growth = change[0] + len(change[1]) - len(inode.data)
            if growth > 0 and self.used_bytes + growth > self.capacity_bytes:
                self._fail(errno.ENOSPC, "the simulated disk is full")
        _apply(inode.data, change)
        inode.changes.append(change)
        inode.modified_at = self.now

    def _require_writable(self) -> None:
        if self.read_only:
            self._fail(errno.EROFS, "the simulated disk is read-only")

    def _fail(self, number: int, text: str) -> NoReturn:
        error = OSError(number, text)
        self.failed(error)
        raise error

    def flush(self, inode: _Inode) -> None:
        """Make a file durable."""
        self.make_durable(inode, partial(self._flush, inode))

    def _flush(self, inode: _Inode) -> None:
        if inode.changes:
            if self.flushes_fail:
                inode.changes, inode.has_lost = [], True
                self._fail(errno.EIO, "a flush of the simulated disk failed")
            for change in inode.changes:
                _apply(inode.durable, change)
            inode.changes = []

    def open_file(self, path: Path) -> SimulatedFile:
        """See `Disk`."""
        folder = self._folder(path.parent)
        entry = folder.entries.get(path.name)
        if entry is None:
            self._require_writable()
            entry = _Inode()
            entry.modified_at = self.now
            folder.put({path.name: entry})
        if isinstance(entry, _Folder):
            raise IsADirectoryError(errno.EISDIR, str(path))
        return SimulatedFile(self, entry)

    map_file = open_file

    def read_file(self, path: Path) -> bytes:
        """See `Disk`."""
        return bytes(self._inode(path).data)

    def write_file(self, path: Path, data: bytes) -> None:
        """See `Disk`."""
        self.make_durable(path, partial(self._replace, path, data))

    def _replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + TEMPORARY)
        self.remove(temporary)
        file = self.open_file(temporary)
        file.append(data)
        file.flush()
        self.rename(temporary, path)
        self.sync_folder(path.parent)

    def size_of(self, path: Path) -> int:
        """See `Disk`."""
        return len(self._inode(path).data)

    def modified_at(self, path: Path) -> TimestampMs:
        """See `Disk`."""
        return self._inode(path).modified_at

    # ---- folders

    def exists(self, path: Path) -> bool:
        """See `Disk`."""
        return self._entry(path) is not None

    def is_folder(self, path: Path) -> bool:
        """See `Disk`."""
        return isinstance(self._entry(path), _Folder)

    def list_folder(self, path: Path) -> list[str]:
        """See `Disk`."""
        return sorted(self._folder(path).entries)

    def make_folder(self, path: Path) -> None:
        """See `Disk`."""
        folder = self._root
        for name in path.parts[1:]:
            entry = folder.entries.get(name)
            if entry is None:
                self._require_writable()
                entry = _Folder()
                folder.put({name: entry})
            if isinstance(entry, _Inode):
                raise NotADirectoryError(errno.ENOTDIR, str(path))
            folder = entry

    def rename(self, path: Path, to: Path) -> None:
        """See `Disk`."""
        folder = self._folder(path.parent)
        entry = folder.entries.get(path.name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, str(path))
        self._require_writable()
        if path.parent != to.parent:
            raise OSError(errno.EXDEV, "a rename stays in its folder")
        folder.put({path.name: None, to.name: entry})

    def remove(self, path: Path) -> None:
        """See `Disk`."""
        folder = self._folder(path.parent)
        if path.name in folder.entries:
            self._require_writable()
            folder.put({path.name: None})

    remove_folder = remove

    def sync_folder(self, path: Path) -> None:
        """See `Disk`."""
        self.make_durable(path, partial(self._sync_folder, path))

    def _sync_folder(self, path: Path) -> None:
        self._folder(path).sync()

    def space(self, path: Path) -> tuple[int, int]:
        """See `Disk`."""
        return (self.capacity_bytes, -1) if self.capacity_bytes is not None else (-1, -1)

    def _entry(self, path: Path) -> _Inode | _Folder | None:
        entry: _Inode | _Folder | None = self._root
        for name in path.parts[1:]:
            if not isinstance(entry, _Folder):
                return None
            entry = entry.entries.get(name)
        return entry

    def _folder(self, path: Path) -> _Folder:
        entry = self._entry(path)
        if not isinstance(entry, _Folder):
            raise FileNotFoundError(errno.ENOENT, str(path))
        return entry

    def _inode(self, path: Path) -> _Inode:
        entry = self._entry(path)
        if not isinstance(entry, _Inode):
            raise FileNotFoundError(errno.ENOENT, str(path))
        return entry


KEPT = 0.7
"""How many of the writes before the last one that survives do, where they may in any order."""


def _put(entries: dict[str, _Inode | _Folder], changed: Entries) -> None:
    for name, entry in changed.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry


def _apply(data: bytearray, change: Change) -> None:
    if isinstance(change, int):
        if change <= len(data):
            del data[change:]
        else:
            data.extend(bytes(change - len(data)))
        return
    position, written = change
    if position > len(data):
        data.extend(bytes(position - len(data)))  # what lay between was lost
    data[position : position + len(written)] = written


def _lose_bytes(inode: _Inode, chance: Chance, in_any_order: bool) -> None:
    """Keep a prefix of the changes since the last flush, or not all of that; tear the one after it now and then."""
    data = bytearray(inode.durable)
    survivors = chance.randrange(0, len(inode.changes) + 1)
    for change in inode.changes[:survivors]:
        if isinstance(change, int) or not in_any_order or chance.random() < KEPT:
            _apply(data, change)
    torn = inode.changes[survivors] if survivors < len(inode.changes) else 0
    if not isinstance(torn, int) and torn[0] <= len(data):
        position, written = torn
        _apply(data, (position, written[: chance.randrange(0, len(written) + 1)]))
        if len(data) < position + len(written) and chance.random() < 0.25:
            _apply(data, position + len(written))
    inode.data = data
    inode.durable = bytearray(data)
    inode.changes, inode.has_lost = [], False


def _bytes_in(folder: _Folder) -> int:
    return sum(_bytes_in(e) if isinstance(e, _Folder) else len(e.data) for e in folder.entries.values())


__all__ = ["Disk", "File", "MappedFile", "PosixDisk", "SimulatedDisk"]
