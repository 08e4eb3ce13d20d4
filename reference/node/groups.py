"""Groups and their offsets: the node's side of the group coordinator. (COO-*, GRP-*, OFF-*)

The coordinator decides; this module finds its partition of `__consumer_offsets`, puts its records there, and sends its
answers when the records are in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from reference.coordinator import group_coordinator
from reference.coordinator.group_coordinator import Client, OffsetKey
from reference.coordinator.group_records import KeyValue
from reference.node.committed import AwaitingCommit
from reference.node.internal_topics import OFFSETS_TOPIC, partition_for
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from reference.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from reference.protocol.messages.offset_commit_value import OffsetCommitValue
from reference.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from reference.protocol.primitives import NO_UUID, GroupId, TimestampMs, TopicName
from reference.protocol.records.batch import build, read_batches, records_of
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.protocol.schema import Message
from reference.replication.partition import Partition
from reference.storage.errors import LogError

if TYPE_CHECKING:
    from reference.node.node import Node

REPLAY_BYTES = 1 << 20
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
"""JoinGroup: before, no protocol is the empty text."""

CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
CommitPartition = OffsetCommitResponse.OffsetCommitResponsePartition


# ---- this node's groups


def _refusal(node: Node, group: GroupId) -> ErrorCode | None:
    """Why this node does not serve a group, if it does not (COO-04)."""
    image = node.image.topics.get(OFFSETS_TOPIC)
    if image is None:
        return ErrorCode.NOT_COORDINATOR if group else None
    partition = node.partitions.get((OFFSETS_TOPIC, partition_for(group, len(image.partitions))))
    return None if partition is not None and partition.is_leader else ErrorCode.NOT_COORDINATOR


# ---- membership


def join_group(node: Node, request: Request, body: JoinGroupRequest, now: TimestampMs) -> JoinGroupResponse | None:
    refusal = _refusal(node, body.group_id)
    if refusal is not None:
        node.groups.refuse_join(body, request, refusal)
        return send_answers(node, now)
    client = Client(request.client_id or "", f"/{request.client.host}")
    node.groups.join(body, request.version, client, request, now)
    return send_answers(node, now)


def sync_group(node: Node, request: Request, body: SyncGroupRequest, now: TimestampMs) -> SyncGroupResponse | None:
    refusal = _refusal(node, body.group_id)
    if refusal is not None:
        return SyncGroupResponse(error_code=refusal)
    node.groups.sync(body, request, now)
    return send_answers(node, now)


def heartbeat(node: Node, request: Request, body: HeartbeatRequest, now: TimestampMs) -> HeartbeatResponse | None:
    refusal = _refusal(node, body.group_id)
    if refusal is not None:
        return HeartbeatResponse(error_code=refusal)
    node.groups.heartbeat(body, request, now)
    return send_answers(node, now)


def leave_group(node: Node, request: Request, body: LeaveGroupRequest, now: TimestampMs) -> LeaveGroupResponse | None:
    refusal = _refusal(node, body.group_id)
    if refusal is not None:
        return LeaveGroupResponse(error_code=refusal)
    node.groups.leave(body, request.version, request, now)
    return send_answers(node, now)


def send_answers(node: Node, now: TimestampMs) -> None:
    """Send what the coordinator has to say, each answer when the group's records before it are committed."""
    for answer in node.groups.take_answers():
        if answer.records:
            write_records(node, answer.group, answer.records, now)
        if isinstance(answer.token, Request):
            response = answer.response
            if isinstance(response, JoinGroupResponse) and answer.token.version < FIRST_VERSION_WITH_NULL_PROTOCOL:
                response.protocol_name = response.protocol_name or ""
            partition = _partition_of(node, answer.group)
            if partition is None or not isinstance(response, SyncGroupResponse):
                node.respond(answer.token, response)
            else:
                _answer_when_committed(node, answer.token, response, partition, partial(_fail_sync, response), now)


def _answer_when_committed(
    node: Node,
    request: Request,
    response: Message,
    partition: Partition,
    fail: Callable[[ErrorCode], None],
    now: TimestampMs,
) -> None:
    def outcome(error: ErrorCode, then: TimestampMs) -> None:
        if error is not ErrorCode.NONE:
            fail(error)
        node.respond(request, response)

    waiting = AwaitingCommit(node, request.client.connection, partition, partition.log.log_end_offset, outcome)
    waiting.begin(now, node.configuration.integer("offsets.commit.timeout.ms"))


