"""The states of a transactional id, and one transactional id's whole state.

`VALID_PREVIOUS_STATES` is Kafka's table; only `Transaction.to` changes a state, and asserts the table. A Dead
transactional id is being removed, and in PrepareEpochFence its producer is being fenced: neither state is ever written.

Source: KIP-98, KIP-360, KIP-890; org.apache.kafka.coordinator.transaction.TransactionState, TransactionMetadata of 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from reference.protocol.primitives import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicName,
    TransactionalId,
)


class State(IntEnum):
    """The states, with their numbers in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Kafka's name of the state, such as PrepareCommit."""
        return self.name.title().replace("_", "")


_A_PARTITION_JOINS = "its first partition joins"
_A_NEW_SESSION = "a new session begins"
_NOTHING_TO_ABORT = "an abort without partitions (KIP-890)"
_FORGOTTEN = "no producer used the id for long"

VALID_PREVIOUS_STATES: dict[State, dict[State, str]] = {
    State.EMPTY: {
        State.EMPTY: _A_NEW_SESSION,
        State.COMPLETE_COMMIT: _A_NEW_SESSION,
        State.COMPLETE_ABORT: _A_NEW_SESSION,
    },
    State.ONGOING: {
        State.EMPTY: _A_PARTITION_JOINS,
        State.ONGOING: "another partition joins",
        State.COMPLETE_COMMIT: _A_PARTITION_JOINS,
        State.COMPLETE_ABORT: _A_PARTITION_JOINS,
    },
    State.PREPARE_EPOCH_FENCE: {State.ONGOING: "it timed out, or a new session begins"},
    State.PREPARE_COMMIT: {State.ONGOING: "EndTxn commits"},
    State.PREPARE_ABORT: {
        State.ONGOING: "EndTxn aborts",
        State.PREPARE_EPOCH_FENCE: "the producer is fenced",
        State.EMPTY: _NOTHING_TO_ABORT,
        State.COMPLETE_COMMIT: _NOTHING_TO_ABORT,
        State.COMPLETE_ABORT: _NOTHING_TO_ABORT,
    },
    State.COMPLETE_COMMIT: {State.PREPARE_COMMIT: "all partitions have their markers"},
    State.COMPLETE_ABORT: {State.PREPARE_ABORT: "all partitions have their markers"},
    State.DEAD: {
        State.EMPTY: _FORGOTTEN,
        State.COMPLETE_COMMIT: _FORGOTTEN,
        State.COMPLETE_ABORT: _FORGOTTEN,
    },
}
"""For each state the previous states, with the cause of each transition."""


