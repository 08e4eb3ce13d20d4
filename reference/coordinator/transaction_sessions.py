"""InitProducerId of a transactional id: begins a session, and ends the one before.

A new session gets the next epoch of the id's producer, which fences the producer with the previous epoch. An open
transaction is aborted first, under an epoch that no producer ever gets; meanwhile the client retries. A producer that
names its id and epoch (KIP-360) continues its own session. It may do so only if no other producer began a session
since.

Source: KIP-98, KIP-360, KIP-890; requirements TXN-01 to TXN-06, TXN-15; TransactionCoordinator of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from reference.coordinator.transaction_state import (
    EXHAUSTED_EPOCH,
    PREPARED,
    TRANSACTION_VERSION_2,
    State,
    Transaction,
)
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TimestampMs

NewProducerId = Callable[[TimestampMs], ProducerId]
"""Returns an unused producer id. Errors: KafkaError COORDINATOR_LOAD_IN_PROGRESS if none is available yet."""


class Identity(NamedTuple):
    """The producer id and epoch of a request."""

    producer_id: ProducerId
    epoch: ProducerEpoch


NO_PRODUCER = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def next_session(
    transaction: Transaction,
    timeout_ms: int,
    expected: Identity | None,
    new_producer_id: NewProducerId,
    now: TimestampMs,
) -> Transaction:
    """The state at the beginning of the new session. Errors: KafkaError PRODUCER_FENCED."""
    expected_epoch = expected.epoch if expected is not None else None
    if transaction.is_exhausted and expected_epoch in (None, transaction.epoch):
        return transaction.moved_to(new_producer_id(now), timeout_ms, expected is not None, now)
    begun = transaction.begun_again(timeout_ms, expected_epoch, now)
    if begun is None:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return begun


def require_session_may_begin(transaction: Transaction, expected: Identity | None) -> None:
    """Errors: KafkaError PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while markers are being written."""
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _is_known(transaction, expected):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _is_known(transaction: Transaction, expected: Identity) -> bool:
    """Whether `expected` is the id's producer, or was until its epochs were exhausted and it lost the response."""
    return (
        transaction.epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == transaction.producer_id
        or (expected.producer_id == transaction.previous_producer_id and expected.epoch >= EXHAUSTED_EPOCH)
    )


def aborted_and_fenced(
    transaction: Transaction, version: int, new_producer_id: NewProducerId, now: TimestampMs
) -> Transaction:
    """Abort an open transaction on the coordinator's decision, and fence its producer.

    `version` is the cluster's transaction.version.
    """
    assert transaction.state is State.ONGOING
    if version < TRANSACTION_VERSION_2:
        return transaction.fenced().prepared(False, 0, now)
    next_producer_id = new_producer_id(now) if transaction.is_exhausted else NO_PRODUCER_ID
    return transaction.fenced().prepared(False, version, now, next_producer_id)
