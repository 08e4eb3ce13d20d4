"""The transaction coordinators on this node, and their own work. (TXN-*)

A coordinator decides (`reference.coordinator.transaction_coordinator`). This module finds the coordinator of a transactional
id, writes its decisions, and carries out prepared transactions. When the outcome is committed, and not before, markers are
sent (`markers`). When all of them are written, the transaction is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from reference.coordinator.transaction_coordinator import Decided, TransactionCoordinator, TransactionSettings
from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import TopicPartition
from reference.node.context import Context
from reference.node.coordination import Coordination
from reference.node.internal_topics import TRANSACTIONS_TOPIC
from reference.node.markers import Markers, WriteHere
from reference.node.peers import Brokers
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import (
    AT_ONCE,
    NEVER,
    LeaderEpoch,
    ProducerId,
    TimestampMs,
    TopicName,
    TransactionalId,
)
from reference.replication.partition import Partition, Trace

FEATURE = "transaction.version"

Verdicts = Mapping[TopicPartition, ErrorCode]
Answered = Callable[[Verdicts, TimestampMs], None]


class Transactions:
    """The transactions that this node coordinates."""

    def __init__(
        self,
        context: Context,
        brokers: Brokers,
        next_producer_id: Callable[[TimestampMs], ProducerId],
        write_here: WriteHere,
        trace: Trace | None = None,
    ) -> None:
        """`write_here` writes markers to this broker's partitions."""
        self.context = context
        self._next_producer_id = next_producer_id
        self._trace = trace
        integer = context.configuration.integer
        self.settings = TransactionSettings(
            max_timeout_ms=integer("transaction.max.timeout.ms"),
            expiration_ms=integer("transactional.id.expiration.ms"),
            allows_two_phase_commit=context.configuration.broker("transaction.two.phase.commit.enable") is True,
        )
        self.coordination: Coordination[TransactionCoordinator] = Coordination(
            context,
            TRANSACTIONS_TOPIC,
            self._new_coordinator,
            integer("request.timeout.ms"),
            refuses_other_counts=True,
        )
        self.markers = Markers(context, brokers, write_here, self.coordination)
        self._abort_interval_ms = integer("transaction.abort.timed.out.transaction.cleanup.interval.ms")
        self._expiry_interval_ms = integer("transaction.remove.expired.transaction.cleanup.interval.ms")
        self._next_abort = self._next_expiry = NEVER  # this node has never been a coordinator
        self._has_news = False
        """Whether a transaction may have been prepared."""

    def _new_coordinator(self, index: int, epoch: LeaderEpoch) -> TransactionCoordinator:
        return TransactionCoordinator(
            index,
            epoch,
            self.settings,
            self.version,
            self._next_producer_id,
            self.coordination.tracing(index, epoch, self._trace),
        )

    def version(self) -> int:
        """The cluster's finalized transaction.version; 0 if there is none."""
        return self.context.image.features.get(FEATURE, 0)

    # ---- deciding

    def write(self, index: int, decided: Decided | None, now: TimestampMs) -> None:
        """Write a decision. Errors: as `Coordination.write`."""
        if decided is not None:
            self.coordination.write(index, decided.records, now)
            self._has_news = True

    def join(
        self,
        id: TransactionalId,
        identity: Identity,
        partitions: Iterable[TopicPartition],
        version: int,
        now: TimestampMs,
        answered: Answered,
        forbidden: Container[TopicName] = (),
    ) -> None:
        """Add partitions to a transaction; `answered` gets the verdict of each when it is committed (TXN-09, TXN-10).

        `forbidden` has the topics to which the requester may not write.
        """
        wanted = frozenset(partitions)

        def decide(index: int, coordinator: TransactionCoordinator) -> Verdicts:
            self.write(index, coordinator.add_partitions(id, identity, wanted, version, now), now)
            return dict.fromkeys(wanted, ErrorCode.NONE)

        self._settle(id, wanted, decide, now, answered, forbidden)

    def verify(
        self,
        id: TransactionalId,
        identity: Identity,
        partitions: Iterable[TopicPartition],
        now: TimestampMs,
        answered: Answered,
    ) -> None:
        """Verify that partitions are in a transaction (TXN-16)."""
        wanted = frozenset(partitions)
        self._settle(
            id, wanted, lambda index, coordinator: coordinator.verify_partitions(id, identity, wanted), now, answered
        )

    def _settle(
        self,
        id: TransactionalId,
        partitions: frozenset[TopicPartition],
        decide: Callable[[int, TransactionCoordinator], Verdicts],
        now: TimestampMs,
        answered: Answered,
        forbidden: Container[TopicName] = (),
    ) -> None:
        access = {each: self._access(each, forbidden) for each in partitions}
        if any(access.values()):  # if one partition is refused, none is added (TXN-09)
            answered({each: code or ErrorCode.OPERATION_NOT_ATTEMPTED for each, code in access.items()}, now)
            return
        try:
            if not id:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            index, coordinator = self.coordination.shard_of(id)
            verdicts = decide(index, coordinator)
        except KafkaError as error:
            answered(dict.fromkeys(partitions, error.code), now)
            return

        def outcome(error: ErrorCode, then: TimestampMs) -> None:
            refused = dict.fromkeys(partitions, after_append(error))
            answered(verdicts if error is ErrorCode.NONE else refused, then)

        self.coordination.when_committed(index, now, outcome)

    def _access(self, partition: TopicPartition, forbidden: Container[TopicName]) -> ErrorCode:
        if partition.topic in forbidden:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        is_there = self.context.image.partition(*partition) is not None
        return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # ---- by itself

    def on_role(self, partition: Partition, now: TimestampMs) -> None:
        """Begin a new leader epoch of a replica of `__transaction_state`."""
        self.coordination.on_role(partition, now)
        self._has_news = True
        if self._next_abort == NEVER:
            self._next_abort = now + self._abort_interval_ms
            self._next_expiry = now + self._expiry_interval_ms

    def advance(self, now: TimestampMs) -> None:
        """Continue with prepared transactions; to be called after one may have been prepared."""
        if self.coordination.has_to_load:
            self.coordination.load(now)
            self._has_news = True
        if self._has_news:
            self._has_news = False
            for index, coordinator in self.coordination.loaded():
                for id in coordinator.take_prepared():
                    self._carry_out(index, coordinator, id, now)
        self.markers.send(now)

    def _carry_out(
        self, index: int, coordinator: TransactionCoordinator, id: TransactionalId, now: TimestampMs
    ) -> None:
        """Send markers once the outcome is committed: before, another coordinator may decide differently."""

        def outcome(error: ErrorCode, then: TimestampMs) -> None:
            if error is ErrorCode.NONE:
                self.markers.add(index, coordinator, id, then)
            elif self.coordination.holds(index, coordinator):
                self._carry_out(index, coordinator, id, then)

        if self.coordination.holds(index, coordinator):
            self.coordination.when_committed(index, now, outcome)

    def tick(self, now: TimestampMs) -> None:
        """Abort transactions that timed out, remove unused ids, and continue with prepared transactions."""
        if now >= self._next_abort:
            self._next_abort = now + self._abort_interval_ms
            self._abort_timed_out(now)
        if now >= self._next_expiry:
            self._next_expiry = now + self._expiry_interval_ms
            self._expire(now)
        self.advance(now)

    def _abort_timed_out(self, now: TimestampMs) -> None:
        for index, coordinator in self.coordination.loaded():
            for id in coordinator.timed_out(now):
                try:
                    self.write(index, coordinator.time_out(id, now), now)
                except KafkaError as error:  # the next turn tries again
                    self.context.log(
                        "warning", f"the transaction of {id} timed out and cannot be aborted yet: {error.code.name}"
                    )

    def _expire(self, now: TimestampMs) -> None:
        for index, coordinator in self.coordination.loaded():
            try:
                self.coordination.write_apart(index, coordinator.expire(now), now)
            except KafkaError as error:  # the next turn tries again
                self.context.log(
                    "warning",
                    f"expired transactional ids of partition {index} cannot be removed yet: {error.code.name}",
                )

    def next_deadline(self) -> TimestampMs:
        """The time of the next work for `tick`."""
        if self.coordination.has_to_load or self._has_news:
            return AT_ONCE
        return min(self._next_abort, self._next_expiry, self.markers.next_deadline())


def after_append(error: ErrorCode) -> ErrorCode:
    """The error if a decision's records were not committed in time: clients retry."""
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if error is ErrorCode.REQUEST_TIMED_OUT else error
