"""A disk in memory, whose unflushed bytes and entries can be lost as at a power failure."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from typing import NoReturn

from reference.protocol.primitives import LONG_AGO, Buffer, Chance, TimestampMs
from reference.storage.disk import TEMPORARY
from reference.storage.making_durable import Failing

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
        """Whether some changes are in neither `durable` nor `changes`, because their flush failed."""
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
        """See `File`, `MappedFile`: the inode is what it was."""

    def opened(self) -> SimulatedFile:
        """See `File`."""
        return self

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

    def clear(self, size: int) -> None:
        """See `MappedFile`."""
        self.truncate(0)
        self.truncate(size)

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
        """Keep the durable state and a random part of the later changes. Open files must be dropped."""
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
"""Probability that a write of the surviving prefix survives, with `in_any_order`."""


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
    """Keep a prefix of the changes since the last flush, with gaps if `in_any_order`; the write after it may be torn."""
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
