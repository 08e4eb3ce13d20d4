"""EndTxn: in which state a commit or an abort is a state transition, a retry, or an error.

The two protocols recognize a retry differently. Before KIP-890 the epoch does not change, and a second EndTxn with the
same outcome is a retry. With KIP-890 each end raises the epoch. A request with the previous epoch is a retry; one with
the current epoch ends a new transaction. An abort is accepted even if no partition was added, to fence batches in
flight.

This deviates from Kafka 4.3.1, which treats every EndTxn with the previous epoch as a retry. But a client from before
KIP-890 may have got the current epoch by InitProducerId and ended a transaction since. Kafka then answers the fenced
producer with success, and with the other client's epoch (tests/targets/test_late_end_of_a_zombie.py). Here the previous
epoch is a retry only if the last end raised the epoch.

Source: KIP-98, KIP-890; requirements TXN-07, TXN-08, TXN-11 to TXN-15; TransactionCoordinator.endTransaction of 4.3.1.
"""

from __future__ import annotations

from enum import Enum, auto

from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import (
    COMPLETED,
    EXHAUSTED_EPOCH,
    PREPARED,
    TRANSACTION_VERSION_2,
    State,
    Transaction,
)
from reference.protocol.errors import ErrorCode, KafkaError


class Ending(Enum):
    """The effect of an EndTxn."""

    PREPARE = auto()
    """The outcome must be written."""
    DONE = auto()
    """A retry of an EndTxn that has succeeded: nothing is written, and the answer is the same."""


_OUTCOMES: dict[tuple[State, bool], Ending | ErrorCode] = {
    (State.ONGOING, True): Ending.PREPARE,
    (State.ONGOING, False): Ending.PREPARE,
    (State.EMPTY, True): ErrorCode.INVALID_TXN_STATE,
    (State.EMPTY, False): ErrorCode.INVALID_TXN_STATE,
    (State.PREPARE_COMMIT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (State.PREPARE_COMMIT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
    (State.PREPARE_ABORT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (State.PREPARE_ABORT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
    (State.COMPLETE_COMMIT, True): Ending.DONE,
    (State.COMPLETE_COMMIT, False): ErrorCode.INVALID_TXN_STATE,
    (State.COMPLETE_ABORT, True): ErrorCode.INVALID_TXN_STATE,
    (State.COMPLETE_ABORT, False): Ending.DONE,
}
"""State and whether EndTxn commits -> its effect, before KIP-890, and for retries also since.

While markers are being written the answer is CONCURRENT_TRANSACTIONS for any outcome, and the client retries (TXN-13).
"""

_OUTCOMES_OF_A_NEW_TRANSACTION: dict[tuple[State, bool], Ending | ErrorCode] = _OUTCOMES | {
    (State.EMPTY, False): Ending.PREPARE,
    (State.COMPLETE_COMMIT, True): ErrorCode.INVALID_TXN_STATE,
    (State.COMPLETE_COMMIT, False): Ending.PREPARE,
    (State.COMPLETE_ABORT, False): Ending.PREPARE,
}
"""State and whether EndTxn commits -> its effect since KIP-890, with the current epoch: an abort needs no partitions."""


def ending_before_kip_890(transaction: Transaction, identity: Identity, committed: bool) -> Ending:
    """Errors: KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE."""
    if identity.producer_id != transaction.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if identity.epoch != transaction.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return _ending(_OUTCOMES[transaction.state, committed])


def ending(transaction: Transaction, identity: Identity, committed: bool) -> Ending:
    """The effect of an EndTxn since KIP-890. Errors: as `ending_before_kip_890`."""
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    moved = _has_moved(transaction, identity)
    raised = transaction.client_version >= TRANSACTION_VERSION_2
    repeats = moved or (raised and transaction.epoch == identity.epoch + 1)
    if identity.producer_id != transaction.producer_id and not moved:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.epoch != identity.epoch and not (repeats and transaction.state in COMPLETED):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    outcomes = _OUTCOMES if repeats else _OUTCOMES_OF_A_NEW_TRANSACTION
    return _ending(outcomes[transaction.state, committed])


def _has_moved(transaction: Transaction, identity: Identity) -> bool:
    """Whether EndTxn repeats one that used the producer id's last epoch, after which the id got a new producer id."""
    return (
        identity.producer_id == transaction.previous_producer_id
        and identity.epoch == EXHAUSTED_EPOCH
        and transaction.epoch == 0
    )


def _ending(outcome: Ending | ErrorCode) -> Ending:
    if isinstance(outcome, ErrorCode):
        raise KafkaError(outcome)
    return outcome
