"""The interface of a disk; `posix_disk` has the operating system's, `simulated_disk` one in memory.

Storage calls a disk directly and without waiting for anything but the disk. Two guarantees carry all recovery:

- bytes and lengths of a file are durable after `flush` of the file;
- a folder's entries (files made, renamed, removed) are durable after `sync_folder` of the folder.

Until then a power failure may lose them; a crash of the process alone loses nothing that was written. The caller translates an
OSError (disk full, read-only, broken); a failed `append` has left the file as it was. After a failed `flush` it is unknown
which writes since the previous `flush` are durable: Linux marks their pages clean, so that the next `flush` succeeds without
writing them. Only `rewrite` marks them dirty again.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from reference.protocol.primitives import Buffer, TimestampMs


class OpenFile(Protocol):
    """A reader's handle of a file: it can read the bytes also after the file was renamed or removed."""

    def read(self, position: int, size: int) -> bytes:
        """The bytes from a position; fewer at the end of the file."""
        ...

    def fileno(self) -> int:
        """The descriptor that sendfile needs. Errors: OSError where there is none (simulation)."""
        ...


class File(Protocol):
    """A file that grows at its end. A disk with many files may close it, and opens it again when it is used."""

    @property
    def size(self) -> int:
        """The file's length."""
        ...

    def opened(self) -> OpenFile:
        """The file for a reader. Errors: OSError."""
        ...

    def moved(self, path: Path) -> None:
        """Follow a rename of the file."""

    def append(self, data: Buffer) -> None:
        """Write at the end: everything or, with an OSError, nothing."""

    def read(self, position: int, size: int) -> bytes:
        """The bytes from a position; fewer at the end of the file."""
        ...

    def rewrite(self, position: int, data: Buffer) -> None:
        """Write the same bytes again, so that the next `flush` makes them durable even after one that failed."""

    def truncate(self, size: int) -> None:
        """Cut the file to a smaller length."""

    def flush(self) -> None:
        """Make bytes and length durable."""


class MappedFile(Protocol):
    """A file of a fixed length that is read as memory. Writes go through the file, so that a full disk is an OSError."""

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        """The file's bytes; do not write to them, and ask again after `resize`."""
        ...

    def write_at(self, position: int, data: bytes) -> None:
        """Overwrite bytes inside of the file's length."""

    def resize(self, size: int) -> None:
        """Change the file's length; new bytes read as zeros."""

    def clear(self, size: int) -> None:
        """Set the file's content to `size` zeros."""

    def flush(self) -> None:
        """Make bytes and length durable."""

    def moved(self, path: Path) -> None:
        """Follow a rename of the file."""


class Disk(Protocol):
    """A file system. Paths are absolute."""

    failure: OSError | None
    """The first error of a change or a read; after it the durable state is unknown, and the log directory is offline.

    A missing file (FileNotFoundError) does not count.
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
        """A context that may postpone `flush`, `write_file` and `sync_folder` to its end. Errors: the first OSError."""
        ...

    def gathered(self) -> AbstractContextManager[list[Callable[[], None]]]:
        """A context in which `flush` and `sync_folder` only add their work to a list, for another thread.

        Nothing else may be made durable within it. An error of that work must be reported to `failed`.
        """
        ...

    def failed(self, error: OSError) -> None:
        """Record a failed operation; see `failure`."""

    def space(self, path: Path) -> tuple[int, int]:
        """Bytes of the file system that holds a folder, and how many are free; -1 where it is unknown."""
        ...


TEMPORARY = ".tmp"
"""Suffix of a file that is being written; a file with it that a start finds is incomplete."""
