"""The sparse time index of a segment: `.timeindex`.

Entries of 12 bytes, big-endian: a timestamp and an offset relative to the segment's base offset: no batch up to the one
with this last offset has a greater max timestamp. Timestamps and offsets grow from entry to entry. Length and mapping as in
`offset_index`.
"""

import struct
from pathlib import Path

from reference.protocol.primitives import NO_TIMESTAMP, Offset, TimestampMs
from reference.storage.disk import Disk
from reference.storage.index_file import IndexFile
from reference.storage.index_search import last_slot_up_to

ENTRY_BYTES = 12
_ENTRY = struct.Struct(">qi")
_KEY = struct.Struct(">q")
_RELATIVE_OFFSET = struct.Struct(">i")


class TimeIndex(IndexFile):
    """One segment's timestamps and offsets. Opening reads the last entry only."""

    def __init__(self, disk: Disk, path: Path, base_offset: Offset) -> None:
        super().__init__(disk, path, base_offset, ENTRY_BYTES)
        self.last_timestamp, self.last_offset = self._last()

    def _last(self) -> tuple[TimestampMs, Offset]:
        return self.entry(self.count - 1) if self.count else (NO_TIMESTAMP, self._base_offset)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for more than the entry that a roll adds."""
        return self.count >= self.capacity - 1

    def clear(self, max_bytes: int) -> None:
        """Remove all entries; the file has `max_bytes` again. Errors: OSError."""
        super().clear(max_bytes)
        self.last_timestamp, self.last_offset = self._last()

    def append(self, timestamp: TimestampMs, offset: Offset) -> None:
        """Add the greatest timestamp so far and its batch's last offset, if it exceeds the last entry's.

        Room for the segment's last entry is left free. Errors: OSError, and nothing is added.
        """
        if not self.is_full:
            self.append_last(timestamp, offset)

    def append_last(self, timestamp: TimestampMs, offset: Offset) -> None:
        """Add the segment's greatest timestamp, as `append` does. Without it a start would not trust the index.

        Errors: OSError, and nothing is added.
        """
        if timestamp > self.last_timestamp and self.count < self.capacity:
            self._file.write_at(self.count * ENTRY_BYTES, _ENTRY.pack(timestamp, offset - self._base_offset))
            self.count += 1
            self.last_timestamp, self.last_offset = timestamp, offset

    def entry(self, slot: int) -> tuple[TimestampMs, Offset]:
        """One entry: timestamp and offset."""
        timestamp, relative = _ENTRY.unpack_from(self._file.buffer, slot * ENTRY_BYTES)
        return timestamp, self._base_offset + relative

    def lookup(self, timestamp: TimestampMs) -> tuple[TimestampMs, Offset] | None:
        """The last entry below a timestamp; None when none is."""
        buffer = self._file.buffer
        slot = last_slot_up_to(lambda slot: _KEY.unpack_from(buffer, slot * ENTRY_BYTES)[0], self.count, timestamp - 1)
        return None if slot < 0 else self.entry(slot)

    def truncate_to(self, offset: Offset) -> None:
        """Forget entries from this offset on."""
        buffer = self._file.buffer
        self.count = 1 + last_slot_up_to(
            lambda slot: _RELATIVE_OFFSET.unpack_from(buffer, slot * ENTRY_BYTES + 8)[0],
            self.count,
            offset - self._base_offset - 1,
        )
        self.last_timestamp, self.last_offset = self._last()