def diagram() -> str:
    """The table as a Mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.EMPTY.title}"]
    for state, before in VALID_PREVIOUS_STATES.items():
        lines += [f"    {each.title} --> {state.title}: {why}" for each, why in before.items()]
    return "\n".join([*lines, f"    {State.DEAD.title} --> [*]"])


PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is decided and markers are being written."""
COMPLETED = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
WRITTEN = frozenset(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE}
"""The states that a record may have."""
CAN_EXPIRE = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""The states in which an unused transactional id expires."""

LAST_EPOCH = ProducerEpoch(2**15 - 1)
"""The greatest epoch. It is reserved for fencing: clients never get it."""
EXHAUSTED_EPOCH = ProducerEpoch(LAST_EPOCH - 1)
"""The epoch at which a producer id has no epochs left for clients (TXN-15)."""
FOR_EVER_MS = 2**31 - 1
"""The timeout of a participant in an external two-phase commit (KIP-939)."""
TRANSACTION_VERSION_2 = 2
"""The first transaction.version in which each end of a transaction raises the epoch (KIP-890)."""


class TopicPartition(NamedTuple):
    topic: TopicName
    partition: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """The coordinator's state of a transactional id."""

    id: TransactionalId
    producer_id: ProducerId
    epoch: ProducerEpoch
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """The partitions of the open transaction; during the write of its markers, those that still lack one."""
    started_at: TimestampMs = NO_TIMESTAMP
    updated_at: TimestampMs = NO_TIMESTAMP
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id before the last change: its last owner may repeat the request (TXN-15)."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The producer id after this transaction is complete, because the present one has no epochs left; else none."""
    last_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before the present one, if its producer requested the next by itself (TXN-06). Kafka's log does not
    store it, so after a change of the coordinator such a producer is fenced."""
    client_version: int = 0
    """The transaction version of the client's requests."""

    def to(self, state: State, **changes: Any) -> Transaction:
        """The transaction in its next state. A transition that the table does not have is a bug of this coordinator."""
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.id}: {self.state.title} -> {state.title}"
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)

    # ---- questions

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for clients."""
        return self.epoch >= EXHAUSTED_EPOCH

    @property
    def commits(self) -> bool:
        """Whether the outcome of a prepared or complete transaction is a commit."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    def is_timed_out(self, now: TimestampMs) -> bool:
        return (
            self.state is State.ONGOING and self.timeout_ms != FOR_EVER_MS and self.started_at + self.timeout_ms < now
        )

    def is_expired(self, now: TimestampMs, expiration_ms: int) -> bool:
        return self.state in CAN_EXPIRE and self.updated_at <= now - expiration_ms

    # ---- steps

    def begun_again(self, timeout_ms: int, expected: ProducerEpoch | None, now: TimestampMs) -> Transaction | None:
        """The next session, with the next epoch. None if the expected epoch is neither the present nor the last one (TXN-06)."""
        epoch, last_epoch = self.epoch + 1, NO_PRODUCER_EPOCH
        if expected is not None:
            if self.epoch == NO_PRODUCER_EPOCH or expected == self.epoch:
                last_epoch = self.epoch
            elif expected == self.last_epoch:
                epoch, last_epoch = self.epoch, self.last_epoch
            else:
                return None
        return self.to(
            State.EMPTY,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_at=NO_TIMESTAMP,
            updated_at=now,
        )

    def moved_to(self, producer_id: ProducerId, timeout_ms: int, by_itself: bool, now: TimestampMs) -> Transaction:
        """The next session under another producer id, because the present one is exhausted (TXN-15)."""
        return self.to(
            State.EMPTY,
            producer_id=producer_id,
            epoch=0,
            last_epoch=self.epoch if by_itself else NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_at=NO_TIMESTAMP,
            updated_at=now,
        )

    def with_partitions(self, added: frozenset[TopicPartition], version: int, now: TimestampMs) -> Transaction:
        """The transaction with more partitions; the first ones begin it."""
        return self.to(
            State.ONGOING,
            partitions=self.partitions | added,
            client_version=version,
            updated_at=now,
            started_at=self.started_at if self.state is State.ONGOING else now,
        )

    def fenced(self) -> Transaction:
        """The transaction with its producer fenced, before its abort. No producer ever gets its new epoch."""
        return self.to(State.PREPARE_EPOCH_FENCE, epoch=min(self.epoch + 1, LAST_EPOCH))

    def prepared(
        self, committed: bool, version: int, now: TimestampMs, next_producer_id: ProducerId = NO_PRODUCER_ID
    ) -> Transaction:
        """The transaction with its outcome decided. With KIP-890 its markers and its producer's next batches have the
        next epoch."""
        is_fenced = self.state is State.PREPARE_EPOCH_FENCE
        epoch, last_epoch = self.epoch, self.last_epoch
        if version >= TRANSACTION_VERSION_2:
            last_epoch = self.epoch - 1 if is_fenced else self.epoch
            epoch = self.epoch if is_fenced else min(self.epoch + 1, LAST_EPOCH)
        elif is_fenced:
            last_epoch = NO_PRODUCER_EPOCH
        return self.to(
            State.PREPARE_COMMIT if committed else State.PREPARE_ABORT,
            epoch=epoch,
            last_epoch=last_epoch,
            started_at=self.started_at if self.state in _OPEN else now,
            updated_at=now,
            client_version=version,
            next_producer_id=next_producer_id,
        )

    def without(self, partition: TopicPartition) -> Transaction:
        """The transaction without a partition that has its marker or was deleted."""
        assert self.state in PREPARED
        return replace(self, partitions=self.partitions - {partition})

    def completed(self, now: TimestampMs) -> Transaction:
        """The complete transaction, after all markers are written."""
        moves = self.client_version >= TRANSACTION_VERSION_2 and self.next_producer_id != NO_PRODUCER_ID
        return self.to(
            State.COMPLETE_COMMIT if self.commits else State.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_at=now,
            producer_id=self.next_producer_id if moves else self.producer_id,
            epoch=0 if moves else self.epoch,
            next_producer_id=NO_PRODUCER_ID,
        )


_OPEN = (State.ONGOING, State.PREPARE_EPOCH_FENCE)
