"""Drawn requests to clusters of several nodes or log directories, which must name the places of new partitions.

Otherwise each cluster would place them by chance, and other nodes would lead them.
"""

from __future__ import annotations

import time
from zlib import crc32

from reference.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message
from tests.targets.drawn_fields import Side

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
PLACED_BY_CHANCE = {"DescribeQuorum"}
"""APIs whose answers depend on which node is the active controller."""
OWN_OF_SEVERAL = {"controller_id"}
"""Fields that depend on it, or on chance."""


def replicas_of(topic: str, index: int, brokers: int) -> list[NodeId]:
    """All brokers; the preferred leader differs from partition to partition."""
    first = crc32(topic.encode()) + index
    return [NodeId((first + at) % brokers + 1) for at in range(brokers)]


def place(request: Message, side: Side) -> bool:
    """Assign the new partitions in a request. False if it may delete a topic that the cluster then creates again by itself."""
    brokers = len(side.addresses)
    if isinstance(request, CreateTopicsRequest):
        for topic in request.topics:
            if not topic.assignments:
                _place_topic(topic, brokers)
    elif isinstance(request, CreatePartitionsRequest):
        for grown in request.topics:
            if not grown.assignments:
                replicas = replicas_of(grown.name, grown.count, brokers)
                grown.assignments = [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=replicas)]
    elif isinstance(request, DeleteTopicsRequest):
        kept = {*INTERNAL_TOPICS, *side.internal_ids}
        named = [
            *request.topic_names,
            *(topic.name for topic in request.topics),
            *(topic.topic_id for topic in request.topics),
        ]
        return kept.isdisjoint(named)
    return True


def _place_topic(topic: CreateTopicsRequest.CreatableTopic, brokers: int) -> None:
    assignment = CreateTopicsRequest.CreatableReplicaAssignment
    topic.assignments = [
        assignment(partition_index=index, broker_ids=replicas_of(topic.name, index, brokers))
        for index in range(max(topic.num_partitions, 1))
    ]
    topic.num_partitions = topic.replication_factor = -1


# ---- log directories

TOPICS = (*INTERNAL_TOPICS, "t0", "t1", "t2", "t3")
MOST_PARTITIONS = 10
MOVED_WITHIN_S = 10.0


def place_in_directories(side: Side) -> None:
    """Choose the directory of each partition that is there or may come, and wait for it."""
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    for node in range(len(side.addresses)):
        side.node = node
        found = side.wire.call(DescribeLogDirsRequest(topics=None)).results
        folders = sorted((each.log_dir for each in found), key=lambda each: each.endswith("second"))
        chosen: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = []
        for at, folder in enumerate(folders):
            side.place("folder", folder)
            topics = [
                topic(name=name, partitions=[index for index in range(MOST_PARTITIONS) if _folder(name, index) == at])
                for name in TOPICS
            ]
            chosen.append(AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=folder, topics=topics))
        side.wire.call(AlterReplicaLogDirsRequest(dirs=chosen))
    await_moves(side)


def _folder(topic: str, index: int) -> int:
    return (crc32(topic.encode()) + index) % 2


def await_moves(side: Side) -> None:
    """Wait until no replica moves between directories."""
    until = time.monotonic() + MOVED_WITHIN_S
    for node in range(len(side.addresses)):
        side.node = node
        while _is_moving(side) and time.monotonic() < until:
            time.sleep(0.05)


def _is_moving(side: Side) -> bool:
    results = side.wire.call(DescribeLogDirsRequest(topics=None)).results
    topics = [topic for each in results for topic in each.topics]
    return any(partition.is_future_key for topic in topics for partition in topic.partitions)
