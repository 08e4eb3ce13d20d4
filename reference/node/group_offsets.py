"""OffsetCommit, OffsetFetch, TxnOffsetCommit and OffsetDelete on this node. (OFF-*)

Fetched offsets may still be lost before they are committed to the log, so the response waits for that. Each group of an
OffsetFetch (version 8) may be on another shard, and fails by itself, in the form of the request's version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from reference.coordinator.classic_groups import check_group_id
from reference.coordinator.offset_commits import refused_commit, refused_in_transaction
from reference.coordinator.offset_fetches import AskedGroup, AskedTopic, TopicAnswer, no_offset
from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import TopicPartition
from reference.node.groups import Groups
from reference.node.internal_topics import OFFSETS_TOPIC
from reference.node.known_topics import KnownTopics
from reference.node.replicas import Replicas
from reference.node.requests import Request
from reference.node.transactional_produce import operation_of
from reference.node.verification import Operation, Verification
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from reference.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message
from reference.storage.errors import LogError
from reference.storage.verification import NOT_REQUIRED, Guard

FIRST_FETCH_WITH_ERROR_AT_THE_TOP = 2
FIRST_FETCH_OF_SEVERAL_GROUPS = 8
FIRST_TRANSACTIONAL_COMMIT_THAT_KNOWS_LOADING = 2

FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup

Verified = Callable[[ErrorCode, Guard | None, TimestampMs], None]
"""Takes NONE and the guard of the write, or the error for all offsets."""


def offset_commit(groups: Groups, request: Request, body: OffsetCommitRequest, now: TimestampMs) -> Message | None:
    """Store offsets (OFF-01, OFF-03 to OFF-09, OFF-12, OFF-13); an empty group id is allowed."""
    try:
        index, shard = groups.coordination.shard_of(body.group_id)
        # fence: the shard compares member and generation
        decided = shard.commits.commit(body, request.version, now)
        # apply: the member is alive, also where the offsets cannot be written
        shard.classic.committed(body.group_id, body.member_id, now)
        groups.coordination.write(index, decided.records, now)
    except KafkaError as error:
        return refused_commit(body, request.version, KnownTopics(groups.context.image), error.code)
    # respond when the records are committed
    groups.answer(index, request, decided.response, now)
    return None


def txn_offset_commit(
    groups: Groups, verification: Verification, request: Request, body: TxnOffsetCommitRequest, now: TimestampMs
) -> Message | None:
    """Store offsets that take effect when the producer's transaction commits (OFF-17, OFF-18, TXV-08).

    First the transaction coordinator verifies that the transaction has the group's partition, then the group checks the
    member. If the partition does not exist, it cannot be verified: COORDINATOR_NOT_AVAILABLE, where other group requests get
    NOT_COORDINATOR.
    """
    try:
        # validate
        check_group_id(body.group_id)
        if not groups.context.coordinators.exists(OFFSETS_TOPIC, body.group_id):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        index, shard = groups.coordination.shard_of(body.group_id)
        # fence: by the transaction's coordinator, then by the group
        if shard.commits.any_exists(body):
            committing = partial(_commit_in_transaction, groups, request, body)
            _verify(groups.context.replicas, verification, request, body, index, committing, now)
            return None
        return shard.commits.commit_in_transaction(body, request.version, now).response
    except KafkaError as error:
        return _refused_in_transaction(groups, request, body, error.code)


def _commit_in_transaction(
    groups: Groups,
    request: Request,
    body: TxnOffsetCommitRequest,
    code: ErrorCode,
    guard: Guard | None,
    now: TimestampMs,
) -> None:
    try:
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        index, shard = groups.coordination.shard_of(body.group_id)
        decided = shard.commits.commit_in_transaction(body, request.version, now)
        producer = body.producer_id, body.producer_epoch
        groups.coordination.write(index, decided.records, now, producer=producer, guard=guard)
    except KafkaError as error:
        groups.context.responder.respond(request, _refused_in_transaction(groups, request, body, error.code))
    else:
        groups.answer(index, request, decided.response, now)


def _refused_in_transaction(
    groups: Groups, request: Request, body: TxnOffsetCommitRequest, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """The response to a refused commit. Before version 2 producers do not support COORDINATOR_LOAD_IN_PROGRESS (OFF-18)."""
    knows_loading = request.version >= FIRST_TRANSACTIONAL_COMMIT_THAT_KNOWS_LOADING
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and not knows_loading:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return refused_in_transaction(body, KnownTopics(groups.context.image), code)


def offset_delete(groups: Groups, request: Request, body: OffsetDeleteRequest, now: TimestampMs) -> Message | None:
    """Delete offsets of topics that the group does not consume (OFF-14)."""
    try:
        index, shard = groups.shard_of_member(body.group_id)
        decided = shard.commits.delete(body)
        groups.coordination.write(index, decided.records, now)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    groups.answer(index, request, decided.response, now)
    return None


FIRST_VERSION_WITH_ABORTABLE = 4
FIRST_VERSION_THAT_ADDS = 5
"""The first version of TxnOffsetCommit that adds the group's partition to the transaction (KIP-890)."""
NO_SEQUENCE = -1