def _fail_sync(response: SyncGroupResponse, code: ErrorCode) -> None:
    """Without its records the generation may be forgotten: the member comes again and finds out."""
    response.error_code = code if code is ErrorCode.NOT_COORDINATOR else ErrorCode.COORDINATOR_NOT_AVAILABLE
    response.assignment = b""


def _partition_of(node: Node, group: GroupId) -> Partition | None:
    """The partition of `__consumer_offsets` that holds a group, if this node has a replica of it."""
    topic = node.image.topics.get(OFFSETS_TOPIC)
    return (
        node.partitions.get((OFFSETS_TOPIC, partition_for(group, len(topic.partitions)))) if topic is not None else None
    )


def write_records(node: Node, group: GroupId, records: list[KeyValue], now: TimestampMs) -> ErrorCode:
    """Append a coordinator's records to the group's partition; NONE when they are in the log."""
    partition = _partition_of(node, group)
    if partition is None:
        return ErrorCode.NOT_COORDINATOR
    batch = build([Record(index, now, key, value, ()) for index, (key, value) in enumerate(records)])
    try:
        partition.produce(batch, now, origin=Origin.COORDINATOR)
    except LogError as error:
        node.storage_failed(f"{OFFSETS_TOPIC}-{partition.index}", error)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    except RecordsError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    except KafkaError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.on_moved(partition, now)
    return ErrorCode.NONE


# ---- offsets


def offset_commit(
    node: Node, request: Request, body: OffsetCommitRequest, now: TimestampMs
) -> OffsetCommitResponse | None:
    """Keep offsets: refused as a whole by the group, or partition by partition (OFF-01, OFF-03 to OFF-09, OFF-12)."""
    refusal = _refusal(node, body.group_id) or node.groups.refuse_commit(body, request.version)
    response = OffsetCommitResponse()
    accepted: list[tuple[OffsetKey, OffsetCommitValue]] = []
    waiting: list[CommitPartition] = []
    for topic in body.topics:
        name = node.topic_name(topic.topic_id) if request.version >= 10 else topic.name
        results = CommitTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(results)
        for each in topic.partitions:
            code = refusal or _check_commit(node, name, each, request.version)
            result = CommitPartition(partition_index=each.partition_index, error_code=code or ErrorCode.NONE)
            results.partitions.append(result)
            if code is None and name is not None:
                accepted.append(((name, each.partition_index), _committed_value(each, now)))
                waiting.append(result)
    if accepted:
        failure = write_records(node, body.group_id, node.groups.commit_records(body.group_id, accepted), now)
        if failure is ErrorCode.NONE:
            node.groups.commit(body, accepted, now)
        _fail_commit(waiting, failure)
        partition = _partition_of(node, body.group_id)
        if failure is ErrorCode.NONE and partition is not None:
            _answer_when_committed(node, request, response, partition, partial(_fail_commit, waiting), now)
            return None
    return response


def _fail_commit(results: list[CommitPartition], code: ErrorCode) -> None:
    for result in results:
        result.error_code = code


def _check_commit(
    node: Node, name: TopicName | None, each: OffsetCommitRequest.OffsetCommitRequestPartition, version: int
) -> ErrorCode | None:
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if node.image.partition(name, each.partition_index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len((each.committed_metadata or "").encode()) > node.groups.settings.max_metadata_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return None


def _committed_value(each: OffsetCommitRequest.OffsetCommitRequestPartition, now: TimestampMs) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=each.committed_offset,
        leader_epoch=each.committed_leader_epoch,
        metadata=each.committed_metadata or "",
        commit_timestamp=now,
    )


def offset_fetch(node: Node, request: Request, body: OffsetFetchRequest, now: TimestampMs) -> OffsetFetchResponse:
    """Committed offsets, of one group or (version 8) of several (OFF-01, OFF-02, OFF-10, OFF-11)."""
    if request.version < 8:
        return _offset_fetch_one(node, body)
    return OffsetFetchResponse(groups=[_offset_fetch_group(node, group, request.version) for group in body.groups])


