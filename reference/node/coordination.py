"""A coordinator on this node: one shard for each partition of its internal topic that the node leads.

A shard is a state machine that changes only by the records of its partition. Its decision on a request is records and a
response. The records are appended and replayed into the shard; the response is sent when they are committed, so that it
survives a change of coordinator. A new leader builds a shard and replays the whole partition into it, in bounded steps; until
then it answers COORDINATOR_LOAD_IN_PROGRESS. (COO-04, COO-05)

A partition that cannot be read, because its batches are damaged or the disk fails, is not coordinated in this leader epoch.
Requests for its keys are answered NOT_COORDINATOR, as by Kafka; other partitions are served.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime; KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from reference.node.context import Context
from reference.node.effects import ConnectionId
from reference.node.requests import Key, Request
from reference.protocol.codec import CodecError
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import (
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicName,
)
from reference.protocol.records.batch import NOT_IDEMPOTENT, BatchProducer, build, read_batches, records_of
from reference.protocol.records.control import read_end_transaction
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.record import Record
from reference.protocol.records.validate import Origin
from reference.protocol.schema import Message
from reference.replication.partition import Partition
from reference.replication.replica import Trace
from reference.storage.errors import LogError, RefusedByProducerState
from reference.storage.verification import Guard

Outcome = Callable[[ErrorCode, TimestampMs], None]
"""Called with NONE when the records are committed; with NOT_COORDINATOR or REQUEST_TIMED_OUT where that remains unknown."""


class AwaitingCommit:
    """A delayed operation: it calls `outcome` when the partition's records below `end` are committed."""

    __slots__ = ("_connection", "_context", "_end", "_leader_epoch", "_outcome", "_partition")
    awaits_commits = True

    def __init__(
        self, context: Context, connection: ConnectionId, partition: Partition, end: Offset, outcome: Outcome
    ) -> None:
        self._context = context
        self._connection = connection
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._end = end
        self._outcome = outcome

    def begin(self, now: TimestampMs, timeout_ms: int) -> None:
        """Complete at once where the records are committed; else wait for at most `timeout_ms`."""
        key = self._partition.key
        if not self.try_complete(now, key):
            self._context.purgatories.produces.park(self, [key], now + timeout_ms)

    @property
    def connection(self) -> ConnectionId:
        return self._connection

    def try_complete(self, now: TimestampMs, key: Key) -> bool:
        leading = self._context.replicas.leading(self._partition, self._leader_epoch)
        if leading is None:
            self._outcome(ErrorCode.NOT_COORDINATOR, now)
        elif leading.is_committed(self._end):
            self._outcome(ErrorCode.NONE, now)
        else:
            return False
        return True

    def expire(self, now: TimestampMs) -> None:
        self._outcome(ErrorCode.REQUEST_TIMED_OUT, now)

    def abandon(self) -> None:
        """Do nothing: a delayed operation has no resources."""


LOAD_BYTES = 1 << 20
"""The bytes of a partition that one step replays."""
COUNT_HAS_CHANGED = "the topic has another number of partitions than when this broker started; start it again"
MOST_OVERHEAD = 64
"""The most bytes of a batch or record besides keys and values."""

KeyValue = tuple[bytes, bytes | None]
"""Key and value of one record; a null value is a tombstone."""

Producer = tuple[ProducerId, ProducerEpoch]
"""The producer of a record within a transaction."""


class Shard(Protocol):
    """A coordinator's state for one partition of its topic, which depends on the partition's records alone."""

    def replay(self, key: Buffer, value: Buffer | None, now: TimestampMs, producer: Producer | None) -> None:
        """Apply one record. Errors: CodecError when this coordinator cannot decode it."""
        ...

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """Apply a transaction's marker: the producer's records in the transaction take effect, or are dropped."""
        ...

    def loaded(self, now: TimestampMs) -> None:
        """Start serving after the whole partition was replayed: timeouts run from now."""
        ...

    def unload(self, now: TimestampMs) -> None:
        """Stop serving, as this node no longer coordinates the partition: fail waiting requests with NOT_COORDINATOR."""
        ...


S = TypeVar("S", bound=Shard)


@dataclass(slots=True)
class _Held(Generic[S]):
    partition: Partition
    shard: S
    offset: Offset
    """The next offset to replay."""
    is_loaded: bool = False


