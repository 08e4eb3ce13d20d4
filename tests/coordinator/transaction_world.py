"""A transaction coordinator, its log and the partitions that it has markers written to, where everything can be lost or late.

What the coordinator writes is committed later than it is written, and what is not committed may be lost with it; markers
and answers are lost, late or repeated; a new coordinator replays what there is. The partitions are real logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reference.coordinator.transaction_coordinator import Decided, TransactionCoordinator, TransactionSettings
from reference.coordinator.transaction_records import KeyValue
from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import PREPARED, TopicPartition, Transaction
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.records.batch import BatchProducer, build, read_batches, records_of
from reference.protocol.records.control import EndTransaction, build_end_transaction, read_end_transaction
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.storage.errors import LogError
from reference.storage.log import Log
from reference.storage.simulated_disk import SimulatedDisk
from reference.storage.verification import Guard
from tests.storage.logs import NOW, open_log

TIMEOUT_MS = 1000
SETTINGS = TransactionSettings(max_timeout_ms=TIMEOUT_MS, expiration_ms=100_000, allows_two_phase_commit=False)


@dataclass
class Session:
    """A client's session of a transactional id, as the client knows it."""

    id: str
    number: int
    identity: Identity
    version: int
    """The transaction version that it speaks."""
    transaction: int = 0
    sequences: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    is_superseded: bool = False
    """Whether another session has begun since, and its client knows it."""

    @property
    def label(self) -> str:
        """Which transaction a record belongs to."""
        return f"{self.id}/{self.number}/{self.transaction}"

    def go_on(self, identity: Identity) -> None:
        """The transaction was ended, and the next one begins."""
        if identity != self.identity:
            self.sequences = {}
        self.identity = identity
        self.transaction += 1


@dataclass
class Late:
    """A verified write that is on its way to its partition."""

    session: Session
    label: str
    partition: TopicPartition
    identity: Identity
    guard: Guard | None


@dataclass
class Marker:
    """One marker on its way, and the coordinator that sent it."""

    coordinator: TransactionCoordinator
    transaction: Transaction
    partition: TopicPartition


