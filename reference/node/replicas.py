"""The partitions of which this node has replicas: created, changed and removed by the metadata.

A replica follows the image: its log exists, it leads or follows in its leader epoch, and its settings are the topic's.
Retention and the checkpoint of high watermarks are here too, because they concern all replicas. `replication` has the exchange
between nodes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Protocol

from reference.controller.config_table import TOPIC
from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage, PartitionImage, TopicImage
from reference.node.properties import truncation_of
from reference.node.requests import Key
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import AT_ONCE, LeaderEpoch, NodeId, Offset, TimestampMs, TopicId, TopicName
from reference.replication.leader import Leading
from reference.replication.partition import Partition, PartitionState, Trace
from reference.replication.partition_state import Peer, TruncationRule
from reference.storage.config import LogConfig
from reference.storage.errors import CorruptFile, LogError, StorageError
from reference.storage.log_directory import LogDirectory, Logger
from reference.storage.log_manager import LogManager

TAKE_UP_AGAIN_MS = 1000
"""The delay before a replica is tried again after a disk failure."""

TAKE_UPS_A_STEP = 50
"""The most replicas that begin to lead or follow in one step: each stores its epoch durably, while clients wait."""


class Listener(Protocol):
    """The listener for changes of replicas."""

    def on_role(self, partition: Partition, is_new_epoch: bool, now: TimestampMs) -> None:
        """The role, the leader epoch, or the ISR and assignment have changed."""
        ...

    def on_given_up(self, partition: Partition, now: TimestampMs) -> None:
        """The replica was removed from this node."""
        ...

    def peer_of(self, broker: NodeId) -> Peer | None:
        """A broker's registration, for leaders' checks of followers."""
        ...

    def on_retention(self, partition: Partition) -> None:
        """The log start offset has moved."""
        ...


class Replicas:
    """This node's replicas, by topic and partition."""

    def __init__(
        self,
        image: MetadataImage,
        configuration: Configuration,
        logs: LogManager,
        listener: Listener,
        log: Logger,
        now: TimestampMs,
        trace: Trace | None,
    ) -> None:
        """`image` has this node's replicas; the image of the configuration has all partitions."""
        self.partitions: dict[Key, Partition] = {}
        self.offline: dict[Key, TopicId] = {}
        """Replicas with a damaged log, or in an offline directory: requests get KAFKA_STORAGE_ERROR, and their folders are not
        touched."""
        self._node = configuration.node
        self._image = image
        self._cluster = configuration.image
        self._configuration = configuration
        self._logs = logs
        logs.judge_folders_by(lambda topic_id: topic_id in image.topics_by_id)
        self._listener = listener
        self._log = log
        self._truncation: TruncationRule = truncation_of(configuration.static)
        self._trace = trace
        self._lag_max_ms = configuration.integer("replica.lag.time.max.ms")
        self._retention_interval_ms = configuration.integer("log.retention.check.interval.ms")
        self._next_retention = now + configuration.integer("log.initial.task.delay.ms")
        self._checkpoint_interval_ms = configuration.integer("replica.high.watermark.checkpoint.interval.ms")
        self._next_checkpoint = now + self._checkpoint_interval_ms
        self._due: OrderedDict[Key, None] = OrderedDict()
        """Partitions that the metadata have changed, and whose replicas have not followed yet."""
        self._refused: list[Key] = []
        """Replicas after a disk failure, until `_try_again`."""
        self._try_again = AT_ONCE
        self._checkpointed: dict[Key, Offset] = {}
        self._settings: dict[TopicName, tuple[tuple[Mapping[str, str], ...], LogConfig, int]] = {}
        """Each topic's log settings and min.insync.replicas, with the sources from which they were computed."""
        self._first: set[tuple[TopicId, int]] | None = None
        """The replicas of this broker when it had caught up: their logs may be in an offline directory."""
        self._set_aside: dict[Key, Partition] = {}
        """Replicas whose disk failed while they followed the metadata. They serve no request, and keep their state (above all
        the high watermark) until they are tried again."""

    # ---- questions

    def partition(self, topic: TopicName, index: int) -> Partition:
        """This node's replica.

        Errors: KafkaError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER for another node's partition, KAFKA_STORAGE_ERROR
        for an offline one.
        """
        found = self.partitions.get((topic, index))
        if found is not None:
            return found
        if (topic, index) in self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if self._cluster.partition(topic, index) is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")

    def leading(self, partition: Partition, leader_epoch: LeaderEpoch | None = None) -> Leading | None:
        """The leader's role of a replica; None if it was removed, does not lead, or leads in another epoch."""
        if self.partitions.get(partition.key) is not partition or leader_epoch not in (None, partition.leader_epoch):
            return None
        return partition.leading

    def peer(self, broker: NodeId) -> Peer | None:
        """A broker's registration."""
        return self._listener.peer_of(broker)

    # ---- following the metadata

    @property
    def are_behind(self) -> bool:
        """Whether a partition has changed in the image, and this node's replica has not followed yet."""
        return bool(self._due)

    def reconcile(self, now: TimestampMs, changed: Iterable[Key] | None = None) -> None:
        """Make this node's replicas follow the image: new ones, new leader epochs, new settings, deleted ones.

        `changed` has the partitions that may have changed in the image since the last call; None means all. Many at once are
        handled in several steps, and are not led here before.
        """
        if self._first is None:
            self._first = {
                (topic.id, index)
                for topic in self._image.topics.values()
                for index, each in topic.partitions.items()
                if self._node in each.replicas
            }
        if changed is None:
            self._logs.settings_changed()
        self._due.update(dict.fromkeys(self._all() if changed is None else changed))
        self._follow_due(now)

    def advanced(self, now: TimestampMs) -> Iterator[Partition]:
        """The partitions led here whose high watermark moves after brokers have changed.

        Records of a fenced broker's partitions come before that of the broker itself, and perhaps in an earlier step. A replica
        on it that is caught up then counts still, and no later fetch would look at partitions that have no news.
        """
        for partition in self.partitions.values():
            if partition.leading is not None and partition.leading.advance_high_watermark(now):
                yield partition

    def _all(self) -> Iterator[Key]:
        """The partitions of the image, and those of this node's replicas."""
        yield from ((topic.name, index) for topic in self._image.topics.values() for index in topic.partitions)
        yield from (*self.partitions, *self._set_aside, *self.offline)

    def _follow_due(self, now: TimestampMs) -> None:
        """Follow due partitions, up to the limit of one step."""
        self._make_folders()
        taken_up = 0
        while self._due and taken_up < TAKE_UPS_A_STEP:
            taken_up += self._follow(self._due.popitem(last=False)[0], now)

    def _make_folders(self) -> None:
        """Create the folders of new replicas among the partitions that come next."""
        topic_ids: dict[Key, TopicId] = {}
        for name, index in islice(self._due, TAKE_UPS_A_STEP):
            topic = self._image.topics.get(name)
            image = topic.partitions.get(index) if topic is not None else None
            is_here = (name, index) in self.partitions or (name, index) in self._set_aside
            if topic is not None and image is not None and self._node in image.replicas and not is_here:
                topic_ids[name, index] = topic.id
        if len(topic_ids) > 1:
            with suppress(StorageError):  # each replica meets the error again, and reports it
                self._logs.make_folders(topic_ids)

    def _follow(self, key: Key, now: TimestampMs) -> bool:
        """Make one replica follow the image; return whether its role, leader epoch or ISR changed."""
        name, index = key
        topic = self._image.topics.get(name)
        image = topic.partitions.get(index) if topic is not None else None
        if topic is None or image is None or self._node not in image.replicas:
            if key in self.partitions or key in self._set_aside:
                try:
                    self._give_up(key, now)
                except StorageError as error:
                    # It serves no client any more, and is removed when the disk allows it.
                    self._fail(key, error, now)
            self.offline.pop(key, None)
            if topic is None:
                self._settings.pop(name, None)
        elif self.offline.get(key) != topic.id:
            try:
                return self._take_up(topic, index, image, *self._settings_of(name), now)
            except StorageError as error:
                # The decision is in the metadata log: the replica is tried again when the disk allows it.
                self._fail(key, error, now)
            except CorruptFile as error:
                self._go_offline(key, topic.id, error)
        return False

    def lose_directory(self, directory: LogDirectory, now: TimestampMs) -> None:
        """Take the replicas of a failed log directory offline until a restart, and cancel copies into it."""
        for key in [key for key in directory.logs if key not in directory.futures]:
            partition, aside = self.partitions.pop(key, None), self._set_aside.pop(key, None)
            if partition is not None:
                self._listener.on_given_up(partition, now)
            if (lost := partition or aside) is not None:
                self.offline[key] = lost.topic_id

    def _go_offline(self, key: Key, topic_id: TopicId, error: CorruptFile) -> None:
        """Take a replica offline until a restart, because its operator must repair its log."""
        self.offline[key] = topic_id
        self._log("error", f"{key[0]}-{key[1]} is offline: {error}")

    def _fail(self, key: Key, error: StorageError, now: TimestampMs) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None:
            self._set_aside[key] = partition
            self._listener.on_given_up(partition, now)
        self._log("error", f"{key[0]}-{key[1]}: {error}")
        self._refused.append(key)
        self._try_again = now + TAKE_UP_AGAIN_MS

    def _take_up(
        self, topic: TopicImage, index: int, image: PartitionImage, config: LogConfig, min_isr: int, now: TimestampMs
    ) -> bool:
        """Create or change a replica; return whether its role, leader epoch, ISR or settings changed what it answers."""
        key = (topic.name, index)
        partition = self.partitions.get(key) or self._set_aside.get(key)
        if partition is not None and partition.topic_id != topic.id:
            self._give_up(key, now)
            partition = None
        if partition is None:
            partition = self._make(topic, index, config, min_isr, now)
        elif partition.log.config != config:
            partition.log.config = config
            partition.log.changed()
        is_lowered = min_isr < partition.min_isr
        partition.learn_min_isr(min_isr)
        before = partition.role
        returns = self._set_aside.get(key) is partition
        changes = partition.take_up(_state(image), now)
        if is_lowered and partition.leading is not None:
            changes |= partition.leading.advance_high_watermark(now)  # Kafka's waits for the next record
        if not changes and not returns:
            return False
        self.partitions[key] = partition
        self._set_aside.pop(key, None)
        self._listener.on_role(partition, returns or partition.role is not before, now)
        return True

    def _make(self, topic: TopicImage, index: int, config: LogConfig, min_isr: int, now: TimestampMs) -> Partition:
        key, image = (topic.name, index), topic.partitions[index]
        log = self._logs.get_or_create(
            key,
            topic.id,
            config,
            now,
            image.directory_of(self._node),
            is_new=(topic.id, index) not in (self._first or ()),
        )
        partition = Partition(
            topic.name,
            topic.id,
            index,
            log,
            self._node,
            trace=self._trace,
            brokers=self._listener.peer_of,
            truncation=self._truncation,
            min_isr=min_isr,
            lag_max_ms=self._lag_max_ms,
        )
        if self._logs.had(key):
            partition.restart(self._logs.high_watermark(key))
        return partition

    def _give_up(self, key: Key, now: TimestampMs) -> None:
        """Remove a replica whose topic was deleted, or that was moved: delete its folder, and answer delayed requests.

        Errors: StorageError; then the replica still exists.
        """
        self._logs.delete(key, now)
        partition = self.partitions.pop(key, None)
        aside = self._set_aside.pop(key, None)
        given_up = partition or aside
        if partition is not None:
            self._listener.on_given_up(partition, now)
        if given_up is not None and given_up.topic_id in self._image.topics_by_id:
            given_up.give_up_replica()

    def _min_isr(self, topic: TopicName) -> int:
        found = self._configuration.topic(topic, "min.insync.replicas")
        assert isinstance(found, int)
        return found

    def _settings_of(self, topic: TopicName) -> tuple[LogConfig, int]:
        """The topic's log settings and min.insync.replicas; computed again only after a change of their sources."""
        own, cluster = self._image.topic_config(topic), self._cluster.topic_config(topic)
        sources = (own, cluster, *self._configuration.dynamic_broker_values())
        known = self._settings.get(topic)
        if known is None or known[0] != sources:
            config, min_isr = self._make_log_config(own), self._min_isr(topic)
            known = self._settings[topic] = tuple(map(dict, sources)), config, min_isr
        return known[1], known[2]

    def _make_log_config(self, own: Mapping[str, str]) -> LogConfig:
        values = {
            setting.name: setting.value
            for setting in self._configuration.topic_settings(own)
            if setting.value is not None
        }
        segment = own.get("internal.segment.bytes")
        if segment is not None:
            values["segment.bytes"] = segment
        return LogConfig.from_topic_config({name: value for name, value in values.items() if name in TOPIC})

    # ---- upkeep

    def tick(self, now: TimestampMs) -> None:
        """Do the work that is due: replicas after a disk failure, retention, checkpoints."""
        if now >= self._next_checkpoint:
            self._next_checkpoint = now + self._checkpoint_interval_ms
            self._checkpoint()
        if now >= self._next_retention:
            self._next_retention = now + self._retention_interval_ms
            self._apply_retention(now)
        if self._refused and now >= self._try_again:
            self._due.update(dict.fromkeys(self._refused))
            self._refused = []
        self._follow_due(now)

    def deadlines(self) -> Iterable[TimestampMs | None]:
        """The times of the next work; None for never."""
        take_up = AT_ONCE if self._due else self._try_again if self._refused else None
        return self._next_retention, self._next_checkpoint, take_up

    def high_watermarks(self) -> dict[Key, Offset]:
        return {key: partition.high_watermark for key, partition in self.partitions.items()}

    def _apply_retention(self, now: TimestampMs) -> None:
        for (name, index), partition in self.partitions.items():
            try:
                if partition.log.delete_old_segments(now, partition.high_watermark):
                    self._listener.on_retention(partition)
            except LogError as error:
                self._log("error", f"{name}-{index}: {error}")

    def _checkpoint(self) -> None:
        """Write the checkpoint of high watermarks, if any has moved; without replicas the old one is kept."""
        reached = self.high_watermarks()
        if reached and reached != self._checkpointed:
            try:
                self._logs.checkpoint_high_watermarks(reached)
                self._checkpointed = reached
            except StorageError as error:
                self._log("error", f"high watermarks: {error}")


def _state(image: PartitionImage) -> PartitionState:
    return PartitionState(
        image.leader,
        image.leader_epoch,
        image.partition_epoch,
        tuple(image.replicas),
        tuple(image.isr),
        tuple(image.adding_replicas),
        tuple(image.removing_replicas),
    )
