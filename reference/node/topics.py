"""Topic administration: create, delete and grow topics, and delete records. (TOP-*)"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

from reference.controller import topics
from reference.controller.image import MetadataImage
from reference.node.active_controller import ActiveController
from reference.node.context import Context
from reference.node.replicas import Replicas
from reference.node.requests import AwaitedParts, Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from reference.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from reference.protocol.primitives import Offset, TimestampMs, TopicId, TopicName
from reference.replication.partition import Partition
from reference.storage.errors import LogError

TopicResult = CreateTopicsResponse.CreatableTopicResult
DeleteResult = DeleteTopicsResponse.DeletableTopicResult
TopicState = DeleteTopicsRequest.DeleteTopicState
DeleteResultOfRecords = DeleteRecordsResponse.DeleteRecordsPartitionResult


def create_topics(
    controller: ActiveController, version: int, body: CreateTopicsRequest, now: TimestampMs
) -> CreateTopicsResponse:
    """Create topics, each with its own result; a name that occurs twice is refused in all places (TOP-10, TOP-12)."""
    times = Counter(topic.name for topic in body.topics)
    results: dict[str, TopicResult] = {}
    partitions = sum(len(topic.assignments) or max(1, topic.num_partitions) for topic in body.topics)
    for topic in body.topics:
        if partitions > topics.MAX_PARTITIONS:
            message = "Excessively large number of partitions per request."
            results[topic.name] = _refused(topic.name, ErrorCode.POLICY_VIOLATION, message)
        elif times[topic.name] > 1:
            results[topic.name] = _refused(topic.name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        else:
            results[topic.name] = _create(controller, topic, body.validate_only, now)
    return CreateTopicsResponse(topics=[*results.values()])


def _refused(name: str, code: ErrorCode, message: str | None) -> TopicResult:
    return TopicResult(name=name, error_code=code, error_message=message)


def _create(
    controller: ActiveController,
    topic: CreateTopicsRequest.CreatableTopic,
    validate_only: bool,
    now: TimestampMs,
) -> TopicResult:
    # validate, apply
    try:
        created = topics.create_topic(
            controller.image,
            topic,
            default_partitions=controller.configuration.integer("num.partitions"),
            default_replication=controller.configuration.integer("default.replication.factor"),
            chance=controller.chance,
        )
        controller.charge(len(created.assignments))
        if not validate_only:
            controller.append(created.records, now)
    except KafkaError as error:
        return _refused(topic.name, error.code, error.message)
    # respond
    settings = controller.configuration.topic_settings(created.configs)
    return TopicResult(
        name=topic.name,
        topic_id=created.id,
        error_message=None,
        num_partitions=len(created.assignments),
        replication_factor=len(created.assignments[0]),
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=setting.name,
                value=setting.value,
                config_source=setting.source,
                is_sensitive=False,
                read_only=False,
            )
            for setting in settings
        ],
    )


def delete_topics(
    controller: ActiveController, version: int, body: DeleteTopicsRequest, now: TimestampMs
) -> DeleteTopicsResponse:
    """Delete topics by name or, since version 6, by id (TOP-14 to TOP-16)."""
    if controller.configuration.broker("delete.topic.enable") is False:
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        return DeleteTopicsResponse(
            responses=[DeleteResult(name=each.name, topic_id=each.topic_id, error_code=code) for each in _named(body)]
        )
    found = [(each, _find(controller.image, each)) for each in _named(body)]
    times = Counter(_key(each, topic) for each, topic in found)
    results = {_key(each, topic): (each, topic) for each, topic in found}
    return DeleteTopicsResponse(
        responses=[_delete(controller, each, topic, times[key] > 1, now) for key, (each, topic) in results.items()]
    )


def _find(image: MetadataImage, wanted: TopicState) -> topics.TopicImage | KafkaError:
    try:
        return topics.find_topic_to_delete(image, wanted.name, wanted.topic_id)
    except KafkaError as error:
        return error


def _key(wanted: TopicState, topic: topics.TopicImage | KafkaError) -> TopicId | tuple[TopicName | None, TopicId]:
    """A key that is equal for the same topic by name and by id; for an unknown topic, the request's own fields."""
    return (wanted.name, wanted.topic_id) if isinstance(topic, KafkaError) else topic.id