class World:
    """The coordinator's machine, its log, and the partitions."""

    def __init__(self, server_version: int, partitions: int, commits_at_once: bool) -> None:
        self.now = NOW
        self.server_version = server_version
        self.commits_at_once = commits_at_once
        self.log: list[KeyValue] = []
        self.committed = 0
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        """What happens when the log is committed up to somewhere."""
        self.markers: list[Marker] = []
        self.partitions = {TopicPartition("t", index): _new_log() for index in range(partitions)}
        self.ends: dict[str, set[bool]] = {}
        """What clients learned about their transactions."""
        self._next_producer_id = 100
        self._epoch = 0
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self) -> TransactionCoordinator:
        self._epoch += 1
        return TransactionCoordinator(0, self._epoch, SETTINGS, lambda: self.server_version, self._new_producer_id)

    def _new_producer_id(self, now: int) -> int:
        self._next_producer_id += 1
        return self._next_producer_id

    # ---- the coordinator's log

    def write(self, decided: Decided | None, when_committed: Callable[[], None] = lambda: None) -> None:
        if decided is not None:
            self._append(decided.records)
        self.waiting.append((len(self.log), when_committed))
        if self.commits_at_once:
            self.commit_all()

    def _append(self, records: list[KeyValue]) -> None:
        for key, value in records:
            self.log.append((key, value))
            self.coordinator.replay(key, value, self.now, None)
        self._await_prepared()

    def _await_prepared(self) -> None:
        coordinator = self.coordinator
        for id in coordinator.take_prepared():
            self.waiting.append((len(self.log), lambda id=id: self._send_markers(coordinator, id)))

    def commit(self, end: int) -> None:
        """Everything below an offset is on all replicas."""
        self.committed = max(self.committed, min(end, len(self.log)))
        due = [act for offset, act in self.waiting if offset <= self.committed]
        self.waiting = [(offset, act) for offset, act in self.waiting if offset > self.committed]
        for act in due:
            act()

    def commit_all(self) -> None:
        while self.waiting:
            self.commit(len(self.log))

    def crash(self, kept: int) -> None:
        """Another coordinator takes over: it has what is committed, and perhaps more."""
        del self.log[max(kept, self.committed) :]
        self.waiting.clear()
        self.coordinator = self._new_coordinator()
        for key, value in self.log:
            self.coordinator.replay(key, value, self.now, None)
        self.coordinator.loaded(self.now)
        self._await_prepared()

    # ---- markers

    def _send_markers(self, coordinator: TransactionCoordinator, id: str) -> None:
        transaction = coordinator.transactions[id]
        assert transaction.state in PREPARED
        self.markers += [Marker(coordinator, transaction, each) for each in sorted(transaction.partitions)]
        self._complete(coordinator, id)

    def deliver(self, marker: Marker, is_answered: bool) -> None:
        """A partition takes a marker, or refuses it; the coordinator may not learn of it."""
        end = EndTransaction(marker.transaction.commits, marker.coordinator.epoch)
        batch = build_end_transaction(end, marker.transaction.producer_id, marker.transaction.epoch, self.now)
        try:
            self.partitions[marker.partition].append_as_leader(
                batch, 0, self.now, Origin.COORDINATOR, marker.transaction.client_version
            )
        except LogError as error:
            assert error.code in (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        identity = Identity(marker.transaction.producer_id, marker.transaction.epoch)
        if is_answered and marker.coordinator is self.coordinator:
            was_last = self.coordinator.write_marker(marker.transaction.id, identity, marker.partition)
            if was_last:  # an old marker completes nothing: what was prepared since may not be committed yet
                self._complete(marker.coordinator, marker.transaction.id)

    def _complete(self, coordinator: TransactionCoordinator, id: str) -> None:
        known = coordinator.transactions[id]
        if coordinator is self.coordinator and known.state in PREPARED and not known.partitions:
            self.write(self.coordinator.complete_transaction(id, self.now))

    # ---- producers

    def verify(self, session: Session, partition: TopicPartition, then: Callable[[Late], None]) -> None:
        """Ask before a write, as a partition's leader does. Errors: KafkaError, LogError."""
        log, identity, label = self.partitions[partition], session.identity, session.label
        sequence = session.sequences.get(partition, 0)
        adds = session.version >= 2
        guard = log.begin_verification(identity.producer_id, identity.epoch, sequence, adds, self.now)
        late = Late(session, label, partition, identity, guard)
        if guard is None:
            then(late)
        elif adds:
            self.write(
                self.coordinator.add_partitions(session.id, identity, [partition], 2, self.now), lambda: then(late)
            )
        else:
            verdict = self.coordinator.verify_partitions(session.id, identity, [partition])[partition]
            if verdict is not ErrorCode.NONE:
                raise KafkaError(verdict)
            self.write(None, lambda: then(late))

    def append(self, late: Late) -> None:
        """Write one record that says which transaction it is of. Errors: LogError."""
        session, sequence = late.session, late.session.sequences.get(late.partition, 0)
        batch = build(
            [Record(0, self.now, None, late.label.encode())],
            producer=BatchProducer(late.identity.producer_id, late.identity.epoch, sequence, transactional=True),
        )
        info = self.partitions[late.partition].append_as_leader(batch, 0, self.now, guard=late.guard)
        assert info.is_duplicate or not session.is_superseded, f"{late.label}: a zombie's write was taken"
        if late.identity == session.identity:
            session.sequences[late.partition] = sequence + 1

    # ---- what came of it

    def outcomes(self, partition: TopicPartition) -> dict[str, set[bool | None]]:
        """Of each transaction with a record in a partition: how it ended there; None while it is open."""
        found: dict[str, set[bool | None]] = {}
        open_: dict[int, list[str]] = {}
        data = self.partitions[partition].read(0, 1 << 30).records
        for batch in read_batches(data if isinstance(data, bytes) else data.read()):
            producer = batch.header.producer_id
            for record in records_of(batch.data):
                if batch.header.is_control:
                    for label in open_.pop(producer, ()):
                        found.setdefault(label, set()).add(read_end_transaction(record).committed)
                else:
                    assert record.value is not None
                    open_.setdefault(producer, []).append(bytes(record.value).decode())
        for labels in open_.values():
            for label in labels:
                found.setdefault(label, set()).add(None)
        return found


def _new_log() -> Log:
    return open_log(SimulatedDisk())
