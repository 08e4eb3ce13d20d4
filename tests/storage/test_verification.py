"""The guard of a transaction's first batch: who holds it may open the transaction, once, and before its end (KIP-890)."""

from __future__ import annotations

import pytest

from reference.protocol.errors import ErrorCode
from reference.protocol.records.batch import BatchProducer
from reference.storage.errors import RefusedByProducerState
from reference.storage.log import Log
from reference.storage.verification import Guard
from tests.storage.logs import NOW, batch, end_transaction, open_log

PRODUCER = 7


def begin(log: Log, *, epoch: int = 0, sequence: int = 0, adds: bool = False) -> Guard | None:
    return log.begin_verification(PRODUCER, epoch, sequence, adds, NOW)


def write(log: Log, guard: Guard | None, *, epoch: int = 0, sequence: int = 0) -> None:
    data = batch(producer=BatchProducer(PRODUCER, epoch, sequence, transactional=True))
    log.append_as_leader(data, 0, NOW, guard=guard)


def refusal(log: Log, guard: Guard | None, *, epoch: int = 0, sequence: int = 0) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(RefusedByProducerState) as refused:
        write(log, guard, epoch=epoch, sequence=sequence)
    assert log.log_end_offset == end
    return refused.value.code


def test_only_who_asked_opens_a_transaction() -> None:
    log = open_log()
    assert refusal(log, None) is ErrorCode.INVALID_TXN_STATE
    guard = begin(log)
    assert guard is not None and refusal(log, Guard()) is ErrorCode.INVALID_TXN_STATE
    write(log, guard)
    assert begin(log) is None, "it is open: nothing needs to be asked"
    write(log, None, sequence=1)


def test_what_comes_after_the_end_opens_nothing() -> None:
    log = open_log()
    guard = begin(log)
    end_transaction(log, PRODUCER, commit=False)
    assert refusal(log, guard) is ErrorCode.INVALID_TXN_STATE


def test_a_guard_is_used_up_by_the_first_batch() -> None:
    log = open_log()
    guard = begin(log)
    write(log, guard)
    end_transaction(log, PRODUCER, commit=True)
    assert refusal(log, guard, sequence=1) is ErrorCode.INVALID_TXN_STATE
    write(log, begin(log, sequence=1), sequence=1)


def test_the_marker_of_the_transaction_before_leaves_the_guard_of_the_next() -> None:
    log = open_log()
    write(log, begin(log, adds=True))
    guard = begin(log, epoch=1, adds=True)
    end_transaction(log, PRODUCER, commit=True, epoch=1, version=2)
    write(log, guard, epoch=1)
    assert log.last_stable_offset(log.log_end_offset) == 2


def test_a_batch_must_not_overtake_an_earlier_one_that_is_being_verified() -> None:
    log = open_log()
    guard = begin(log, sequence=0)
    assert begin(log, sequence=5) is guard
    assert refusal(log, guard, sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, guard)


def test_a_batch_outside_of_transactions_must_not_overtake_it_either() -> None:
    """A verification that was refused stays open; Kafka judges every batch of a client by it."""
    log = open_log()
    begin(log, sequence=1)
    with pytest.raises(RefusedByProducerState) as refused:
        log.append_as_leader(batch(producer=BatchProducer(PRODUCER, 0, 3)), 0, NOW)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append_as_leader(batch(producer=BatchProducer(PRODUCER, 0, 1)), 0, NOW)


def test_an_unknown_producer_of_version_2_begins_with_0() -> None:
    log = open_log()
    assert refusal(log, begin(log, sequence=5, adds=True), sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    older = open_log()
    write(older, begin(older, sequence=5), sequence=5)


def test_a_fenced_epoch_is_not_even_asked_for() -> None:
    log = open_log()
    write(log, begin(log, epoch=3), epoch=3)
    with pytest.raises(RefusedByProducerState) as refused:
        begin(log, epoch=2)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, None, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_questions_without_an_answer_are_forgotten_with_their_producers() -> None:
    log = open_log()
    guard = begin(log)
    log.tick(NOW + sum(log.producer_expiry))
    assert refusal(log, guard) is ErrorCode.INVALID_TXN_STATE
