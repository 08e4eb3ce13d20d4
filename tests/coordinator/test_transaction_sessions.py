"""Sessions of a transactional id: their epochs, fencing, ends and timeouts (TXN-02, TXN-05, TXN-06, TXN-15)."""

from __future__ import annotations

import pytest

from reference.coordinator.transaction_coordinator import Decided, TransactionCoordinator, TransactionSettings
from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import State, TopicPartition
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import LeaderEpoch, ProducerEpoch, ProducerId, TimestampMs

SETTINGS = TransactionSettings(60_000, 1000, allows_two_phase_commit=False)
NOW = TimestampMs(0)
PARTITION = TopicPartition("t", 0)


def identity(producer_id: int, epoch: int) -> Identity:
    return Identity(ProducerId(producer_id), ProducerEpoch(epoch))


class Room:
    """A coordinator whose decisions are written and replayed at once."""

    def __init__(self) -> None:
        self.log: list[tuple[bytes, bytes | None]] = []
        self.ids = map(ProducerId, range(10, 100))
        self.move()

    def move(self) -> None:
        """Let another coordinator take over with the log."""
        self.coordinator = TransactionCoordinator(0, LeaderEpoch(1), SETTINGS, lambda: 2, lambda now: next(self.ids))
        for key, value in self.log:
            self.coordinator.replay(key, value, NOW, None)

    def write(self, decided: Decided | None) -> None:
        assert decided is not None
        self.log += decided.records
        for key, value in decided.records:
            self.coordinator.replay(key, value, NOW, None)

    def begin(self, expected: Identity | None = None) -> Identity:
        decided = self.coordinator.new_session("x", 1000, expected, NOW)
        self.write(decided)
        return Identity(decided.transaction.producer_id, decided.transaction.epoch)

    def refusal(self, expected: Identity | None) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            self.begin(expected)
        return refused.value.code


@pytest.mark.step("transactions", "NewSession")
def test_each_session_has_the_next_epoch() -> None:
    room = Room()
    assert [room.begin(), room.begin(), room.begin()] == [(10, 0), (10, 1), (10, 2)]


@pytest.mark.step("transactions", "NewSession")
def test_a_producer_is_fenced_by_another_session() -> None:
    room = Room()
    first = room.begin()
    room.begin()
    assert room.refusal(first) is ErrorCode.PRODUCER_FENCED
    assert room.refusal(identity(99, 0)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.step("transactions", "AddPartitions", "WriteMarker", "CompleteTransaction")
def test_an_open_transaction_is_aborted_before_the_next_session() -> None:
    room = Room()
    first = room.begin()
    room.write(room.coordinator.add_partitions("x", first, [PARTITION], 2, NOW))
    room.begin()
    known = room.coordinator.transactions["x"]
    assert (known.state, known.epoch, room.coordinator.take_prepared()) == (State.PREPARE_ABORT, 1, ["x"])
    assert room.refusal(None) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert room.coordinator.write_marker("x", identity(10, 0), PARTITION) is False, "a marker of another epoch"
    assert room.coordinator.write_marker("x", identity(10, 1), PARTITION) is True
    room.write(room.coordinator.complete_transaction("x", NOW))
    assert room.begin() == (10, 2)


@pytest.mark.step("transactions", "EndTransaction")
def test_an_end_is_a_decision_and_its_epoch_is_the_next_ones() -> None:
    room = Room()
    first = room.begin()
    room.write(room.coordinator.add_partitions("x", first, [PARTITION], 2, NOW))
    decided, after = room.coordinator.end_transaction("x", first, True, 2, NOW)
    room.write(decided)
    assert (room.coordinator.transactions["x"].state, after) == (State.PREPARE_COMMIT, (10, 1))
    assert room.coordinator.take_prepared() == ["x"]


@pytest.mark.step("transactions", "TimeOut")
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    room = Room()
    first = room.begin()
    room.write(room.coordinator.add_partitions("x", first, [PARTITION], 2, NOW))
    assert room.coordinator.timed_out(NOW + 1000) == []
    assert room.coordinator.timed_out(NOW + 1001) == ["x"]
    room.write(room.coordinator.time_out("x", NOW + 1001))
    known = room.coordinator.transactions["x"]
    assert (known.state, known.epoch) == (State.PREPARE_ABORT, 1)


@pytest.mark.step("transactions", "TakeOver")
def test_a_new_coordinator_asks_for_all_markers_again() -> None:
    """Which markers were written is not in the log."""
    room = Room()
    first = room.begin()
    others = [PARTITION, TopicPartition(PARTITION.topic, PARTITION.partition + 1)]
    room.write(room.coordinator.add_partitions("x", first, others, 2, NOW))
    decided, after = room.coordinator.end_transaction("x", first, True, 2, NOW)
    room.write(decided)
    assert room.coordinator.write_marker("x", after, PARTITION) is False
    room.move()
    room.coordinator.loaded(NOW)
    assert (room.coordinator.transactions["x"].partitions, room.coordinator.take_prepared()) == ({*others}, ["x"])


@pytest.mark.parametrize("asked_ms", [0, -1, 60_001])
def test_timeouts_that_are_not_granted(asked_ms: int) -> None:
    with pytest.raises(KafkaError) as refused:
        SETTINGS.timeout_of(asked_ms, two_phase=False)
    assert refused.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
