"""OffsetCommit, TxnOffsetCommit and OffsetDelete: what groups do with their offsets, on this node. (OFF-*)"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from reference.coordinator.classic_groups import check_group_id
from reference.coordinator.offset_commits import refused_commit, refused_in_transaction
from reference.node.internal_topics import OFFSETS_TOPIC
from reference.node.known_topics import KnownTopics
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message
from reference.storage.verification import Guard

if TYPE_CHECKING:
    from reference.node.node import Node

FIRST_TRANSACTIONAL_COMMIT_THAT_KNOWS_LOADING = 2


def offset_commit(node: Node, request: Request, body: OffsetCommitRequest, now: TimestampMs) -> Message | None:
    """Keep offsets (OFF-01, OFF-03 to OFF-09, OFF-12, OFF-13); a group id that is empty may keep them too."""
    groups = node.groups
    try:
        index, shard = groups.coordination.shard_of(body.group_id)
        decided = shard.commits.commit(body, request.version, now)
        groups.coordination.write(index, decided.records, now)
    except KafkaError as error:
        return refused_commit(body, request.version, KnownTopics(node.image), error.code)
    shard.classic.committed(body.group_id, body.member_id, now)
    groups.answer(index, request, decided.response, now)
    return None


def txn_offset_commit(node: Node, request: Request, body: TxnOffsetCommitRequest, now: TimestampMs) -> Message | None:
    """Keep offsets that count when the producer's transaction is committed (OFF-17, OFF-18, TXV-08).

    First the transaction's coordinator is asked whether it has the group's partition; then the group is. Before there is
    any such partition the question cannot be put: COORDINATOR_NOT_AVAILABLE, where the other requests about groups are
    NOT_COORDINATOR.
    """
    try:
        check_group_id(body.group_id)
        if OFFSETS_TOPIC not in node.image.topics:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        index, shard = node.groups.coordination.shard_of(body.group_id)
        if shard.commits.any_exists(body):
            node.groups.verify(request, body, index, partial(_commit_in_transaction, node, request, body), now)
            return None
        return shard.commits.commit_in_transaction(body, request.version, now).response
    except KafkaError as error:
        return _refused_in_transaction(node, request, body, error.code)


def _commit_in_transaction(
    node: Node, request: Request, body: TxnOffsetCommitRequest, code: ErrorCode, guard: Guard | None, now: TimestampMs
) -> None:
    groups = node.groups
    try:
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        index, shard = groups.coordination.shard_of(body.group_id)
        decided = shard.commits.commit_in_transaction(body, request.version, now)
        producer = body.producer_id, body.producer_epoch
        groups.coordination.write(index, decided.records, now, producer=producer, guard=guard)
    except KafkaError as error:
        node.respond(request, _refused_in_transaction(node, request, body, error.code))
    else:
        groups.answer(index, request, decided.response, now)


def _refused_in_transaction(
    node: Node, request: Request, body: TxnOffsetCommitRequest, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """Producers of before version 2 do not know that a coordinator may be loading (OFF-18)."""
    knows_loading = request.version >= FIRST_TRANSACTIONAL_COMMIT_THAT_KNOWS_LOADING
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and not knows_loading:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return refused_in_transaction(body, KnownTopics(node.image), code)


def offset_delete(node: Node, request: Request, body: OffsetDeleteRequest, now: TimestampMs) -> Message | None:
    """Forget offsets of topics that the group does not use (OFF-14)."""
    groups = node.groups
    try:
        index, shard = groups.shard_of_member(body.group_id)
        decided = shard.commits.delete(body)
        groups.coordination.write(index, decided.records, now)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    groups.answer(index, request, decided.response, now)
    return None
