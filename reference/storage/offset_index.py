"""The sparse offset index of a segment: `.index`.

Entries of 8 bytes, big-endian: the last offset of a batch, relative to the segment's base offset, and the batch's position
in the log file. One is written for about every index.interval.bytes of log. While the segment is active the file has its
full length (segment.index.bytes), zeros behind the entries; then it is trimmed. It is read through memory mapping.
"""

import struct
from pathlib import Path

from reference.protocol.primitives import Offset
from reference.storage.disk import Disk
from reference.storage.index_search import last_slot_up_to

ENTRY_BYTES = 8
_ENTRY = struct.Struct(">ii")
_KEY = struct.Struct(">i")


class OffsetIndex:
    """One segment's offsets and positions. Opening reads nothing: all of the file's entries count."""

    def __init__(self, disk: Disk, path: Path, base_offset: Offset) -> None:
        self.path = path
        self._disk = disk
        self._file = disk.map_file(path)
        self._base_offset = base_offset
        self.capacity = disk.size_of(path) // ENTRY_BYTES
        self.count = self.capacity

    def moved(self, path: Path) -> None:
        """The file was renamed."""
        self.path = path
        self._file.moved(path)

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries."""
        return self.count * ENTRY_BYTES

    @property
    def is_full(self) -> bool:
        """Whether there is no room for one more entry."""
        return self.count >= self.capacity

    def reserve(self, max_bytes: int) -> None:
        """Give the file the length that the active segment's has; entries stay."""
        self.capacity = max(self.count, max_bytes // ENTRY_BYTES)
        self._file.resize(self.capacity * ENTRY_BYTES)

    def trim(self) -> None:
        """Cut the file behind its entries."""
        self.capacity = self.count
        self._file.resize(self.count * ENTRY_BYTES)

    def clear(self) -> None:
        """Forget all entries. Errors: OSError."""
        self.count = 0
        self.trim()

    def append(self, last_offset: Offset, position: int) -> None:
        """Note where the batch with this last offset begins. Errors: OSError, and nothing is noted."""
        self._file.write_at(self.count * ENTRY_BYTES, _ENTRY.pack(last_offset - self._base_offset, position))
        self.count += 1

    def entry(self, slot: int) -> tuple[Offset, int]:
        """One entry: last offset and position of a batch."""
        relative, position = _ENTRY.unpack_from(self._file.buffer, slot * ENTRY_BYTES)
        return self._base_offset + relative, position

    def lookup(self, offset: Offset) -> tuple[Offset, int]:
        """The last entry at or before an offset; the segment's beginning when none is low enough."""
        if self.count == 0:
            return self._base_offset, 0
        buffer = self._file.buffer
        slot = last_slot_up_to(
            lambda slot: _KEY.unpack_from(buffer, slot * ENTRY_BYTES)[0], self.count, offset - self._base_offset
        )
        return (self._base_offset, 0) if slot < 0 else self.entry(slot)

    def truncate_to(self, offset: Offset) -> None:
        """Forget entries from this offset on."""
        buffer = self._file.buffer
        target = offset - self._base_offset - 1
        self.count = 1 + last_slot_up_to(
            lambda slot: _KEY.unpack_from(buffer, slot * ENTRY_BYTES)[0], self.count, target
        )

    def flush(self) -> None:
        """Make the entries durable."""
        self._file.flush()
