"""All partitions of a data folder: opened, checkpointed, closed and deleted.

    FOLDER/TOPIC-PARTITION/                     a log
    FOLDER/TOPIC-PARTITION.ID-delete/           a log that is being deleted
    FOLDER/TOPIC-PARTITION.ID-stray/            a log of another topic id than the metadata name; it is kept
    FOLDER/recovery-point-offset-checkpoint     up to where each log was flushed
    FOLDER/log-start-offset-checkpoint          where each log starts, if not at its first segment
    FOLDER/replication-offset-checkpoint        high watermarks
    FOLDER/cleaner-offset-checkpoint            up to where each compacted log is clean
    FOLDER/segment-checksums                    what flushed segments were
    FOLDER/.kafka_cleanshutdown                 the last run ended cleanly

A log is opened when the metadata name it, with its configuration. What is in the folder and in no metadata is left alone, but
that a clean end recovers what a crash left of it: the note of a clean end speaks for the whole folder.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from reference.protocol.primitives import Epoch, Offset, TimestampMs
from reference.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    TopicPartition,
    read_offsets,
    read_topic_id,
    take_clean_shutdown,
    was_shut_down_clean,
    write_clean_shutdown,
    write_offsets,
)
from reference.storage.cleaner import Cleaner
from reference.storage.config import DAY_MS, LogConfig
from reference.storage.disk import Disk
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.log import EXPIRY_CHECK_MS, Log, PendingFlush, run_now
from reference.storage.recovery import check
from reference.storage.segment import LOG_SUFFIX
from reference.storage.segment_checksums import (
    NO_CHECKSUMS,
    SEGMENT_CHECKSUMS,
    LogChecksums,
    SegmentChecksum,
    read_checksums,
    write_checksums,
)

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
METADATA_LOG_CONFIG = LogConfig(retention_ms=-1, max_message_bytes=8 * 1024 * 1024, segment_index_bytes=256 * 1024)
"""Kafka's, but for the indexes: it gives them the 10 MiB of any topic. These have room for some 85 MiB of metadata, and where
they are full the log rolls, as any log does."""

DELETE_SUFFIX, STRAY_SUFFIX = "-delete", "-stray"
CHECKPOINT_INTERVAL_MS = 60_000
"""log.flush.offset.checkpoint.interval.ms and log.flush.start.offset.checkpoint.interval.ms"""
UPKEEP_INTERVAL_MS = 1000
"""How often all logs are asked whether something is due."""
MIN_UPKEEP_INTERVAL_MS = 50

Logger = Callable[[str, str], None]
"""Takes a level (info, warning, error) and a sentence."""


def _say_nothing(level: str, message: str) -> None:
    pass


def folder_name(topic: str, partition: int) -> str:
    """The name of a partition's folder."""
    return f"{topic}-{partition}"


def _suffixed(key: TopicPartition, topic_id: UUID, suffix: str) -> str:
    """The name of a folder that goes, or makes way. Names may have 255 characters, of which a topic's may be 249."""
    topic, partition = key
    ending = f".{topic_id.hex}{suffix}"
    return f"{topic[: 255 - len(str(partition)) - 1 - len(ending)]}-{partition}{ending}"