def _offset_fetch_one(node: Node, body: OffsetFetchRequest) -> OffsetFetchResponse:
    refusal = _refusal(node, body.group_id)
    if refusal is not None:
        return OffsetFetchResponse(error_code=refusal)
    committed = node.groups.committed(body.group_id)
    wanted = (
        {topic.name: topic.partition_indexes for topic in body.topics} if body.topics is not None else _all(committed)
    )
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = []
    for name, indexes in wanted.items():
        partitions = [
            OffsetFetchResponse.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, metadata=metadata
            )
            for index in indexes
            for offset, epoch, metadata in (_committed(committed, name, index),)
        ]
        topics.append(OffsetFetchResponse.OffsetFetchResponseTopic(name=name, partitions=partitions))
    return OffsetFetchResponse(topics=topics)


def _offset_fetch_group(
    node: Node, group: OffsetFetchRequest.OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    answer = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id)
    refusal = _refusal(node, group.group_id)
    if refusal is not None:
        answer.error_code = refusal
        return answer
    committed = node.groups.committed(group.group_id)
    wanted: list[tuple[TopicName | None, UUID, list[int]]]
    if group.topics is None:
        wanted = [(name, node.topic_id(name), indexes) for name, indexes in _all(committed).items()]
    elif version >= 10:
        wanted = [(node.topic_name(each.topic_id), each.topic_id, each.partition_indexes) for each in group.topics]
    else:
        wanted = [(each.name, NO_UUID, each.partition_indexes) for each in group.topics]
    for name, topic_id, indexes in wanted:
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = []
        for index in indexes:
            offset, epoch, metadata = _committed(committed, name or "", index)
            partitions.append(
                OffsetFetchResponse.OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    metadata=metadata,
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE,
                )
            )
        answer.topics.append(
            OffsetFetchResponse.OffsetFetchResponseTopics(name=name or "", topic_id=topic_id, partitions=partitions)
        )
    return answer


def _all(committed: dict[OffsetKey, OffsetCommitValue]) -> dict[TopicName, list[int]]:
    wanted: dict[TopicName, list[int]] = {}
    for name, index in sorted(committed):
        wanted.setdefault(name, []).append(index)
    return wanted


def _committed(committed: dict[OffsetKey, OffsetCommitValue], name: TopicName, index: int) -> tuple[int, int, str]:
    """Offset, leader epoch and metadata; -1, -1 and nothing where none was committed (OFF-02)."""
    value = committed.get((name, index))
    return (value.offset, value.leader_epoch, value.metadata) if value is not None else (-1, -1, "")


def on_role(node: Node, partition: Partition, now: TimestampMs) -> None:
    """This node coordinates the groups of the partitions of `__consumer_offsets` that it leads, and no others (COO-06)."""
    count = len(node.image.topics[OFFSETS_TOPIC].partitions)
    node.groups.unload(lambda group: partition_for(group, count) == partition.index)
    if partition.is_leader:
        _replay(node, partition, now)


def _replay(node: Node, partition: Partition, now: TimestampMs) -> None:
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, REPLAY_BYTES).records
        data = found if isinstance(found, bytes) else found.read()
        if not isinstance(found, bytes):
            found.release()
        before = offset
        for batch in read_batches(data):
            offset = batch.header.next_offset
            if not batch.header.is_control:
                for record in records_of(batch.data):
                    if record.key is not None:
                        node.groups.replay(record.key, record.value, now)
        if offset == before:
            break  # an end without records: nothing below it is missing


def forget_topic(node: Node, topic: TopicName, now: TimestampMs) -> None:
    """A topic is gone: so are the offsets committed for it (OFF-16)."""
    for group, tombstones in node.groups.forget_topic(topic).items():
        write_records(node, group, tombstones, now)


def settings_of(node: Node) -> group_coordinator.GroupSettings:
    """The broker's settings for groups."""
    integer = node.configuration.integer
    return group_coordinator.GroupSettings(
        min_session_timeout_ms=integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=integer("group.initial.rebalance.delay.ms"),
        max_size=integer("group.max.size"),
        max_metadata_bytes=integer("offset.metadata.max.bytes"),
    )
