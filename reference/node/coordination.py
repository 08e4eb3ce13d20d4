"""A coordinator on this node: one shard for each partition of its internal topic that the node leads.

A shard is a state machine whose every change is a record of its partition. It decides on a request by records and a
response; the records are appended, then replayed into the shard, and the response goes out when they are committed. A new
leader builds a shard and replays the whole partition into it, a bounded piece a step; until it has, it answers
COORDINATOR_LOAD_IN_PROGRESS. So what was answered survives a change of coordinator. (COO-04, COO-05)

A partition whose batches are damaged on the disk is not coordinated in this leader epoch: requests for its keys are answered
NOT_COORDINATOR, as by Kafka, and all other partitions are served.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime; KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from reference.node.context import Context
from reference.node.effects import ConnectionId
from reference.node.internal_topics import partition_for
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
"""Takes NONE when the records are committed, else NOT_COORDINATOR or REQUEST_TIMED_OUT: they may be or not be."""


class AwaitingCommit:
    """One step, and the end offset of its records."""

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
        """Go on now if it may be, else when it may, or with an error when it takes too long."""
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
        """Nothing is held while a step waits."""


LOAD_BYTES = 1 << 20
"""How much of a partition is replayed in one step."""

KeyValue = tuple[bytes, bytes | None]
"""One record of the log; a null value is a tombstone."""

Producer = tuple[ProducerId, ProducerEpoch]
"""The producer of a record within a transaction."""


class Shard(Protocol):
    """A coordinator's state of one partition, all of it a function of the partition's records."""

    def replay(self, key: Buffer, value: Buffer | None, now: TimestampMs, producer: Producer | None) -> None:
        """Take up one record. Errors: CodecError when the bytes are none of this coordinator's."""
        ...

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """Apply a transaction's end: the producer's records within it take effect, or are dropped."""
        ...

    def loaded(self, now: TimestampMs) -> None:
        """Everything was replayed: from here on time passes for what the shard keeps."""
        ...

    def unload(self, now: TimestampMs) -> None:
        """Another node coordinates now: waiting requests are answered NOT_COORDINATOR."""
        ...


S = TypeVar("S", bound=Shard)


@dataclass(slots=True)
class _Held(Generic[S]):
    partition: Partition
    shard: S
    offset: Offset
    """Up to where the partition was replayed."""
    is_loaded: bool = False


