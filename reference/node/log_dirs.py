"""How much a node stores, and where. (DescribeLogDirs, AlterReplicaLogDirs, KIP-113, KIP-827)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from reference.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from reference.protocol.primitives import TimestampMs

if TYPE_CHECKING:
    from reference.node.node import Node


def describe_log_dirs(
    node: Node, request: Request, body: DescribeLogDirsRequest, now: TimestampMs
) -> DescribeLogDirsResponse:
    """The size of each partition in the node's one data folder."""
    wanted = (
        None if body.topics is None else {(topic.topic, index) for topic in body.topics for index in topic.partitions}
    )
    topics: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
    for (name, index), partition in sorted(node.partitions.items()):
        if wanted is None or (name, index) in wanted:
            topic = topics.setdefault(name, DescribeLogDirsResponse.DescribeLogDirsTopic(name=name))
            topic.partitions.append(
                DescribeLogDirsResponse.DescribeLogDirsPartition(
                    partition_index=index,
                    partition_size=partition.log.size_bytes,
                    offset_lag=max(0, partition.high_watermark - partition.log.log_end_offset),
                )
            )
    total, usable = node.disk_space()
    result = DescribeLogDirsResponse.DescribeLogDirsResult(
        log_dir=node.folder, topics=[*topics.values()], total_bytes=total, usable_bytes=usable
    )
    return DescribeLogDirsResponse(results=[result])


def alter_replica_log_dirs(
    node: Node, request: Request, body: AlterReplicaLogDirsRequest, now: TimestampMs
) -> AlterReplicaLogDirsResponse:
    """Move replicas to another data folder. There is one: to it each is moved already, and any other is LOG_DIR_NOT_FOUND."""
    topics: dict[str, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            result = topics.setdefault(
                topic.name, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=topic.name)
            )
            for index in topic.partitions:
                code = _refusal(node, directory.path, topic.name, index)
                result.partitions.append(
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    )
                )
    return AlterReplicaLogDirsResponse(results=[*topics.values()])


def _refusal(node: Node, path: str, topic: str, index: int) -> ErrorCode:
    if path != node.folder:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        node.partition(topic, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
