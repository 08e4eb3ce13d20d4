"""The log directories of a node: which one holds each partition, and which have failed (KIP-112, KIP-858).

A partition's log is in one directory. A new one is made where the metadata assign it, else in the directory with the fewest
logs. A directory whose disk has failed once is offline until the next start; a node goes on without it, unless it holds the
metadata log or is the last one. While one is offline a log is created only if it cannot exist there already.
Source: kafka.log.LogManager.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

from reference.protocol.primitives import FIRST_OFFSET, BrokerEpoch, Offset, TimestampMs
from reference.storage.checkpoints import MOST_RESERVED, TopicPartition
from reference.storage.config import LogConfig
from reference.storage.errors import CorruptFile, StorageError
from reference.storage.flushing import RunFlush
from reference.storage.folder_names import folder_name
from reference.storage.log import Log, ProducerExpiry
from reference.storage.log_directory import METADATA_TOPIC, LogDirectory

MOST_PREFERRED = 10_000


class LogManager:
    """The logs of all log directories."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        metadata: LogDirectory | None = None,
        say: Callable[[str, str], None] = lambda level, message: None,
    ) -> None:
        """`directories` are those of log.dirs; `metadata` that of metadata.log.dir, without one the first of them."""
        self.directories = tuple(directories)
        self.metadata = metadata or self.directories[0]
        self._all = tuple(dict.fromkeys((self.metadata, *self.directories)))
        self._say = say
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        """The directory that AlterReplicaLogDirs chose for a log that does not exist yet."""
        self.is_cordoned: Callable[[LogDirectory], bool] = lambda directory: False
        """Whether a directory takes no new logs while another does (KIP-1066)."""
        self._lost: set[LogDirectory] = set()
        """Failed directories that `take_failed` has returned."""

    # ---- directories

    @property
    def live(self) -> list[LogDirectory]:
        """The directories of log.dirs that have not failed."""
        return [each for each in self.directories if each.disk.failure is None]

    @property
    def _working(self) -> Iterator[LogDirectory]:
        return (each for each in self._all if each.disk.failure is None)

    @property
    def has_failed(self) -> bool:
        """Whether a directory has failed that `take_failed` has not returned."""
        return any(each.disk.failure is not None and each not in self._lost for each in self._all)

    def take_failed(self) -> list[LogDirectory]:
        """The directories that have failed since the last call."""
        failed = [each for each in self._all if each.disk.failure is not None and each not in self._lost]
        self._lost.update(failed)
        return failed

    @property
    def failure(self) -> str | None:
        """Why the node must end; None while it can go on."""
        if self.metadata.disk.failure is None:
            for each in self.directories:
                if each.disk.failure is None:
                    return None
        failed = self.metadata if self.metadata.disk.failure is not None else self.directories[0]
        return f"log directory {failed.folder} has failed: {failed.disk.failure}"

    def find(self, folder: str) -> LogDirectory | None:
        """The directory of log.dirs with this path."""
        return next((each for each in self.directories if str(each.folder) == folder), None)

    def holder(self, key: TopicPartition) -> LogDirectory | None:
        """The working directory in which a partition's log is open."""
        return next((each for each in self._working if key in each.logs and key not in each.futures), None)

    def future_holder(self, key: TopicPartition) -> LogDirectory | None:
        """The working directory that has the future log of a partition."""
        return next((each for each in self._working if key in each.futures), None)

    @property
    def offline(self) -> dict[TopicPartition, str]:
        """Logs that could not be opened, and why."""
        return {key: reason for each in self._all for key, reason in each.offline.items()}

    # ---- start and end

    def configure(self, producer_expiry: ProducerExpiry) -> None:
        """Set the producer expiry of logs that are opened from now on."""
        for each in self._all:
            each.producer_expiry = producer_expiry

    def run_flushes_by(self, run: RunFlush) -> None:
        """Flush closed and compacted segments with `run`; by default the node itself waits for the disk."""
        for each in self._all:
            each.run_flush = run

    def judge_folders_by(self, has_topic: Callable[[UUID], bool]) -> None:
        """Set the test for existing topic ids: a folder that has one of another topic name is damaged, not a deleted topic's."""
        for each in self._all:
            each.has_topic = has_topic

    def settings_changed(self) -> None:
        """Apply changed settings of the broker to the cleaners."""
        for each in self.directories:
            each.cleaner.settings_changed()

    def load(self, now: TimestampMs) -> None:
        """Read what the last run left. A directory that cannot be read is offline, unless it is that of the metadata log.

        Errors: StorageError; CorruptFile for damage, for a partition that is in two directories, and for a metadata log
        in a directory that is not the configured one.
        """
        for each in self._working:
            try:
                each.load(now)
            except StorageError:
                if each is self.metadata or each.disk.failure is None:
                    raise
        if self.failure is not None:
            raise StorageError(self.failure)
        self.take_failed()
        places: dict[TopicPartition, LogDirectory] = {}
        for each in self.live:
            misplaced = each.folder / folder_name(METADATA_TOPIC, 0)
            if each is not self.metadata and each.disk.exists(misplaced):
                raise CorruptFile(f"{misplaced} is not in {self.metadata.folder}, the directory of the metadata log")
            for name, key in each.unopened() if len(self.live) > 1 else ():
                if name == folder_name(*key) and places.setdefault(key, each) is not each:
                    raise CorruptFile(
                        f"{name} is in both {places[key].folder} and {each.folder}: remove one of them, preferably in a "
                        "directory that has failed"
                    )

    def metadata_log(self, now: TimestampMs, is_only_copy: bool = False) -> Log:
        """The quorum's log. `is_only_copy` says that no other voter has one.

        Errors: StorageError; CorruptFile where it is missing although logs exist that need it.
        """
        if is_only_copy and not self.metadata.has_metadata_log():
            for each in self.live:
                if each is not self.metadata and (found := each.unopened()):
                    raise CorruptFile(
                        f"{self.metadata.folder} has no metadata log, and {each.folder / found[0][0]} is there: restore it, "
                        "or format new folders"
                    )
        return self.metadata.metadata_log(now)

    @property
    def live_ids(self) -> list[UUID]:
        """The ids of the directories that work."""
        return [each.id for each in self.live]

    @property
    def last_broker_epoch(self) -> BrokerEpoch | None:
        """The broker's epoch at its last, clean shutdown; None where a directory is offline, or the directories disagree."""
        epochs = {each.last_broker_epoch if each.disk.failure is None else None for each in self.directories}
        return epochs.pop() if len(epochs) == 1 else None

    def shut_down(
        self, high_watermarks: Mapping[TopicPartition, Offset], now: TimestampMs, broker_epoch: BrokerEpoch | None
    ) -> None:
        """Shut down each working directory cleanly. `broker_epoch` is None where the broker has not registered.

        Errors: StorageError, of the first that failed.
        """
        failures: list[StorageError] = []
        for each, reached in self._by_directory(high_watermarks).items():
            if broker_epoch is not None:
                each.broker_epoch = broker_epoch
            try:
                each.shut_down(reached, now)
            except StorageError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    # ---- logs

    def get_or_create(
        self,
        key: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        now: TimestampMs,
        assigned: UUID | None = None,
        is_new: bool = True,
    ) -> Log:
        """The log of a partition: opened and, after a crash, recovered, or created.

        `assigned` is the id of its directory in the metadata, if they name one; `is_new`: no earlier run of this
        broker can have created it.
        Errors: StorageError, CorruptFile.
        """
        holder = next((each for each in self._working if each.has(key)), None)
        if holder is None:
            holder = next((each for each in self.live if each.misses(key, topic_id)), None)
        if holder is None and (future := self.future_holder(key)) is not None and future.id == assigned:
            # The run before ended between the two renames of `replace_with_future`.
            future.open_future(key, topic_id, config, now)
            future.promote_future(key, now)
            holder = future
        if holder is None:
            holder = self._choose(key, assigned, is_new)
            if key in holder.futures:
                holder.open_future(key, topic_id, config, now)
                holder.delete(key, now)
        self._preferred.pop(key, None)
        return holder.get_or_create(*key, topic_id, config, now)

    def make_folders(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Make the folders of logs that `get_or_create` will open next, with a common wait for the disk.

        Where there are several directories each log is placed when it is opened. Errors: StorageError.
        """
        if len(self.directories) == 1:
            (directory,) = self.directories
            directory.make_folders({key: id for key, id in topic_ids.items() if key not in directory.futures})

    def _choose(self, key: TopicPartition, assigned: UUID | None, is_new: bool) -> LogDirectory:
        """The directory for a new log.

        Errors: CorruptFile where it may be in a directory that is offline; StorageError where all are.
        """
        live, preferred = self.live, self._preferred.get(key)
        found = next((each for each in live if each.id == assigned), None)
        is_lost = assigned is not None and assigned.int > MOST_RESERVED and found is None
        if len(live) < len(self.directories) and (is_lost or not is_new):
            offline = ", ".join(str(each.folder) for each in self.directories if each not in live)
            raise CorruptFile(f"{folder_name(*key)} may be in {offline}, which is offline")
        if not live:  # the broker ends as soon as the request is answered that found the last one failed
            raise StorageError(f"{folder_name(*key)} cannot be created: every log directory is offline")
        if preferred in live:
            return preferred
        if found is not None:
            return found
        open_ones = [each for each in live if len(live) == 1 or not self.is_cordoned(each)]
        return min(open_ones or live[:1], key=lambda each: len(each.logs) - ((METADATA_TOPIC, 0) in each.logs))

    def prefer(self, key: TopicPartition, directory: LogDirectory) -> None:
        """Choose this directory for a log that does not exist yet, unless MOST_PREFERRED choices are pending."""
        if len(self._preferred) < MOST_PREFERRED:
            self._preferred[key] = directory

    def had(self, key: TopicPartition) -> bool:
        """Whether the directory that holds a log had one of its name before this run."""
        holder = self.holder(key)
        return holder is not None and holder.had(key)

    def high_watermark(self, key: TopicPartition) -> Offset:
        """The checkpointed high watermark of a log that is open; 0 where there is none."""
        holder = self.holder(key)
        return holder.high_watermark(key) if holder is not None else FIRST_OFFSET

    def delete(self, key: TopicPartition, now: TimestampMs) -> None:
        """Delete an open log and its future log. Errors: StorageError."""
        self.drop_future(key, now)
        if (holder := self.holder(key)) is not None:
            holder.delete(key, now)

    def drop_future(self, key: TopicPartition, now: TimestampMs) -> None:
        """Delete the future log of a partition. Errors: StorageError."""
        if (future := self.future_holder(key)) is not None and key in future.logs:
            future.delete(key, now)

    def replace_with_future(self, key: TopicPartition, high_watermark: Offset, now: TimestampMs) -> Log:
        """Replace a log by its future log, which has all its records.

        The log is deleted first: a crash between the steps leaves only the future log, which the metadata assign to its
        directory. The high watermark is stored there before; Apache Kafka stores it with all others, every five seconds.
        The epoch of a leader that has appended nothing yet is in no file, so it is copied at the end.
        Errors: StorageError.
        """
        holder, future = self.holder(key), self.future_holder(key)
        assert holder is not None and future is not None
        former = holder.logs[key]
        future.logs[key].flush(now)
        future.checkpoint_high_watermarks({key: high_watermark})
        holder.delete(key, now)
        log = future.promote_future(key, now)
        log.take_epochs(former)
        return log

    # ---- upkeep

    def tick(self, now: TimestampMs) -> None:
        """Upkeep of the directories that work."""
        for each in self._working:
            each.tick(now)

    def next_deadline(self) -> TimestampMs:
        """When `tick` has something to do next."""
        return min((each.next_deadline() for each in self._working), default=self.metadata.next_deadline())

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        """Write high watermarks; those of logs that were not opened stay as they were. Errors: StorageError."""
        for each, reached in self._by_directory(high_watermarks).items():
            each.checkpoint_high_watermarks(reached)

    def _by_directory(
        self, offsets: Mapping[TopicPartition, Offset]
    ) -> dict[LogDirectory, dict[TopicPartition, Offset]]:
        found = {each: dict[TopicPartition, Offset]() for each in self._working}
        for key, offset in offsets.items():
            if (holder := self.holder(key)) is not None:
                found[holder][key] = offset
        return found
