"""The transactions of a node of ours, called with Kafka's messages; the test is its log, peers and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from reference.coordinator.transaction_records import KeyValue
from reference.node import transaction_requests
from reference.node.internal_topics import TRANSACTIONS_TOPIC
from reference.node.markers import PURPOSE
from reference.node.requests import Purgatories
from reference.node.transactions import FEATURE, Transactions
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from reference.protocol.messages.end_txn import EndTxnRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from reference.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from reference.protocol.primitives import Buffer, Offset, ProducerId, TimestampMs
from reference.protocol.records.batch import build, read_batches, records_of
from reference.protocol.records.record import Record
from reference.protocol.schema import Message
from tests.node.test_markers import response as markers_response

NOW = TimestampMs(1_000_000_000_000)
EXPIRATION_MS = 1_000_000_000
LONGEST_MS = 60_000
OFFSETS = ("__consumer_offsets", 0)
MAX_BATCH_BYTES = 200
HANDLERS: dict[type[Message], Callable[..., Message | None]] = {
    InitProducerIdRequest: transaction_requests.init_producer_id,
    AddPartitionsToTxnRequest: transaction_requests.add_partitions_to_txn,
    AddOffsetsToTxnRequest: transaction_requests.add_offsets_to_txn,
    EndTxnRequest: transaction_requests.end_txn,
}
INTEGERS = {
    "transaction.max.timeout.ms": LONGEST_MS,
    "transactional.id.expiration.ms": EXPIRATION_MS,
    "request.timeout.ms": 30_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1,  # at each tick
    "transaction.remove.expired.transaction.cleanup.interval.ms": 1,
}
Leaders = dict[tuple[str, int], int]


class LogPartition:
    """The partition of `__transaction_state`, as the coordination uses it."""

    index = 0
    name = f"{TRANSACTIONS_TOPIC}-0"
    key = (TRANSACTIONS_TOPIC, 0)
    is_leader = True
    log_start_offset = 0
    config = SimpleNamespace(max_message_bytes=MAX_BATCH_BYTES)

    def __init__(self) -> None:
        self.records: list[KeyValue] = []
        self.committed = 0
        self.leader_epoch = 1
        self.is_held = False
        """Whether appended records stay uncommitted at present."""
        self.refusal: ErrorCode | None = None

    @property
    def log(self) -> LogPartition:
        return self

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    def produce(self, batch: Buffer, now: int, **origin: Any) -> None:
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        (found,) = read_batches(batch)
        self.records += [
            (bytes(each.key or b""), None if each.value is None else bytes(each.value))
            for each in records_of(found.data)
        ]
        if not self.is_held:
            self.committed = len(self.records)

    def read(self, offset: int, max_bytes: int) -> Any:
        records = [Record(Offset(at), NOW, key, value, ()) for at, (key, value) in enumerate(self.records)][offset:]
        return SimpleNamespace(records=bytes(build(records)) if records else b"")

    def is_committed(self, end: int) -> bool:
        return end <= self.committed


class OurTransactions:
    """One coordinator's node, whose partitions other brokers lead."""

    def __init__(self, allows_two_phase_commit: bool) -> None:
        self.now = NOW
        self.version = 0
        self.leaders: Leaders = {}
        self.has_ids = True
        self.answers: list[Message] = []
        self.asked: list[tuple[int, WriteTxnMarkersRequest, Callable[[Any, int], None]]] = []
        self.log = LogPartition()
        self._next_producer_id = 1000
        context = SimpleNamespace(
            node=0,
            image=SimpleNamespace(partition=self._partition, features=self),
            configuration=SimpleNamespace(integer=INTEGERS.get, broker=lambda name: allows_two_phase_commit),
            replicas=SimpleNamespace(leading=self._leading),
            purgatories=Purgatories(),
            responder=SimpleNamespace(respond=lambda request, answer: self.answers.append(answer)),
            log=lambda level, text: None,
            coordinators=SimpleNamespace(index_of=lambda topic, key: 0, is_changed=lambda topic: False),
        )
        self.purgatories = context.purgatories
        self.transactions = Transactions(cast(Any, context), cast(Any, self), self._new_id, cast(Any, None))
        self.transactions.on_role(cast(Any, self.log), self.now)

    # ---- what the node knows and uses

    def _partition(self, topic: str, index: int) -> Any:
        leader = self.leaders.get((topic, index))
        return None if leader is None else SimpleNamespace(leader=leader)

    def get(self, name: str, default: Any = None) -> Any:
        """A feature's level."""
        assert name == FEATURE
        return self.version

    def _leading(self, partition: LogPartition, leader_epoch: int | None = None) -> LogPartition | None:
        return partition if leader_epoch in (None, partition.leader_epoch) else None

    def _new_id(self, now: TimestampMs) -> ProducerId:
        if not self.has_ids:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._next_producer_id += 1
        return ProducerId(self._next_producer_id - 1)

    def ask(self, broker: int, purpose: str, body: Any, timeout_ms: int, answered: Any, now: int) -> None:
        assert purpose == PURPOSE
        self.asked.append((broker, body, answered))

    # ---- what happens to it

    def handle(self, body: Message, version: int) -> None:
        request = SimpleNamespace(key=body.KEY, version=version, client=SimpleNamespace(connection=1))
        answer = HANDLERS[type(body)](self.transactions, request, body, self.now)
        if answer is not None:
            self.answers.append(answer)

    def advance(self) -> None:
        self.transactions.advance(self.now)

    def answer_markers(self, broker: int, errors: dict[str, int], is_lost: bool) -> list[str]:
        """Let a broker respond to all requests for markers, also to those sent after a response: ours sends one at a time.

        Returns the markers of the current leader epoch; those of earlier ones may be queued, or not.
        """
        found: set[str] = set()
        while waiting := [each for each in self.asked if each[0] == broker]:
            self.asked.remove(waiting[0])
            _, body, answered = waiting[0]
            found |= {*_shown(broker, body, self.log.leader_epoch)}
            answer = markers_response(body, ErrorCode.NONE)
            for topic in (topic for marker in answer.markers for topic in marker.topics):
                for each in topic.partitions:
                    each.error_code = errors.get(f"{topic.name}-{each.partition_index}", 0)
            answered(None if is_lost else answer, self.now)
        return sorted(found)

    def load(self, records: Iterable[KeyValue]) -> None:
        """Resign from the partition and lead it again with these records."""
        self.log.leader_epoch += 2
        self.purgatories.produces.wake(self.log.key, self.now)  # the requests that waited learn that it was lost
        self.log.records = [*records]
        self.log.committed = len(self.log.records)
        self.transactions.on_role(cast(Any, self.log), self.now)

    # ---- how it is

    def described(self, ids: Sequence[str]) -> list[Any]:
        body = DescribeTransactionsRequest(transactional_ids=[*ids])
        answer = transaction_requests.describe_transactions(self.transactions, cast(Any, None), body, self.now)
        return [_described(each) for each in answer.transaction_states]

    def listed(self, body: ListTransactionsRequest) -> list[Any]:
        answer: ListTransactionsResponse = transaction_requests.list_transactions(
            self.transactions, cast(Any, None), body, self.now
        )
        if answer.error_code:
            return [answer.error_code]
        listed = [
            f"{one.transactional_id} {one.producer_id} {one.transaction_state}" for one in answer.transaction_states
        ]
        return [0, sorted(listed + answer.unknown_state_filters)]


def _shown(broker: int, body: WriteTxnMarkersRequest, epoch: int) -> Iterable[str]:
    for marker in [marker for marker in body.markers if marker.coordinator_epoch == epoch]:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                yield (
                    f"{broker} {topic.name}-{index} {marker.producer_id} {marker.producer_epoch} "
                    f"{str(marker.transaction_result).lower()} {marker.transaction_version}"
                )


def _described(each: DescribeTransactionsResponse.TransactionState) -> list[Any]:
    partitions = [f"{topic.topic}-{index}" for topic in each.topics for index in topic.partitions]
    return [
        each.error_code,
        each.transaction_state,
        each.producer_id,
        each.producer_epoch,
        each.transaction_timeout_ms,
        each.transaction_start_time_ms,
        sorted(partitions),
    ]
