"""Replaying the metadata log: what is committed becomes the image, and what this node has and does, what the image says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

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

    def advance(self, now: TimestampMs) -> None:
        """Apply what was committed since the last time, if anything was."""
        node = self._node
        quorum, image = node.quorum, node.image
        snapshot = quorum.latest_snapshot if quorum.take_snapshot_notice() else None
        if snapshot is None and image.end_offset >= quorum.high_watermark:
            return
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
        self._snapshots.write_if_due(now)

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
