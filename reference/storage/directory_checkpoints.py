"""What the files of a log directory say of its logs: recovery points, log starts, high watermarks and checksums."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from uuid import UUID

from reference.protocol.primitives import NO_UUID, Offset
from reference.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    TopicPartition,
    read_offsets,
    read_topic_id,
    write_offsets,
)
from reference.storage.disk import Disk
from reference.storage.errors import CorruptFile
from reference.storage.folder_names import DELETE_SUFFIX, suffixed
from reference.storage.segment import LOG_SUFFIX
from reference.storage.segment_checksums import SEGMENT_CHECKSUMS, LogChecksums, read_checksums, write_checksums


class DirectoryCheckpoints:
    """The files' content, changed in memory until it is written. Every method raises OSError where the disk does."""

    def __init__(self, disk: Disk, folder: Path, log: Callable[[str, str], None]) -> None:
        self.recovery_points: dict[TopicPartition, Offset] = {}
        self.log_starts: dict[TopicPartition, Offset] = {}
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self.checksums: dict[TopicPartition, LogChecksums] = {}
        self.are_ours = True
        """Whether they were written by this implementation, whose recovery points are never above a log's end."""
        self.has_stale_lines = False
        """Whether a file still names a deleted log: no log of that name may be opened before it is rewritten."""
        self._written: dict[TopicPartition, LogChecksums] | None = None
        """The checksums in the file, as this run has written them; None before."""
        self._disk, self._folder, self._say = disk, folder, log

    def load_checksums(self) -> None:
        try:
            found = read_checksums(self._disk, self._folder)
        except CorruptFile as error:
            self._say("warning", f"{error}; it is taken for empty")
            return
        self.checksums = found or {}
        # Ours are written before the first compaction, and no earlier than a minute after the first start.
        written = (self._disk.exists(self._folder / name) for name in (RECOVERY_POINTS, CLEANER_OFFSETS))
        self.are_ours = found is not None or not any(written)

    def topic_of(self, key: TopicPartition, folder: Path) -> UUID | None:
        """The topic whose records a log's folder holds; None where it names no topic and holds no records.

        A folder that has lost its topic's id may be that of a topic which was deleted, and made again under its name, while the
        broker was down: the records are a topic's only where their checksums say so. Kafka puts such a folder aside, always.
        Errors: CorruptFile.
        """
        found = read_topic_id(self._disk, folder)
        if found is not None or not self._holds_records(folder):
            return found
        known = self.checksums.get(key)
        return known.topic_id if known is not None else NO_UUID

    def require_deleted(self, key: TopicPartition, folder: Path, topic_id: UUID, is_there: bool) -> None:
        """A folder names another topic than the one that it is opened for; `is_there` says that this other one exists.

        Errors: CorruptFile where that one was not deleted, and another made under its name: the file that names it is damaged.
        """
        known = self.checksums.get(key)
        if is_there or (known is not None and known.topic_id == topic_id and known.segments):
            other = "a topic of another name" if is_there else f"another topic than {SEGMENT_CHECKSUMS}"
            raise CorruptFile(
                f"{folder / PARTITION_METADATA} names {other}: restore it; or, if other replicas have the log's records,"
                " remove the folder"
            )

    def _holds_records(self, folder: Path) -> bool:
        names = self._disk.list_folder(folder) if self._disk.is_folder(folder) else []
        return any(name.endswith(LOG_SUFFIX) and self._disk.size_of(folder / name) for name in names)

    def load_offsets(self) -> None:
        """Errors: CorruptFile where it is not known which records were deleted: they would be served again."""
        try:
            self.log_starts = read_offsets(self._disk, self._folder / LOG_START_OFFSETS)
        except CorruptFile as error:
            raise CorruptFile(
                f"{self._folder}: {error}. Restore it; or remove it, and deleted records are served again whose segments are left"
            ) from error
        self.recovery_points = self._read(RECOVERY_POINTS)
        self.high_watermarks = self._read(HIGH_WATERMARKS)

    def _read(self, name: str) -> dict[TopicPartition, Offset]:
        try:
            return read_offsets(self._disk, self._folder / name)
        except CorruptFile as error:
            # Without recovery points everything is scanned; high watermarks come again from replication.
            self._say("warning", f"{error}; it is taken for empty")
            return {}

    def drop_deleted(self, folders: Collection[str]) -> None:
        """Write the checksums without those of the logs that are being deleted in these folders."""
        kept = {
            key: log for key, log in self.checksums.items() if suffixed(key, log.topic_id, DELETE_SUFFIX) not in folders
        }
        if kept != self.checksums:
            self.checksums = kept
            write_checksums(self._disk, self._folder, kept)

    def forget(self, key: TopicPartition) -> None:
        """The log of this name is no more."""
        for known in (self.recovery_points, self.log_starts, self.high_watermarks, self.checksums):
            self.has_stale_lines |= known.pop(key, None) is not None

    def write(self, checksums: dict[TopicPartition, LogChecksums]) -> None:
        """Write these checksums, the recovery points and the log starts.

        The checksums come first: a start that has a recovery point of ours knows by their file that it is ours.
        """
        self.checksums = checksums
        if checksums != self._written:
            write_checksums(self._disk, self._folder, checksums)
            self._written = dict(checksums)
        write_offsets(self._disk, self._folder / RECOVERY_POINTS, self.recovery_points)
        write_offsets(self._disk, self._folder / LOG_START_OFFSETS, self.log_starts)
        self.has_stale_lines = False

    def write_high_watermarks(self, changed: Mapping[TopicPartition, Offset]) -> None:
        """Those of logs that are not named stay as they were."""
        self.high_watermarks.update(changed)
        write_offsets(self._disk, self._folder / HIGH_WATERMARKS, self.high_watermarks)
