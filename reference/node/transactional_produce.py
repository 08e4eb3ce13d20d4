"""Before a transactional produce: verifies the batches that open a transaction in a partition. (TXN-16 to TXN-18)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import cast

from reference.controller.image import MetadataImage
from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import TopicPartition
from reference.node.context import Context
from reference.node.replicas import Replicas
from reference.node.verification import Operation, Verification
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import NO_PRODUCER_ID, Buffer, TimestampMs
from reference.protocol.records.batch import MAGIC_AT, TRANSACTIONAL, BatchHeader
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.validate import check_form
from reference.storage.errors import LogError
from reference.storage.verification import NOT_REQUIRED, Guard

FIRST_VERSION_THAT_ADDS = 12
"""The first version of Produce in which the first batch adds its partition to the transaction (KIP-890)."""
FIRST_VERSION_WITH_ABORTABLE = 11

ATTRIBUTES_AT = 22
"""The offset of the byte with the transactional flag in a batch."""

Verdict = Guard | KafkaError | LogError | None
"""The guard for a batch's append, or the error for it."""
Verdicts = Mapping[TopicPartition, Verdict]
Verified = Callable[[Verdicts, TimestampMs], None]

_UNVERIFIED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors that old clients would not retry: they are replaced by NOT_ENOUGH_REPLICAS (TXN-17)."""


def has_transactional_batches(body: ProduceRequest) -> bool:
    """Whether any batch has the transactional flag."""
    for topic in body.topic_data:
        for each in topic.partition_data:
            data = cast("Buffer | None", each.records)
            if data is None or len(data) <= ATTRIBUTES_AT:
                continue
            if data[ATTRIBUTES_AT] & TRANSACTIONAL and data[MAGIC_AT] == 2:
                return True
    return False


def verify(
    context: Context,
    verification: Verification,
    version: int,
    body: ProduceRequest,
    now: TimestampMs,
    verified: Verified,
) -> None:
    """Get the guard for each batch; `verified` is called with the result, possibly before this returns.

    Errors: KafkaError INVALID_PRODUCER_ID_MAPPING if the batches are of several producers.
    """
    batches = dict(_transactional(context.image, version, body))
    identities = {Identity(header.producer_id, header.producer_epoch) for header in batches.values()}
    if len(identities) > 1:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    operation = operation_of(version, FIRST_VERSION_WITH_ABORTABLE, FIRST_VERSION_THAT_ADDS)
    if operation is not Operation.ADD and not verification.is_enabled:
        verified(dict.fromkeys(batches, NOT_REQUIRED), now)
        return
    verdicts = {
        partition: _begin(context.replicas, partition, header, operation, now) for partition, header in batches.items()
    }
    asked = tuple(partition for partition, verdict in verdicts.items() if isinstance(verdict, Guard))
    if not asked:
        verified(verdicts, now)
        return

    def answered(codes: Mapping[TopicPartition, ErrorCode], then: TimestampMs) -> None:
        for partition, code in codes.items():
            if code is not ErrorCode.NONE:
                verdicts[partition] = _refusal(code, operation)
        verified(verdicts, then)

    _keep_records(body)
    assert body.transactional_id is not None
    verification.ask(body.transactional_id, identities.pop(), asked, operation, now, answered)


def operation_of(version: int, first_with_abortable: int, first_that_adds: int) -> Operation:
    """The kind of verification that a request's version supports."""
    if version >= first_that_adds:
        return Operation.ADD
    return Operation.VERIFY if version >= first_with_abortable else Operation.VERIFY_OLD


def _transactional(
    image: MetadataImage, version: int, body: ProduceRequest
) -> Iterator[tuple[TopicPartition, BatchHeader]]:
    """A producer's transactional batches.

    Those of unknown partitions, and records that are not one batch, are left out: the append refuses them, and Kafka neither
    verifies them nor counts their producer.
    """
    for topic in body.topic_data:
        name = image.topic_name(topic.topic_id) if version >= 13 else topic.name
        for each in topic.partition_data:
            if name is None or image.partition(name, each.index) is None:
                continue
            try:
                header = check_form(cast("Buffer | None", each.records), version)
            except RecordsError:
                continue
            if header.is_transactional and header.producer_id > NO_PRODUCER_ID:
                yield TopicPartition(name, each.index), header


def _begin(
    replicas: Replicas, partition: TopicPartition, header: BatchHeader, operation: Operation, now: TimestampMs
) -> Verdict:
    try:
        replica = replicas.partition(*partition)
        replica.require_leader()
        return replica.log.begin_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, operation is Operation.ADD, now
        )
    except (KafkaError, LogError) as error:
        return error


def _refusal(code: ErrorCode, operation: Operation) -> KafkaError:
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "Partition was not added to the transaction")
    if code in _UNVERIFIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and operation is not Operation.ADD):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    return KafkaError(code)


def _keep_records(body: ProduceRequest) -> None:
    """Copy the records, because the frame is not valid any more when the coordinator answers."""
    for topic in body.topic_data:
        for each in topic.partition_data:
            if each.records is not None:
                each.records = bytearray(cast("Buffer", each.records))
