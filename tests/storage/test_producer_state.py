"""Idempotence and transactions of one partition (IDM, TXN, TXV): memory of repetitions, expiry, snapshots.

Fencing, sequences, markers, guards and the last stable offset are compared with Kafka's (`test_logs_beside_kafka`) and with a
model (`test_log_machine`).
"""

import gc
import tracemalloc

import pytest

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from reference.protocol.records.batch import BatchProducer
from reference.storage.errors import CorruptFile, RefusedByProducerState
from reference.storage.producer_state import ProducerState, _read_snapshot
from reference.storage.segment_list import ProducerExpiry
from reference.storage.simulated_disk import SimulatedDisk
from tests.storage.logs import FOLDER, NOW, append, append_as, batch, end_transaction, names, open_log


def refused(code: ErrorCode) -> "pytest.RaisesExc[RefusedByProducerState]":
    return pytest.raises(RefusedByProducerState, check=lambda error: error.code is code)


@pytest.mark.step("replication", "Retry")
def test_a_repeated_batch_is_known_again_five_batches_back() -> None:
    """IDM-05 and IDM-06."""
    log = open_log()
    first = [append_as(log, 7, sequence, 2) for sequence in range(0, 12, 2)]
    for info, sequence in zip(first[1:], range(2, 12, 2), strict=True):
        again = append_as(log, 7, sequence, 2)
        assert again.is_duplicate
        assert again[:2] == info[:2]
    assert log.log_end_offset == 12
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append_as(log, 7, 0, 2)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append_as(log, 7, 10, 3)  # the same first sequence, another length (IDM-07)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        append_as(log, 7, 11, 1)  # the same last sequence, another first one
    assert log.log_end_offset == 12


def test_a_producer_of_one_batch_takes_some_hundred_bytes() -> None:
    """A million of them, each of which wrote once, are remembered for a day."""
    log, count = open_log(), 500
    append_as(log, 0, 0)
    gc.collect()
    tracemalloc.start()
    for id in range(1, count + 1):
        append_as(log, id, 0)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(log.active_producers()) == count + 1 and taken / count < 900, taken / count


def test_idle_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    log = open_log(producer_expiry=ProducerExpiry(expiration_ms=lambda: 1000))
    append_as(log, 7, 0)
    append_as(log, 9, 0, transactional=True)
    log.tick(NOW + 2_000_000)
    assert [row.producer_id for row in log.active_producers()] == [9]
    append_as(log, 7, 55)  # IDM-10


# ---- transactions


def test_a_transaction_that_began_in_the_last_epoch_can_be_ended() -> None:
    """No marker has a greater epoch; an older broker's mistake may have let such a transaction begin."""
    log = open_log()
    append_as(log, 7, 0, epoch=2**15 - 1, transactional=True)
    assert log.last_stable_offset(log.log_end_offset) == 0
    end_transaction(log, 7, commit=False, epoch=2**15 - 1, version=2)
    assert log.last_stable_offset(log.log_end_offset) == 2


def test_verifications_without_an_answer_are_forgotten_with_their_producers() -> None:
    """KIP-890: the holder of the guard may open the transaction."""
    log = open_log()
    guard = log.begin_verification(ProducerId(7), ProducerEpoch(0), 0, False, NOW)
    log.tick(NOW + log.producer_expiry.expiration_ms() + log.producer_expiry.check_ms)
    with refused(ErrorCode.INVALID_TXN_STATE):
        log.append_as_leader(
            batch(producer=BatchProducer(ProducerId(7), ProducerEpoch(0), 0, transactional=True)),
            LeaderEpoch(0),
            NOW,
            guard=guard,
        )


# ---- snapshots


@pytest.mark.parametrize("others", [[(9, 0), (7, 0)], [(7, 3)], [(7, 0), (9, 0), (9, 1), (9, 2), (9, 3)], [(7, 0)]])
def test_a_snapshot_of_another_partition_or_moment_is_passed_over(others: list[tuple[int, int]]) -> None:
    """It is whole, and names no partition: a retry would be stored a second time."""
    own, other = SimulatedDisk(), SimulatedDisk()
    for disk, batches in ((own, [(7, 0), (7, 1), (9, 0)]), (other, others)):
        log = open_log(disk)
        for producer, sequence in batches:
            append_as(log, producer, sequence)
        log.close()
    (name,), (wrong,) = (
        [each for each in disk.list_folder(FOLDER) if each.endswith(".snapshot")] for disk in (own, other)
    )
    own.write_file(FOLDER / name, other.read_file(FOLDER / wrong))
    log = open_log(own, clean=True, recovery_point=3)
    assert append_as(log, 7, 1).is_duplicate and append_as(log, 9, 0).is_duplicate
    assert not append_as(log, 9, 1).is_duplicate


def test_a_snapshot_that_has_an_ended_transaction_open_is_passed_over(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_as(log, 7, 0, transactional=True)
    log.roll(NOW)
    before = disk.read_file(FOLDER / names(log, ".snapshot")[-1])
    end_transaction(log, 7, commit=True)
    log.close()
    disk.write_file(FOLDER / names(log, ".snapshot")[-1], before)
    assert open_log(disk, clean=True).last_stable_offset(Offset(2)) == 2


def test_a_snapshot_of_batches_that_the_log_does_not_have_is_passed_over_after_a_crash() -> None:
    """It is the log's first one. A producer's first batch would be taken for a repeated one."""
    own, other = SimulatedDisk(), SimulatedDisk()
    append(open_log(own))
    log = open_log(other)
    append_as(log, 7, 0)
    log.close()
    own.write_file(FOLDER / f"{0:020d}.snapshot", other.read_file(FOLDER / names(log, ".snapshot")[-1]))
    again = open_log(own)
    assert again.active_producers() == []
    assert not append_as(again, 7, 0).is_duplicate


def test_a_damaged_snapshot_is_passed_over(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_as(log, 7, 0)
    log.roll(NOW)
    append_as(log, 7, 1)
    log.close()
    newest = FOLDER / names(log, ".snapshot")[-1]
    disk.write_file(newest, disk.read_file(newest)[:-1] + b"?")
    again = open_log(disk, clean=True)
    assert [row.last_sequence for row in again.active_producers()] == [1]
    assert append_as(again, 7, 1).is_duplicate


@pytest.mark.parametrize("data", [b"", b"\x00\x02" + bytes(8), bytes(9), b"\x00\x01" + bytes(8)])
def test_malformed_snapshots_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptFile):
        list(_read_snapshot(data))


def test_the_snapshot_file_is_kafkas(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_as(log, 0x77, 3, 2, epoch=5)
    log.close()
    data = disk.read_file(FOLDER / names(log, ".snapshot")[0])
    assert data[:2].hex() == "0001"
    assert data[6:].hex() == (
        f"000000010000000000000077000500000004000000000000000100000001{NOW:016x}ffffffffffffffffffffffff"
    )
    assert ProducerState(disk, FOLDER).snapshot_offsets() == [2]
