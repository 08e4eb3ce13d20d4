"""Verifies a transaction with its coordinator before a partition's first batch of it. (TXN-16 to TXN-18)

Clients from before KIP-890 have added the partition themselves, and the coordinator only confirms it. For later clients the
request adds it. Requests are batched per broker, with at most one in flight, and each transactional id once in it. While the
coordinator completes the previous transaction, the request is retried for a short time.

Source: KIP-890; org.apache.kafka `AddPartitionsToTxnManager`, `ReplicaManager` of 4.3.1.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import Enum
from itertools import count

from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import TRANSACTION_VERSION_2, TopicPartition
from reference.node.context import Context
from reference.node.internal_topics import TRANSACTIONS_TOPIC
from reference.node.peers import Brokers
from reference.node.transactions import Answered, Transactions, Verdicts
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from reference.protocol.primitives import NEVER, NO_NODE, NodeId, TimestampMs, TransactionalId
from reference.protocol.schema import Message

PURPOSE = "verification"

AskedTransaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
AskedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Operation(Enum):
    """The kind of verification that a client's request version supports."""

    VERIFY_OLD = "INVALID_TXN_STATE says that the partition is not in the transaction"
    VERIFY = "TRANSACTION_ABORTABLE says it"
    ADD = "the partition is added (transaction version 2)"


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    id: TransactionalId
    identity: Identity
    partitions: tuple[TopicPartition, ...]
    operation: Operation
    answered: Answered
    patience_ends: TimestampMs
    """The time until which CONCURRENT_TRANSACTIONS is retried."""

    def all(self, code: ErrorCode) -> Verdicts:
        return dict.fromkeys(self.partitions, code)


class Verification:
    """Verification requests of this node's partitions to transaction coordinators."""

    def __init__(self, context: Context, brokers: Brokers, transactions: Transactions) -> None:
        self.asks_others = True
        """False with brokers of 2.8, which do not support it: as in Kafka, their transactions are then not verified."""
        self._context = context
        self._brokers = brokers
        self._transactions = transactions
        integer = context.configuration.integer
        self._timeout_ms = integer("request.timeout.ms")
        self._retry_ms = integer("add.partitions.to.txn.retry.backoff.ms")
        self._patience_ms = integer("add.partitions.to.txn.retry.backoff.max.ms")
        self._lines: dict[NodeId, list[_Question]] = {}
        self._asked: set[NodeId] = set()
        """Brokers with a request in flight."""
        self._again: list[tuple[TimestampMs, int, _Question]] = []
        self._numbers = count()

    @property
    def is_enabled(self) -> bool:
        """transaction.partition.verification.enable; it does not affect adding partitions."""
        return self._context.configuration.broker("transaction.partition.verification.enable") is True

    def ask(
        self,
        id: TransactionalId,
        identity: Identity,
        partitions: tuple[TopicPartition, ...],
        operation: Operation,
        now: TimestampMs,
        answered: Answered,
    ) -> None:
        """Send a request; `answered` gets an error code per partition, possibly before this returns."""
        self._put(_Question(id, identity, partitions, operation, answered, now + self._patience_ms), now)

    def tick(self, now: TimestampMs) -> None:
        """Retry the requests that are due."""
        while self._again and self._again[0][0] <= now:
            self._put(heapq.heappop(self._again)[2], now)

    def next_deadline(self) -> TimestampMs:
        return self._again[0][0] if self._again else NEVER

    def _put(self, question: _Question, now: TimestampMs) -> None:
        coordinator = self._context.coordinators.leader_of(TRANSACTIONS_TOPIC, question.id)
        if coordinator == NO_NODE:
            question.answered(question.all(ErrorCode.COORDINATOR_NOT_AVAILABLE), now)
        elif coordinator == self._context.node:
            self._ask_here(question, now)
        elif not self.asks_others:
            question.answered(question.all(ErrorCode.NONE), now)
        else:
            self._lines.setdefault(coordinator, []).append(question)
            self._send(coordinator, now)

    # ---- the coordinator on this node

    def _ask_here(self, question: _Question, now: TimestampMs) -> None:
        transactions = self._transactions

        def answered(verdicts: Verdicts, then: TimestampMs) -> None:
            self._take(question, verdicts, then)

        if question.operation is Operation.ADD:
            transactions.join(question.id, question.identity, question.partitions, TRANSACTION_VERSION_2, now, answered)
        else:
            transactions.verify(question.id, question.identity, question.partitions, now, answered)

    # ---- a coordinator on another node

    def _send(self, broker: NodeId, now: TimestampMs) -> None:
        if broker in self._asked or not self._lines.get(broker):
            return
        questions = _first_of_each_id(self._lines[broker])
        self._lines[broker] = [each for each in self._lines[broker] if each not in questions]
        self._asked.add(broker)

        def answered(answer: Message | None, then: TimestampMs) -> None:
            self._asked.discard(broker)
            found = _verdicts(answer) if isinstance(answer, AddPartitionsToTxnResponse) else {}
            for question in questions:
                verdicts = found.get(question.id, {})
                self._take(
                    question,
                    {each: verdicts.get(each, ErrorCode.NETWORK_EXCEPTION) for each in question.partitions},
                    then,
                )
            self._send(broker, then)

        body = AddPartitionsToTxnRequest(transactions=[_asked(each) for each in questions])
        self._brokers.ask(broker, PURPOSE, body, self._timeout_ms, answered, now)

    def _take(self, question: _Question, verdicts: Verdicts, now: TimestampMs) -> None:
        """Pass the results on, or retry after a pause while the coordinator answers CONCURRENT_TRANSACTIONS."""
        waits = question.operation is Operation.ADD and now < question.patience_ends
        if waits and ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values():
            heapq.heappush(self._again, (now + self._retry_ms, next(self._numbers), question))
        else:
            question.answered({each: _reported(code, question.operation) for each, code in verdicts.items()}, now)


def _first_of_each_id(line: list[_Question]) -> list[_Question]:
    found: dict[TransactionalId, _Question] = {}
    for question in line:
        found.setdefault(question.id, question)
    return [*found.values()]


def _asked(question: _Question) -> AskedTransaction:
    by_topic: dict[str, list[int]] = {}
    for partition in question.partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return AskedTransaction(
        transactional_id=question.id,
        producer_id=question.identity.producer_id,
        producer_epoch=question.identity.epoch,
        verify_only=question.operation is not Operation.ADD,
        topics=[AskedTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()],
    )


def _verdicts(answer: AddPartitionsToTxnResponse) -> dict[TransactionalId, dict[TopicPartition, ErrorCode]]:
    return {
        result.transactional_id: {
            TopicPartition(topic.name, each.partition_index): ErrorCode(answer.error_code or each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in answer.results_by_transaction
    }


def _reported(code: ErrorCode, operation: Operation) -> ErrorCode:
    """The coordinator's error, replaced if the client's version does not have it."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.VERIFY_OLD:
        return ErrorCode.INVALID_TXN_STATE
    return code
