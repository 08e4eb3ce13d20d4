"""A transactional producer: one transaction after the other over several partitions, committed, aborted, or left behind.

One request is under way at a time. A step that fails in a way that passes is tried again; what ends the session (fencing, a
timeout of the transaction) leaves the transaction's outcome to what is known of it, and a new session begins. With `version` 1
partitions are added by AddPartitionsToTxn and the epoch stays; with 2 produce adds them, and each end bumps the epoch
(KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from linearizability.client.errors import (
    NO_COORDINATOR,
    SESSION_OVER,
    STALE,
    TRANSACTION_RETRIABLE,
    error_name,
    error_of,
)
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import TRANSACTION, produced
from linearizability.history.operations import MicroOperation, send
from linearizability.simulation.client import PRODUCE, Key, SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, Line
from linearizability.simulation.producing import PRODUCE_TIMEOUT_MS, records_with
from linearizability.simulation.schedule import TRANSACTION_TIMEOUT_MS, Transactor
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from reference.protocol.messages.end_txn import EndTxnResponse
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.protocol.messages.init_producer_id import InitProducerIdResponse
from reference.protocol.messages.produce import ProduceResponse

FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 10, 22, 24, 26
"""transaction.timeout.ms of the simulated producers."""
VERSIONS: dict[int, dict[int, int]] = {
    1: {PRODUCE: 9, ADD_PARTITIONS_TO_TXN: 3, END_TXN: 3},
    2: {PRODUCE: 12, END_TXN: 5},
}
"""Of the requests whose version says which transaction protocol is meant."""


@dataclass(slots=True)
class Open:
    """The open transaction."""

    operation: int
    parts: dict[Key, list[int]]
    commits: bool
    is_left_behind: bool
    offsets: dict[Key, int] = field(default_factory=dict[Key, int])
    begun_us: int = 0
    end_was_asked: bool = False
    end_was_repeated: bool = False
    in_doubt: bool = False
    """Whether its end was requested and may have happened without our knowledge."""


class SimulatedTransactor(SimulatedClient):
    """A transactional producer."""

    def __init__(self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, plan: Transactor) -> None:
        super().__init__(cluster, number, recorder)
        self.plan = plan
        self.id = plan.id or f"transactor-{number}"
        self._coordinator = -1
        self._session = ProducerSession(self.id, timeout_ms=TRANSACTION_TIMEOUT_MS)
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
        """Take the due step, unless a response is awaited."""
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
        self,
        node: int,
        key: int,
        version: int,
        body: Any,
        answered: Callable[..., None],
        context: Any = None,
        patience_ms: int = PRODUCE_TIMEOUT_MS * 2,
    ) -> None:
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
        if code in NO_COORDINATOR:
            self._coordinator = -1
        if code in STALE:
            self.refresh_soon()
        if code in TRANSACTION_RETRIABLE:
            self._doubt()
            self._later()
        elif code in SESSION_OVER:
            self._end_session(code)
        else:
            raise self.groundless(api, code)
        return False

    def _find(self) -> None:
        body = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.id])
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
        self._at_coordinator(INIT_PRODUCER_ID, 4, self._session.begin(), self._initialized)

    def _initialized(self, body: InitProducerIdResponse, _: Any) -> None:
        if self._judge("InitProducerId", body.error_code):
            self.cluster.promises.claim_producer_id(body.producer_id, body.producer_epoch, self.name)
            self._session.become(body.producer_id, body.producer_epoch)
            self._step = self._begin

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
        body = self._session.add_partitions(self._open.parts)
        self._at_coordinator(ADD_PARTITIONS_TO_TXN, VERSIONS[1][ADD_PARTITIONS_TO_TXN], body, self._added)

    def _added(self, body: AddPartitionsToTxnResponse, _: Any) -> None:
        if self._judge("AddPartitionsToTxn", error_of(body)):
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
        data = self._session.batch(key, records_with(opened.parts[key], self.cluster.client_clock_ms()))
        body = self._session.produce({key: data}, PRODUCE_TIMEOUT_MS)
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
        answer = produced(body)
        opened = self._open
        assert opened is not None
        code = answer.error_code
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            code = ErrorCode.NONE
        if self._judge("Produce", code):
            opened.offsets[key] = answer.base_offset
            self._session.appended(key, len(opened.parts[key]))

    def _end(self) -> None:
        opened = self._open
        assert opened is not None
        body = self._session.end(opened.commits)
        if self._coordinator >= 0 and self.line_to(self._coordinator) is not None:
            opened.end_was_repeated, opened.end_was_asked = opened.end_was_asked, True
        self._at_coordinator(END_TXN, VERSIONS[self.plan.version][END_TXN], body, self._ended, self._patience_ms)

    def _ended(self, body: EndTxnResponse, _: Any) -> None:
        opened = self._open
        assert opened is not None
        is_fenced = body.error_code == ErrorCode.PRODUCER_FENCED
        if is_fenced and opened.end_was_repeated and not self.plan.id:
            self.cluster.promises.on_repeated_end_fenced(self.name, self.world.now_us - opened.begun_us)
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
            self._session.become(body.producer_id, body.producer_epoch)
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
