"""A scripted transactional producer: its driver (`transactions.py`) decides its requests, and when it sends them.

As in the specification, a write is on its way until the driver lets it arrive or gives it up: so writes may be late. A
request to the coordinator is sent again until it has a final response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from linearizability.client.errors import TRANSACTION_RETRIABLE, error_name, error_of
from linearizability.client.producer_session import NO_PRODUCER, Identity, ProducerSession
from linearizability.client.requests import TRANSACTION, produced
from linearizability.guided.scripts import TransactionScript
from linearizability.history.operations import MicroOperation, send
from linearizability.simulation.client import INIT_PRODUCER_ID, PRODUCE, SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, Line
from linearizability.simulation.producing import VALUE_HEAD
from linearizability.simulation.transacting import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    VERSIONS,
)
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.end_txn import EndTxnResponse
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.protocol.messages.init_producer_id import InitProducerIdResponse
from reference.protocol.messages.produce import ProduceRequest, ProduceResponse
from reference.protocol.primitives import FIRST_OFFSET, ProducerEpoch, ProducerId
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.record import Record
from reference.protocol.schema import Message

TRANSACTION_TIMEOUT_MS = 3_000
"""More than a driven transaction takes, less than the schedule waits for open transactions at the end."""
RESPONSE_TIMEOUT_MS = 8_000
"""How long it waits for one response."""
AT_LAST_MS = 500
"""How long, at the end, it waits for the responses to writes before it begins its last session."""

FIND_VERSION = INIT_VERSION = 4

WriteName = tuple[int, int]
"""The leader of a write's partition, and the specification's number of its transaction."""


@dataclass(slots=True, eq=False)
class Write:
    """One record, in a batch of its own."""

    broker: int
    producer: Identity
    sequence: int
    value: int
    transaction: str
    """In the history."""
    operation: int
    is_settled: bool = False
    may_arrive: bool = False
    """Whether the driver lets it arrive, and it has no response."""
    is_asked: bool = False


@dataclass(slots=True, eq=False)
class CoordinatorRequest:
    """A request that is sent to the coordinator until it has a final response."""

    key: int
    body: Message
    answered: Callable[[Any], None]
    is_asked: bool = False


class ScriptedTransactor(SimulatedClient):
    """The producer of a script of transactions."""

    def __init__(
        self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, script: TransactionScript
    ) -> None:
        super().__init__(cluster, number, recorder)
        self._script = script
        self._coordinator = script.brokers[0]
        self._topics = dict(zip(script.brokers[1:], script.topics, strict=True))
        self._session = ProducerSession(script.id, timeout_ms=TRANSACTION_TIMEOUT_MS)
        self._sequences: Counter[tuple[tuple[int, int], int]] = Counter()
        self.writes: dict[WriteName, Write] = {}
        """The writes that are not lost."""
        self.has_found_coordinator = False
        self._values = self._transactions = 0
        self._open = ""
        """The transaction with writes that no EndTxn has ended, by its name in the history."""
        self._commit: int | None = None
        """The operation of a commit without a response."""
        self._request: CoordinatorRequest | None = None
        self._is_retiring = False

    @property
    def is_busy(self) -> bool:
        """Whether a request to the coordinator has no response."""
        return self._request is not None

    @property
    def has_session(self) -> bool:
        """Whether it may write."""
        return self._session.identity != NO_PRODUCER and not self.is_busy

    # ---- what the driver calls

    def write(self, name: WriteName) -> None:
        """A record is on its way; before KIP-890 its partition is added first."""
        broker = name[0]
        if not self._open:
            self._transactions += 1
            self._open = f"{self._script.id}-{self._transactions}"
            self.recorder.ok(self.recorder.invoke("begin", txn=self._open))
        place, value = (self._session.identity, broker), (self.number << 32) | self._values
        operation = self.recorder.invoke("send", self._mops(broker, value), txn=self._open)
        self.writes[name] = Write(broker, self._session.identity, self._sequences[place], value, self._open, operation)
        self._sequences[place] += 1
        self._values += 1
        if self._script.version == 1:
            body = self._session.add_partitions([(self._topics[broker], 0)])
            self._send_to_coordinator(ADD_PARTITIONS_TO_TXN, body, self._added)

    def let_arrive(self, name: WriteName) -> None:
        """A record that is on its way reaches the leader of its partition."""
        if name in self.writes:
            self.writes[name].may_arrive = True
            self._send_due()

    def give_up(self, name: WriteName) -> None:
        """A record is lost on its way, or was refused; its sequence number is the next one's."""
        write = self.writes.pop(name)
        place = write.producer, write.broker
        if self._sequences[place] == write.sequence + 1:
            self._sequences[place] -= 1
        self._leave_open(write, "lost")

    def end(self, commits: bool) -> None:
        """End the transaction, also while writes are on their way."""
        self._close(commits)
        self._send_to_coordinator(END_TXN, self._session.end(commits), self._ended)

    def begin_session(self) -> None:
        """Begin a session as another process with the same transactional id would: an open transaction is aborted."""
        self.lose_session()
        self._send_to_coordinator(INIT_PRODUCER_ID, self._session.begin(), self._begun)

    def lose_session(self) -> None:
        """The coordinator has aborted the open transaction and fenced the producer."""
        self._close(False)
        self._session.identity, self._request = NO_PRODUCER, None

    def retire(self) -> None:
        """Abort the open transaction by one more session, and finish."""
        self._is_retiring = True
        self.world.after(AT_LAST_MS * MICROSECONDS_A_MS, self.begin_session)

    # ---- sending requests

    def start(self) -> None:
        super().start()
        self._poll()

    def _poll(self) -> None:
        """Send what is due, every BACKOFF_MS."""
        if not self.finished:
            self._send_due()
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._poll)

    def _send_due(self) -> None:
        for write in self.writes.values():
            line = self.line_to(write.broker) if write.may_arrive and not write.is_asked else None
            if line is not None:
                write.is_asked = True
                self.ask(
                    PRODUCE,
                    self._version(PRODUCE),
                    self._produced_by(write),
                    self._on_produced,
                    write,
                    RESPONSE_TIMEOUT_MS,
                    line,
                )
        request = self._request
        line = self.line_to(self._coordinator) if request is not None and not request.is_asked else None
        if request is not None and line is not None:
            request.is_asked = True
            self.ask(
                request.key,
                self._version(request.key),
                request.body,
                self._on_answer,
                request,
                RESPONSE_TIMEOUT_MS,
                line,
            )

    def _version(self, key: int) -> int:
        return VERSIONS[self._script.version].get(key, INIT_VERSION)

    def _send_to_coordinator(self, key: int, body: Message, answered: Callable[[Any], None]) -> None:
        self._request = CoordinatorRequest(key, body, answered)
        self._send_due()

    def _on_answer(self, body: Any, request: CoordinatorRequest) -> None:
        """A retriable error has the request sent again."""
        code = error_of(body)
        self.count(APIS[request.key].name, code)
        if request is not self._request:
            return
        if code in TRANSACTION_RETRIABLE:
            request.is_asked = False
        else:
            self._request = None
            request.answered(body)

    # ---- connections

    def on_ready(self) -> None:
        if not self.has_found_coordinator:
            body = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self._script.id])
            self.ask(FIND_COORDINATOR, FIND_VERSION, body, self._found)

    def _found(self, body: FindCoordinatorResponse, _: Any) -> None:
        """The script names the coordinator: only that there is one matters."""
        self.has_found_coordinator = body.coordinators[0].error_code == ErrorCode.NONE
        if not self.has_found_coordinator:
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self.on_ready)

    def on_leader_ready(self, line: Line) -> None:
        self._send_due()

    def refresh_soon(self) -> None:
        """The driver names the node to send to: no metadata is needed."""

    def on_lost(self, line: Line) -> None:
        for write in self.writes.values():
            if write.broker == line.node:
                write.may_arrive = write.is_asked = False
        if self._request is not None and line.node == self._coordinator:
            self._request.is_asked = False

    # ---- writing

    def _added(self, body: Any) -> None:
        """The partition may be written to."""

    def _produced_by(self, write: Write) -> ProduceRequest:
        record = Record(FIRST_OFFSET, self.cluster.client_clock_ms(), None, write.value.to_bytes(VALUE_HEAD, "big"), ())
        data = build(
            [record],
            producer=BatchProducer(
                ProducerId(write.producer[0]), ProducerEpoch(write.producer[1]), write.sequence, transactional=True
            ),
        )
        return self._session.produce({(self._topics[write.broker], 0): data}, RESPONSE_TIMEOUT_MS)

    def _on_produced(self, body: ProduceResponse, write: Write) -> None:
        answer = produced(body)
        self.count("Produce", answer.error_code)
        write.may_arrive = write.is_asked = False
        if answer.error_code == ErrorCode.NONE and not write.is_settled:
            write.is_settled = True
            self.recorder.ok(write.operation, self._mops(write.broker, write.value, answer.base_offset))

    def _mops(self, broker: int, value: int, offset: int | None = None) -> list[MicroOperation]:
        return [send(f"{self._topics[broker]}-0", value, offset, "all")]

    def _leave_open(self, write: Write, reason: str) -> None:
        """A write without a response when its transaction ends stays unknown, also if a response comes later."""
        if not write.is_settled:
            write.is_settled = True
            self.recorder.info(write.operation, reason, self._mops(write.broker, write.value))

    # ---- ends and sessions

    def _close(self, commits: bool) -> None:
        """End the open transaction in the history; the end of a commit has its outcome from the response."""
        name, self._open = self._open, ""
        if not name:
            return
        for write in self.writes.values():
            if write.transaction == name:
                self._leave_open(write, "late")
        operation = self.recorder.invoke("end", txn=name, commit=commits)
        if commits:
            self._commit = operation
        else:
            self.recorder.ok(operation)

    def _ended(self, body: EndTxnResponse) -> None:
        operation, self._commit = self._commit, None
        if body.error_code != ErrorCode.NONE:
            self._session.identity = NO_PRODUCER
            if operation is not None:
                self.recorder.info(operation, error_name(body.error_code))
            return
        if operation is not None:
            self.recorder.ok(operation)
        if self._script.version > 1:
            self._session.identity = body.producer_id, body.producer_epoch

    def _begun(self, body: InitProducerIdResponse) -> None:
        if body.error_code == ErrorCode.NONE:
            self._session.identity = body.producer_id, body.producer_epoch
            self.cluster.promises.claim_producer_id(*self._session.identity, self.name)
        if self._is_retiring:
            if self._commit is not None:
                self.recorder.info(self._commit, "no answer")
            self.finish()
