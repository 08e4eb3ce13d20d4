"""Traces decisions as steps of spec/historical: when they are written, and when ZooKeeper has answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference.controller.image import NO_LEADER, MetadataImage, PartitionImage
from reference.node.zookeeper.writer import Befores, Writer
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.schema import Message
from reference.replication.partition import Trace


def trace_writes(
    trace: Trace, writer: Writer, image: MetadataImage, records: Sequence[Message], befores: Befores, is_answered: bool
) -> None:
    """Trace one step per changed partition; before ZooKeeper's answer it is WriteState, with the decision's name."""
    for record in records:
        if not isinstance(record, PartitionRecord | PartitionChangeRecord):
            continue
        before = befores.get((record.topic_id, record.partition_id))
        topic = image.topics_by_id.get(record.topic_id)
        if is_answered and topic is not None:
            after = topic.partitions[record.partition_id]
        elif before is not None and isinstance(record, PartitionChangeRecord):
            after = before.after(record)
        else:
            continue  # a new partition, which no broker has yet
        assert topic is not None
        action, arguments = _action(before, after)
        state = {
            "leader": after.leader,
            "leaderEpoch": after.leader_epoch,
            "isr": [*after.isr],
            "version": after.partition_epoch,
            "replicas": [*after.replicas],
        }
        arguments |= {"controller": writer.node, "controllerEpoch": writer.controller_epoch, "state": state}
        if not is_answered:
            action, arguments = "WriteState", arguments | {"decision": action}
        trace(action, {"node": writer.node, "partition": f"{topic.name}-{record.partition_id}", "args": arguments})


def _action(before: PartitionImage | None, after: PartitionImage) -> tuple[str, dict[str, Any]]:
    """The step's name. AlterPartition begins no leader epoch; but as it may end a reassignment, RemoveReplica has the leader
    too."""
    if before is None:
        return "CreateTopic", {}
    if gone := {*before.replicas} - {*after.replicas}:
        return "RemoveReplica", {"broker": min(gone), "leader": before.leader}
    if come := {*after.replicas} - {*before.replicas}:
        return "AddReplica", {"broker": min(come)}
    if after.leader not in (before.leader, NO_LEADER, *before.isr):
        return "ElectUncleanLeader", {"leader": after.leader}
    if after.leader != before.leader:
        return "ElectLeader", {"leader": after.leader}
    if after.leader_epoch == before.leader_epoch:
        return "AlterPartition", {"leader": after.leader, "isr": [*after.isr]}
    if gone := {*before.isr} - {*after.isr}:
        return "RemoveReplicaFromIsr", {"broker": min(gone)}
    return "Reassign", {}
