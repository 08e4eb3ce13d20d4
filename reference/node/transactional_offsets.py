"""Before offsets are committed within a transaction: whether it has the group's partition. (TXN-18, OFF-17)"""

from __future__ import annotations

from collections.abc import Mapping

from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import TopicPartition
from reference.node.context import Context
from reference.node.group_offsets import Verified
from reference.node.internal_topics import OFFSETS_TOPIC
from reference.node.requests import Request
from reference.node.transactional_produce import operation_of
from reference.node.verification import Operation, Verification
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from reference.protocol.primitives import TimestampMs
from reference.storage.errors import LogError
from reference.storage.verification import NOT_REQUIRED

FIRST_VERSION_WITH_ABORTABLE = 4
FIRST_VERSION_THAT_ADDS = 5
"""TxnOffsetCommit: from here on it adds the group's partition to the transaction (KIP-890)."""
NO_SEQUENCE = -1

_AS_COORDINATORS_SAY = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
}
"""What a group's client knows how to come again after."""


def verify_offsets(
    context: Context,
    verification: Verification,
    request: Request,
    body: TxnOffsetCommitRequest,
    index: int,
    verified: Verified,
    now: TimestampMs,
) -> None:
    """Find out what the group's write must show; `verified` is told, perhaps before this returns."""
    operation = operation_of(request.version, FIRST_VERSION_WITH_ABORTABLE, FIRST_VERSION_THAT_ADDS)
    if operation is not Operation.ADD and not verification.is_enabled:
        verified(ErrorCode.NONE, NOT_REQUIRED, now)
        return
    partition, identity = TopicPartition(OFFSETS_TOPIC, index), Identity(body.producer_id, body.producer_epoch)
    try:
        guard = context.replicas.partition(*partition).log.begin_verification(
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
