"""The checkpoint files of a log directory: recovery points, log starts, high watermarks and checksums."""

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
    """The files' content, kept in memory between writes. Every method may raise the disk's OSError."""

    def __init__(self, disk: Disk, folder: Path, log: Callable[[str, str], None]) -> None:
        self.recovery_points: dict[TopicPartition, Offset] = {}
        self.log_starts: dict[TopicPartition, Offset] = {}
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self.checksums: dict[TopicPartition, LogChecksums] = {}
        self.are_ours = True
        """Whether this implementation wrote the files: its recovery points are never above a log's end."""
        self.has_stale_lines = False
        """Whether a file still names a deleted log: no log of that name may be opened before it is rewritten."""
        self._written: dict[TopicPartition, LogChecksums] | None = None
        """The checksums that this run last wrote to the file; None before."""
        self._disk, self._folder, self._say = disk, folder, log

    def load_checksums(self) -> None:
        try:
            found = read_checksums(self._disk, self._folder)
        except CorruptFile as error:
            self._say("warning", f"{error}; it is taken for empty")
            return
        self.checksums = found or {}
        # Our first checkpoint comes before the first compaction, and writes the checksums before the recovery points.
        written = (self._disk.exists(self._folder / name) for name in (RECOVERY_POINTS, CLEANER_OFFSETS))
        self.are_ours = found is not None or not any(written)

    def topic_of(self, key: TopicPartition, folder: Path) -> UUID | None:
        """The topic whose records a log's folder holds; None without topic id and records, NO_UUID where it is unknown.

        A folder that has lost its topic id may belong to a topic that was deleted, and created again, while the broker was down.
        Only the stored checksums can then name its topic. Kafka always puts such a folder aside.
        Errors: CorruptFile.
        """
        found = read_topic_id(self._disk, folder)
        if found is not None or not self._holds_records(folder):
            return found
        known = self.checksums.get(key)
        return known.topic_id if known is not None else NO_UUID

    def require_deleted(self, key: TopicPartition, folder: Path, topic_id: UUID, is_there: bool) -> None:
        """Check that a folder with another topic id is that of a deleted topic; `is_there`: whether that topic exists.

        Errors: CorruptFile where it exists, or the checksums name `topic_id`: then `partition.metadata` is damaged.
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
        """Read the offsets. Errors: CorruptFile for damaged log starts: deleted records would be served again."""
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
        """Remove the checksums of the logs that are being deleted in these folders, and write the others."""
        kept = {
            key: log for key, log in self.checksums.items() if suffixed(key, log.topic_id, DELETE_SUFFIX) not in folders
        }
        if kept != self.checksums:
            self.checksums = kept
            write_checksums(self._disk, self._folder, kept)

    def forget(self, key: TopicPartition) -> None:
        """Remove the entries of a deleted log."""
        for known in (self.recovery_points, self.log_starts, self.high_watermarks, self.checksums):
            self.has_stale_lines |= known.pop(key, None) is not None

    def write(self, checksums: dict[TopicPartition, LogChecksums]) -> None:
        """Write these checksums, the recovery points and the log starts.

        The checksums come first: by their file a start recognizes that the recovery points are ours.
        """
        self.checksums = checksums
        if checksums != self._written:
            write_checksums(self._disk, self._folder, checksums)
            self._written = dict(checksums)
        write_offsets(self._disk, self._folder / RECOVERY_POINTS, self.recovery_points)
        write_offsets(self._disk, self._folder / LOG_START_OFFSETS, self.log_starts)
        if self.has_stale_lines:
            write_offsets(self._disk, self._folder / HIGH_WATERMARKS, self.high_watermarks)
        self.has_stale_lines = False

    def write_high_watermarks(self, changed: Mapping[TopicPartition, Offset]) -> None:
        """Write these high watermarks; those of other logs are kept."""
        self.high_watermarks.update(changed)
        write_offsets(self._disk, self._folder / HIGH_WATERMARKS, self.high_watermarks)
