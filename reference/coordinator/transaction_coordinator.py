"""The transaction coordinator of one partition of `__transaction_state`.

A decision returns records for the next state. The caller appends them to the partition and replays them here; responses
wait until they are committed. A committed outcome (PrepareCommit, PrepareAbort) is carried out by the node:
`take_prepared` returns its transactions, and the node writes a marker to each partition. `write_marker` removes a
partition that has its marker, and `complete_transaction` is decided when none is left. A later coordinator finds
prepared transactions in the log, and has all markers written again: a second marker in a partition changes nothing.

Source: KIP-98, KIP-360, KIP-890, KIP-664, KIP-994; org.apache.kafka `TransactionCoordinator` of 4.3.1; requirements TXN-*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from reference.coordinator.transaction_endings import Ending, ending, ending_before_kip_890
from reference.coordinator.transaction_records import (
    KeyValue,
    decode_key,
    decode_value,
    transaction_record,
    transaction_tombstone,
)
from reference.coordinator.transaction_sessions import (
    Identity,
    NewProducerId,
    aborted_and_fenced,
    next_session,
    require_session_may_begin,
)
from reference.coordinator.transaction_state import (
    FOR_EVER_MS,
    PREPARED,
    TRANSACTION_VERSION_2,
    State,
    TopicPartition,
    Transaction,
)
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Buffer,
    LeaderEpoch,
    TimestampMs,
    TransactionalId,
)
from reference.replication.replica import Trace


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's settings for transactions."""

    max_timeout_ms: int
    expiration_ms: int
    allows_two_phase_commit: bool

    def timeout_of(self, asked_ms: int, two_phase: bool, keep_prepared: bool = False) -> int:
        """The transaction timeout of a session; unlimited with two-phase commit (KIP-939, TXN-04).

        Errors: KafkaError TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION, INVALID_TRANSACTION_TIMEOUT.
        """
        if two_phase and not self.allows_two_phase_commit:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if keep_prepared:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if two_phase:
            return FOR_EVER_MS
        if not 0 < asked_ms <= self.max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        return asked_ms


class Decided(NamedTuple):
    """Records to append, and the state after them."""

    records: list[KeyValue]
    transaction: Transaction


class _Own(NamedTuple):
    """A state that was decided here and is not replayed yet. It has the last epoch, which no record has."""

    transaction: Transaction
    value: bytes | None
    reported: Callable[[], None]


