"""The aborted transactions of a segment: `.txnindex`, which exists only once it has an entry.

Entries of 34 bytes, in the order in which the transactions were decided: version 0, producer id, first and last offset of
the transaction (the last is its marker's), and the last stable offset when the marker was written.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from reference.protocol.primitives import Offset, ProducerId
from reference.storage.disk import Disk, File
from reference.storage.errors import CorruptFile

ENTRY_BYTES = 34
_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """A transaction that was rolled back in this partition."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset
    """Below it everything was decided when the marker was written."""


class TransactionIndex:
    """One segment's aborted transactions; they are held in memory, for they are few."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._file: File | None = None
        self.entries: list[AbortedTransaction] = []
        if disk.exists(path):
            self._file = disk.open_file(path)
            self.entries = _read_entries(self._file)

    def moved(self, path: Path) -> None:
        """Follow a rename of the file, also where no file exists yet."""
        self.path = path
        if self._file is not None:
            self._file.moved(path)

    def is_sound(self, base_offset: Offset) -> bool:
        """Whether the markers lie in the segment that begins there, in their order, each behind its transaction's records."""
        before = [base_offset - 1, *(each.last_offset for each in self.entries)]
        return all(
            last < each.last_offset and each.first_offset < each.last_offset
            for last, each in zip(before, self.entries, strict=False)
        )

    @property
    def data(self) -> bytes:
        """The entries as the file has them."""
        return b"".join(_ENTRY.pack(0, *entry) for entry in self.entries)

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry. Errors: OSError, and nothing is added."""
        if self._file is None:
            self._file = self._disk.open_file(self.path)
        self._cut_rest()
        self._file.append(_ENTRY.pack(0, *aborted))
        self.entries.append(aborted)

    def truncate_to(self, offset: Offset) -> None:
        """Forget transactions whose markers lie at this offset or later.

        Errors: OSError; they are forgotten all the same, and are cut from the file before the next append or flush.
        """
        self.entries = [entry for entry in self.entries if entry.last_offset < offset]
        self._cut_rest()

    def flush(self) -> None:
        """Make the entries durable. Errors: OSError."""
        if self._file is not None:
            self._cut_rest()
            self._file.flush()

    def _cut_rest(self) -> None:
        """Cut forgotten entries from the file."""
        size = len(self.entries) * ENTRY_BYTES
        if self._file is not None and self._file.size > size:
            self._file.truncate(size)


def _read_entries(file: File) -> list[AbortedTransaction]:
    """Errors: CorruptFile."""
    data = file.read(0, file.size)
    if len(data) % ENTRY_BYTES:
        raise CorruptFile(f"a transaction index of {len(data)} bytes")
    entries: list[AbortedTransaction] = []
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != 0 or entry.first_offset > entry.last_offset:
            raise CorruptFile(f"an entry {version}: {entry} in a transaction index")
        entries.append(entry)
    return entries