class Coordination(Generic[S]):
    """The shards of one kind of coordinator on this node."""

    def __init__(
        self,
        context: Context,
        topic: TopicName,
        new_shard: Callable[[int, LeaderEpoch], S],
        commit_timeout_ms: int,
        refuses_other_counts: bool = False,
    ) -> None:
        """`new_shard` is called with the partition's index and its leader epoch, which is the coordinator epoch.

        `refuses_other_counts`: a partition is not loaded while the topic has another number of partitions than its keys are
        divided by. Kafka's transaction coordinators do so: COORDINATOR_LOAD_IN_PROGRESS is what clients see in this leader
        epoch (TransactionStateManager.validateTransactionTopicPartitionCountIsStable of 4.3.1).
        """
        self._context = context
        self.topic = topic
        self._new_shard = new_shard
        self._commit_timeout_ms = commit_timeout_ms
        self._held: dict[int, _Held[S]] = {}
        self._refuses_other_counts = refuses_other_counts
        self._unloadable: set[int] = set()
        """Partitions that are not loaded in this leader epoch."""
        self._loading = 0
        """The number of shards that are not loaded, including refused ones."""
        self.touched: set[int] = set()
        """Shards whose deadlines may have changed. The owner of the cached deadlines reads them again and removes them here."""

    def tracing(self, index: int, epoch: LeaderEpoch, trace: Trace | None) -> Trace | None:
        """A trace that adds to a shard's steps the node, the partition, the leader epoch and the log end offset.

        By the offset, validation drops a step whose record the next leader's log does not have.
        """
        if trace is None:
            return None
        partition = self._context.replicas.partitions[self.topic, index]

        def trace_step(action: str, row: Mapping[str, Any]) -> None:
            place = {"node": self._context.node, "shard": partition.name, "coordinatorEpoch": epoch}
            trace(action, place | {"offset": partition.log.log_end_offset} | {**row})

        return trace_step

    # ---- finding a shard

    def shard_of(self, key: str) -> tuple[int, S]:
        """The index of a key's partition, and its shard.

        Errors: KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        index = self._context.coordinators.index_of(self.topic, key)
        shard = self._held_by(index).shard
        self.touched.add(index)
        return index, shard

    def loaded_shard(self, index: int) -> S | None:
        """The shard of a partition; None where there is none, or it is still loading."""
        held = self._held.get(index)
        return held.shard if held is not None and held.is_loaded else None

    def loaded(self) -> list[tuple[int, S]]:
        """All loaded shards, each with the index of its partition."""
        return [(index, held.shard) for index, held in self._held.items() if held.is_loaded]

    def holds(self, index: int, shard: S) -> bool:
        """Whether a shard is still the current one of its partition, and this node leads the partition."""
        held = self._held.get(index)
        return held is not None and held.shard is shard and self._context.replicas.leading(held.partition) is not None

    @property
    def is_loading(self) -> bool:
        """Whether any shard is still loading, or is not loaded in this leader epoch."""
        return self._loading > 0

    @property
    def has_to_load(self) -> bool:
        """Whether `load` has anything to do."""
        return self._loading > len(self._unloadable)

    def _held_by(self, index: int) -> _Held[S]:
        held = self._held.get(index)
        if held is None or self._context.replicas.leading(held.partition) is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not held.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return held

    # ---- writing

    def write(
        self,
        index: int,
        records: Sequence[KeyValue],
        now: TimestampMs,
        producer: Producer | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Append a decision's records and replay them. A producer's records take effect when its transaction is committed.

        `guard` is the verification of a transaction that the records may open in this partition (see `node.verification`).
        Errors: KafkaError NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_SERVER_ERROR (the
        records are too large or invalid), and the errors of producer state (INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE); nothing
        is changed then.
        """
        held = self._held_by(index)
        if not records:
            return
        batch = build(
            [Record(Offset(at), now, key, value, ()) for at, (key, value) in enumerate(records)],
            # The sequence number that Kafka's coordinator writes: its cleaner fails at a producer's batch without one.
            producer=BatchProducer(*producer, base_sequence=0, transactional=True) if producer else NOT_IDEMPOTENT,
        )
        try:
            held.partition.produce(batch, now, origin=Origin.COORDINATOR, guard=guard)
        except (LogError, RecordsError, KafkaError) as error:
            raise KafkaError(self._refused(held.partition, error)) from error
        # The records are replayed before they are committed: the next decision builds on them, and its response waits until both
        # are committed. If the node loses leadership first, the shard is dropped.
        for key, value in records:
            held.shard.replay(key, value, now, producer)
        self._context.purgatories.wake(held.partition, now)

    def write_apart(self, index: int, records: Iterable[KeyValue], now: TimestampMs) -> None:
        """Write records that need not be atomic, in batches that fit into the partition's limit.

        Errors: as `write`; batches before the error are kept.
        """
        limit = self._held_by(index).partition.log.config.max_message_bytes - MOST_OVERHEAD
        batch: list[KeyValue] = []
        size = 0
        for key, value in records:
            added = len(key) + len(value or b"") + MOST_OVERHEAD
            if size + added > limit and batch:
                self.write(index, batch, now)
                batch, size = [], 0
            batch.append((key, value))
            size += added
        self.write(index, batch, now)

    def _refused(self, partition: Partition, error: LogError | RecordsError | KafkaError) -> ErrorCode:
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._context.log("error", f"{partition.name}: {error}")
        if isinstance(error, RefusedByProducerState):
            return error.code
        if isinstance(error, RecordsError) or error.code is ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def answer(
        self, index: int, request: Request, response: Message, now: TimestampMs, fail: Callable[[ErrorCode], None]
    ) -> None:
        """Respond when all that was appended to the partition so far is committed.

        If that remains unknown, `fail` sets the response's error: NOT_COORDINATOR, or REQUEST_TIMED_OUT.
        Errors: as `shard_of`.
        """

        def outcome(error: ErrorCode, then: TimestampMs) -> None:
            if error is not ErrorCode.NONE:
                fail(error)
            self._context.responder.respond(request, response)

        self._await_commit(index, request.client.connection, now, outcome)

    def when_committed(self, index: int, now: TimestampMs, outcome: Outcome) -> None:
        """Call `outcome` when all that was appended to the partition so far is committed, or that remains unknown.

        Errors: as `shard_of`.
        """
        self._await_commit(index, self._context.purgatories.produces.internal(), now, outcome)

    def _await_commit(self, index: int, connection: ConnectionId, now: TimestampMs, outcome: Outcome) -> None:
        partition = self._held_by(index).partition
        end = partition.log.log_end_offset
        AwaitingCommit(self._context, connection, partition, end, outcome).begin(now, self._commit_timeout_ms)

    def marker_written(self, partition: Partition, producer: Producer, committed: bool) -> None:
        """Apply a transaction's marker that was appended to a partition of this topic."""
        held = self._held.get(partition.index)
        if (
            held is not None and held.partition is partition and held.is_loaded
        ):  # a loading shard replays the marker with the log
            held.shard.replay_marker(producer, committed)

    # ---- loading and unloading

    def on_role(self, partition: Partition, now: TimestampMs) -> None:
        """Begin a partition's new leader epoch: drop the shard of the former one and, as leader, load a new one."""
        self._drop(partition.index, now)
        if partition.is_leader:
            shard = self._new_shard(partition.index, partition.leader_epoch)
            self._held[partition.index] = _Held(partition, shard, partition.log.log_start_offset)
            self._loading += 1
            if self._refuses_other_counts and self._context.coordinators.is_changed(self.topic):
                self._unloadable.add(partition.index)
                self._context.log("error", f"{partition.name} is not loaded: {COUNT_HAS_CHANGED}")
            else:
                self._load(self._held[partition.index], now)

    def on_given_up(self, partition: Partition, now: TimestampMs) -> None:
        """Drop the shard of a partition whose replica was removed from this node."""
        held = self._held.get(partition.index)
        if held is not None and held.partition is partition:
            self._drop(partition.index, now)

    def _drop(self, index: int, now: TimestampMs) -> None:
        held = self._held.pop(index, None)
        self._unloadable.discard(index)
        self.touched.add(index)
        if held is not None:
            self._loading -= not held.is_loaded
            held.shard.unload(now)

    def load(self, now: TimestampMs) -> None:
        """Replay the next piece of each partition that is still loading."""
        if self.has_to_load:
            for index, held in [*self._held.items()]:
                if not held.is_loaded and index not in self._unloadable:
                    self._load(held, now)

    def _load(self, held: _Held[S], now: TimestampMs) -> None:
        log, before = held.partition.log, held.offset
        try:
            held.offset = self._replay(held, now)
        except (RecordsError, LogError, OSError) as error:
            self._context.log("error", f"{held.partition.name}: cannot be loaded from offset {before} on: {error}")
            self._drop(held.partition.index, now)
            return
        if held.offset >= log.log_end_offset or held.offset == before:  # compaction may have removed the last records
            held.is_loaded = True
            self.touched.add(held.partition.index)
            self._loading -= 1
            held.shard.loaded(now)

    def _replay(self, held: _Held[S], now: TimestampMs) -> Offset:
        found = held.partition.log.read(held.offset, LOAD_BYTES).records
        data = found if isinstance(found, bytes) else found.read()
        if not isinstance(found, bytes):
            found.release()
        offset = held.offset
        for batch in read_batches(data):
            offset = batch.header.next_offset
            header = batch.header
            producer = (header.producer_id, header.producer_epoch) if header.is_transactional else None
            for record in records_of(batch.data):
                if header.is_control:
                    if producer is not None:
                        held.shard.replay_marker(producer, read_end_transaction(record).committed)
                elif record.key is not None:
                    self._replay_one(held, record, now, producer)
        return offset

    def _replay_one(self, held: _Held[S], record: Record, now: TimestampMs, producer: Producer | None) -> None:
        """Replay a record. One that cannot be decoded is logged and skipped, so that the rest of the partition is served."""
        assert record.key is not None
        try:
            held.shard.replay(record.key, record.value, now, producer)
        except CodecError as error:
            self._context.log("error", f"{held.partition.name}, offset {record.offset}: {error}")