class TransactionCoordinator:
    """The transactional ids of one partition."""

    def __init__(
        self,
        index: int,
        epoch: LeaderEpoch,
        settings: TransactionSettings,
        version: Callable[[], int],
        new_producer_id: NewProducerId,
        trace: Trace | None = None,
    ) -> None:
        """`epoch` is the coordinator's own; `version` returns the cluster's finalized transaction.version."""
        self.index = index
        self.epoch = epoch
        self.transactions: dict[TransactionalId, Transaction] = {}
        self._settings = settings
        self._version = version
        self._new_producer_id = new_producer_id
        self._trace = trace
        self._own: dict[TransactionalId, _Own] = {}
        self._prepared: list[TransactionalId] = []

    # ---- what clients ask

    def new_session(self, id: TransactionalId, timeout_ms: int, expected: Identity | None, now: TimestampMs) -> Decided:
        """InitProducerId. If the decision is PrepareAbort, it aborts the open transaction, and the client has to retry
        (TXN-05).

        Errors: KafkaError PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; as `new_producer_id`.
        """
        known = self.transactions.get(id)
        if known is None:
            known = Transaction(id, self._new_producer_id(now), NO_PRODUCER_EPOCH, timeout_ms, updated_at=now)
        require_session_may_begin(known, expected)
        if known.state is State.ONGOING:
            decided = aborted_and_fenced(known, self._version(), self._new_producer_id, now)
        else:
            decided = next_session(known, timeout_ms, expected, self._new_producer_id, now)
        return self._decide(decided, lambda: self.trace_step("NewSession", id))

    def add_partitions(
        self,
        id: TransactionalId,
        identity: Identity,
        partitions: Iterable[TopicPartition],
        version: int,
        now: TimestampMs,
    ) -> Decided | None:
        """Add partitions to the transaction, and begin it with the first ones; None if all of them are in it already
        (TXN-10).

        Errors: KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        found = self.transactions.get(id)
        if found is not None and found.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        known = self._known(id, identity)
        added = frozenset(partitions)
        if known.state is State.ONGOING and added <= known.partitions:
            return None
        names = [f"{each.topic}-{each.partition}" for each in sorted(added)]
        decided = known.with_partitions(added, version, now)
        return self._decide(decided, lambda: self.trace_step("AddPartitions", id, partitions=names))

    def verify_partitions(
        self, id: TransactionalId, identity: Identity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition is in the transaction (TXN-16). Errors: as `add_partitions`."""
        known = self._known(id, identity)
        # While markers are written, the listed partitions are those of the ending transaction: they must not admit a
        # new batch.
        if known.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return {
            each: ErrorCode.NONE if each in known.partitions else ErrorCode.TRANSACTION_ABORTABLE for each in partitions
        }

    def _known(self, id: TransactionalId, identity: Identity) -> Transaction:
        known = self.transactions.get(id)
        if known is None or known.producer_id != identity.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.epoch != identity.epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return known

    def end_transaction(
        self, id: TransactionalId, identity: Identity, committed: bool, version: int, now: TimestampMs
    ) -> tuple[Decided | None, Identity]:
        """EndTxn in a client's transaction version: the records, and the producer's id and epoch from then on.

        Errors: KafkaError INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE; as
        `new_producer_id`.
        """
        known = self.transactions.get(id)
        if known is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        bumps = version >= TRANSACTION_VERSION_2
        if (ending if bumps else ending_before_kip_890)(known, identity, committed) is Ending.DONE:
            return None, Identity(known.producer_id, known.epoch)
        next_producer_id = self._new_producer_id(now) if bumps and known.is_exhausted else NO_PRODUCER_ID
        # The decision is a record before it is markers: a coordinator that takes over must write the same ones.
        prepared = known.prepared(committed, version, now, next_producer_id)
        then = prepared.completed(now)
        decided = self._decide(
            prepared, lambda: self.trace_step("EndTransaction", id, committed=committed, bumps=bumps)
        )
        return decided, Identity(then.producer_id, then.epoch)

    # ---- carrying out

    def take_prepared(self) -> list[TransactionalId]:
        """The ids of transactions that were prepared since the last call, and are not complete."""
        ids, self._prepared = self._prepared, []
        return [id for id in dict.fromkeys(ids) if id in self.transactions and self.transactions[id].state in PREPARED]

    def write_marker(self, id: TransactionalId, identity: Identity, partition: TopicPartition) -> bool:
        """Remove a partition that has its marker or was deleted; True if it was the last. Ignore an earlier
        transaction's marker."""
        known = self.transactions.get(id)
        # A late answer to a marker of an earlier transaction must not count here: this transaction would end too early.
        if known is None or known.state not in PREPARED or (known.producer_id, known.epoch) != identity:
            return False
        self.transactions[id] = known.without(partition)
        if self._trace is not None:
            self.trace_step("WriteMarker", id, partition=f"{partition.topic}-{partition.partition}")
        return not self.transactions[id].partitions

    def complete_transaction(self, id: TransactionalId, now: TimestampMs) -> Decided:
        """Complete a transaction after all its markers are written."""
        known = self.transactions[id]
        assert not known.partitions
        return self._decide(known.completed(now), lambda: self.trace_step("CompleteTransaction", id))

    # ---- by itself

    def timed_out(self, now: TimestampMs) -> list[TransactionalId]:
        """The transactions that are open for longer than their timeout (TXN-20)."""
        return [id for id, each in self.transactions.items() if each.is_timed_out(now)]

    def time_out(self, id: TransactionalId, now: TimestampMs) -> Decided:
        """Abort a transaction and fence its producer. Errors: as `new_producer_id`."""
        decided = aborted_and_fenced(self.transactions[id], self._version(), self._new_producer_id, now)
        return self._decide(decided, lambda: self.trace_step("TimeOut", id))

    def expire(self, now: TimestampMs) -> list[KeyValue]:
        """The tombstones of ids that were not used for transactional.id.expiration.ms."""
        due = [id for id, each in self.transactions.items() if each.is_expired(now, self._settings.expiration_ms)]
        return [transaction_tombstone(self.transactions[id].to(State.DEAD).id) for id in due]

    # ---- records

    def _decide(self, transaction: Transaction, reported: Callable[[], None]) -> Decided:
        record = transaction_record(transaction, min(self._version(), 1))
        self._own[transaction.id] = _Own(transaction, record[1], reported)
        return Decided([record], transaction)

    def replay(self, key: Buffer, value: Buffer | None, now: TimestampMs, producer: Any) -> None:
        """Replay a record of this coordinator or of an earlier one. Errors: CodecError."""
        id = decode_key(key)
        own = self._own.pop(id, None)
        if value is None:
            self.transactions.pop(id, None)
            return
        is_own = own is not None and own.value == value
        transaction = own.transaction if own is not None and is_own else decode_value(id, value)
        self.transactions[id] = transaction
        if transaction.state in PREPARED:
            self._prepared.append(id)
        if own is not None and is_own and self._trace is not None:
            own.reported()

    def replay_marker(self, producer: Any, committed: bool) -> None:
        """Do nothing: no record of this log is written within a transaction."""

    def loaded(self, now: TimestampMs) -> None:
        """Trace the replayed transactions. The caller gets prepared ones from `take_prepared`, and has their markers
        written again."""
        if self._trace is not None:
            for id in self.transactions:
                self.trace_step("TakeOver", id)

    def unload(self, now: TimestampMs) -> None:
        """Do nothing: no request is pending here."""

    # ---- the trace

    def trace_step(self, action: str, id: TransactionalId, **arguments: Any) -> None:
        """Write one row: the step, and the transaction's state after it."""
        assert self._trace is not None
        after = self.transactions[id]
        row: dict[str, Any] = {
            "transactionalId": id,
            "action": action,
            "args": arguments,
            "coordinatorEpoch": self.epoch,
            "state": after.state.title,
            "producerId": after.producer_id,
            "producerEpoch": after.epoch,
            "partitions": [f"{each.topic}-{each.partition}" for each in sorted(after.partitions)],
        }
        self._trace(action, row)
