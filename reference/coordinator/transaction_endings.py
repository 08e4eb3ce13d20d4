"""EndTxn: in which state a commit or an abort is a state transition, a retry, or an error.

The two protocols differ in how a retry is known. Before KIP-890 the epoch does not change, and a second EndTxn with the same
outcome is a retry. With KIP-890 each end raises the epoch. A request with the previous epoch is a retry; one with the current
epoch ends a new transaction. An abort is accepted even where no partition was added: a batch on its way must be fenced.

This deviates from Kafka 4.3.1, which takes every EndTxn with the previous epoch for a retry. A client from before KIP-890 may
have got the current epoch by InitProducerId and ended a transaction since. The producer that it fenced is then answered with
success, and with the client's own epoch (tests/targets/test_late_end_of_a_zombie.py). Here the previous epoch is a retry only if
the last end raised the epoch.

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
    """The outcome has to be written."""
    DONE = auto()
    """It was done before: nothing is written, and the answer is the same."""


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
"""State and whether it is a commit -> what it amounts to, before KIP-890 and for what is repeated since.

While markers are being written nothing is said of any outcome: the client asks again (TXN-13).
"""

_OUTCOMES_OF_A_NEW_TRANSACTION: dict[tuple[State, bool], Ending | ErrorCode] = _OUTCOMES | {
    (State.EMPTY, False): Ending.PREPARE,
    (State.COMPLETE_COMMIT, True): ErrorCode.INVALID_TXN_STATE,
    (State.COMPLETE_COMMIT, False): Ending.PREPARE,
    (State.COMPLETE_ABORT, False): Ending.PREPARE,
}
"""The same since KIP-890, for a producer with the present epoch: a transaction without partitions can be aborted."""


def ending_before_kip_890(transaction: Transaction, identity: Identity, committed: bool) -> Ending:
    """Errors: KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE."""
    if identity.producer_id != transaction.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if identity.epoch != transaction.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return _ending(_OUTCOMES[transaction.state, committed])


def ending(transaction: Transaction, identity: Identity, committed: bool) -> Ending:
    """Since KIP-890. Errors: as before it."""
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
    """Whether the transaction's end, which is repeated, took the id's last epoch, and the id has another producer since."""
    return (
        identity.producer_id == transaction.previous_producer_id
        and identity.epoch == EXHAUSTED_EPOCH
        and transaction.epoch == 0
    )


def _ending(outcome: Ending | ErrorCode) -> Ending:
    if isinstance(outcome, ErrorCode):
        raise KafkaError(outcome)
    return outcome
