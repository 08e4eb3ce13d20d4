"""WriteTxnMarkers: appends a transaction's marker, and answers when every in-sync replica has it. (TXV-04)

The partition checks the epochs of coordinator and producer. A marker that exists already is appended again, without effect. In
`__consumer_offsets` the marker also commits or drops the offsets of the transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from reference.node.context import Context
from reference.node.effects import ConnectionId
from reference.node.internal_topics import OFFSETS_TOPIC
from reference.node.replicas import Replicas
from reference.node.requests import AwaitedParts, Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from reference.protocol.primitives import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from reference.protocol.records.control import EndTransaction, build_end_transaction
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.validate import Origin
from reference.replication.partition import Partition
from reference.storage.errors import LogError

Marker = WriteTxnMarkersRequest.WritableTxnMarker
MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
PartitionResult = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult

Answered = Callable[[WriteTxnMarkersResponse, TimestampMs], None]

MarkerWritten = Callable[[Partition, tuple[ProducerId, ProducerEpoch], bool], None]
"""Takes a partition of `__consumer_offsets`, the producer, and whether its transaction is committed."""


def write_txn_markers(
    context: Context, marker_written: MarkerWritten, request: Request, body: WriteTxnMarkersRequest, now: TimestampMs
) -> None:
    """Write markers for another node's coordinator, or for an operator who ends a hanging transaction (KIP-664)."""
    connection = request.client.connection
    _write(
        context,
        marker_written,
        connection,
        body,
        now,
        lambda response, then: context.responder.respond(request, response),
    )


def write_markers_here(
    context: Context, marker_written: MarkerWritten, body: WriteTxnMarkersRequest, now: TimestampMs, answered: Answered
) -> None:
    """Write markers for a coordinator on this node."""
    _write(context, marker_written, context.purgatories.produces.internal(), body, now, answered)


def _write(
    context: Context,
    marker_written: MarkerWritten,
    connection: ConnectionId,
    body: WriteTxnMarkersRequest,
    now: TimestampMs,
    answered: Answered,
) -> None:
    response = WriteTxnMarkersResponse()
    waiting: list[_Written] = []
    for marker in body.markers:
        result = MarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            partitions = [PartitionResult(partition_index=index) for index in topic.partition_indexes]
            result.topics.append(TopicResult(name=topic.name, partitions=partitions))
            for each in partitions:
                written = _append(context, marker_written, marker, topic.name, each, now)
                if written is not None:
                    waiting.append(written)
    awaited = AwaitedParts(
        connection, waiting, partial(_is_decided, context.replicas), _expire, lambda then: answered(response, then)
    )
    awaited.begin(context.purgatories.produces, now + context.configuration.integer("request.timeout.ms"), now)


def _append(
    context: Context,
    marker_written: MarkerWritten,
    marker: Marker,
    topic: str,
    result: PartitionResult,
    now: TimestampMs,
) -> _Written | None:
    # validate
    partition = context.replicas.partitions.get((topic, result.partition_index))
    if partition is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None
    if marker.producer_id <= NO_PRODUCER_ID or marker.producer_epoch == NO_PRODUCER_EPOCH:
        result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR  # no producer's transaction: Kafka has no error for it
        return None
    # fence, apply: the log compares the epochs of producer and coordinator
    end = EndTransaction(marker.transaction_result, marker.coordinator_epoch)
    batch = build_end_transaction(end, marker.producer_id, marker.producer_epoch, now)
    try:
        info = partition.produce(batch, now, origin=Origin.COORDINATOR, transaction_version=marker.transaction_version)
    except (KafkaError, RecordsError, LogError) as error:
        result.error_code = error.code
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            context.log("error", f"{partition.name}: {error}")
        return None
    if topic == OFFSETS_TOPIC:
        marker_written(partition, (marker.producer_id, marker.producer_epoch), marker.transaction_result)
    context.purgatories.wake(partition, now)
    return _Written(partition, partition.leader_epoch, info.last_offset + 1, result)


@dataclass(slots=True)
class _Written:
    """A marker that is not yet on every in-sync replica."""

    partition: Partition
    leader_epoch: LeaderEpoch
    end: Offset
    result: PartitionResult


def _is_decided(replicas: Replicas, written: _Written) -> bool:
    partition = written.partition
    leading = replicas.leading(partition, written.leader_epoch)
    code = leading.answer_to_produce(written.end) if leading is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code is not None:
        written.result.error_code = code
    return code is not None


def _expire(written: _Written) -> None:
    written.result.error_code = ErrorCode.REQUEST_TIMED_OUT