_AS_COORDINATORS_SAY = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
}
"""Errors of the append -> errors after which a group's client retries."""


def _verify(
    replicas: Replicas,
    verification: Verification,
    request: Request,
    body: TxnOffsetCommitRequest,
    index: int,
    verified: Verified,
    now: TimestampMs,
) -> None:
    """Verify that the transaction has the group's partition (KIP-890); `verified` may be called before this returns."""
    operation = operation_of(request.version, FIRST_VERSION_WITH_ABORTABLE, FIRST_VERSION_THAT_ADDS)
    if operation is not Operation.ADD and not verification.is_enabled:
        verified(ErrorCode.NONE, NOT_REQUIRED, now)
        return
    partition, identity = TopicPartition(OFFSETS_TOPIC, index), Identity(body.producer_id, body.producer_epoch)
    try:
        guard = replicas.partition(*partition).log.begin_verification(
            identity.producer_id, identity.epoch, NO_SEQUENCE, operation is Operation.ADD, now
        )
    except (KafkaError, LogError) as error:
        verified(_AS_COORDINATORS_SAY.get(error.code, error.code), None, now)
        return
    if guard is None:
        verified(ErrorCode.NONE, None, now)
        return

    def answered(verdicts: Mapping[TopicPartition, ErrorCode], then: TimestampMs) -> None:
        code = verdicts[partition]
        verified(_AS_COORDINATORS_SAY.get(code, code), guard, then)

    verification.ask(body.transactional_id, identity, (partition,), operation, now, answered)


# ---- OffsetFetch


def offset_fetch(groups: Groups, request: Request, body: OffsetFetchRequest, now: TimestampMs) -> Message | None:
    """The offsets of each group; with require_stable, an offset that an open transaction may change is an error (KIP-447)."""
    if request.version < FIRST_FETCH_OF_SEVERAL_GROUPS:
        return _fetch_of_one(groups, request, body, now)
    answers = [FetchedGroup(group_id=group.group_id) for group in body.groups]
    parts = [
        _fetch(groups, group, answer, request.version, body.require_stable)
        for group, answer in zip(body.groups, answers, strict=True)
    ]
    fetched = [part for part in parts if part is not None]
    groups.answer_together(request, OffsetFetchResponse(groups=answers), fetched, now)
    return None


def _fetch(
    groups: Groups, asked: AskedGroup, answer: FetchedGroup, version: int, require_stable: bool
) -> tuple[int, Callable[[ErrorCode], None]] | None:
    """Fill a group's answer; return the index of its shard and a function that fails the answer. None if it failed already."""
    fail = partial(_fail, asked, answer, version)
    try:
        index, shard = groups.coordination.shard_of(asked.group_id)
        answer.topics = shard.fetches.fetch(asked, version, require_stable)
    except KafkaError as error:
        fail(error.code)
        return None
    return index, fail


def _fail(asked: AskedGroup, answer: FetchedGroup, version: int, code: ErrorCode) -> None:
    """Set the error; before version 2 only partitions have one."""
    answer.topics = []
    if version >= FIRST_FETCH_WITH_ERROR_AT_THE_TOP:
        answer.error_code = code
        return
    for topic in asked.topics or ():
        partitions = [no_offset(index, code) for index in topic.partition_indexes]
        answer.topics.append(TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=partitions))


def _fetch_of_one(groups: Groups, request: Request, body: OffsetFetchRequest, now: TimestampMs) -> Message | None:
    """The response for one group, with the group's fields at its top level, as before version 8."""
    topics = body.topics
    asked = AskedGroup(
        group_id=body.group_id,
        topics=None
        if topics is None
        else [AskedTopic(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )
    answer = FetchedGroup(group_id=body.group_id)
    part = _fetch(groups, asked, answer, request.version, body.require_stable)
    response = OffsetFetchResponse()
    _flatten(answer, response)
    if part is None:
        return response
    index, fail = part

    def fail_and_flatten(code: ErrorCode) -> None:
        fail(code)
        _flatten(answer, response)

    groups.answer_together(request, response, [(index, fail_and_flatten)], now)
    return None


def _flatten(answer: FetchedGroup, response: OffsetFetchResponse) -> None:
    response.error_code = answer.error_code
    response.topics = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in answer.topics
    ]
