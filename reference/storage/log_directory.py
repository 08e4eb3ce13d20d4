"""One log directory: opens, checkpoints, closes, moves and deletes its partitions' logs.

    FOLDER/TOPIC-PARTITION/                     a log
    FOLDER/TOPIC-PARTITION.ID-future/           a future log: the incomplete copy of a log in another directory (KIP-113)
    FOLDER/TOPIC-PARTITION.ID-delete/           a log that is being deleted
    FOLDER/TOPIC-PARTITION.ID-stray/            a log of another topic id than the metadata name; it is kept
    FOLDER/recovery-point-offset-checkpoint     up to where each log was flushed
    FOLDER/log-start-offset-checkpoint          where each log starts, if not at its first segment
    FOLDER/replication-offset-checkpoint        high watermarks
    FOLDER/cleaner-offset-checkpoint            up to where each compacted log is clean
    FOLDER/segment-checksums                    lengths and checksums of flushed segments
    FOLDER/.kafka_cleanshutdown                 present after a clean shutdown

A log is opened, with its configuration, when the metadata name it. Other logs in the folder are not opened, except that a clean
shutdown recovers those that a crash left: the clean-shutdown file covers the whole folder.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from reference.protocol.primitives import AT_ONCE, FIRST_OFFSET, BrokerEpoch, Offset, TimestampMs
from reference.storage.checkpoints import (
    PARTITION_METADATA,
    TopicPartition,
    read_topic_id,
    take_clean_shutdown,
    was_shut_down_clean,
    write_clean_shutdown,
    write_topic_id,
)
from reference.storage.cleaner import Cleaner
from reference.storage.closing import close_all
from reference.storage.config import LogConfig
from reference.storage.directory_checkpoints import DirectoryCheckpoints
from reference.storage.disk import TEMPORARY, Disk
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.flushing import RunFlush, run_now
from reference.storage.folder_names import (
    DELETE_SUFFIX,
    FUTURE,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    folder_name,
    partition_of,
    suffixed,
)
from reference.storage.log import Log, LogIdentity, ProducerExpiry
from reference.storage.recovery import PreviousRun, check
from reference.storage.segment import LOG_SUFFIX
from reference.storage.segment_checksums import NO_CHECKSUMS, SEGMENT_CHECKSUMS, LogChecksums, SegmentChecksum
from reference.storage.upkeep_turns import UPKEEP_INTERVAL_MS, UpkeepTurns

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
METADATA_LOG_CONFIG = LogConfig(
    retention_ms=-1, max_message_bytes=8 * 1024 * 1024, segment_index_bytes=256 * 1024, may_lack_offsets=False
)
"""Kafka's, except for the indexes (10 MiB there): these have room for some 85 MiB of metadata, and when full the log rolls."""

CHECKPOINT_INTERVAL_MS = 60_000
"""log.flush.offset.checkpoint.interval.ms and log.flush.start.offset.checkpoint.interval.ms"""
MIN_UPKEEP_INTERVAL_MS = 50

Logger = Callable[[str, str], None]
"""Takes a level (info, warning, error) and a sentence."""


def _say_nothing(level: str, message: str) -> None:
    pass


