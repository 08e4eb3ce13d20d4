"""Replays the metadata log: committed records change the image, and the node's replicas and parts follow the image.

An error here leaves an incomplete image, or incomplete replicas. The node must then shut down: otherwise it would stay
registered and unfenced, and serve less than the cluster expects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.controller.image_records import image_records
from reference.controller.metadata_transactions import SettledRecords
from reference.controller.quorum import Quorum
from reference.controller.quorum_snapshots import SnapshotId
from reference.node.known_topics import TopicChanges
from reference.node.peers import QUORUM_PURPOSES, Peers
from reference.node.replication import FETCH_PURPOSE
from reference.protocol.primitives import NodeId, TimestampMs
from reference.storage.errors import StorageError
from reference.storage.log import Log
from reference.storage.log_directory import Logger


class MetadataSnapshots:
    """Writes a snapshot when enough records or enough time have passed since the last one."""

    def __init__(self, configuration: Configuration, log: Log, say: Logger, now: TimestampMs) -> None:
        self._log = log
        self._say = say
        integer = configuration.integer
        self._due_bytes = integer("metadata.log.max.record.bytes.between.snapshots")
        self._due_ms = integer("metadata.log.max.snapshot.interval.ms")
        self._last = log.size_bytes, now
        """The size of the metadata log at the last snapshot or at the start, and the time of that."""

    def write_if_due(self, quorum: Quorum, image: MetadataImage, now: TimestampMs) -> None:
        size, (size_then, then) = self._log.size_bytes, self._last
        is_old = 0 < self._due_ms <= now - then
        if is_old or size - size_then >= self._due_bytes:
            self._last = size, now
            try:
                quorum.write_snapshot(image.end_offset, image_records(image), now, image.metadata_level)
            except StorageError as error:
                self._say("error", f"metadata snapshot: {error}")


Applied = Callable[[TopicChanges, TimestampMs], None]
"""Takes the changes of a part of the metadata log, after the image has them."""


class Replay:
    """Applies committed records to the image."""

    def __init__(
        self, quorum: Quorum, image: MetadataImage, peers: Peers, snapshots: MetadataSnapshots, applied: Applied
    ) -> None:
        self._quorum = quorum
        self._image = image
        self._peers = peers
        self._snapshots = snapshots
        self._applied = applied
        self.failure: str | None = None
        """The reason why the node must shut down: the metadata could not be applied."""

    def advance(self, now: TimestampMs) -> None:
        """Apply the records that were committed since the last call. Errors: any, and `failure` is set."""
        quorum, image = self._quorum, self._image
        snapshot = quorum.latest_snapshot if quorum.take_snapshot_notice() else None
        if self.failure is not None or (snapshot is None and image.end_offset >= quorum.high_watermark):
            return
        self.guard(lambda: self._apply(snapshot, now))
        self._snapshots.write_if_due(quorum, image, now)

    def guard(self, step: Callable[[], None]) -> None:
        """Do a step that applies metadata. Errors: any, and `failure` is set."""
        try:
            step()
        except Exception as error:
            end = self._quorum.high_watermark
            self.failure = f"the metadata before offset {end} cannot be applied: {type(error).__name__}: {error}"
            raise

    def _apply(self, snapshot: SnapshotId | None, now: TimestampMs) -> None:
        quorum, image = self._quorum, self._image
        changes = TopicChanges(image)
        if snapshot is not None:
            before = {topic.id: topic.name for topic in image.topics.values()}
            image.clear()
            for record in quorum.snapshot_records():
                image.apply(record)
            image.end_offset = snapshot.end_offset
            changes.see_all(before)
        incarnations = {broker.id: broker.epoch for broker in image.brokers.values()}
        records = SettledRecords(quorum.committed(image.end_offset))
        for offset, record in records:
            changes.see(record)
            image.apply(record, offset)
        self._hang_up_on_former(incarnations, now)
        image.open_transaction = records.open_since
        image.end_offset = max(
            image.end_offset, quorum.high_watermark if records.open_since is None else records.open_since
        )
        self._applied(changes, now)

    def _hang_up_on_former(self, incarnations: Mapping[NodeId, int], now: TimestampMs) -> None:
        """Close connections to a broker's former incarnation after it has registered again: requests there would stay
        unanswered.

        The connection may not show it: after a power loss of the peer nothing arrives until something is sent.
        """
        for broker in self._image.brokers.values():
            if broker.id != self._quorum.node and incarnations.get(broker.id, broker.epoch) != broker.epoch:
                for purpose in {FETCH_PURPOSE: None, **dict.fromkeys(self._peers.purposes_to(broker.id))}:
                    if purpose not in QUORUM_PURPOSES:
                        self._peers.hang_up(broker.id, purpose, now)
