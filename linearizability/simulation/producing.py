"""A producer that retries as a correct client does, and records every batch as one send of the history.

A batch whose outcome is unknown (no answer, a lost connection) is sent again; an idempotent producer sends it with the same
sequence numbers and never out of order. When the broker does not know its sequence any more (it lost unflushed batches),
the producer gives up what is in doubt and goes on under a new producer id, so that nothing it sends can be stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from linearizability.client.errors import STALE, error_name
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import produce_request
from linearizability.history.operations import MicroOperation, send
from linearizability.simulation.client import INIT_PRODUCER_ID, PRODUCE, SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, Line
from linearizability.simulation.outbox import Outbox, customer_of
from linearizability.simulation.schedule import Producer
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.init_producer_id import InitProducerIdResponse
from reference.protocol.messages.produce import ProduceResponse
from reference.protocol.primitives import NO_PRODUCER_ID, Offset, ProducerEpoch, TimestampMs
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.compression import Codec
from reference.protocol.records.record import Record
from reference.storage.producer_state import CACHED_BATCHES

ACKS = {"0": 0, "1": 1, "all": -1}
CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
PRODUCE_TIMEOUT_MS = 1_000
MOST_VALUE_BYTES = 60
VALUE_HEAD = 8

RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)  # fmt: skip
SESSION_OVER = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)  # fmt: skip
MAYBE_APPENDED = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)  # fmt: skip
"""The last one is also the answer to a batch that waited for its followers when its leader was deposed: they may have it."""


def records_with(
    values: Sequence[int], now: TimestampMs, *, filler: bytes = b"v", key_of: Callable[[int], bytes] | None = None
) -> list[Record]:
    """One record for each value, which its bytes begin with; their length is drawn from the value."""
    return [
        Record(
            Offset(index),
            now,
            key_of(value) if key_of is not None else None,
            value.to_bytes(VALUE_HEAD, "big") + filler * (value * 7 % MOST_VALUE_BYTES),
            (),
        )
        for index, value in enumerate(values)
    ]


@dataclass(slots=True, eq=False)
class Batch:
    """A batch of records for one partition."""

    key: tuple[str, int]
    values: list[int]
    operation: int
    sequence: int = -1
    attempts: int = 0
    under_way: bool = False
    line: Line | None = None
    """The connection that it was last sent on."""
    was_refused: bool = False
    """A broker refused it, to take it later."""
    in_doubt: bool = False
    """Whether it was sent and may have been appended without our knowledge."""
    overtaken_by: int = 0
    """The number of later batches that were acknowledged first."""
    first_history: tuple[int, int] = (0, 0)
    """Process starts and power losses of the cluster when it was first sent."""
    first_cuts: dict[int, int] = field(default_factory=dict[int, int])
    """How often each node had cut its log of the partition then."""
    led_in: int | None = None
    """The epoch in which the node that it was sent to last led the partition then; None where another one did."""

    @property
    def name(self) -> str:
        return f"{self.key[0]}-{self.key[1]}"


class SimulatedProducer(SimulatedClient):
    """A producer."""

    def __init__(self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, plan: Producer) -> None:
        super().__init__(cluster, number, recorder)
        self.plan = plan
        self.idempotent = plan.idempotent and plan.acks == "all"
        self._partitions = cluster.inputs()
        self._pending: dict[tuple[str, int], list[Batch]] = {key: [] for key in self._partitions}
        self._sequences: dict[tuple[str, int], int] = dict.fromkeys(self._partitions, 0)
        self._producer_id = NO_PRODUCER_ID
        self._made = 0
        self._values = 0
        self._turn = 0
        self._woken = False
        self._session_history = (0, 0)
        self._outbox = (
            Outbox(plan.partitioner, plan.linger_ms, plan.records, cluster.input_counts(), self.chance)
            if plan.partitioner != "given"
            else None
        )
        self.acknowledged = 0

    def start(self) -> None:
        super().start()
        self._make_batch()

    # ---- work

    def _make_batch(self) -> None:
        """The application sends: a new batch for some partition, or records that a partitioner puts into batches."""
        if self._made >= self.plan.batches or self.cluster.is_over:
            self._made = self.plan.batches
            self._release(is_last=True)
            self._maybe_finish()
            return
        self._made += 1
        chance = self.chance
        key = self._partitions[chance.randrange(len(self._partitions))]
        values = [
            (self.number << 32) | (self._values + index) for index in range(chance.randrange(1, self.plan.records + 1))
        ]
        self._values += len(values)
        if self._outbox is None:
            self._begin(key, values)
            self._drain()
        else:
            for value in values:
                self._outbox.put(value, self.world.now_ms)
            self._release()
        pause_us = self.plan.pause_ms * MICROSECONDS_A_MS
        self.world.after(chance.randrange(pause_us // 2, pause_us * 3 // 2 + 1), self._make_batch)

    def _begin(self, key: tuple[str, int], values: list[int]) -> None:
        batch = Batch(key, values, -1)
        batch.operation = self.recorder.invoke("send", self._mops(batch, None))
        self._pending[key].append(batch)

    def _release(self, is_last: bool = False) -> None:
        """Send what has lingered long enough, and look again when more will have."""
        outbox, now_ms = self._outbox, self.world.now_ms
        if outbox is None or self.finished:
            return
        if is_last:
            outbox.flush(now_ms)
        for key, values in outbox.take(now_ms):
            self._begin(key, values)
        self._drain()
        due_ms = outbox.next_deadline_ms()
        if due_ms is not None:
            self.world.after(max(1, due_ms - now_ms) * MICROSECONDS_A_MS, self._release)

    def _mops(self, batch: Batch, base_offset: int | None) -> list[MicroOperation]:
        acks = self.plan.acks
        if base_offset is None:
            return [send(batch.name, value, acks=acks) for value in batch.values]
        return [send(batch.name, value, base_offset + index, acks) for index, value in enumerate(batch.values)]

    def _maybe_finish(self) -> None:
        if self._made >= self.plan.batches and not any(self._pending.values()):
            self.finish()

    # ---- the connection

    def on_ready(self) -> None:
        if self.idempotent and self._producer_id < 0:
            self.ask(INIT_PRODUCER_ID, 4, ProducerSession().begin(), self._on_producer_id)
        else:
            self.ask_metadata()

    def _on_producer_id(self, body: InitProducerIdResponse, _: Any) -> None:
        self.count("InitProducerId", body.error_code)
        if body.error_code != ErrorCode.NONE:
            self.hang_up("no producer id")
            return
        self.cluster.promises.claim_producer_id(body.producer_id, body.producer_epoch, self.name)
        self._producer_id = body.producer_id
        self._session_history = self.cluster.history_so_far()
        self._sequences = dict.fromkeys(self._partitions, 0)
        for batches in self._pending.values():
            for batch in batches:
                self._number(batch)
        self.ask_metadata()

    def _number(self, batch: Batch) -> None:
        batch.sequence = self._sequences[batch.key]
        self._sequences[batch.key] += len(batch.values)

    def on_metadata(self) -> None:
        self._drain()

    def on_leader_ready(self, line: Line) -> None:
        self._drain()

    def on_lost(self, line: Line) -> None:
        for batches in self._pending.values():
            for batch in batches:
                if batch.line is line:
                    batch.under_way = False

    # ---- sending

    def _drain(self) -> None:
        """Send what may be sent, the partitions in turn, each to its leader."""
        if self.finished or (self.idempotent and self._producer_id < 0):
            return
        while (found := self._next()) is not None:
            self._send(*found)
        if self._lacks_a_leader():
            self.refresh_soon()

    def _lacks_a_leader(self) -> bool:
        """Whether something waits for a partition whose leader is not known, or not connected: no other event wakes it."""
        return any(
            self._sendable(batches) is not None and self.line_to(self.leaders.get(key, -1)) is None
            for key, batches in self._pending.items()
        )

    def _next(self) -> tuple[Batch, Line] | None:
        for step in range(len(self._partitions)):
            key = self._partitions[(self._turn + step) % len(self._partitions)]
            batch = self._sendable(self._pending[key])
            if batch is None:
                continue
            line = self.line_to(self.leaders.get(key, -1))
            if line is not None and line.in_flight < self.plan.in_flight:
                self._turn += step + 1
                return batch, line
        return None

    def _sendable(self, batches: list[Batch]) -> Batch | None:
        """The first batch that is not under way. An idempotent producer sends one again only when it is the oldest; one
        that wants a single request in flight mutes the partition, whichever connection the request went over."""
        for index, batch in enumerate(batches):
            if batch.under_way:
                if self.plan.in_flight == 1 or (self.idempotent and batch.attempts > 1):
                    return None
                continue
            if self.idempotent and index and (batch.attempts or any(not each.under_way for each in batches[:index])):
                return None
            return batch
        return None

    def _send(self, batch: Batch, line: Line) -> None:
        if self.idempotent and batch.sequence < 0:
            self._number(batch)
        if not batch.attempts:
            batch.first_history = self.cluster.history_so_far()
            batch.first_cuts = self.cluster.cuts_of(batch.key) if self.idempotent else {}
        batch.attempts += 1
        batch.under_way, batch.line = True, line
        batch.led_in = self.cluster.leads(line.node, batch.key)
        data = self._bytes(batch)
        body = produce_request({batch.key: data}, acks=ACKS[self.plan.acks], timeout_ms=PRODUCE_TIMEOUT_MS)
        if self.plan.acks == "0":
            self.ask(PRODUCE, self.plan.version, body, None, line=line)
            self._pending[batch.key].remove(batch)
            self.recorder.info(batch.operation, "acks=0 has no response", self._mops(batch, None))
            self._maybe_finish()
            return
        self.ask(PRODUCE, self.plan.version, body, self._on_produced, batch, PRODUCE_TIMEOUT_MS * 2, line)
        batch.in_doubt = True

    def _bytes(self, batch: Batch) -> bytearray:
        key_of = customer_of if self._outbox is not None else None
        records = records_with(batch.values, self.cluster.client_clock_ms(), key_of=key_of)
        codec = CODECS[self.plan.codec]
        if not self.idempotent:
            return build(records, codec=codec)
        return build(records, codec=codec, producer=BatchProducer(self._producer_id, ProducerEpoch(0), batch.sequence))

    # ---- answers

    def _on_produced(self, body: ProduceResponse, batch: Batch) -> None:
        answers = [(topic.name, each.index, each) for topic in body.responses for each in topic.partition_responses]
        if len(answers) != 1 or answers[0][:2] != batch.key:
            raise Violation("answer-for-another", f"{self.name} produced to {batch.name}, the answer is {body}")
        if batch not in self._pending[batch.key]:
            return  # It was given up with its session.
        answer = answers[0][2]
        code = answer.error_code
        self.count("Produce", code)
        batch.under_way = False
        if code not in MAYBE_APPENDED and batch.attempts == 1:
            batch.in_doubt = False
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledged(batch, answer.base_offset)
        elif code in SESSION_OVER and self.idempotent:
            if batch is self._pending[batch.key][0]:
                self._give_up_session(batch, code)
                return
        elif code in RETRIABLE:
            batch.was_refused = True
            if code in STALE:
                self.refresh_soon()
            self._back_off()
            return
        else:
            raise Violation("groundless-refusal", f"{self.name}: a sound batch was refused with {error_name(code)}")
        self._drain()

    def _acknowledged(self, batch: Batch, base_offset: int) -> None:
        batches = self._pending[batch.key]
        for earlier in batches[: batches.index(batch)]:
            earlier.overtaken_by += 1
        batches.remove(batch)
        self.acknowledged += len(batch.values)
        known = base_offset >= 0
        if known:
            self.cluster.promises.on_acknowledged(batch.key, base_offset + len(batch.values), self.name, self.plan.acks)
        self.recorder.ok(batch.operation, self._mops(batch, base_offset if known else None))
        self._maybe_finish()

    def _back_off(self) -> None:
        if not self._woken:
            self._woken = True
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._wake)

    def _wake(self) -> None:
        self._woken = False
        self._drain()

    def _give_up_session(self, refused: Batch, code: int) -> None:
        """The broker has lost our sequence: what is in doubt stays unknown, the rest goes out under a new producer id."""
        self.world.counts["producer sessions given up"] += 1
        line = refused.line
        cuts = self.cluster.cuts_of(refused.key)
        was_cut = line is not None and cuts[line.node] > refused.first_cuts[line.node]
        reloaded = was_cut or self.cluster.history_so_far()[0] > refused.first_history[0]
        power_lost = self.cluster.history_so_far()[1] > self._session_history[1]
        led_now = self.cluster.leads(line.node, refused.key) if line is not None else refused.led_in
        deposed = refused.led_in is None or refused.led_in != led_now
        behind = refused.overtaken_by + sum(each.attempts > 0 for each in self._pending[refused.key][1:])
        if behind >= CACHED_BATCHES:
            # It waited on a connection to a former leader, while this one took so many that ours is not known any more.
            self.world.counts["batches overtaken by all that are known"] += 1
        elif refused.sequence == 0 and (
            refused.was_refused or refused.overtaken_by or (refused.attempts > 1 and behind)
        ):
            # A leader that knows nothing of a producer takes its first batch whatever the number is (as Kafka does): here it
            # took the one behind ours before it was given ours, which another node refused or never answered. The one behind
            # may have been appended without an acknowledgement.
            self.world.counts["first batches overtaken"] += 1
        else:
            self.cluster.promises.on_sequence_lost(refused.name, self.name, code, reloaded, power_lost, deposed)
        for key, batches in self._pending.items():
            kept: list[Batch] = []
            for batch in batches:
                if batch.in_doubt or batch.under_way:
                    self.recorder.info(batch.operation, error_name(code), self._mops(batch, None))
                elif batch.was_refused:
                    # Those behind it are stored already: sent again now it would be out of order.
                    self.recorder.fail(batch.operation, error_name(code), self._mops(batch, None))
                else:
                    batch.sequence, batch.attempts, batch.was_refused = -1, 0, False
                    kept.append(batch)
            self._pending[key] = kept
        self._producer_id = NO_PRODUCER_ID
        self._maybe_finish()
        if not self.finished:
            self.hang_up(f"its sequence is over: {error_name(code)}")
