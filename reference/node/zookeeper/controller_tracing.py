"""Decisions that were written, as steps of spec/historical: derived from their records, when ZooKeeper has taken them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference.controller.image import MetadataImage, PartitionImage
from reference.node.zookeeper.writer import Befores, Writer
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.schema import Message
from reference.replication.partition import Trace


def trace_commit(
    trace: Trace, writer: Writer, image: MetadataImage, records: Sequence[Message], befores: Befores
) -> None:
    """One step for each partition of which something was written."""
    for record in records:
        if not isinstance(record, PartitionRecord | PartitionChangeRecord):
            continue
        topic = image.topics_by_id[record.topic_id]
        partition = topic.partitions[record.partition_id]
        before = befores.get((record.topic_id, record.partition_id))
        action, arguments = _action(before, partition)
        state = {
            "leader": partition.leader,
            "leaderEpoch": partition.leader_epoch,
            "isr": [*partition.isr],
            "version": partition.partition_epoch,
        }
        arguments |= {"controller": writer.node, "controllerEpoch": writer.controller_epoch, "state": state}
        trace(action, {"node": writer.node, "partition": f"{topic.name}-{record.partition_id}", "args": arguments})


def _action(before: PartitionImage | None, after: PartitionImage) -> tuple[str, dict[str, Any]]:
    if before is None:
        return "CreateTopic", {}
    if gone := {*before.replicas} - {*after.replicas}:
        return "RemoveReplica", {"broker": min(gone)}
    if come := {*after.replicas} - {*before.replicas}:
        return "AddReplica", {"broker": min(come)}
    if after.leader != before.leader:
        return "ElectLeader", {"leader": after.leader}
    return "AlterPartition", {"leader": after.leader, "isr": [*after.isr]}
