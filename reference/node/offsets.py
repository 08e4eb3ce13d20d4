"""Offsets by time, by special timestamp, and by leader epoch. (LOF-*, EPO-*)"""

from __future__ import annotations

from collections import Counter

from reference.node.fetch import ISOLATION_LEVELS, READ_COMMITTED
from reference.node.replicas import Replicas
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from reference.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from reference.protocol.primitives import TimestampMs, TopicName
from reference.replication import partition as places
from reference.storage.errors import LogError

FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
"""The first version with OFFSET_NOT_AVAILABLE (KIP-207); before, clients receive LEADER_NOT_AVAILABLE."""

FIRST_VERSION = {
    places.LATEST: 1,
    places.EARLIEST: 1,
    places.MAX_TIMESTAMP: 7,
    places.EARLIEST_LOCAL: 8,
    places.LATEST_TIERED: 9,
    places.EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version with each special timestamp (LOF-06)."""

PartitionResponse = ListOffsetsResponse.ListOffsetsPartitionResponse


def list_offsets(
    replicas: Replicas, request: Request, body: ListOffsetsRequest, now: TimestampMs
) -> ListOffsetsResponse:
    """ListOffsets; a partition that occurs twice is refused (LOF-07)."""
    times = Counter((topic.name, each.partition_index) for topic in body.topics for each in topic.partitions)
    response = ListOffsetsResponse()
    for topic in body.topics:
        results = [
            _list_one(replicas, request.version, topic.name, each, body.isolation_level, times, body.replica_id >= 0)
            for each in topic.partitions
        ]
        response.topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return response


def _list_one(
    replicas: Replicas,
    version: int,
    topic: TopicName,
    wanted: ListOffsetsRequest.ListOffsetsPartition,
    isolation_level: int,
    times: Counter[tuple[TopicName, int]],
    for_replica: bool,
) -> PartitionResponse:
    result = PartitionResponse(partition_index=wanted.partition_index)
    try:
        # validate
        if isolation_level not in ISOLATION_LEVELS:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if times[topic, wanted.partition_index] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if wanted.timestamp < 0 and version < FIRST_VERSION.get(wanted.timestamp, 1 << 15):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        partition = replicas.partition(topic, wanted.partition_index)
        # fence
        leading = partition.require_leader(wanted.current_leader_epoch)
        found = leading.list_offset(wanted.timestamp, isolation_level == READ_COMMITTED, for_replica=for_replica)
    except (KafkaError, LogError) as error:
        result.error_code = error.code
        if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE:
            result.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return result
    result.offset, result.timestamp = found.offset, found.timestamp
    if version >= 4:
        result.leader_epoch = found.leader_epoch
    return result


def offset_for_leader_epoch(
    replicas: Replicas, request: Request, body: OffsetForLeaderEpochRequest, now: TimestampMs
) -> OffsetForLeaderEpochResponse:
    """The end offsets of leader epochs (EPO-01 to EPO-06)."""
    response = OffsetForLeaderEpochResponse()
    for topic in body.topics:
        results: list[OffsetForLeaderEpochResponse.EpochEndOffset] = []
        for wanted in topic.partitions:
            result = OffsetForLeaderEpochResponse.EpochEndOffset(partition=wanted.partition)
            try:
                partition = replicas.partition(topic.topic, wanted.partition)
                leading = partition.require_leader(wanted.current_leader_epoch)
                result.leader_epoch, result.end_offset = leading.offset_for_leader_epoch(wanted.leader_epoch)
            except (KafkaError, LogError) as error:
                result.error_code = error.code
            results.append(result)
        response.topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=results)
        )
    return response