class LogDirectory:
    """The logs of one log directory, on a disk of its own: its failure does not affect others."""

    def __init__(self, disk: Disk, folder: Path, log: Logger = _say_nothing, id: UUID = UUID(int=0)) -> None:
        """`id` is `directory.id` of its `meta.properties` (KIP-858)."""
        self.id = id
        self.disk = disk
        self.folder = folder
        self.logs: dict[TopicPartition, Log] = {}
        """The open logs, future logs among them."""
        self.futures: dict[TopicPartition, str] = {}
        """Future logs, open or not, and the names of their folders."""
        self.cleaner = Cleaner(disk, folder, self.logs, log)
        """Compacts the logs with cleanup.policy=compact."""
        self.producer_expiry = ProducerExpiry()
        """Applies to logs that are opened from now on."""
        self.broker_epoch = BrokerEpoch(-1)
        """Written at a clean shutdown, for the next start. A broker that ends unregistered keeps the value: it lost nothing."""
        self.last_broker_epoch: BrokerEpoch | None = None
        """The broker's epoch at its last shutdown if that was clean; None after a crash."""
        self.has_topic: Callable[[UUID], bool] = lambda id: False
        """Whether the metadata have a topic with this id."""
        self.run_flush: RunFlush = run_now
        """Runs the flush of closed and of compacted segments; see `PendingFlush`."""
        self.cleaner.run_flush = lambda flush: self.run_flush(flush)
        self._say = log
        self._clean = False
        self._found: frozenset[str] = frozenset()
        """The folder's logs when it was loaded."""
        self._checkpoints = DirectoryCheckpoints(disk, folder, log)
        self.offline: dict[TopicPartition, str] = {}
        """Logs that could not be opened, and why."""
        self._deleted: list[tuple[TimestampMs, Path]] = []
        self._next_checkpoint = AT_ONCE
        self._next_upkeep = AT_ONCE
        self._turns = UpkeepTurns(self.logs)

    def load(self, now: TimestampMs) -> None:
        """Read what the last run left in the folder; logs are opened one by one, by `get_or_create`.

        Errors, with nothing changed: StorageError; CorruptFile for damage after a clean shutdown, or of log start offsets.
        """
        self._next_checkpoint = now + CHECKPOINT_INTERVAL_MS
        self._next_upkeep = now + UPKEEP_INTERVAL_MS
        try:
            self.disk.make_folder(self.folder)
            self._find_futures()
            self._checkpoints.load_checksums()
            self._checkpoints.load_offsets()
            if was_shut_down_clean(self.disk, self.folder):
                self._check_all(now)
            self.cleaner.load(now)
            self.last_broker_epoch = take_clean_shutdown(self.disk, self.folder)
            self._clean = self.last_broker_epoch is not None
            if self.last_broker_epoch is not None:
                self.broker_epoch = self.last_broker_epoch
            self._found = frozenset(self.disk.list_folder(self.folder))
            if self._found and not self._clean:
                # A kill may have left the name of a new log's folder in memory alone, and the log goes on as one of long ago.
                self.disk.sync_folder(self.folder)
            self._remove_deleted([name for name in sorted(self._found) if name.endswith(DELETE_SUFFIX)])
        except OSError as error:
            raise self._storage_error(error) from error

    def _find_futures(self) -> None:
        """Errors: OSError."""
        for name in self.disk.list_folder(self.folder):
            if (found := FUTURE.fullmatch(name)) is not None:
                key = found[1], int(found[2])
                if self.disk.exists(self.folder / folder_name(*key)):
                    self._say("warning", f"{name} is left alone, for {folder_name(*key)} is beside it")
                else:
                    self.futures[key] = name

    def _path(self, key: TopicPartition) -> Path:
        """The folder of a log."""
        return self.folder / self.futures.get(key, folder_name(*key))

    def _remove_deleted(self, names: Sequence[str]) -> None:
        """Remove the folders of deleted logs, after their stored checksums. Errors: OSError."""
        self._checkpoints.drop_deleted(names)
        for name in names:
            self.disk.remove_folder(self.folder / name)

    def _check_all(self, now: TimestampMs) -> None:
        """Check after a clean shutdown that all logs are present and undamaged. Errors: OSError, CorruptFile."""
        found = dict(self.unopened())
        for name, key in found.items():
            log_start = self._checkpoints.log_starts.get(key, FIRST_OFFSET)
            check(self.disk, self.folder / name, now, self._checksums_of(key), log_start)
        for key in self._checkpoints.checksums:
            if self._path(key).name not in found:
                raise CorruptFile(f"{self._path(key)} was flushed and is missing: restore it")

    def _checksums_of(self, key: TopicPartition) -> Mapping[Offset, SegmentChecksum]:
        """The stored checksums of the log, if its folder has their topic id. Errors: OSError, CorruptFile."""
        known = self._checkpoints.checksums.get(key)
        if known is None or known.topic_id != read_topic_id(self.disk, self._path(key)):
            return NO_CHECKSUMS
        return known.segments

    # ---- logs

    def has_metadata_log(self) -> bool:
        """Whether the metadata log, or a snapshot of it, exists. Errors: OSError."""
        names = self._list(self.folder / folder_name(METADATA_TOPIC, 0))
        return any(name.endswith((LOG_SUFFIX, ".checkpoint")) for name in names)

    def metadata_log(self, now: TimestampMs) -> Log:
        """The quorum's log, `__cluster_metadata-0`.

        Errors: as for `get_or_create`; CorruptFile where it is missing although logs exist that need it.
        """
        if not self.has_metadata_log():
            home = folder_name(METADATA_TOPIC, 0)
            left = [name for name, _ in self.unopened() if name != home or self._took_part()]
            if left:
                raise CorruptFile(
                    f"{self.folder / home} has no log, and {left[0]} is there: restore it, or format a new folder"
                )
        return self.get_or_create(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG_CONFIG, now)

    def _took_part(self) -> bool:
        """Whether the metadata log's folder holds more than the topic id, the only file that a kill at the first start leaves."""
        names = self._list(self.folder / folder_name(METADATA_TOPIC, 0))
        return any(name != PARTITION_METADATA and not name.endswith(TEMPORARY) for name in names)

    def get_or_create(self, topic: str, partition: int, topic_id: UUID, config: LogConfig, now: TimestampMs) -> Log:
        """The log of a partition: opened and, after a crash, recovered, or created.

        A folder with another topic id is renamed to `-stray` and kept: nothing proves that its topic was deleted. Errors:
        StorageError; CorruptFile, also if that topic exists under another name, or the checksums are this topic's.
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
                # Any error: one log must not keep the others from being served.
                folder, text = folder_name(topic, partition), str(error) or type(error).__name__
                self.offline[key] = text if folder in text else f"{self.folder / folder}: {text}"
                raise CorruptFile(self.offline[key]) from error
            self.offline.pop(key, None)
        return log

    def _list(self, folder: Path) -> list[str]:
        return self.disk.list_folder(folder) if self.disk.is_folder(folder) else []

    def _make_way(self, key: TopicPartition, topic_id: UUID) -> None:
        """Errors: OSError; CorruptFile where it is the metadata log that has another id."""
        folder = self._path(key)
        is_named = key[0] == METADATA_TOPIC or key in self.futures
        found = read_topic_id(self.disk, folder) if is_named else self._checkpoints.topic_of(key, folder)
        if found in (None, topic_id):
            return
        if key[0] == METADATA_TOPIC:
            raise CorruptFile(f"{folder} belongs to topic id {found}, not {topic_id} (InconsistentTopicIdException)")
        self._checkpoints.require_deleted(key, folder, topic_id, is_there=self.has_topic(found))
        stray = self.folder / suffixed(key, found, STRAY_SUFFIX)
        self._say("error", f"{folder.name} belongs to topic id {found}, not {topic_id}: it is kept as {stray.name}")
        self._forget(key)
        self.disk.rename(folder, stray)
        self.disk.sync_folder(self.folder)

    def _begin_folder(self, key: TopicPartition, topic_id: UUID) -> None:
        """Before a folder is created, remove the checkpoint entries of an earlier log of this name.

        Errors: CorruptFile where this very log was flushed and its folder is missing; OSError.
        """
        folder = self._path(key)
        if self.disk.exists(folder):
            return
        if self.misses(key, topic_id):
            raise CorruptFile(f"{folder} was flushed and is missing: restore it, or remove {SEGMENT_CHECKSUMS}")
        self._forget(key)
        if self._checkpoints.has_stale_lines:
            self._checkpoint()

    def make_folders(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Make the folders of new logs with their topics' ids, durably, with a common wait for the disk.

        A folder that exists, or must not be created, is left to `get_or_create`. Errors: StorageError.
        """
        made: dict[Path, UUID] = {}
        try:
            for key, topic_id in topic_ids.items():
                folder = self._path(key)
                if not self.disk.exists(folder) and not self.misses(key, topic_id):
                    self._begin_folder(key, topic_id)
                    self.disk.make_folder(folder)
                    made[folder] = topic_id
            with self.disk.side_by_side():
                for folder, topic_id in made.items():
                    write_topic_id(self.disk, folder, topic_id)
                if made:
                    self.disk.sync_folder(self.folder)
        except OSError as error:
            raise self._storage_error(error) from error

    def has(self, key: TopicPartition) -> bool:
        """Whether the directory has the log of a partition, not only a future log. Errors: StorageError."""
        folder = self.folder / folder_name(*key)
        try:
            return (key in self.logs and key not in self.futures) or bool(self._list(folder))
        except OSError as error:
            raise self._storage_error(error) from error

    def misses(self, key: TopicPartition, topic_id: UUID) -> bool:
        """Whether this very log was flushed here: then a missing folder is a loss."""
        known = self._checkpoints.checksums.get(key)
        return known is not None and known.topic_id == topic_id and bool(known.segments)

    def _open(
        self, key: TopicPartition, topic_id: UUID, config: LogConfig, now: TimestampMs, is_clean: bool = False
    ) -> Log:
        checksums, checkpoints = self._checksums_of(key), self._checkpoints
        # Where the file of recovery points is damaged, the checksums still say what was flushed.
        flushed_to = max(checksums, default=FIRST_OFFSET)
        previous = PreviousRun(
            checkpoints.log_starts.get(key, FIRST_OFFSET),
            max(checkpoints.recovery_points.get(key, FIRST_OFFSET), flushed_to),
            clean=is_clean or self._clean,
            checksums=checksums if checkpoints.are_ours else None,
        )
        of = LogIdentity(*key, topic_id)
        log = Log(self.disk, self._path(key), config, now, of, previous, self.producer_expiry)
        log.checkpoint = self._checkpoint
        log.changed = partial(self._turns.change, key)
        self._turns.change(key)
        self._log_repairs(log)
        if log.log_end_offset < (committed := self.high_watermark(key)):
            self._say("warning", f"{log.folder.name} ends at {log.log_end_offset}, and was committed up to {committed}")
            # Or another log's checkpoint would write the old line again.
            checkpoints.high_watermarks[key] = log.log_end_offset
        log.run_flush = lambda flush: self.run_flush(flush)
        if log.recovered_bytes or log.lost_bytes:
            self._say(
                "warning" if log.lost_bytes else "info",
                f"{log.folder.name}: recovered {log.recovered_bytes} bytes, cut off {log.lost_bytes}",
            )
        return log

    def _log_repairs(self, log: Log) -> None:
        for repair in log.repairs:
            self._say("warning", f"{log.folder.name}: {repair}")
        log.repairs.clear()

    def had(self, key: TopicPartition) -> bool:
        """Whether the folder had this log, or one of its name, before this run."""
        return folder_name(*key) in self._found

    def high_watermark(self, key: TopicPartition) -> Offset:
        """The checkpointed high watermark; 0 where there is none."""
        return self._checkpoints.high_watermarks.get(key, FIRST_OFFSET)

    def delete(self, key: TopicPartition, now: TimestampMs) -> None:
        """Delete an open log: its folder is renamed now and removed by `tick` after file.delete.delay.ms.

        Open slices stay readable. Errors: StorageError; a log whose folder was not renamed stays open.
        """
        log = self.logs[key]
        name = suffixed(key, log.topic_id, DELETE_SUFFIX)
        try:
            self._forget(key)
            self.disk.remove_folder(self.folder / name)
            self.disk.rename(log.folder, self.folder / name)
            del self.logs[key]
            self.disk.sync_folder(self.folder)
        except OSError as error:
            raise self._storage_error(error) from error
        self.futures.pop(key, None)
        self._deleted.append((now + log.config.file_delete_delay_ms, self.folder / name))

    # ---- future logs

    def open_future(self, key: TopicPartition, topic_id: UUID, config: LogConfig, now: TimestampMs) -> Log:
        """The future log of a partition whose log is in another directory, with the records that an earlier run copied.

        Errors: StorageError, CorruptFile.
        """
        self.futures.setdefault(key, suffixed(key, topic_id, FUTURE_SUFFIX))
        return self.get_or_create(*key, topic_id, config, now)

    def promote_future(self, key: TopicPartition, now: TimestampMs) -> Log:
        """Make the open future log the partition's log, after a flush. Errors: StorageError."""
        future = self.logs.pop(key)
        try:
            future.close()
            self.disk.rename(future.folder, self.folder / folder_name(*key))
            self.disk.sync_folder(self.folder)
            del self.futures[key]
            self._checkpoints.recovery_points[key] = future.recovery_point
            self._checkpoints.log_starts[key] = future.log_start_offset
            log = self.logs[key] = self._open(key, future.topic_id, future.config, now, is_clean=True)
        except OSError as error:
            raise self._storage_error(error) from error
        return log

    def _forget(self, key: TopicPartition) -> None:
        """Drop the state of a deleted log; the next checkpoints are without it. Errors: OSError."""
        self._checkpoints.forget(key)
        self.cleaner.forget(key)

    # ---- upkeep

    def tick(self, now: TimestampMs) -> None:
        """Upkeep of the logs, compaction, removal of deleted ones, checkpoints. A failing disk is reported, not raised."""
        self.cleaner.tick(now)
        if now < self._next_upkeep:
            return
        for key, log in self._turns.take(now):
            if log.repairs:
                self._log_repairs(log)
            try:
                log.tick(now)
            except StorageError as error:
                self._say("error", str(error))
                self._turns.change(key)
            self._turns.asked(key, log.next_deadline())
        self._next_upkeep = max(
            min(now + UPKEEP_INTERVAL_MS, self._turns.next_deadline()), now + MIN_UPKEEP_INTERVAL_MS
        )
        try:
            if self._checkpoints.has_stale_lines and self._deleted and self._deleted[0][0] <= now:
                self._checkpoint()
            while self._deleted and self._deleted[0][0] <= now:
                self.disk.remove_folder(self._deleted[0][1])
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
        try:
            self._checkpoints.write_high_watermarks(high_watermarks)
        except OSError as error:
            raise self._storage_error(error) from error

    def _checkpoint(self, is_closed: bool = False) -> None:
        """Write checksums, recovery points and log starts. Errors: OSError."""
        checkpoints = self._checkpoints
        checksums = self._checksums_of_kept() if is_closed else dict(checkpoints.checksums)
        for key, log in self.logs.items():
            checkpoints.recovery_points[key] = log.recovery_point
            checkpoints.log_starts[key] = log.log_start_offset
            self.cleaner.lower(key, log.recovery_point)
            segments = {} if self.cleaner.works_on(key) else log.checksums(is_closed)
            checksums[key] = LogChecksums(log.topic_id, segments)
        checkpoints.write(checksums)

    def _checksums_of_kept(self) -> dict[TopicPartition, LogChecksums]:
        """The checksums that a clean shutdown keeps: of logs whose folders exist, and of logs that could not be opened."""
        return {
            key: log
            for key, log in self._checkpoints.checksums.items()
            if key in self.offline or self.disk.exists(self._path(key))
        }

    def shut_down(self, high_watermarks: Mapping[TopicPartition, Offset], now: TimestampMs) -> None:
        """Shut down cleanly: close all logs, write checkpoints and, unless a log failed, the clean-shutdown file.

        Errors: StorageError.
        """
        if not self._clean:
            self._recover_what_is_left(now)
        try:
            failures = close_all(self.disk, self.logs.values())
        except OSError as error:
            raise self._storage_error(error) from error
        self.checkpoint_high_watermarks(high_watermarks)
        try:
            self._checkpoint(is_closed=not failures)
            for _, path in self._deleted:
                self.disk.remove_folder(path)
            if not failures and (self._clean or not self.unopened()):
                write_clean_shutdown(self.disk, self.folder, self.broker_epoch)
        except OSError as error:
            raise self._storage_error(error) from error
        if failures:
            raise failures[0]

    def _recover_what_is_left(self, now: TimestampMs) -> None:
        """Open the logs that a crash left and that no metadata have named since, as of reassigned partitions.

        Apache Kafka recovers them when it starts. Without this no later shutdown of this broker would count as clean, and
        the controller would assume that it lost records. A log that cannot be opened is reported and not changed.
        """
        try:
            for name, key in self.unopened():
                if (topic_id := read_topic_id(self.disk, self.folder / name)) is not None:
                    self.logs[key] = self._open(key, topic_id, LogConfig(), now)
        except (OSError, StorageError, CorruptFile) as error:
            self._say("warning", f"a log that is in no metadata cannot be recovered: {error}")

    def unopened(self) -> list[tuple[str, TopicPartition]]:
        """Folder names and partitions of the logs that are not open. Errors: OSError.

        Other folders (`lost+found`, deleted logs) and empty folders, which a crash may leave, do not count.
        """
        opened = {log.folder.name for log in self.logs.values()}
        futures = {name: key for key, name in self.futures.items()}
        found: list[tuple[str, TopicPartition]] = []
        for name in self.disk.list_folder(self.folder):
            if name in opened or (key := futures.get(name) or partition_of(name)) is None:
                continue
            folder = self.folder / name
            if self.disk.is_folder(folder) and self.disk.list_folder(folder):
                found.append((name, key))
        return found

    def _storage_error(self, error: OSError) -> StorageError:
        return StorageError(f"{self.folder}: {error.strerror or error}")
