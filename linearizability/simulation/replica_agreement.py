# pyright: reportPrivateUsage=false
"""Checks that a node's replicas act by its metadata image, once the node has followed what it has replayed.

A leader may be ahead of the image: the response to its proposal of an ISR may come before the record.
"""

from __future__ import annotations

from typing import NoReturn

from linearizability.simulation.world import Violation
from reference.controller.image import PartitionImage
from reference.node.node import Node
from reference.node.replicas import _state
from reference.replication.partition import Partition


def require_followed(name: str, node: Node) -> None:
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
