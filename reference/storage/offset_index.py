"""The sparse offset index of a segment: `.index`.

Entries of 8 bytes, big-endian: the last offset of a batch, relative to the segment's base offset, and the batch's position
in the log file. One is written for about every index.interval.bytes of log. While the segment is active the file has its
full length (segment.index.bytes), zeros behind the entries; then it is trimmed. It is read through memory mapping.
"""

import struct
from pathlib import Path

from reference.protocol.primitives import Offset
from reference.storage.disk import Disk
from reference.storage.index_file import IndexFile
from reference.storage.index_search import last_slot_up_to

ENTRY_BYTES = 8
_ENTRY = struct.Struct(">ii")
_KEY = struct.Struct(">i")


class OffsetIndex(IndexFile):
    """One segment's offsets and positions."""

    def __init__(self, disk: Disk, path: Path, base_offset: Offset) -> None:
        super().__init__(disk, path, base_offset, ENTRY_BYTES)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for one more entry."""
        return self.count >= self.capacity

    def append(self, last_offset: Offset, position: int) -> None:
        """Add an entry: the batch with this last offset begins at `position`. Errors: OSError, and nothing is added."""
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
