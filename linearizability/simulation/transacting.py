"""A transactional producer: one transaction after the other over several partitions, committed, aborted, or left behind.

One request is under way at a time. A step that fails in a way that passes is tried again; what ends the session (fencing, a
timeout of the transaction) leaves the transaction's outcome to what is known of it, and a new session begins. With `version` 1
partitions are added by AddPartitionsToTxn and the epoch stays; with 2 produce adds them, and each end bumps the epoch
(KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from linearizability.history.operations import MicroOperation, send
from linearizability.simulation.client import PRODUCE, STALE, Key, SimulatedClient, error_name
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, Line
from linearizability.simulation.producing import MOST_VALUE_BYTES, PRODUCE_TIMEOUT_MS, VALUE_HEAD
from linearizability.simulation.schedule import Transactor
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from reference.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from reference.protocol.messages.produce import ProduceRequest, ProduceResponse
from reference.protocol.primitives import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId
from reference.protocol.records.batch import build
from reference.protocol.records.record import Record

if TYPE_CHECKING:
    from linearizability.simulation.cluster import Cluster

FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 10, 22, 24, 26
TRANSACTION_KEY = 1
TIMEOUT_MS = 2_000
"""transaction.timeout.ms of the simulated producers."""
VERSIONS: dict[int, dict[int, int]] = {
    1: {PRODUCE: 9, ADD_PARTITIONS_TO_TXN: 3, END_TXN: 3},
    2: {PRODUCE: 12, END_TXN: 5},
}
"""Of the requests whose version says which transaction protocol is meant."""

LOOK_AGAIN = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
PASSING = (
    frozenset(
        {
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.OPERATION_NOT_ATTEMPTED,
        }
    )
    | STALE
    | LOOK_AGAIN
)  # fmt: skip
"""Errors after which the same step is tried again."""
SESSION_OVER = frozenset(
    {
        ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)  # fmt: skip
"""Errors after which a new session begins."""


@dataclass(slots=True)
class Open:
    """The transaction that is under way."""

    operation: int
    parts: dict[Key, list[int]]
    commits: bool
    is_left_behind: bool
    offsets: dict[Key, int] = field(default_factory=dict)
    begun_us: int = 0
    end_was_asked: bool = False
    end_was_repeated: bool = False
    in_doubt: bool = False
    """Whether its end was asked for, and may have happened without our knowing."""


class SimulatedTransactor(SimulatedClient):
    """One transactional producer."""

    def __init__(self, cluster: Cluster, number: int, recorder: HistoryRecorder, plan: Transactor) -> None:
        super().__init__(cluster, number, recorder)
        self.plan = plan
        self.id = plan.id or f"transactor-{number}"
        self._coordinator = -1
        self._producer = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._sequences: dict[Key, int] = {}
        self._open: Open | None = None
        self._begun = 0
        self._values = 0
        self._step: Callable[[], None] = self._find
        self._asking: Line | None = None
        self._is_waiting = False
        self._ends_with_session = False
        """The next session begins when this transaction has ended."""
        self.committed = 0

    # ---- the connections

    def on_ready(self) -> None:
        if not self.leaders:
            self.ask_metadata()
        else:
            self._again()

    def on_metadata(self) -> None:
        self._again()

    def on_leader_ready(self, line: Line) -> None:
        self._again()

    def on_lost(self, line: Line) -> None:
        if line is self._asking:
            self._asking = None
            self._doubt()
            if self.plan.version == 1 and self._open is not None and self._open.end_was_asked:
                # Before KIP-890 the request for the end, should it arrive late, would end a later transaction of the epoch.
                self._ends_with_session = True
            if self.plan.patience_ms and self._step == self._produce:
                self._give_batch_up()
            self._later()

    # ---- steps

    def _again(self) -> None:
        """Take the step that is due, unless an answer is awaited."""
        if self._asking is None and not self._is_waiting and not self.finished and self.leaders:
            self._step()

    def _later(self, pause_ms: int = BACKOFF_MS) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self.world.after(pause_ms * MICROSECONDS_A_MS, self._woken)

    def _woken(self) -> None:
        self._is_waiting = False
        self._again()

    def _to(
        self, node: int, key: int, version: int, body: Any, answered: Callable[..., None], context: Any = None,
        patience_ms: int = PRODUCE_TIMEOUT_MS * 2,
    ) -> None:  # fmt: skip
        """Ask a node for what this step needs; without a connection, look again a little later."""
        line = self.line_to(node)
        if line is None:
            self.refresh_soon()
            self._later()
            return
        self._asking = line
        self.ask(key, version, body, self._answered, (answered, context), patience_ms, line)

    def _answered(self, body: Any, context: tuple[Callable[..., None], Any]) -> None:
        self._asking = None
        answered, inner = context
        answered(body, inner)
        self._again()

    def _doubt(self) -> None:
        """What was asked last may have happened or not."""
        if self._open is not None and self._open.end_was_asked:
            self._open.in_doubt = True

    def _judge(self, api: str, code: int) -> bool:
        """Whether a step went well; else it is tried again, or the session is over. Errors: Violation."""
        self.count(api, code)
        if code == ErrorCode.NONE:
            return True
        if code in LOOK_AGAIN:
            self._coordinator = -1
        if code in STALE:
            self.refresh_soon()
        if code in PASSING:
            self._doubt()
            self._later()
        elif code in SESSION_OVER:
            self._end_session(code)
        else:
            raise self.groundless(api, code)
        return False

    def _find(self) -> None:
        body = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[self.id])
        self._to(self.home.node, FIND_COORDINATOR, 4, body, self._found)

    def _found(self, body: FindCoordinatorResponse, _: Any) -> None:
        answer = body.coordinators[0]
        if self._judge("FindCoordinator", answer.error_code):
            self._coordinator = answer.node_id

    def _at_coordinator(
        self,
        key: int,
        version: int,
        body: Any,
        answered: Callable[..., None],
        patience_ms: int = PRODUCE_TIMEOUT_MS * 2,
    ) -> None:
        if self._coordinator < 0:
            self._find()
        else:
            self._to(self._coordinator, key, version, body, answered, patience_ms=patience_ms)

    def start(self) -> None:
        self._step = self._init
        super().start()

    def _init(self) -> None:
        """Begin a session: whatever an earlier one left open is aborted by the coordinator."""
        body = InitProducerIdRequest(
            transactional_id=self.id, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        self._at_coordinator(INIT_PRODUCER_ID, 4, body, self._initialized)

    def _initialized(self, body: InitProducerIdResponse, _: Any) -> None:
        if self._judge("InitProducerId", body.error_code):
            self.cluster.claim_producer_id(body.producer_id, body.producer_epoch, self.name)
            self._take_producer((body.producer_id, body.producer_epoch))
            self._step = self._begin

    def _take_producer(self, producer: tuple[ProducerId, ProducerEpoch]) -> None:
        """A new epoch begins at sequence 0."""
        if producer != self._producer:
            self._producer, self._sequences = producer, {}

    def _begin(self) -> None:
        if self._begun >= self.plan.transactions or self.cluster.is_over:
            self.finish()
            return
        self._begun += 1
        chance = self.chance
        partitions = self.cluster.inputs()
        parts: dict[Key, list[int]] = {}
        for _ in range(chance.randrange(1, 4)):
            key = partitions[chance.randrange(len(partitions))]
            if key not in parts:
                parts[key] = [(self.number << 32) | (self._values + index) for index in range(chance.randrange(1, 4))]
                self._values += len(parts[key])
        ending = chance.randrange(100)
        commits = ending >= self.plan.aborts_percent
        left_behind = not commits and ending < self.plan.aborts_percent // 3
        operation = self.recorder.invoke("txn", self._mops(parts, {}))
        self._open = Open(operation, parts, commits, left_behind, begun_us=self.world.now_us)
        self._step = self._add if self.plan.version == 1 else self._produce
        self._again()

    def _mops(self, parts: dict[Key, list[int]], offsets: dict[Key, int]) -> list[MicroOperation]:
        return [
            send(f"{key[0]}-{key[1]}", value, offsets[key] + index if key in offsets else None, "all")
            for key, values in parts.items()
            for index, value in enumerate(values)
        ]

    def _add(self) -> None:
        assert self._open is not None
        topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
        for name, index in self._open.parts:
            topic = topics.setdefault(name, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name))
            topic.partitions.append(index)
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[*topics.values()],
        )
        self._at_coordinator(ADD_PARTITIONS_TO_TXN, VERSIONS[1][ADD_PARTITIONS_TO_TXN], body, self._added)

    def _added(self, body: AddPartitionsToTxnResponse, _: Any) -> None:
        codes = [
            each.partition_error_code
            for topic in body.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]
        worst = next((code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)), 0)
        if self._judge("AddPartitionsToTxn", worst or next((code for code in codes if code), 0)):
            self._step = self._produce

    def _produce(self) -> None:
        """Send the next batch; after the last one, the end."""
        opened = self._open
        assert opened is not None
        key = next((each for each in opened.parts if each not in opened.offsets), None)
        if key is None:
            if opened.is_left_behind:
                self._end_session(None)
            else:
                self._step = self._end
                self._end()
            return
        now = self.cluster.client_clock_ms()
        records = [
            Record(
                Offset(index), now, None, value.to_bytes(VALUE_HEAD, "big") + b"v" * (value * 7 % MOST_VALUE_BYTES), ()
            )
            for index, value in enumerate(opened.parts[key])
        ]
        data = build(
            records, producer_id=self._producer[0], producer_epoch=self._producer[1],
            base_sequence=self._sequences.get(key, 0), transactional=True,
        )  # fmt: skip
        partition = ProduceRequest.PartitionProduceData(index=key[1], records=data)
        topic = ProduceRequest.TopicProduceData(name=key[0], partition_data=[partition])
        body = ProduceRequest(transactional_id=self.id, acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[topic])
        version, leader = VERSIONS[self.plan.version][PRODUCE], self.leaders.get(key, -1)
        self._to(leader, PRODUCE, version, body, self._produced, key, self._patience_ms)

    @property
    def _patience_ms(self) -> int:
        return self.plan.patience_ms or PRODUCE_TIMEOUT_MS * 2

    def _give_batch_up(self) -> None:
        """A batch may still be on its way (KIP-890): the transaction is aborted while it is, and since it does not know the
        sequence that it leaves behind, a session before KIP-890 ends with it."""
        opened = self._open
        assert opened is not None
        self.world.counts["batches given up"] += 1
        opened.commits, self._ends_with_session = False, self.plan.version == 1
        self._step = self._end

    def _produced(self, body: ProduceResponse, key: Key) -> None:
        answer = body.responses[0].partition_responses[0]
        opened = self._open
        assert opened is not None
        code = answer.error_code
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            code = ErrorCode.NONE
        if self._judge("Produce", code):
            opened.offsets[key] = answer.base_offset
            self._sequences[key] = self._sequences.get(key, 0) + len(opened.parts[key])

    def _end(self) -> None:
        opened = self._open
        assert opened is not None
        body = EndTxnRequest(
            transactional_id=self.id, producer_id=self._producer[0], producer_epoch=self._producer[1],
            committed=opened.commits,
        )  # fmt: skip
        if self._coordinator >= 0 and self.line_to(self._coordinator) is not None:
            opened.end_was_repeated, opened.end_was_asked = opened.end_was_asked, True
        self._at_coordinator(END_TXN, VERSIONS[self.plan.version][END_TXN], body, self._ended, self._patience_ms)

    def _ended(self, body: EndTxnResponse, _: Any) -> None:
        opened = self._open
        assert opened is not None
        is_fenced = body.error_code == ErrorCode.PRODUCER_FENCED
        if is_fenced and opened.end_was_repeated and not self.plan.id:
            self.cluster.on_repeated_end_fenced(self.name, self.world.now_us - opened.begun_us)
        if not self._judge("EndTxn", body.error_code):
            return
        self._open = None
        known = {key: offset for key, offset in opened.offsets.items() if offset >= 0}
        if opened.commits:
            self.committed += 1
            self.recorder.ok(opened.operation, self._mops(opened.parts, known))
        else:
            self.recorder.fail(opened.operation, "aborted", self._mops(opened.parts, known))
        if self.plan.version > 1:
            self._take_producer((body.producer_id, body.producer_epoch))
        self._step = self._init if self._ends_with_session else self._begin
        self._ends_with_session = False
        self._later(max(1, self.chance.randrange(self.plan.pause_ms // 2, self.plan.pause_ms * 2 + 1)))

    def _end_session(self, code: int | None) -> None:
        """The session is over, or the application died: what was open is decided by others."""
        opened, self._open = self._open, None
        self._ends_with_session = False
        if opened is not None:
            reason = error_name(code) if code is not None else "left behind"
            if opened.commits and opened.in_doubt:
                self.recorder.info(opened.operation, reason, self._mops(opened.parts, {}))
            else:
                self.recorder.fail(opened.operation, reason, self._mops(opened.parts, {}))
        self.world.counts["transactional sessions given up"] += 1
        if code is None and self._begun >= self.plan.transactions:
            self.finish()  # The client does not come back: the coordinator must end it by itself.
            return
        self._step = self._init
        self._later()
