"""The sizes and directories of a node's replicas. (DescribeLogDirs, AlterReplicaLogDirs, KIP-113, KIP-827)"""

from __future__ import annotations

from reference.node.context import Context
from reference.node.moves import Moves
from reference.node.replicas import Replicas
from reference.node.requests import Key, Request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from reference.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from reference.protocol.primitives import TimestampMs
from reference.storage.errors import CorruptFile, LogError
from reference.storage.folder_names import can_move
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager

Described = DescribeLogDirsResponse.DescribeLogDirsResult


def describe_log_dirs(
    replicas: Replicas, logs: LogManager, request: Request, body: DescribeLogDirsRequest, now: TimestampMs
) -> DescribeLogDirsResponse:
    """The size of each partition in each of the node's log directories; KAFKA_STORAGE_ERROR for an offline one."""
    wanted = (
        None if body.topics is None else {(topic.topic, index) for topic in body.topics for index in topic.partitions}
    )
    return DescribeLogDirsResponse(
        results=[_describe(replicas, each, wanted, logs.is_cordoned(each)) for each in logs.directories]
    )


def _describe(replicas: Replicas, directory: LogDirectory, wanted: set[Key] | None, is_cordoned: bool) -> Described:
    if directory.disk.failure is not None:
        return Described(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(directory.folder))
    topics: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
    for (name, index), log in sorted(directory.logs.items(), key=lambda item: item[0]):
        partition, is_future = replicas.partitions.get((name, index)), (name, index) in directory.futures
        if partition is None or (wanted is not None and (name, index) not in wanted):
            continue
        topic = topics.setdefault(name, DescribeLogDirsResponse.DescribeLogDirsTopic(name=name))
        end = partition.log.log_end_offset if is_future else partition.high_watermark
        topic.partitions.append(
            DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=index,
                partition_size=log.size_bytes,
                offset_lag=max(0, end - log.log_end_offset),
                is_future_key=is_future,
            )
        )
    total, usable = directory.disk.space(directory.folder)
    return Described(
        log_dir=str(directory.folder),
        topics=[*topics.values()],
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=is_cordoned,
    )


def alter_replica_log_dirs(
    context: Context, moves: Moves, request: Request, body: AlterReplicaLogDirsRequest, now: TimestampMs
) -> AlterReplicaLogDirsResponse:
    """Begin to move replicas to another log directory (`Moves`). A replica that does not exist yet will be created there.

    Of several directories for one replica the last counts, as in Kafka.
    """
    wanted = {
        (topic.name, index): each.path for each in body.dirs for topic in each.topics for index in topic.partitions
    }
    topics: dict[str, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    for (name, index), path in wanted.items():
        found = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=name)
        code = _move(context, moves, path, (name, index), now)
        topics.setdefault(name, found).partitions.append(
            AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        )
    return AlterReplicaLogDirsResponse(results=[*topics.values()])


def _move(context: Context, moves: Moves, path: str, key: Key, now: TimestampMs) -> ErrorCode:
    logs = moves.logs
    target, partition = logs.find(path), context.replicas.partitions.get(key)
    if not can_move(key):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if target.disk.failure is not None or key in context.replicas.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if logs.is_cordoned(target):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if partition is None:
        logs.prefer(key, target)
        is_known = context.image.partition(*key) is not None
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if logs.holder(key) is not target and len(logs.live) < len(logs.directories):
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        moves.begin(partition, target, now)
    except (LogError, CorruptFile) as error:
        context.log("error", f"{key[0]}-{key[1]} cannot be moved to {path}: {error}")
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE
