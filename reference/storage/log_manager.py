"""All partitions of a data folder: opened, checkpointed, closed and deleted.

    FOLDER/TOPIC-PARTITION/                     a log
    FOLDER/TOPIC-PARTITION.ID-delete/           a log that is being deleted
    FOLDER/recovery-point-offset-checkpoint     up to where each log was flushed
    FOLDER/log-start-offset-checkpoint          where each log starts, if not at its first segment
    FOLDER/replication-offset-checkpoint        high watermarks
    FOLDER/cleaner-offset-checkpoint            up to where each compacted log is clean
    FOLDER/.kafka_cleanshutdown                 the last run ended cleanly

A log is opened when the metadata name it, with its configuration. What is in the folder and in no metadata is left alone, but
that a clean end recovers what a crash left of it: the note of a clean end speaks for the whole folder.
"""

from collections.abc import Callable, Mapping
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

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
METADATA_LOG_CONFIG = LogConfig(retention_ms=-1, max_message_bytes=8 * 1024 * 1024, segment_index_bytes=256 * 1024)
"""Kafka's, but for the indexes: it gives them the 10 MiB of any topic. These have room for some 85 MiB of metadata, and where
they are full the log rolls, as any log does."""

DELETE_SUFFIX = "-delete"
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
            if was_shut_down_clean(self._disk, self._folder):
                for name, _ in self._unopened():
                    check(self._disk, self._folder / name, now)
            self._recovery_points = self._read(RECOVERY_POINTS)
            self._log_starts = self._read(LOG_START_OFFSETS)
            self._high_watermarks = self._read(HIGH_WATERMARKS)
            self.cleaner.load(now)
            self.last_broker_epoch = take_clean_shutdown(self._disk, self._folder)
            self._clean = self.last_broker_epoch is not None
            if self.last_broker_epoch is not None:
                self.broker_epoch = self.last_broker_epoch
            self._found = frozenset(self._disk.list_folder(self._folder))
            for name in sorted(self._found):
                if name.endswith(DELETE_SUFFIX):
                    self._disk.remove_folder(self._folder / name)
        except OSError as error:
            raise self._storage_error(error) from error

    def _read(self, name: str) -> dict[TopicPartition, Offset]:
        try:
            return read_offsets(self._disk, self._folder / name)
        except CorruptFile as error:
            # Without recovery points everything is scanned; high watermarks come again from replication.
            self._say("warning", f"{error}; it is taken for empty")
            return {}

    # ---- logs

    def metadata_log(self, now: TimestampMs) -> Log:
        """The quorum's log, `__cluster_metadata-0`. Errors: as for `get_or_create`."""
        return self.get_or_create(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG_CONFIG, now)

    def get_or_create(self, topic: str, partition: int, topic_id: UUID, config: LogConfig, now: TimestampMs) -> Log:
        """The log of a partition: opened and, after a crash, recovered, or made.

        A folder of an earlier topic of this name makes way. Errors: StorageError, CorruptFile.
        """
        key = (topic, partition)
        log = self.logs.get(key)
        if log is None:
            log = self._open(key, topic_id, config, now)
            if log.topic_id != topic_id:
                self._say("warning", f"{log.folder.name} belongs to topic id {log.topic_id}, not {topic_id}: deleted")
                self.logs[key] = log
                self.delete(topic, partition, now)
                log = self._open(key, topic_id, config, now)
            self.logs[key] = log
        return log

    def _open(self, key: TopicPartition, topic_id: UUID, config: LogConfig, now: TimestampMs) -> Log:
        topic, partition = key
        log = Log(
            self._disk, self._folder / folder_name(topic, partition), config, now,
            topic=topic, partition=partition, topic_id=topic_id, log_start=self._log_starts.get(key, 0),
            recovery_point=self._recovery_points.get(key, 0), clean=self._clean,
            producer_expiration_ms=self.producer_expiration_ms, expiry_check_ms=self.expiry_check_ms,
            checkpoint=self._checkpoint,
        )  # fmt: skip
        log.run_flush = lambda flush: self.run_flush(flush)
        if log.recovered_bytes or log.lost_bytes:
            self._say(
                "warning" if log.lost_bytes else "info",
                f"{log.folder.name}: recovered {log.recovered_bytes} bytes, cut off {log.lost_bytes}",
            )
        return log

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
        for offsets in (self._recovery_points, self._log_starts, self._high_watermarks):
            offsets.pop(key, None)
        # Names may have 255 characters, of which a topic's may be 249.
        suffix = f".{log.topic_id.hex}{DELETE_SUFFIX}"
        name = f"{topic[: 255 - len(str(partition)) - 1 - len(suffix)]}-{partition}{suffix}"
        try:
            self.cleaner.forget(key)
            self._disk.remove_folder(self._folder / name)
            self._disk.rename(log.folder, self._folder / name)
            self._disk.sync_folder(self._folder)
        except OSError as error:
            raise self._storage_error(error) from error
        self._deleted.append((now + log.config.file_delete_delay_ms, self._folder / name))

    # ---- upkeep

    def tick(self, now: TimestampMs) -> None:
        """Upkeep of the logs, compaction, removal of deleted ones, checkpoints. A failing disk is reported, not raised."""
        self.cleaner.tick(now)
        if now < self._next_upkeep:
            return
        due = now + UPKEEP_INTERVAL_MS
        for log in self.logs.values():
            try:
                log.tick(now)
            except StorageError as error:
                self._say("error", str(error))
            due = min(due, log.next_deadline())
        self._next_upkeep = max(due, now + MIN_UPKEEP_INTERVAL_MS)
        try:
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

    def _checkpoint(self) -> None:
        """Write recovery points and log starts. Errors: OSError."""
        for key, log in self.logs.items():
            self._recovery_points[key] = log.recovery_point
            self._log_starts[key] = log.log_start_offset
            self.cleaner.lower(key, log.recovery_point)
        write_offsets(self._disk, self._folder / RECOVERY_POINTS, self._recovery_points)
        write_offsets(self._disk, self._folder / LOG_START_OFFSETS, self._log_starts)

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
            self._checkpoint()
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
