"""OffsetCommit, TxnOffsetCommit and OffsetDelete on this node. (OFF-*)"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from reference.coordinator.classic_groups import check_group_id
from reference.coordinator.offset_commits import refused_commit, refused_in_transaction
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
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message
from reference.storage.errors import LogError
from reference.storage.verification import NOT_REQUIRED, Guard

FIRST_TRANSACTIONAL_COMMIT_THAT_KNOWS_LOADING = 2

Verified = Callable[[ErrorCode, Guard | None, TimestampMs], None]
"""Takes NONE and the guard of the write, or the error for all offsets."""


def offset_commit(groups: Groups, request: Request, body: OffsetCommitRequest, now: TimestampMs) -> Message | None:
    """Store offsets (OFF-01, OFF-03 to OFF-09, OFF-12, OFF-13); an empty group id is allowed."""
    try:
        index, shard = groups.coordination.shard_of(body.group_id)
        # fence: the shard compares member and generation
        decided = shard.commits.commit(body, request.version, now)
        # apply
        groups.coordination.write(index, decided.records, now)
    except KafkaError as error:
        return refused_commit(body, request.version, KnownTopics(groups.context.image), error.code)
    shard.classic.committed(body.group_id, body.member_id, now)
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
