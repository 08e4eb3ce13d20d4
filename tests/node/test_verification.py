"""Verification of partitions with transaction coordinators: which ones are asked for, together, and asked for again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from conformance.batches import TRANSACTIONAL, batch
from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import TopicPartition
from reference.node.transactional_produce import verify
from reference.node.verification import PURPOSE, Operation, Verification
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import AT_ONCE, ProducerEpoch, ProducerId, TimestampMs
from reference.storage.simulated_disk import SimulatedDisk
from tests.node.test_metadata_snapshots import FOLDER, NOW, create, start

PARTITION = TopicPartition("t", 0)
SETTINGS = {
    "request.timeout.ms": 30_000,
    "add.partitions.to.txn.retry.backoff.ms": 20,
    "add.partitions.to.txn.retry.backoff.max.ms": 100,
}
Answered = Callable[[Any, TimestampMs], None]


class Room:
    """A node that coordinates nothing itself; the test plays the coordinator, broker 2."""

    def __init__(self, coordinator: int = 2) -> None:
        self.node = 1
        self.configuration = SimpleNamespace(integer=SETTINGS.__getitem__, broker=lambda name: True)
        self.coordinators = SimpleNamespace(leader_of=lambda topic, key: coordinator)
        self.asked: list[tuple[AddPartitionsToTxnRequest, Answered]] = []
        self.verdicts: list[tuple[str, ErrorCode]] = []
        room: Any = self
        brokers: Any = SimpleNamespace(ask=self.ask_broker)
        no_transactions: Any = None
        self.verification = Verification(room, brokers, no_transactions)

    def ask_broker(self, broker: int, purpose: str, body: Any, timeout_ms: int, answered: Answered, now: int) -> None:
        assert (broker, purpose) == (2, PURPOSE)
        self.asked.append((body, answered))

    def ask(self, id: str, operation: Operation = Operation.ADD, now: TimestampMs = AT_ONCE) -> None:
        self.verification.ask(
            id,
            Identity(ProducerId(7), ProducerEpoch(0)),
            (PARTITION,),
            operation,
            now,
            lambda verdicts, then: self.verdicts.append((id, verdicts[PARTITION])),
        )

    def answer(self, code: ErrorCode | None, now: TimestampMs = AT_ONCE) -> None:
        body, answered = self.asked.pop(0)
        answered(None if code is None else response(body, code), now)

    def ids(self) -> list[list[str]]:
        return [[each.transactional_id for each in body.transactions] for body, _ in self.asked]


def response(body: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    partition = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
        partition_index=0, partition_error_code=code
    )
    topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name="t", results_by_partition=[partition])
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=[topic]
            )
            for each in body.transactions
        ]
    )


def test_what_comes_while_a_question_is_open_goes_together_each_id_once() -> None:
    room = Room()
    for id in ("a", "b", "c", "b"):
        room.ask(id)
    assert room.ids() == [["a"]]
    room.answer(ErrorCode.NONE)
    assert room.ids() == [["b", "c"]]
    room.answer(ErrorCode.NONE)
    assert room.ids() == [["b"]]
    room.answer(ErrorCode.NONE)
    assert not room.asked and [id for id, _ in room.verdicts] == ["a", "b", "c", "b"]


def test_only_who_adds_does_not_merely_verify() -> None:
    for operation in Operation:
        room = Room()
        room.ask("a", operation)
        assert room.asked[0][0].transactions[0].verify_only is (operation is not Operation.ADD)


def test_verdicts_are_codes_of_the_version() -> None:
    reported = {
        (ErrorCode.PRODUCER_FENCED, Operation.ADD): ErrorCode.INVALID_PRODUCER_EPOCH,
        (ErrorCode.TRANSACTION_ABORTABLE, Operation.VERIFY): ErrorCode.TRANSACTION_ABORTABLE,
        (ErrorCode.TRANSACTION_ABORTABLE, Operation.VERIFY_OLD): ErrorCode.INVALID_TXN_STATE,
        (ErrorCode.CONCURRENT_TRANSACTIONS, Operation.VERIFY): ErrorCode.CONCURRENT_TRANSACTIONS,
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Operation.ADD): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
    for (code, operation), expected in reported.items():
        room = Room()
        room.ask("a", operation)
        room.answer(code)
        assert room.verdicts == [("a", expected)]


def test_no_answer_and_no_coordinator_are_verdicts() -> None:
    room = Room()
    room.ask("a")
    room.answer(None)
    assert room.verdicts == [("a", ErrorCode.NETWORK_EXCEPTION)]
    room = Room(coordinator=-1)
    room.ask("a")
    assert room.verdicts == [("a", ErrorCode.COORDINATOR_NOT_AVAILABLE)]


def test_that_the_transaction_before_is_being_completed_is_waited_out_for_a_while() -> None:
    room = Room()
    room.ask("a", now=TimestampMs(0))
    room.answer(ErrorCode.CONCURRENT_TRANSACTIONS, now=TimestampMs(10))
    assert not room.verdicts and room.verification.next_deadline() == 30
    room.verification.tick(TimestampMs(30))
    room.answer(ErrorCode.CONCURRENT_TRANSACTIONS, now=TimestampMs(100))
    assert room.verdicts == [("a", ErrorCode.CONCURRENT_TRANSACTIONS)]


def transactional(epoch: int) -> bytes:
    return batch(b"v", attributes=TRANSACTIONAL, producer_id=7, producer_epoch=epoch, base_sequence=0)


def verified_partitions(*records: tuple[str, int, bytes]) -> list[TopicPartition]:
    """The partitions that are verified for a request with these records."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    create(node, "t", NOW)
    create(node, "u", NOW)
    asked: list[TopicPartition] = []

    def ask(id: str, identity: Any, partitions: tuple[TopicPartition, ...], *rest: Any) -> None:
        asked.extend(partitions)

    table = ProduceRequest.PartitionProduceData
    topics = [
        ProduceRequest.TopicProduceData(name=name, partition_data=[table(index=index, records=data)])
        for name, index, data in records
    ]
    body = ProduceRequest(transactional_id="x", topic_data=topics)
    coordinator: Any = SimpleNamespace(is_enabled=True, ask=ask)
    verify(node.context, coordinator, 12, body, NOW, lambda verdicts, then: None)
    return asked


def test_a_batch_for_an_unknown_partition_is_left_out() -> None:
    """Kafka ignores its producer id, of which a request may have only one."""
    assert verified_partitions(("t", 0, transactional(0)), ("u", 9, transactional(1))) == [TopicPartition("t", 0)]


def test_records_that_are_not_one_batch_add_no_partition_to_the_transaction() -> None:
    found = verified_partitions(("t", 0, transactional(0)), ("u", 0, transactional(0) * 2))
    assert found == [TopicPartition("t", 0)]