class Coordination(Generic[S]):
    """The shards of one kind of coordinator on this node."""

    def __init__(
        self,
        context: Context,
        topic: TopicName,
        new_shard: Callable[[int, LeaderEpoch], S],
        commit_timeout_ms: int,
    ) -> None:
        """`new_shard` gets the partition's index and the leader epoch, which is the coordinator's epoch."""
        self._context = context
        self.topic = topic
        self._new_shard = new_shard
        self._commit_timeout_ms = commit_timeout_ms
        self._held: dict[int, _Held[S]] = {}
        self._loading = 0
        """How many shards do not serve yet."""
        self.touched: set[int] = set()
        """Shards whose deadlines may have changed: the keeper of deadlines looks again, and takes them out."""

    def tracing(self, index: int, epoch: LeaderEpoch, trace: Trace | None) -> Trace | None:
        """A trace that adds to a shard's steps its node, its partition, its leader epoch and the log end offset.

        A step whose record ends beyond where a later leader epoch begins never happened.
        """
        if trace is None:
            return None
        partition = self._context.replicas.partitions[self.topic, index]

        def trace_step(action: str, row: Mapping[str, Any]) -> None:
            place = {"node": self._context.node, "shard": partition.name, "coordinatorEpoch": epoch}
            trace(action, place | {"offset": partition.log.log_end_offset} | {**row})

        return trace_step

    # ---- questions

    def index_of(self, key: str) -> int:
        """The partition that keeps a key. Errors: KafkaError NOT_COORDINATOR while the topic does not exist."""
        image = self._context.image.topics.get(self.topic)
        if image is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition_for(key, len(image.partitions))

    def shard_of(self, key: str) -> tuple[int, S]:
        """The shard that keeps a key, and its partition's index.

        Errors: KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        index = self.index_of(key)
        shard = self._held_by(index).shard
        self.touched.add(index)
        return index, shard

    def loaded_shard(self, index: int) -> S | None:
        """The shard of a partition, if it serves."""
        held = self._held.get(index)
        return held.shard if held is not None and held.is_loaded else None

    def loaded(self) -> list[tuple[int, S]]:
        """The shards that serve, by index of their partitions."""
        return [(index, held.shard) for index, held in self._held.items() if held.is_loaded]

    def holds(self, index: int, shard: S) -> bool:
        """Whether a shard is still the one that keeps its partition."""
        held = self._held.get(index)
        return held is not None and held.shard is shard and self._context.replicas.leading(held.partition) is not None

    @property
    def is_loading(self) -> bool:
        """Whether some shard does not serve yet."""
        return self._loading > 0

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
        """Append a decision's records and take them up; with a producer they count when its transaction is committed.

        `guard` is what verification gave for records that may open a transaction here (see `node.verification`).
        Errors: KafkaError NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, UNKNOWN_SERVER_ERROR (the records are too large),
        and what the partition says of a producer (INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE); nothing is then changed.
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
        # Replayed before it is committed: the next decision builds upon it, and its response waits for the commit of both. If
        # leadership is lost first, the shard is thrown away with the role.
        for key, value in records:
            held.shard.replay(key, value, now, producer)
        self._context.purgatories.wake(held.partition, now)

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
        """Answer when everything that the shard has written so far is committed.

        `fail` puts into the response why it is not: NOT_COORDINATOR, or REQUEST_TIMED_OUT when it takes too long.
        """

        def outcome(error: ErrorCode, then: TimestampMs) -> None:
            if error is not ErrorCode.NONE:
                fail(error)
            self._context.responder.respond(request, response)

        self._await_commit(index, request.client.connection, now, outcome)

    def when_committed(self, index: int, now: TimestampMs, outcome: Outcome) -> None:
        """Go on when everything that the shard has written so far is committed, or never will be known to be."""
        self._await_commit(index, self._context.purgatories.produces.internal(), now, outcome)

    def _await_commit(self, index: int, connection: ConnectionId, now: TimestampMs, outcome: Outcome) -> None:
        """Errors: as `shard_of`."""
        partition = self._held_by(index).partition
        end = partition.log.log_end_offset
        AwaitingCommit(self._context, connection, partition, end, outcome).begin(now, self._commit_timeout_ms)

    def marker_written(self, partition: Partition, producer: Producer, committed: bool) -> None:
        """A transaction's marker was appended to a partition of this topic."""
        held = self._held.get(partition.index)
        if (
            held is not None and held.partition is partition and held.is_loaded
        ):  # while loading, it is replayed in its turn
            held.shard.replay_marker(producer, committed)

    # ---- coming and going

    def on_role(self, partition: Partition, now: TimestampMs) -> None:
        """A replica of the topic leads or follows in a new leader epoch."""
        self._drop(partition.index, now)
        if partition.is_leader:
            shard = self._new_shard(partition.index, partition.leader_epoch)
            self._held[partition.index] = _Held(partition, shard, partition.log.log_start_offset)
            self._loading += 1
            self._load(self._held[partition.index], now)

    def on_given_up(self, partition: Partition, now: TimestampMs) -> None:
        """The node has no replica of the partition any more."""
        held = self._held.get(partition.index)
        if held is not None and held.partition is partition:
            self._drop(partition.index, now)

    def _drop(self, index: int, now: TimestampMs) -> None:
        held = self._held.pop(index, None)
        self.touched.add(index)
        if held is not None:
            self._loading -= not held.is_loaded
            held.shard.unload(now)

    def load(self, now: TimestampMs) -> None:
        """Replay another piece of each partition that is not wholly replayed."""
        if self._loading:
            for held in [*self._held.values()]:
                if not held.is_loaded:
                    self._load(held, now)

    def _load(self, held: _Held[S], now: TimestampMs) -> None:
        log, before = held.partition.log, held.offset
        try:
            held.offset = self._replay(held, now)
        except RecordsError as error:
            self._context.log("error", f"{held.partition.name}: cannot be loaded from offset {before} on: {error}")
            self._drop(held.partition.index, now)
            return
        if held.offset >= log.log_end_offset or held.offset == before:  # an end without records: nothing is missing
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
        """Skip records that cannot be read: they must not keep the rest of the partition from being served."""
        assert record.key is not None
        try:
            held.shard.replay(record.key, record.value, now, producer)
        except CodecError as error:
            self._context.log("error", f"{held.partition.name}, offset {record.offset}: {error}")
