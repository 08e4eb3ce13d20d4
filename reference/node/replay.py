"""Replaying the metadata log: what is committed becomes the image, and what this node has and does, what the image says.

An error in here leaves an image, or replicas, of which a part is missing. The node must end then: otherwise it would stay
registered and unfenced, and serve less than the cluster expects of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reference.controller.quorum_snapshots import SnapshotId
from reference.node.metadata_snapshots import MetadataSnapshots
from reference.node.replication import FETCH_LANE
from reference.node.topic_changes import TopicChanges
from reference.node.voters import QUORUM_LANES
from reference.protocol.primitives import NodeId, TimestampMs
from reference.storage.log import Log

if TYPE_CHECKING:
    from reference.node.node import Node


class Replay:
    """Moves the image on as the quorum commits."""

    def __init__(self, node: Node, log: Log, now: TimestampMs) -> None:
        """`log` is that of the metadata."""
        self._node = node
        self._snapshots = MetadataSnapshots(node, log, now)
        self.failure: str | None = None
        """Why the node must end: the metadata could not be applied."""

    def advance(self, now: TimestampMs) -> None:
        """Apply what was committed since the last time, if anything was. Errors: any, and `failure` is set."""
        quorum, image = self._node.quorum, self._node.image
        snapshot = quorum.latest_snapshot if quorum.take_snapshot_notice() else None
        if self.failure is not None or (snapshot is None and image.end_offset >= quorum.high_watermark):
            return
        try:
            self._apply(snapshot, now)
        except Exception as error:
            self._fail(error)
            raise
        self._snapshots.write_if_due(now)

    def begin_to_serve(self, now: TimestampMs) -> None:
        """Take up all replicas. Errors: any, and `failure` is set."""
        try:
            self._node.replicas.reconcile(now)
        except Exception as error:
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        end = self._node.quorum.high_watermark
        self.failure = f"the metadata before offset {end} cannot be applied: {type(error).__name__}: {error}"

    def _apply(self, snapshot: SnapshotId | None, now: TimestampMs) -> None:
        node = self._node
        quorum, image = node.quorum, node.image
        changes = TopicChanges(image)
        if snapshot is not None:
            before = {topic.id: topic.name for topic in image.topics.values()}
            image.clear()
            for record in quorum.snapshot_records():
                image.apply(record)
            image.end_offset = snapshot.end_offset
            changes.see_all(before)
        lives = {broker.id: broker.epoch for broker in image.brokers.values()}
        for offset, record in quorum.committed(image.end_offset):
            changes.see(record)
            image.apply(record, offset)
        self._let_go_of_former_lives(lives, now)
        image.end_offset = max(image.end_offset, quorum.high_watermark)
        if node.is_broker:
            node.membership.metadata_applied(now)
            if node.is_serving and node.has_begun_to_serve:
                node.replicas.reconcile(now)
                node.groups.topics_changed(changes, now)

    def _let_go_of_former_lives(self, lives: Mapping[NodeId, int], now: TimestampMs) -> None:
        """A broker that registered anew is another process: what its former life was asked will not be answered.

        The connection may not tell: of a machine that lost power nothing comes, until something is sent to it.
        """
        node = self._node
        for broker in node.image.brokers.values():
            if broker.id != node.id and lives.get(broker.id, broker.epoch) != broker.epoch:
                for lane in {FETCH_LANE: None, **dict.fromkeys(node.peers.lanes_to(broker.id))}:
                    if lane not in QUORUM_LANES:
                        node.peers.hang_up(broker.id, lane, now)
