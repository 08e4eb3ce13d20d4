"""One node's interposer: its settings and its records are in one mapped file, beside the node's data."""

import errno
import mmap
import os
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

from linearizability.targets.interposer.building import library
from linearizability.targets.target import DiskError

HEADER = struct.Struct("=qqqq32x")
"""Clock offset (ns), error of writes, bytes that may still be written, loads. `struct state` in interposer.c."""
FILE = struct.Struct("=Qqqq")
"""Inode, durable length, whether a copy has the durable bytes, length of the last truncation. `struct file` in interposer.c."""
UNCUT = -1
WORD = struct.Struct("=q")
FILES = 65536
NANOSECONDS = 1_000_000_000
SPLITS = re.compile(r"[:\s]")
"""The separators of LD_PRELOAD: the loader never loads a library with one of them in its path."""
CHUNK_BYTES = 4096

ERRORS: dict[DiskError, int] = {"full": errno.ENOSPC, "broken": errno.EIO}


class Interposer:
    """The interposer between one node and its disk and clock. It survives the node's process, as a disk does."""

    def __init__(self, folder: Path, data: Path) -> None:
        """Create `folder` afresh. `data` is the node's data folder, which may not be formatted yet."""
        self.folder = folder
        self.data = data
        self.path = folder / "state"
        self.copies = folder / "copies"
        shutil.rmtree(folder, ignore_errors=True)
        self.copies.mkdir(parents=True)
        self.library = folder / "interposer.so"
        if SPLITS.search(str(self.library)):
            self.library = library()
        else:
            shutil.copyfile(library(), self.library)  # a container has the run's folder mounted, but not the cache
        with self.path.open("wb") as file:
            file.truncate(HEADER.size + FILES * FILE.size)
        with self.path.open("r+b") as file:
            self._state = mmap.mmap(file.fileno(), 0)

    def environment(self) -> dict[str, str]:
        """The environment variables that make a process load the library."""
        return {
            "LD_PRELOAD": ":".join(filter(None, (str(self.library), os.environ.get("LD_PRELOAD", "")))),
            "TIDEGAUGE_INTERPOSER": str(self.path),
            "TIDEGAUGE_DATA": str(self.data.resolve()),
        }

    @property
    def loads(self) -> int:
        """The number of programs that have loaded the library with this file."""
        return HEADER.unpack_from(self._state)[3]

    def set_clock(self, seconds: float) -> None:
        """Shift the node's wall clock by `seconds` from now on; 0 corrects it."""
        WORD.pack_into(self._state, 0, int(seconds * NANOSECONDS))

    def break_disk(self, error: DiskError, bytes_left: int = 0) -> None:
        """Make writes below the data folder fail. A full disk accepts `bytes_left` more bytes, and may tear the write at that
        point."""
        WORD.pack_into(self._state, 2 * WORD.size, bytes_left)
        WORD.pack_into(self._state, WORD.size, ERRORS[error])

    def mend_disk(self) -> None:
        """Make writes succeed again."""
        WORD.pack_into(self._state, WORD.size, 0)

    def lose_power(self, kept: float = 0.0, *, journaled: bool = False) -> int:
        """Discard the bytes that the ended process had not made durable, except a share `kept` of the appended ones. Returns
        their number.

        Call only while the process is down. A share that ends inside a record batch leaves a torn write. Truncations are
        undone, as POSIX allows; not with `journaled`, as on a file system that writes them before all later flushes.
        """
        files = dict(self._files())
        taken = 0
        for path in sorted(path for path in self.data.rglob("*") if path.is_file() and not path.is_symlink()):
            inode = path.stat().st_ino
            if inode in files:
                durable, is_copied, cut = files[inode]
                copy = self.copies / str(inode) if is_copied else None
                if journaled and UNCUT < cut < durable:
                    durable = cut
                    if copy is not None:
                        os.truncate(copy, cut)
                taken += self._roll_back(path, durable, copy, kept)
        self._state[HEADER.size :] = bytes(len(self._state) - HEADER.size)
        for copy in self.copies.iterdir():
            copy.unlink()
        return taken

    def _files(self) -> Iterator[tuple[int, tuple[int, bool, int]]]:
        for inode, durable, is_copied, cut in FILE.iter_unpack(self._state[HEADER.size :]):
            if inode > 1:
                yield inode, (durable, bool(is_copied), cut)

    @staticmethod
    def _roll_back(path: Path, durable: int, copy: Path | None, kept: float) -> int:
        """Restore a file's durable bytes. Returns the number of bytes that were beyond them or differed.

        A rewrite of the same bytes, as by a recovery, changes nothing. A rewrite of other bytes is undone, and discards all
        bytes after the copy.
        """
        size = path.stat().st_size
        if copy is not None and _begins_alike(path, copy):
            copy = None
        length = durable if copy is not None else durable + int(kept * max(0, size - durable))
        if length < size:
            os.truncate(path, length)
        changed = _write_over(path, copy) if copy is not None else 0
        return max(0, size - length) + changed


def _begins_alike(path: Path, copy: Path) -> bool:
    """Whether the copy's bytes are a prefix of the file's."""
    if path.stat().st_size < copy.stat().st_size:
        return False
    with path.open("rb") as one, copy.open("rb") as other:
        while chunk := other.read(CHUNK_BYTES):
            if one.read(len(chunk)) != chunk:
                return False
    return True


def _write_over(path: Path, copy: Path) -> int:
    """Overwrite a file with its copy, and preserve holes. Returns the number of bytes in chunks that differed."""
    changed = 0
    os.truncate(path, copy.stat().st_size)
    with path.open("r+b") as to, copy.open("rb") as source:
        for start in range(0, copy.stat().st_size, CHUNK_BYTES):
            before, after = to.read(CHUNK_BYTES), source.read(CHUNK_BYTES)
            if before != after:
                to.seek(start)
                to.write(after)
                changed += len(after)
    return changed
