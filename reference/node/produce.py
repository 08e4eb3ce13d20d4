"""Produce: append the batches of producers, and respond as acks requires. (PRD-*, ACK-*, IDM-*)

A handler returns the response, or None where it is sent later (acks=all, a transaction) or not at all (acks=0).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

from reference.controller.topics import INTERNAL_TOPICS
from reference.coordinator.transaction_state import TopicPartition
from reference.node.context import Context
from reference.node.current_leaders import name_leaders_of_produce
from reference.node.replicas import Replicas
from reference.node.requests import AwaitedParts, Request, Responder
from reference.node.transactional_produce import Verdict, Verdicts, has_transactional_batches, verify
from reference.node.verification import Verification
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.produce import ProduceRequest, ProduceResponse
from reference.protocol.primitives import Buffer, LeaderEpoch, Offset, TimestampMs, TopicName
from reference.protocol.records.errors import NoSingleBatch, RecordsError
from reference.protocol.records.validate import FIRST_PRODUCE_WITH_ZSTD, check_form
from reference.replication.partition import ACKS_ALL, Partition
from reference.storage.errors import LogError
from reference.storage.log_directory import Logger
from reference.storage.verification import NOT_REQUIRED

VALID_ACKS = (0, 1, ACKS_ALL)
WITHOUT_LOG_START = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR,
})  # fmt: skip
"""Errors of an append whose response has no log start offset. With other errors, a producer that the log does not know uses it
to distinguish records deleted by retention from lost ones (KAFKA-5793; kafka.server.ReplicaManager.appendToLocalLog)."""
AFTER_FORM = frozenset({
    ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER,
})  # fmt: skip
"""Errors that Kafka finds after faults in the form of the records."""
ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that may write to internal topics (org.apache.kafka.clients.admin.AdminUtils)."""

TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = ProduceResponse.PartitionProduceResponse
RecordErrors = ProduceResponse.BatchIndexAndErrorMessage


def produce(
    context: Context, verification: Verification, request: Request, body: ProduceRequest, now: TimestampMs
) -> ProduceResponse | None:
    """Append each partition's batch; acks=all waits for the high watermark (ACK-01 to ACK-08)."""
    # fence: a transaction's batches by its coordinator; producers and leader epochs in the log
    if has_transactional_batches(body):
        return _produce_in_transaction(context, verification, request, body, now)
    return _append_all(context, request, body, None, now)


def _produce_in_transaction(
    context: Context, verification: Verification, request: Request, body: ProduceRequest, now: TimestampMs
) -> ProduceResponse | None:
    """Append the batches after the transaction coordinator has verified those that open a transaction (TXN-16, TXN-21)."""
    if body.transactional_id is None:
        return _answer(
            context.responder, request, body.acks, _refuse_all(body, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        )

    def verified(verdicts: Verdicts, then: TimestampMs) -> None:
        response = _append_all(context, request, body, verdicts, then)
        if response is not None:
            context.responder.respond(request, response)

    try:
        verify(context, verification, request.version, body, now, verified)
    except KafkaError as error:
        return _answer(context.responder, request, body.acks, _refuse_all(body, error.code))
    return None


def _append_all(
    context: Context, request: Request, body: ProduceRequest, verdicts: Verdicts | None, now: TimestampMs
) -> ProduceResponse | None:
    """Append each batch and respond. `verdicts` are those of transactional batches; None where the request has none."""
    # apply
    response = ProduceResponse()
    waiting: list[_Awaited] = []
    for topic in body.topic_data:
        name = context.image.topic_name(topic.topic_id) if request.version >= 13 else topic.name
        results = TopicResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(results)
        for each in topic.partition_data:
            result = PartitionResponse(index=each.index, base_offset=-1, error_message=None)
            results.partition_responses.append(result)
            if name is None:
                verdict = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            elif verdicts is None:
                verdict = NOT_REQUIRED
            else:
                verdict = verdicts.get(TopicPartition(name, each.index))
            appended = _append(context, request, body.acks, _Part(name, each, verdict, result), now)
            if appended is not None and body.acks == ACKS_ALL:
                partition, end = appended
                if partition.high_watermark < end:
                    waiting.append(_Awaited(partition, partition.leader_epoch, end, result))
                else:
                    partition.acknowledge(end)
    # respond
    if waiting:
        awaited = AwaitedParts(
            request.client.connection,
            waiting,
            partial(_is_decided, context.replicas),
            lambda each: each.fail(ErrorCode.REQUEST_TIMED_OUT),
            lambda then: context.responder.respond(request, _with_leaders(context, request, response)),
        )
        awaited.begin(context.purgatories.produces, now + body.timeout_ms, now)
        return None
    return _answer(context.responder, request, body.acks, _with_leaders(context, request, response))


def _with_leaders(context: Context, request: Request, response: ProduceResponse) -> ProduceResponse:
    name_leaders_of_produce(context.image, request, response)
    return response


def _answer(responder: Responder, request: Request, acks: int, response: ProduceResponse) -> ProduceResponse | None:
    """The response. With acks=0 it is None, and the connection is closed where a partition failed (ACK-02, ACK-03)."""
    if acks != 0:
        return response
    request.amended(response)
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code != ErrorCode.NONE:
                return responder.close(
                    request, f"acks=0 produce to {topic.name}-{result.index} failed with error {result.error_code}"
                )
    return responder.end_silently(request)


def _refuse_all(body: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionResponse(index=each.index, error_code=code, base_offset=-1, error_message=None)
                    for each in topic.partition_data
                ],
            )
            for topic in body.topic_data
        ]
    )


