"""The states of a transactional id: the table, and the steps that no other test of the coordinator looks at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reference.coordinator.transaction_records import (
    decode_key,
    decode_value,
    transaction_record,
    transaction_tombstone,
)
from reference.coordinator.transaction_state import (
    EXHAUSTED_EPOCH,
    LAST_EPOCH,
    VALID_PREVIOUS_STATES,
    State,
    TopicPartition,
    Transaction,
)
from reference.protocol.codec import CodecError

EMPTY = Transaction("t", producer_id=7, epoch=3, timeout_ms=60_000)
ONGOING = EMPTY.with_partitions(frozenset({TopicPartition("a", 0), TopicPartition("b", 1)}), 2, 1000)


def reachable_from(state: State) -> set[State]:
    return {after for after, before in VALID_PREVIOUS_STATES.items() if state in before}


def test_the_table_is_kafkas() -> None:
    names = {state.title: sorted(after.title for after in reachable_from(state)) for state in State}
    begins = ["Dead", "Empty", "Ongoing", "PrepareAbort"]
    assert names == {
        "Empty": begins,
        "Ongoing": ["Ongoing", "PrepareAbort", "PrepareCommit", "PrepareEpochFence"],
        "PrepareCommit": ["CompleteCommit"],
        "PrepareAbort": ["CompleteAbort"],
        "CompleteCommit": begins,
        "CompleteAbort": begins,
        "Dead": [],
        "PrepareEpochFence": ["PrepareAbort"],
    }


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("after", list(State))
def test_no_step_leaves_the_table(state: State, after: State) -> None:
    transaction = replace(EMPTY, state=state)
    if after in reachable_from(state):
        assert transaction.to(after).state is after
    else:
        with pytest.raises(AssertionError):
            transaction.to(after)


def test_before_kip_890_an_end_keeps_the_epoch() -> None:
    complete = ONGOING.prepared(True, 0, 2000).completed(3000)
    assert (complete.state, complete.epoch, complete.partitions) == (State.COMPLETE_COMMIT, 3, frozenset())


def test_since_kip_890_an_end_raises_the_epoch() -> None:
    prepared = ONGOING.prepared(False, 2, 2000)
    assert (prepared.state, prepared.epoch, prepared.last_epoch) == (State.PREPARE_ABORT, 4, 3)
    assert prepared.started_at == 1000
    assert prepared.completed(3000).epoch == 4


@pytest.mark.parametrize("version", [0, 2])
def test_fencing_raises_the_epoch_once(version: int) -> None:
    assert ONGOING.fenced().prepared(False, version, 2000).epoch == ONGOING.epoch + 1


@pytest.mark.parametrize("version", [0, 2])
def test_the_last_epoch_is_for_fencing(version: int) -> None:
    exhausted = replace(ONGOING, epoch=EXHAUSTED_EPOCH)
    aborted = exhausted.fenced().prepared(False, version, 2000, next_producer_id=8 if version else -1)
    assert aborted.epoch == LAST_EPOCH
    complete = aborted.completed(3000)
    assert (complete.producer_id, complete.epoch) == ((8, 0) if version else (7, LAST_EPOCH))
    assert complete.previous_producer_id == 7
    fenced_again = replace(exhausted, epoch=LAST_EPOCH).fenced().prepared(False, version, 2000, 8 if version else -1)
    assert fenced_again.epoch == LAST_EPOCH


def test_the_first_partitions_begin_the_transaction() -> None:
    later = ONGOING.with_partitions(frozenset({TopicPartition("c", 0)}), 2, 5000)
    assert (later.started_at, later.updated_at, len(later.partitions)) == (1000, 5000, 3)


def test_a_timeout_counts_from_the_first_partition() -> None:
    assert not ONGOING.is_timed_out(61_000)
    assert ONGOING.is_timed_out(61_001)
    assert not EMPTY.is_timed_out(10**12)
    assert not replace(ONGOING, timeout_ms=2**31 - 1).is_timed_out(10**15)


@pytest.mark.parametrize("transaction", [EMPTY, ONGOING, ONGOING.prepared(True, 2, 2000, 99)])
def test_records_are_read_as_they_were_written(transaction: Transaction) -> None:
    key, value = transaction_record(transaction, 1)
    assert value is not None
    assert decode_key(key) == "t"
    assert decode_value("t", value) == replace(transaction, last_epoch=-1)


def test_version_0_of_the_value_has_no_tags() -> None:
    _, value = transaction_record(ONGOING.prepared(True, 2, 2000, 99), 0)
    assert value is not None
    read = decode_value("t", value)
    assert (read.next_producer_id, read.previous_producer_id, read.client_version) == (-1, -1, 0)
    assert read.partitions == ONGOING.partitions


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\2" + bytes(60), b"\0\0" + bytes(10)])
def test_values_that_are_none(value: bytes) -> None:
    with pytest.raises(CodecError):
        decode_value("t", value)


@pytest.mark.parametrize("state", [9, State.DEAD, State.PREPARE_EPOCH_FENCE])
def test_a_state_that_is_none_or_never_written(state: int) -> None:
    _, value = transaction_record(EMPTY, 0)
    assert value is not None
    at = 2 + 8 + 2 + 4  # version, producer id, epoch, timeout
    with pytest.raises(CodecError, match=f"state {state}"):
        decode_value("t", value[:at] + bytes([state]) + value[at + 1 :])


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1\0\1t", b"\0\0\0\5t"])
def test_keys_that_are_none(key: bytes) -> None:
    with pytest.raises(CodecError):
        decode_key(key)


def test_a_tombstone_has_the_id_and_no_value() -> None:
    key, value = transaction_tombstone("t")
    assert decode_key(key) == "t" and value is None
