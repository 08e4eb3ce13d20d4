"""The partitions that this node has replicas of: taken up and given up as the metadata say, and kept in order.

What the image says of a partition becomes true here: its log exists, it leads or follows in its reign, its settings are
the topic's. Retention and the checkpoint of high watermarks are here too, for they go over all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reference.controller.config_table import TOPIC
from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage, PartitionImage, TopicImage
from reference.protocol.primitives import NodeId, Offset, TimestampMs, TopicName
from reference.replication.partition import Partition, Reign, Trace
from reference.storage.config import LogConfig
from reference.storage.errors import LogError, StorageError
from reference.storage.log_manager import LogManager

TAKE_UP_AGAIN_MS = 1000
"""After this time a replica is tried again whose log the disk did not let be made."""

Key = tuple[TopicName, int]


class Replicas:
    """This node's replicas, by topic and partition."""

    def __init__(
        self,
        node: NodeId,
        image: MetadataImage,
        configuration: Configuration,
        logs: LogManager,
        now: TimestampMs,
        *,
        given_up: Callable[[Key, TimestampMs], None],
        failed: Callable[[str, Exception], None],
        trace: Trace | None,
    ) -> None:
        """`given_up` hears of each replica that is no more, `failed` of what the disk refused."""
        self.partitions: dict[Key, Partition] = {}
        self._node = node
        self._image = image
        self._configuration = configuration
        self._logs = logs
        self._given_up = given_up
        self._failed = failed
        self._trace = trace
        self._retention_interval_ms = configuration.integer("log.retention.check.interval.ms")
        self._next_retention = now + configuration.integer("log.initial.task.delay.ms")
        self._checkpoint_interval_ms = configuration.integer("replica.high.watermark.checkpoint.interval.ms")
        self._next_checkpoint = now + self._checkpoint_interval_ms
        self._next_take_up: TimestampMs | None = None
        self._checkpointed: dict[Key, Offset] = {}

    # ---- following the metadata

    def reconcile(self, now: TimestampMs) -> None:
        """Make this node's replicas what the image says: new ones, new reigns, new settings, deleted ones."""
        self._next_take_up = None
        wanted: set[Key] = set()
        for topic in self._image.topics.values():
            config = self._log_config(topic.name)
            for index, image in topic.partitions.items():
                if self._node in image.replicas:
                    wanted.add((topic.name, index))
                    try:
                        self._take_up(topic, index, image, config, now)
                    except StorageError as error:
                        # The decision stands in the metadata log: the replica is taken up when the disk allows it.
                        self.partitions.pop((topic.name, index), None)
                        self._failed(f"{topic.name}-{index}", error)
                        self._next_take_up = now + TAKE_UP_AGAIN_MS
        for key in [key for key in self.partitions if key not in wanted]:
            self._give_up(key, now)

    def _take_up(
        self, topic: TopicImage, index: int, image: PartitionImage, config: LogConfig, now: TimestampMs
    ) -> None:
        partition = self.partitions.get((topic.name, index))
        if partition is not None and partition.topic_id != topic.id:
            self._give_up((topic.name, index), now)
            partition = None
        reign = Reign(image.leader, image.leader_epoch, image.partition_epoch, tuple(image.replicas), tuple(image.isr))
        if partition is None:
            partition = self._make(topic, index, reign, config, now)
            self.partitions[topic.name, index] = partition
            partition.become_leader(reign)
            return
        if partition.log.config != config:
            partition.log.config = config
        if partition.reign != reign:
            partition.become_leader(reign)

    def _make(self, topic: TopicImage, index: int, reign: Reign, config: LogConfig, now: TimestampMs) -> Partition:
        log = self._logs.get_or_create(topic.name, index, topic.id, config, now)
        high_watermark = max(log.log_start_offset, self._logs.high_watermark(topic.name, index))
        partition = Partition(
            topic.name, topic.id, index, log, self._node, reign, min(high_watermark, log.log_end_offset)
        )
        partition.trace = self._trace
        return partition

    def _give_up(self, key: Key, now: TimestampMs) -> None:
        """A topic was deleted, or the replica is elsewhere now: its folder goes, who waits for it is told."""
        self.partitions.pop(key)
        self._logs.delete(*key, now)
        self._given_up(key, now)

    def _log_config(self, topic: TopicName) -> LogConfig:
        """The part of a topic's settings that its logs follow."""
        own = self._image.topic_config(topic)
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
        """Do what is due: replicas that wait for the disk, retention, checkpoints."""
        if now >= self._next_checkpoint:
            self._next_checkpoint = now + self._checkpoint_interval_ms
            self._checkpoint()
        if now >= self._next_retention:
            self._next_retention = now + self._retention_interval_ms
            self._apply_retention(now)
        if self._next_take_up is not None and now >= self._next_take_up:
            self.reconcile(now)

    def deadlines(self) -> Iterable[TimestampMs | None]:
        """When there is something to do; None for never."""
        return self._next_retention, self._next_checkpoint, self._next_take_up

    def high_watermarks(self) -> dict[Key, Offset]:
        return {key: partition.high_watermark for key, partition in self.partitions.items()}

    def _apply_retention(self, now: TimestampMs) -> None:
        for (name, index), partition in self.partitions.items():
            try:
                partition.log.delete_old_segments(now, partition.high_watermark)
            except LogError as error:
                self._failed(f"{name}-{index}", error)

    def _checkpoint(self) -> None:
        """Write the high watermarks down, where any moved."""
        reached = self.high_watermarks()
        if reached != self._checkpointed:
            try:
                self._logs.checkpoint_high_watermarks(reached)
                self._checkpointed = reached
            except StorageError as error:
                self._failed("high watermarks", error)