class _Part(NamedTuple):
    """One partition of a request, and its result."""

    topic: TopicName | None
    """None if no topic has the request's topic id."""
    data: ProduceRequest.PartitionProduceData
    verdict: Verdict
    result: PartitionResponse


def _append(
    context: Context,
    request: Request,
    acks: int,
    part: _Part,
    now: TimestampMs,
) -> tuple[Partition, Offset] | None:
    """Append one partition's batch and fill in its result. Returns the end offset of the batch; None where it is refused."""
    topic, data, verdict, result = part
    records = cast("Buffer | None", data.records)  # decoded from a frame: never a slice of a file
    judged: Partition | None = None
    try:
        if isinstance(verdict, Exception):
            raise verdict
        assert topic is not None, "a topic without a name has a refusal as its verdict"
        # After the verification of the transaction, of which Kafka keeps state, and before the question who leads.
        is_suspect = acks not in VALID_ACKS or topic in INTERNAL_TOPICS
        if is_suspect and context.image.partition(topic, data.index) is not None:
            _check_request(request, acks, topic)
        partition = context.replicas.partition(topic, data.index)
        if records is None or request.version < FIRST_PRODUCE_WITH_ZSTD:
            check_form(records, request.version)
        assert records is not None
        judged = partition
        info = partition.produce(records, now, required_acks=acks, guard=verdict)
    except (KafkaError, RecordsError, LogError) as error:
        if error.code in AFTER_FORM:
            error = _fault_of_form(records, request.version) or error
        if judged is not None and error.code not in WITHOUT_LOG_START and not isinstance(error, NoSingleBatch):
            result.log_start_offset = judged.log.log_start_offset
        return _refuse(context.log, part, error)
    result.base_offset = info.first_offset
    result.log_append_time_ms = info.log_append_time
    result.log_start_offset = info.log_start_offset
    context.purgatories.wake(partition, now)
    return partition, info.last_offset + 1


def _check_request(request: Request, acks: int, topic: TopicName) -> None:
    """Errors: KafkaError INVALID_REQUIRED_ACKS, INVALID_TOPIC_EXCEPTION."""
    if acks not in VALID_ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")


def _fault_of_form(records: Buffer | None, version: int) -> RecordsError | None:
    """The error of records that are not one valid batch."""
    try:
        check_form(records, version)
    except RecordsError as error:
        return error
    return None


def _refuse(log: Logger, part: _Part, error: KafkaError | RecordsError | LogError) -> None:
    """Set the error code, and a message for only two kinds of error: of a transaction's verification, and of single records.

    Source: `hasCustomErrorMessage` of kafka.server.ReplicaManager; for other codes clients have their own messages.
    """
    result = part.result
    result.error_code = error.code
    record_errors = error.record_errors if isinstance(error, RecordsError) else ()
    if error is part.verdict or record_errors:
        result.error_message = error.message
    result.record_errors = [
        RecordErrors(batch_index=each.batch_index, batch_index_error_message=each.message) for each in record_errors
    ]
    if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
        log("error", f"{part.topic}-{part.data.index}: {error}")


@dataclass(slots=True)
class _Awaited:
    """A partition whose high watermark must reach `end`."""

    partition: Partition
    leader_epoch: LeaderEpoch
    end: Offset
    result: PartitionResponse

    def fail(self, code: ErrorCode) -> None:
        self.result.error_code = code
        self.result.base_offset = -1


def _is_decided(replicas: Replicas, awaited: _Awaited) -> bool:
    """Whether a partition's result is final (ACK-04, ACK-06, ACK-08); in another leader epoch it is NOT_LEADER_OR_FOLLOWER."""
    partition = awaited.partition
    leading = replicas.leading(partition, awaited.leader_epoch)
    code = leading.answer_to_produce(awaited.end) if leading is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code is None:
        return False
    if code is not ErrorCode.NONE:
        awaited.fail(code)
    else:
        partition.acknowledge(awaited.end)
    return True
