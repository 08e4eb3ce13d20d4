"""Sending the markers of prepared transactions to the leaders of their partitions. (TXV-04, TXV-10, TXV-11)

Markers are queued per broker; each WriteTxnMarkers takes a whole queue, with at most one in flight per broker. A marker that
could not be written is sent again, to the partition's present leader, until it is written or the partition is deleted. A
coordinator that has lost its partition sends nothing more, because its successor does.

Source: org.apache.kafka `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler` of 4.3.1.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from reference.coordinator.transaction_coordinator import TransactionCoordinator
from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import PREPARED, TopicPartition, Transaction
from reference.node.context import Context
from reference.node.coordination import Coordination
from reference.node.peers import Brokers
from reference.node.write_markers import Answered
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from reference.protocol.primitives import NEVER, NO_NODE, NodeId, TimestampMs, TransactionalId
from reference.protocol.schema import Message

PURPOSE = "markers"
RETRY_MS = 50
"""The delay before a failed marker is sent again."""

GIVEN_UP = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A newer epoch has ended the transaction in the partition: a marker of this one will never be accepted."""

TAKES_NONE = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""A partition of a message format without transactions, on a broker before Kafka 4.0: it has no records of the transaction."""

NOT_NOW = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""The coordinator's own partition does not accept the record of the end now, for too few in-sync replicas or a disk failure.
If this node is no longer the coordinator, the next attempt detects that."""


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """A transaction whose markers are being written."""

    index: int
    coordinator: TransactionCoordinator
    transaction: Transaction
    """Its state when it was prepared."""

    @property
    def id(self) -> TransactionalId:
        return self.transaction.id

    @property
    def identity(self) -> Identity:
        return Identity(self.transaction.producer_id, self.transaction.epoch)


WriteHere = Callable[[WriteTxnMarkersRequest, TimestampMs, Answered], None]

_Part = tuple[_Work, list[TopicPartition]]


class Markers:
    """The markers of this node's prepared transactions."""

    def __init__(
        self,
        context: Context,
        brokers: Brokers,
        write_here: WriteHere,
        coordination: Coordination[TransactionCoordinator],
    ) -> None:
        self._context = context
        self._brokers = brokers
        self._write_here = write_here
        self._coordination = coordination
        self._timeout_ms = context.configuration.integer("request.timeout.ms")
        self._lines: dict[NodeId, list[_Part]] = {}
        self._asked: set[NodeId] = set()
        """Brokers with a request in flight."""
        self._again: list[tuple[TimestampMs, int, _Part]] = []
        """Markers to queue, each with its time."""
        self._numbers = count()

    def add(self, index: int, coordinator: TransactionCoordinator, id: TransactionalId, now: TimestampMs) -> None:
        """Queue the markers of a prepared transaction, whose record is committed."""
        transaction = coordinator.transactions.get(id)
        if transaction is not None and transaction.state in PREPARED:
            part = _Work(index, coordinator, transaction), sorted(transaction.partitions)
            heapq.heappush(self._again, (now, next(self._numbers), part))

    def send(self, now: TimestampMs) -> None:
        """Send the queued markers."""
        while self._again and self._again[0][0] <= now:
            self._enqueue(heapq.heappop(self._again)[2], now)
        while (ready := next((broker for broker in self._lines if broker not in self._asked), None)) is not None:
            held = [part for part in self._lines.pop(ready) if self._holds(part[0])]
            if held:
                self._ask(ready, held, now)

    def next_deadline(self) -> TimestampMs:
        return self._again[0][0] if self._again else NEVER

    # ---- standing in line

    def _enqueue(self, part: _Part, now: TimestampMs) -> None:
        work, partitions = part
        if not self._holds(work):
            return
        by_leader: dict[NodeId, list[TopicPartition]] = {}
        for partition in partitions:
            found = self._context.image.partition(*partition)
            if found is None:
                work.coordinator.write_marker(work.id, work.identity, partition)
            else:
                by_leader.setdefault(found.leader, []).append(partition)
        self._try_again(work, by_leader.pop(NO_NODE, []), now)
        for leader, wanted in by_leader.items():
            self._lines.setdefault(leader, []).append((work, wanted))
        self._complete_if_done(work, now)

    def _holds(self, work: _Work) -> bool:
        return self._coordination.holds(work.index, work.coordinator)

    def _try_again(self, work: _Work, partitions: list[TopicPartition], now: TimestampMs) -> None:
        if partitions:
            heapq.heappush(self._again, (now + RETRY_MS, next(self._numbers), (work, partitions)))

    def _complete_if_done(self, work: _Work, now: TimestampMs) -> None:
        """Complete the transaction if all its markers are written and it is still the same."""
        known = work.coordinator.transactions.get(work.id)
        if known is None or known.partitions or known.state is not work.transaction.state:
            return
        if Identity(known.producer_id, known.epoch) != work.identity:
            return
        try:
            decided = work.coordinator.complete_transaction(work.id, now)
            self._coordination.write(work.index, decided.records, now)
        except KafkaError as error:
            if error.code in NOT_NOW:
                heapq.heappush(self._again, (now + RETRY_MS, next(self._numbers), (work, [])))

    # ---- asking

    def _ask(self, broker: NodeId, parts: list[_Part], now: TimestampMs) -> None:
        self._asked.add(broker)
        body = WriteTxnMarkersRequest(markers=[_marker(work, partitions) for work, partitions in parts])

        def answered(answer: Message | None, then: TimestampMs) -> None:
            self._asked.discard(broker)
            results = _results(answer) if isinstance(answer, WriteTxnMarkersResponse) else {}
            for work, partitions in parts:
                self._take_results(work, partitions, results, then)
            self.send(then)

        if broker == self._context.node:
            self._write_here(body, now, answered)
        else:
            self._brokers.ask(broker, PURPOSE, body, self._timeout_ms, answered, now)

    def _take_results(
        self,
        work: _Work,
        partitions: Iterable[TopicPartition],
        results: dict[tuple[int, TopicPartition], int],
        now: TimestampMs,
    ) -> None:
        if not self._holds(work):
            return
        left: list[TopicPartition] = []
        for partition in partitions:
            error = results.get((work.transaction.producer_id, partition), ErrorCode.NETWORK_EXCEPTION)
            if error == ErrorCode.NONE or error in TAKES_NONE:
                work.coordinator.write_marker(work.id, work.identity, partition)
            elif error in GIVEN_UP:
                self._context.log(
                    "warning",
                    f"{partition.topic}-{partition.partition} refused the marker of {work.id}, which is not retried: {error}",
                )
            else:
                left.append(partition)
        self._try_again(work, left, now)
        self._complete_if_done(work, now)


def _marker(work: _Work, partitions: list[TopicPartition]) -> WriteTxnMarkersRequest.WritableTxnMarker:
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=work.transaction.producer_id,
        producer_epoch=work.transaction.epoch,
        transaction_result=work.transaction.commits,
        topics=[topic(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()],
        coordinator_epoch=work.coordinator.epoch,
        transaction_version=work.transaction.client_version,
    )


def _results(answer: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], int]:
    return {
        (marker.producer_id, TopicPartition(topic.name, each.partition_index)): each.error_code
        for marker in answer.markers
        for topic in marker.topics
        for each in topic.partitions
    }
