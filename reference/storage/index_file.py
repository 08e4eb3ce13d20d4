"""The file of a sparse index: entries of one width, and zeros behind them while its segment is active."""

from pathlib import Path

from reference.protocol.primitives import Offset
from reference.storage.disk import Disk


class IndexFile:
    """The entries of one segment, by number. Opening reads nothing: the whole file counts as entries."""

    def __init__(self, disk: Disk, path: Path, base_offset: Offset, entry_bytes: int) -> None:
        self.path = path
        self._file = disk.map_file(path)
        self._base_offset = base_offset
        self._entry_bytes = entry_bytes
        self.capacity = disk.size_of(path) // entry_bytes
        self.count = self.capacity

    def moved(self, path: Path) -> None:
        """Follow a rename of the file."""
        self.path = path
        self._file.moved(path)

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries."""
        return self.count * self._entry_bytes

    def reserve(self, max_bytes: int) -> None:
        """Extend the file to `max_bytes`, for an active segment; entries are kept."""
        self.capacity = max(self.count, max_bytes // self._entry_bytes)
        self._file.resize(self.capacity * self._entry_bytes)

    def trim(self) -> None:
        """Cut the file after its last entry."""
        self.capacity = self.count
        self._file.resize(self.size_bytes)

    def clear(self, max_bytes: int) -> None:
        """Remove all entries; the file has `max_bytes` again. Errors: OSError."""
        self.count, self.capacity = 0, max_bytes // self._entry_bytes
        self._file.clear(self.capacity * self._entry_bytes)

    def flush(self) -> None:
        """Make the entries durable."""
        self._file.flush()
