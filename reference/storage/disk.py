"""The interface of a disk; `posix_disk` has the operating system's, `simulated_disk` one in memory.

Storage calls a disk directly and without waiting for anything but the disk. Two guarantees carry all recovery:

- bytes and lengths of a file are durable after `flush` of the file;
- a folder's entries (files made, renamed, removed) are durable after `sync_folder` of the folder.

Until then a power failure may lose them; a crash of the process alone loses nothing that was written. What an OSError says
(disk full, read-only, broken) is the caller's to translate; a failed `append` has left the file as it was. After a `flush`
that failed nothing is known of what was written since the one before: Linux takes the pages for written, so that the next
`flush` succeeds and makes nothing durable. Only `rewrite` makes them ones to be written again.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from reference.protocol.primitives import Buffer, TimestampMs


class OpenFile(Protocol):
    """What a reader holds of a file: while it refers to it the bytes can be read, whatever becomes of the file's name."""

    def read(self, position: int, size: int) -> bytes:
        """The bytes from a position; fewer at the end of the file."""
        ...

    def fileno(self) -> int:
        """The descriptor that sendfile needs. Errors: OSError where there is none (simulation)."""
        ...


class File(Protocol):
    """A file that grows at its end. A disk with many files may close it, and opens it again when it is used."""

    size: int

    def opened(self) -> OpenFile:
        """The file for a reader. Errors: OSError."""
        ...

    def moved(self, path: Path) -> None:
        """The file was renamed."""

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

    def clear(self, size: int) -> None:
        """Make the file so many zeros."""

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

    def gathered(self) -> AbstractContextManager[list[Callable[[], None]]]:
        """Within it `flush` and `sync_folder` wait for nothing: what they would do is gathered, for another thread.

        Nothing else may be made durable within it. Who carries it out reports an error to `failed`.
        """
        ...

    def failed(self, error: OSError) -> None:
        """An operation has failed; see `failure`."""

    def space(self, path: Path) -> tuple[int, int]:
        """Bytes of the file system that holds a folder, and how many are free; -1 where it is unknown."""
        ...


TEMPORARY = ".tmp"
"""Ending of a file that is being written; one that is found at a start is rubbish."""
