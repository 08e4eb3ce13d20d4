# pyright: reportPrivateUsage=false
"""Checks that a node's replicas act by its metadata image, and that no acknowledgement waits for what has happened already.

A leader may be ahead of the image: the response to its proposal of an ISR may come before the record.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

from linearizability.simulation.world import Violation
from reference.controller.image import PartitionImage
from reference.node.node import Node
from reference.node.replicas import _state
from reference.node.requests import AwaitedParts, Parked
from reference.protocol.primitives import Offset, TimestampMs
from reference.replication.high_watermark import next_high_watermark
from reference.replication.leader import Leading
from reference.replication.partition import Partition

SAMPLED = 64


class ReplicaAgreement:
    """Looks at one node after its steps."""

    def __init__(self, name: str, follows_image: bool) -> None:
        """`follows_image` is False beside a ZooKeeper, where a node acts by its controller's requests."""
        self._name = name
        self._follows_image = follows_image
        self._image_end = -1
        self._steps = 0

    def begin_process(self) -> None:
        """Another process begins on the machine."""
        self._image_end = -1

    def look_at(self, node: Node, now: TimestampMs) -> None:
        """Check a node whose image has moved on, and after one in SAMPLED of the other steps. Errors: Violation."""
        self._steps += 1
        moved = self._follows_image and node.image.end_offset != self._image_end
        if moved:
            self._image_end = node.image.end_offset
            _require_followed(self._name, node)
        if moved or self._steps % SAMPLED == 0:
            _require_settled(self._name, node, now)


def _require_settled(name: str, node: Node, now: TimestampMs) -> None:
    """Ask once more what the node asks when something changes: whether high watermarks move, and requests are complete.

    Nothing else may come for a partition that has no news, and then a request waits until its timeout.
    """
    if node.is_broken:
        return
    for partition in node.partitions.values():
        leading = partition.leading
        if leading is not None and not leading.is_under_min_isr:
            reached = next_high_watermark(partition.high_watermark, partition.log.log_end_offset, _ends(leading))
            if reached != partition.high_watermark:
                text = f"{partition.name} on {name} has the high watermark {partition.high_watermark}, and all have {reached}"
                raise Violation("high-watermark-behind", text)
    for waiting in [*node.purgatories.produces._by_connection.values()]:
        parts = _parts(waiting.parked)
        for key in waiting.keys:
            if waiting.parked.try_complete(now, key) or _parts(waiting.parked) < parts:
                text = f"a request on {name} waits for {key[0]}-{key[1]}, and need not"
                raise Violation("request-left-waiting", text)


def _parts(parked: Parked) -> int:
    return len(cast("AwaitedParts[Any]", parked)._parts) if isinstance(parked, AwaitedParts) else 0


def _ends(leading: Leading) -> list[Offset]:
    """The log ends of the followers that hold the high watermark back, and of those that do while they are caught up.

    The latter stop to count when replica.lag.time.max.ms is over. Nothing wakes a leader then, as in Kafka.
    """
    return [
        progress.end
        for follower, progress in leading.followers.items()
        if leading.is_in_maximal_isr(follower)
        or follower in leading.removed_pending_replay
        or leading._is_admissible(follower)
    ]


def _require_followed(name: str, node: Node) -> None:
    """Compare all replicas of a node with its image. Errors: Violation."""
    replicas = node.replicas
    if not node.has_caught_up or not node._reception.serves or node.is_broken or replicas._due or replicas._refused:
        return
    for topic in node.image.topics.values():
        for index, decided in topic.partitions.items():
            key = topic.name, index
            partition = replicas.partitions.get(key)
            if node.id in decided.replicas and partition is not None:
                _compare(name, partition, decided, replicas._min_isr(topic.name))
            elif node.id in decided.replicas and key not in replicas.offline:
                _broken(name, f"{topic.name}-{index}", f"is not there, and the image says {decided}")
    for partition in replicas.partitions.values():
        known = node.image.topics_by_id.get(partition.topic_id)
        decided = known.partitions.get(partition.index) if known is not None else None
        if decided is None or node.id not in decided.replicas:
            _broken(name, partition.name, f"is there, and the image says {decided}")


def _compare(name: str, partition: Partition, decided: PartitionImage, min_isr: int) -> None:
    state, said = partition.state, _state(decided)
    if partition.min_isr != min_isr:
        _broken(name, partition.name, f"acts by min.insync.replicas {partition.min_isr}, which is {min_isr}")
    if (state.leader_epoch, state.partition_epoch) < (said.leader_epoch, said.partition_epoch) or (
        state.partition_epoch == said.partition_epoch and state != said
    ):
        _broken(name, partition.name, f"acts by {state}, and the image says {said}")


def _broken(name: str, partition: str, text: str) -> NoReturn:
    raise Violation("metadata-not-followed", f"{partition} on {name} {text}")