def _named(body: DeleteTopicsRequest) -> list[TopicState]:
    return body.topics or [TopicState(name=name) for name in body.topic_names]


def _delete(
    controller: ActiveController,
    wanted: TopicState,
    topic: topics.TopicImage | KafkaError,
    is_double: bool,
    now: TimestampMs,
) -> DeleteResult:
    if is_double:
        topic = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
    if isinstance(topic, KafkaError):
        return DeleteResult(
            name=wanted.name, topic_id=wanted.topic_id, error_code=topic.code, error_message=topic.message
        )
    try:
        controller.charge(len(topic.partitions))
        controller.append(topics.delete_topic(topic), now)
    except KafkaError as error:
        return DeleteResult(name=topic.name, topic_id=topic.id, error_code=error.code, error_message=error.message)
    return DeleteResult(name=topic.name, topic_id=topic.id)


def create_partitions(
    controller: ActiveController, version: int, body: CreatePartitionsRequest, now: TimestampMs
) -> CreatePartitionsResponse:
    """Grow topics (TOP-17, TOP-18)."""
    times = Counter(topic.name for topic in body.topics)
    results: dict[str, CreatePartitionsResponse.CreatePartitionsTopicResult] = {}
    for topic in body.topics:
        result = CreatePartitionsResponse.CreatePartitionsTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records = topics.create_partitions(controller.image, topic, controller.chance)
            controller.charge(len(records))
            if not body.validate_only:
                controller.append(records, now)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[topic.name] = result
    return CreatePartitionsResponse(results=[*results.values()])


def delete_records(
    context: Context, request: Request, body: DeleteRecordsRequest, now: TimestampMs
) -> DeleteRecordsResponse | None:
    """Advance the log start of partitions; the response waits for all live replicas (TOP-19, TOP-20)."""
    response = DeleteRecordsResponse()
    waiting: list[_Deletion] = []
    for topic in body.topics:
        results: list[DeleteResultOfRecords] = []
        for each in topic.partitions:
            result = DeleteResultOfRecords(partition_index=each.partition_index, low_watermark=-1)
            results.append(result)
            deletion = _delete_records(context, topic.name, each, result, now)
            if deletion is not None:
                waiting.append(deletion)
        response.topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=results))
    # respond when all live replicas have followed
    awaited = AwaitedParts(
        request.client.connection,
        waiting,
        partial(_is_decided, context.replicas),
        _expire,
        lambda then: context.responder.respond(request, response),
    )
    awaited.begin(context.purgatories.produces, now + body.timeout_ms, now)
    return None


def _delete_records(
    context: Context,
    topic: str,
    wanted: DeleteRecordsRequest.DeleteRecordsPartition,
    result: DeleteResultOfRecords,
    now: TimestampMs,
) -> _Deletion | None:
    """Delete records here; return the target that the replicas must reach, or None after setting the error."""
    try:
        partition = context.replicas.partition(topic, wanted.partition_index)
        if topic in topics.INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        target = partition.high_watermark if wanted.offset == -1 else wanted.offset
        partition.delete_records(wanted.offset)
        context.purgatories.wake_fetches((topic, wanted.partition_index), now)
    except (KafkaError, LogError) as error:
        result.error_code = error.code
        return None
    return _Deletion(partition, target, result)


@dataclass(slots=True)
class _Deletion:
    """A partition whose low watermark must reach `target`."""

    partition: Partition
    target: Offset
    result: DeleteResultOfRecords


def _is_decided(replicas: Replicas, deletion: _Deletion) -> bool:
    leading = replicas.leading(deletion.partition)
    if leading is None:
        deletion.result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return True
    low_watermark = leading.low_watermark()
    if low_watermark < deletion.target:
        return False
    deletion.result.low_watermark = low_watermark
    return True


def _expire(deletion: _Deletion) -> None:
    deletion.result.error_code = ErrorCode.REQUEST_TIMED_OUT
