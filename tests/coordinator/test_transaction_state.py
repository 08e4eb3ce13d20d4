"""The states of a transactional id: the table of transitions, and the encoding of records."""

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
    VALID_PREVIOUS_STATES,
    State,
    TopicPartition,
    Transaction,
)
from reference.protocol.codec import CodecError
from reference.protocol.primitives import ProducerEpoch, ProducerId, TimestampMs

EMPTY = Transaction("t", producer_id=ProducerId(7), epoch=ProducerEpoch(3), timeout_ms=60_000)
ONGOING = EMPTY.with_partitions(frozenset({TopicPartition("a", 0), TopicPartition("b", 1)}), 2, TimestampMs(1000))
PREPARED = ONGOING.prepared(True, 2, TimestampMs(2000), ProducerId(99))


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


@pytest.mark.parametrize("transaction", [EMPTY, ONGOING, PREPARED])
def test_records_are_read_as_they_were_written(transaction: Transaction) -> None:
    key, value = transaction_record(transaction, 1)
    assert value is not None
    assert decode_key(key) == "t"
    assert decode_value("t", value) == replace(transaction, last_epoch=-1)


def test_version_0_of_the_value_has_no_tags() -> None:
    _, value = transaction_record(PREPARED, 0)
    assert value is not None
    read = decode_value("t", value)
    assert (read.next_producer_id, read.previous_producer_id, read.client_version) == (-1, -1, 0)
    assert read.partitions == ONGOING.partitions


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\2" + bytes(60), b"\0\0" + bytes(10)])
def test_malformed_values_are_refused(value: bytes) -> None:
    with pytest.raises(CodecError):
        decode_value("t", value)


@pytest.mark.parametrize("state", [9, State.DEAD, State.PREPARE_EPOCH_FENCE])
def test_a_state_that_is_unknown_or_never_written_is_refused(state: int) -> None:
    _, value = transaction_record(EMPTY, 0)
    assert value is not None
    at = 2 + 8 + 2 + 4  # version, producer id, epoch, timeout
    with pytest.raises(CodecError, match=f"state {state}"):
        decode_value("t", value[:at] + bytes([state]) + value[at + 1 :])


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1\0\1t", b"\0\0\0\5t"])
def test_malformed_keys_are_refused(key: bytes) -> None:
    with pytest.raises(CodecError):
        decode_key(key)


def test_a_tombstone_has_the_id_and_no_value() -> None:
    key, value = transaction_tombstone("t")
    assert decode_key(key) == "t" and value is None
