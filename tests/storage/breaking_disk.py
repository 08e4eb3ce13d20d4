"""A simulated disk that breaks in the middle of a log's operation."""

import errno
from pathlib import Path

from reference.storage.simulated_disk import Change, SimulatedDisk, _Inode


class BreakingDisk(SimulatedDisk):
    """A disk that accepts `changes_left` more changes, and then none."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left: int | None = None

    def _spend(self) -> None:
        if self.changes_left is not None:
            self.changes_left -= 1
            if self.changes_left < 0:
                raise OSError(errno.EIO, "the simulated disk is broken")

    def change(self, inode: _Inode, change: Change) -> None:
        self._spend()
        super().change(inode, change)

    def flush(self, inode: _Inode) -> None:
        self._spend()
        super().flush(inode)

    def rename(self, path: Path, to: Path) -> None:
        self._spend()
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        self._spend()
        super().remove(path)

    def sync_folder(self, path: Path) -> None:
        self._spend()
        super().sync_folder(path)