class LogManager:
    """The logs of one data folder."""

    def __init__(self, disk: Disk, folder: Path, log: Logger = _say_nothing) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.cleaner = Cleaner(disk, folder, self.logs, log)
        """Compacts the logs whose topics want it."""
        self.producer_expiration_ms = DAY_MS
        """producer.id.expiration.ms, for logs opened from now on."""
        self.expiry_check_ms = EXPIRY_CHECK_MS
        """producer.id.expiration.check.interval.ms, likewise."""
        self.broker_epoch: Epoch = -1
        """Written with the clean end; at the next start `last_broker_epoch`. Who ends before it has registered has lost
        nothing since the clean end before, and so hands that one's epoch on."""
        self.last_broker_epoch: Epoch | None = None
        """The broker's epoch at its last, clean end; None after a crash."""
        self.run_flush: Callable[[PendingFlush], None] = run_now
        """Who waits for the disk when closed segments are flushed; see `PendingFlush`."""
        self._disk = disk
        self._folder = folder
        self._say = log
        self._clean = False
        self._found: frozenset[str] = frozenset()
        """What was in the folder when it was loaded."""
        self._recovery_points: dict[TopicPartition, Offset] = {}
        self._log_starts: dict[TopicPartition, Offset] = {}
        self._high_watermarks: dict[TopicPartition, Offset] = {}
        self._checksums: dict[TopicPartition, LogChecksums] = {}
        self._checksums_are_written = False
        self._has_stale_lines = False
        """Whether a checkpoint on the disk tells of a log that is no more: one of its name must not be opened before."""
        self.offline: dict[TopicPartition, str] = {}
        """Logs that could not be opened, and why."""
        self._is_ours = True
        """Whether the checkpoints were written by this implementation, whose recovery points are never above a log's end."""
        self._deleted: list[tuple[TimestampMs, Path]] = []
        self._next_checkpoint: TimestampMs = 0
        self._next_upkeep: TimestampMs = 0

    def load(self, now: TimestampMs) -> None:
        """Read what the last run left in the folder; logs are opened one by one, by `get_or_create`.

        Errors: StorageError; CorruptFile when a log is damaged though the last end was clean, and nothing is changed.
        """
        self._next_checkpoint = now + CHECKPOINT_INTERVAL_MS
        self._next_upkeep = now + UPKEEP_INTERVAL_MS
        try:
            self._disk.make_folder(self._folder)
            self._read_checksums()
            if was_shut_down_clean(self._disk, self._folder):
                self._check_all(now)
            self._recovery_points = self._read(RECOVERY_POINTS)
            self._log_starts = self._read(LOG_START_OFFSETS)
            self._high_watermarks = self._read(HIGH_WATERMARKS)
            self.cleaner.load(now)
            self.last_broker_epoch = take_clean_shutdown(self._disk, self._folder)
            self._clean = self.last_broker_epoch is not None
            if self.last_broker_epoch is not None:
                self.broker_epoch = self.last_broker_epoch
            self._found = frozenset(self._disk.list_folder(self._folder))
            self._remove_deleted([name for name in sorted(self._found) if name.endswith(DELETE_SUFFIX)])
        except OSError as error:
            raise self._storage_error(error) from error

    def _read(self, name: str) -> dict[TopicPartition, Offset]:
        try:
            return read_offsets(self._disk, self._folder / name)
        except CorruptFile as error:
            # Without recovery points everything is scanned; high watermarks come again from replication.
            self._say("warning", f"{error}; it is taken for empty")
            return {}

    def _remove_deleted(self, names: Sequence[str]) -> None:
        """Remove what was being deleted, and before that what is written down of it. Errors: OSError."""
        kept = {
            key: log for key, log in self._checksums.items() if _suffixed(key, log.topic_id, DELETE_SUFFIX) not in names
        }
        if kept != self._checksums:
            self._checksums = kept
            write_checksums(self._disk, self._folder, kept)
        for name in names:
            self._disk.remove_folder(self._folder / name)

    def _read_checksums(self) -> None:
        """Errors: OSError."""
        try:
            found = read_checksums(self._disk, self._folder)
        except CorruptFile as error:
            self._say("warning", f"{error}; it is taken for empty")
            return
        self._checksums = found or {}
        self._is_ours = found is not None or not self._disk.exists(self._folder / RECOVERY_POINTS)

    def _check_all(self, now: TimestampMs) -> None:
        """After a clean end: everything is there, and whole. Errors: OSError, CorruptFile."""
        found = dict(self._unopened())
        for name, key in found.items():
            check(self._disk, self._folder / name, now, self._checksums_of(key))
        for topic, partition in self._checksums:
            if folder_name(topic, partition) not in found:
                raise CorruptFile(
                    f"{self._folder / folder_name(topic, partition)} is gone, and was flushed: restore it"
                )

    def _checksums_of(self, key: TopicPartition) -> Mapping[Offset, SegmentChecksum]:
        """Those that were written down for the log whose folder is there. Errors: OSError, CorruptFile."""
        known = self._checksums.get(key)
        if known is None or known.topic_id != read_topic_id(self._disk, self._folder / folder_name(*key)):
            return NO_CHECKSUMS
        return known.segments

    # ---- logs

    def metadata_log(self, now: TimestampMs) -> Log:
        """The quorum's log, `__cluster_metadata-0`.

        Errors: as for `get_or_create`; CorruptFile where it is missing and the logs are there that only it can have made.
        """
        folder = self._folder / folder_name(METADATA_TOPIC, 0)
        if not any(name.endswith((LOG_SUFFIX, ".checkpoint")) for name in self._list(folder)) and self._unopened():
            raise CorruptFile(
                f"{folder} has no log, and {self._unopened()[0][0]} is there: restore it, or format a new folder"
            )
        return self.get_or_create(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG_CONFIG, now)

    def get_or_create(self, topic: str, partition: int, topic_id: UUID, config: LogConfig, now: TimestampMs) -> Log:
        """The log of a partition: opened and, after a crash, recovered, or made.

        A folder of another topic of this name makes way, and is kept: nothing proves that its topic was deleted.
        Errors: StorageError, CorruptFile.
        """
        key = (topic, partition)
        log = self.logs.get(key)
        if log is None:
            try:
                self._make_way(key, topic_id)
                self._begin_folder(key, topic_id)
                log = self.logs[key] = self._open(key, topic_id, config, now)
            except StorageError:
                raise
            except OSError as error:
                raise self._storage_error(error) from error
            except Exception as error:
                # Whatever it is: one log must not keep the others from being served.
                folder, text = folder_name(topic, partition), str(error) or type(error).__name__
                self.offline[key] = text if folder in text else f"{self._folder / folder}: {text}"
                raise CorruptFile(self.offline[key]) from error
            self.offline.pop(key, None)
        return log

    def _list(self, folder: Path) -> list[str]:
        return self._disk.list_folder(folder) if self._disk.is_folder(folder) else []

    def _make_way(self, key: TopicPartition, topic_id: UUID) -> None:
        """Errors: OSError; CorruptFile where it is the metadata log that has another id."""
        folder = self._folder / folder_name(*key)
        found = read_topic_id(self._disk, folder)
        if found in (None, topic_id):
            return
        if key[0] == METADATA_TOPIC:
            raise CorruptFile(f"{folder} belongs to topic id {found}, not {topic_id} (InconsistentTopicIdException)")
        stray = self._folder / _suffixed(key, found, STRAY_SUFFIX)
        self._say("error", f"{folder.name} belongs to topic id {found}, not {topic_id}: it is kept as {stray.name}")
        self._forget(key)
        self._disk.rename(folder, stray)
        self._disk.sync_folder(self._folder)

    def _begin_folder(self, key: TopicPartition, topic_id: UUID) -> None:
        """Before a folder is made: what the checkpoints say of an earlier log of this name must not be read as the new one's.

        Errors: CorruptFile where this very log was flushed and its folder is gone; OSError.
        """
        folder = self._folder / folder_name(*key)
        if self._disk.exists(folder):
            return
        known = self._checksums.get(key)
        if known is not None and known.topic_id == topic_id and known.segments:
            raise CorruptFile(f"{folder} is gone, and was flushed: restore it, or remove {SEGMENT_CHECKSUMS}")
        self._forget(key)
        if self._has_stale_lines:
            self._checkpoint()

    def _open(self, key: TopicPartition, topic_id: UUID, config: LogConfig, now: TimestampMs) -> Log:
        topic, partition = key
        checksums = self._checksums_of(key)
        log = Log(
            self._disk, self._folder / folder_name(topic, partition), config, now,
            topic=topic, partition=partition, topic_id=topic_id, log_start=self._log_starts.get(key, 0),
            recovery_point=self._recovery_points.get(key, 0), clean=self._clean,
            producer_expiration_ms=self.producer_expiration_ms, expiry_check_ms=self.expiry_check_ms,
            checkpoint=self._checkpoint, checksums=checksums if self._is_ours else None,
        )  # fmt: skip
        self._tell_repairs(log)
        if log.log_end_offset < self._high_watermarks.get(key, 0):
            self._say(
                "warning",
                f"{log.folder.name} ends at {log.log_end_offset}, and was committed up to {self._high_watermarks[key]}",
            )
        log.run_flush = lambda flush: self.run_flush(flush)
        if log.recovered_bytes or log.lost_bytes:
            self._say(
                "warning" if log.lost_bytes else "info",
                f"{log.folder.name}: recovered {log.recovered_bytes} bytes, cut off {log.lost_bytes}",
            )
        return log

    def _tell_repairs(self, log: Log) -> None:
        for repair in log.repairs:
            self._say("warning", f"{log.folder.name}: {repair}")
        log.repairs.clear()

    def had(self, topic: str, partition: int) -> bool:
        """Whether the folder had this log, or one of its name, before this run."""
        return folder_name(topic, partition) in self._found

    def high_watermark(self, topic: str, partition: int) -> Offset:
        """The checkpointed high watermark; 0 where there is none."""
        return self._high_watermarks.get((topic, partition), 0)

    def delete(self, topic: str, partition: int, now: TimestampMs) -> None:
        """Delete a log: its folder is renamed now and removed by `tick` after file.delete.delay.ms.

        Who reads a slice of it may go on. Errors: StorageError.
        """
        key = (topic, partition)
        log = self.logs.pop(key)
        name = _suffixed(key, log.topic_id, DELETE_SUFFIX)
        try:
            self._forget(key)
            self._disk.remove_folder(self._folder / name)
            self._disk.rename(log.folder, self._folder / name)
            self._disk.sync_folder(self._folder)
        except OSError as error:
            raise self._storage_error(error) from error
        self._deleted.append((now + log.config.file_delete_delay_ms, self._folder / name))

    def _forget(self, key: TopicPartition) -> None:
        """The log of this name is no more; what the checkpoints say of it is gone with the next ones. Errors: OSError."""
        for known in (self._recovery_points, self._log_starts, self._high_watermarks, self._checksums):
            self._has_stale_lines |= known.pop(key, None) is not None
        self.cleaner.forget(key)

    # ---- upkeep

    def tick(self, now: TimestampMs) -> None:
        """Upkeep of the logs, compaction, removal of deleted ones, checkpoints. A failing disk is reported, not raised."""
        self.cleaner.tick(now)
        if now < self._next_upkeep:
            return
        due = now + UPKEEP_INTERVAL_MS
        for log in self.logs.values():
            if log.repairs:
                self._tell_repairs(log)
            try:
                log.tick(now)
            except StorageError as error:
                self._say("error", str(error))
            due = min(due, log.next_deadline())
        self._next_upkeep = max(due, now + MIN_UPKEEP_INTERVAL_MS)
        try:
            if self._has_stale_lines and self._deleted and self._deleted[0][0] <= now:
                self._checkpoint()
            while self._deleted and self._deleted[0][0] <= now:
                self._disk.remove_folder(self._deleted[0][1])
                del self._deleted[0]
            if now >= self._next_checkpoint:
                self._next_checkpoint = now + CHECKPOINT_INTERVAL_MS
                self._checkpoint()
        except OSError as error:
            self._say("error", str(self._storage_error(error)))

    def next_deadline(self) -> TimestampMs:
        """When `tick` has something to do next."""
        cleaning = self.cleaner.next_deadline()
        return self._next_upkeep if cleaning is None else min(cleaning, self._next_upkeep)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        """Write high watermarks; those of logs that were not opened stay as they were. Errors: StorageError."""
        self._high_watermarks.update(high_watermarks)
        try:
            write_offsets(self._disk, self._folder / HIGH_WATERMARKS, self._high_watermarks)
        except OSError as error:
            raise self._storage_error(error) from error

    def _checkpoint(self, is_closed: bool = False) -> None:
        """Write what flushed segments are, recovery points and log starts. Errors: OSError.

        The checksums come first: a start that has a recovery point of ours knows by their file that it is ours.
        """
        checksums = self._checksums_of_kept() if is_closed else dict(self._checksums)
        for key, log in self.logs.items():
            self._recovery_points[key] = log.recovery_point
            self._log_starts[key] = log.log_start_offset
            self.cleaner.lower(key, log.recovery_point)
            segments = {} if self.cleaner.works_on(key) else log.checksums(is_closed)
            checksums[key] = LogChecksums(log.topic_id, segments)
        if checksums != self._checksums or not self._checksums_are_written:
            self._checksums = checksums
            write_checksums(self._disk, self._folder, checksums)
            self._checksums_are_written = True
        write_offsets(self._disk, self._folder / RECOVERY_POINTS, self._recovery_points)
        write_offsets(self._disk, self._folder / LOG_START_OFFSETS, self._log_starts)
        self._has_stale_lines = False

    def _checksums_of_kept(self) -> dict[TopicPartition, LogChecksums]:
        """What a clean end goes on to demand: the logs whose folders are there, and those that are missed."""
        return {
            key: log
            for key, log in self._checksums.items()
            if key in self.offline or self._disk.exists(self._folder / folder_name(*key))
        }

    def shut_down(self, high_watermarks: Mapping[TopicPartition, Offset], now: TimestampMs) -> None:
        """A clean end: all logs closed, checkpoints written, and a note that it was clean unless a log failed.

        Errors: StorageError.
        """
        failures: list[StorageError] = []
        if not self._clean:
            self._recover_what_is_left(now)
        for log in self.logs.values():
            try:
                log.close()
            except StorageError as error:
                failures.append(error)
        self.checkpoint_high_watermarks(high_watermarks)
        try:
            self._checkpoint(is_closed=not failures)
            for _, path in self._deleted:
                self._disk.remove_folder(path)
            if not failures and (self._clean or not self._unopened()):
                write_clean_shutdown(self._disk, self._folder, self.broker_epoch)
        except OSError as error:
            raise self._storage_error(error) from error
        if failures:
            raise failures[0]

    def _recover_what_is_left(self, now: TimestampMs) -> None:
        """Open the logs that a crash left and no metadata have named since: those of partitions that are elsewhere by now.

        Apache Kafka recovers them when it starts. Without it no later end of this broker would count as a clean one, and
        the controller would take it for one that lost its tail. What cannot be opened is told, and stays as it is.
        """
        try:
            for name, key in self._unopened():
                if (topic_id := read_topic_id(self._disk, self._folder / name)) is not None:
                    self.logs[key] = self._open(key, topic_id, LogConfig(), now)
        except (OSError, StorageError, CorruptFile) as error:
            self._say("warning", f"a log that is in no metadata cannot be recovered: {error}")

    def _unopened(self) -> list[tuple[str, TopicPartition]]:
        """The logs that nobody has opened. Errors: OSError.

        Other folders (`lost+found`, what is being deleted) are none, nor is one that a crash left before anything was in it.
        """
        opened = {log.folder.name for log in self.logs.values()}
        found: list[tuple[str, TopicPartition]] = []
        for name in self._disk.list_folder(self._folder):
            topic, _, partition = name.rpartition("-")
            if name in opened or not topic or not partition.isdecimal():
                continue
            folder = self._folder / name
            if self._disk.is_folder(folder) and self._disk.list_folder(folder):
                found.append((name, (topic, int(partition))))
        return found

    def _storage_error(self, error: OSError) -> StorageError:
        return StorageError(f"{self._folder}: {error.strerror or error}")
