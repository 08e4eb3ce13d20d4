"""Which leader epoch wrote which offsets: `leader-epoch-checkpoint`.

A list of (epoch, start offset), both growing. An epoch ends where the next one starts, the last at the log's end. A new epoch
is written to the file, durably, before the recovery point passes its first record: recovery reads all records from there on,
and finds their epochs in them. An epoch without records is never written, because a start would drop it. Apache Kafka writes
each epoch at once, with two fsyncs per partition at a leader election.
"""

from __future__ import annotations

from pathlib import Path

from reference.protocol.primitives import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from reference.storage.checkpoints import LEADER_EPOCHS, number_of, read_lines, write_lines
from reference.storage.disk import Disk
from reference.storage.epoch_lookup import end_of_epoch
from reference.storage.errors import CorruptFile
from reference.storage.index_search import last_slot_up_to

Entry = tuple[LeaderEpoch, Offset]


def open_epochs(disk: Disk, folder: Path) -> tuple[EpochCache, list[str]]:
    """A partition's epochs, and messages about repairs. A damaged file is removed: the batches contain its epochs."""
    try:
        return EpochCache(disk, folder), []
    except CorruptFile as error:
        disk.remove(folder / LEADER_EPOCHS)
        return EpochCache(disk, folder), [f"{error}; it is made again from the batches"]


class EpochCache:
    """One partition's epochs."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Errors: CorruptFile."""
        self._disk = disk
        self._path = folder / LEADER_EPOCHS
        self.entries: list[Entry] = [
            (LeaderEpoch(number_of(epoch, self._path)), Offset(number_of(start, self._path)))
            for epoch, start in read_lines(disk, self._path, 2)
        ]
        self._stored = self.entries
        """Those in the file."""
        self.latest: LeaderEpoch
        """Newest epoch; -1 when there is none."""
        self.latest_start: Offset
        """Where it began; -1 when there is none."""
        self.latest, self.latest_start = self.entries[-1] if self.entries else (NO_EPOCH, NO_OFFSET)

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Add an epoch that starts here; entries that contradict it (later epochs, later starts) are removed.

        Errors: OSError where a removed entry is in the file; then nothing has changed.
        """
        if self.latest == epoch and 0 <= self.latest_start <= start_offset:
            return
        # Epochs and their starts must both rise: the lookups by either are bisections.
        kept = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
        self._replace([*kept, (epoch, start_offset)])

    def end_offset_for(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest known epoch up to this one and its end; see `epoch_lookup`.

        An epoch may start beyond the log's end: its first batch did not fit on the disk.
        """
        slot = last_slot_up_to(lambda slot: self.entries[slot][0], len(self.entries), epoch)
        floor = self.entries[slot][0] if slot >= 0 else NO_EPOCH
        next_start = min(self.entries[slot + 1][1], log_end) if slot + 1 < len(self.entries) else NO_OFFSET
        return end_of_epoch(epoch, self.latest, floor, next_start, log_end)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote an offset; -1 when unknown."""
        slot = last_slot_up_to(lambda slot: self.entries[slot][1], len(self.entries), offset)
        return self.entries[slot][0] if slot >= 0 else NO_EPOCH

    def truncate_from_end(self, end_offset: Offset) -> None:
        """Forget epochs that start at or after the log's new end."""
        if self.entries and self.entries[-1][1] >= end_offset:
            self._replace([entry for entry in self.entries if entry[1] < end_offset])

    def truncate_from_start(self, start_offset: Offset) -> None:
        """Forget epochs that ended before the log's new start; the one that holds it starts there now."""
        before = [entry for entry in self.entries if entry[1] <= start_offset]
        if (before and before[-1][1] < start_offset) or len(before) > 1:
            # The epoch of the first record that is left must stay known: a follower there asks where it ended.
            self._replace([(before[-1][0], start_offset), *self.entries[len(before) :]])

    @property
    def known_from(self) -> Offset | None:
        """The first offset whose epoch is known; None when none is."""
        return self.entries[0][1] if self.entries else None

    def restore(self, forgotten: list[Entry]) -> None:
        """Add epochs before all others, for deleted records that came back."""
        if forgotten:
            later = self.entries[1:] if self.entries and self.entries[0][0] == forgotten[-1][0] else self.entries
            self._write([*forgotten, *later])

    def clear(self) -> None:
        """Forget all epochs."""
        if self.entries:
            self._replace([])

    def store(self, log_end: Offset) -> None:
        """Write the epochs that have records below `log_end`. Errors: OSError."""
        held = [entry for entry in self.entries if entry[1] < log_end]
        if len(held) > len(self._stored):
            self._write_file(held)

    def unstored_from(self, log_end: Offset) -> Offset:
        """The start of the first epoch with records that is not in the file; `log_end` where all are."""
        held = [start for _, start in self.entries[len(self._stored) :] if start < log_end]
        return held[0] if held else log_end

    def _replace(self, entries: list[Entry]) -> None:
        """Replace the entries: removed ones leave the file at once, new ones are written by `store`."""
        if entries[: len(self._stored)] == self._stored:
            self._set(entries)
        else:
            self._write(entries)

    def _write(self, entries: list[Entry]) -> None:
        # The file first: after a disk error memory still agrees with the file.
        self._write_file(entries)
        self._set(entries)

    def _write_file(self, entries: list[Entry]) -> None:
        write_lines(self._disk, self._path, [f"{epoch} {start}" for epoch, start in entries])
        self._stored = entries

    def _set(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.latest, self.latest_start = entries[-1] if entries else (NO_EPOCH, NO_OFFSET)
