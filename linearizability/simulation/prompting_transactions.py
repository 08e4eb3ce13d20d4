"""A transactional producer without a will of its own: it sends what it is told, when it is told (`conducting/transactions.py`).

A write that it was told of is on its way, as the specification has it, until it is told to let it arrive, or gives it up: so
writes may be late. What it has to do for a new session, or to hear how an end came out, it tries until it is answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linearizability.history.operations import MicroOperation, send
from linearizability.simulation.client import INIT_PRODUCER_ID, PRODUCE, SimulatedClient, error_name
from linearizability.simulation.coordinator_scores import TransactionScore
from linearizability.simulation.line import API_NAMES, BACKOFF_MS, Line
from linearizability.simulation.notebook import Notebook
from linearizability.simulation.producing import VALUE_HEAD
from linearizability.simulation.transacting import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    PASSING,
    TRANSACTION_KEY,
    VERSIONS,
)
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from reference.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from reference.protocol.messages.produce import ProduceRequest, ProduceResponse
from reference.protocol.records.batch import build
from reference.protocol.records.record import Record
from reference.protocol.schema import Message

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

TRANSACTION_TIMEOUT_MS = 3_000
"""More than a transaction takes whose steps come one after the other, less than anybody waits for what is open at the end."""
PATIENCE_MS = 8_000
"""How long it waits for one answer."""
AT_LAST_MS = 500
"""How long, at the end, it waits for answers to writes before it begins a session that nothing follows."""

FIND_VERSION = INIT_VERSION = 4
NOBODY = (-1, -1)

WriteName = tuple[int, int]
"""The leader of a write's partition, and the specification's number of its transaction."""


@dataclass(slots=True, eq=False)
class Write:
    """One record, in a batch of its own."""

    broker: int
    producer: tuple[int, int]
    sequence: int
    value: int
    transaction: str
    """In the history."""
    operation: int
    is_settled: bool = False
    may_arrive: bool = False
    """Whether it was told to arrive, and has no answer."""
    is_asked: bool = False


@dataclass(slots=True, eq=False)
class Errand:
    """What is asked of the coordinator until it is answered for good."""

    key: int
    body: Message
    answered: Callable[[Any], None]
    is_asked: bool = False


class PromptedTransactor(SimulatedClient):
    """The producer of a score of transactions."""

    def __init__(self, cluster: Cluster, number: int, notebook: Notebook, score: TransactionScore) -> None:
        super().__init__(cluster, number, notebook)
        self._score = score
        self._coordinator = score.brokers[0]
        self._topics = dict(zip(score.brokers[1:], score.topics, strict=True))
        self._producer = NOBODY
        self._sequences: Counter[tuple[tuple[int, int], int]] = Counter()
        self.writes: dict[WriteName, Write] = {}
        """Those that are not lost."""
        self.has_found_coordinator = False
        self._values = self._transactions = 0
        self._open = ""
        """The transaction that has writes and whose end was not asked for, by its name in the history."""
        self._commit: int | None = None
        """The operation by which a commit was asked for, until it is answered."""
        self._errand: Errand | None = None
        self._is_retiring = False

    @property
    def is_busy(self) -> bool:
        """Whether the coordinator owes it an answer."""
        return self._errand is not None

    @property
    def has_session(self) -> bool:
        """Whether it may write."""
        return self._producer != NOBODY and not self.is_busy

    # ---- prompts

    def write(self, name: WriteName) -> None:
        """A record is on its way; before KIP-890 its partition is added first."""
        broker = name[0]
        if not self._open:
            self._transactions += 1
            self._open = f"{self._score.id}-{self._transactions}"
            self.notebook.ok(self.notebook.invoke("begin", txn=self._open))
        place, value = (self._producer, broker), (self.number << 32) | self._values
        operation = self.notebook.invoke("send", self._mops(broker, value), txn=self._open)
        self.writes[name] = Write(broker, self._producer, self._sequences[place], value, self._open, operation)
        self._sequences[place] += 1
        self._values += 1
        if self._score.version == 1:
            self._begin_errand(ADD_PARTITIONS_TO_TXN, self._addition(broker), self._added)

    def let_arrive(self, name: WriteName) -> None:
        """A record that is on its way reaches the leader of its partition."""
        if name in self.writes:
            self.writes[name].may_arrive = True
            self._pursue()

    def give_up(self, name: WriteName) -> None:
        """A record is lost on its way, or was refused; its sequence number is the next one's."""
        write = self.writes.pop(name)
        place = write.producer, write.broker
        if self._sequences[place] == write.sequence + 1:
            self._sequences[place] -= 1
        self._leave_open(write, "lost")

    def end(self, commits: bool) -> None:
        """End the transaction, whatever became of its writes."""
        self._close(commits)
        body = EndTxnRequest(
            transactional_id=self._score.id, producer_id=self._producer[0], producer_epoch=self._producer[1],
            committed=commits,
        )  # fmt: skip
        self._begin_errand(END_TXN, body, self._ended)

    def begin_session(self) -> None:
        """As another process with the same transactional id would: what is open is aborted."""
        self.lose_session()
        body = InitProducerIdRequest(
            transactional_id=self._score.id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        self._begin_errand(INIT_PRODUCER_ID, body, self._begun)

    def lose_session(self) -> None:
        """The coordinator has aborted what is open, and fenced us."""
        self._close(False)
        self._producer, self._errand = NOBODY, None

    def retire(self) -> None:
        """No more prompts come: what is open is aborted by one more session, and then there is rest."""
        self._is_retiring = True
        self.world.after(AT_LAST_MS * MICROSECONDS_A_MS, self.begin_session)

    # ---- asking

    def start(self) -> None:
        super().start()
        self._turn()

    def _turn(self) -> None:
        """Look again and again for what can be asked now."""
        if not self.finished:
            self._pursue()
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._turn)

    def _pursue(self) -> None:
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
                    PATIENCE_MS,
                    line,
                )
        errand = self._errand
        line = self.line_to(self._coordinator) if errand is not None and not errand.is_asked else None
        if errand is not None and line is not None:
            errand.is_asked = True
            self.ask(errand.key, self._version(errand.key), errand.body, self._on_answer, errand, PATIENCE_MS, line)

    def _version(self, key: int) -> int:
        return VERSIONS[self._score.version].get(key, INIT_VERSION)

    def _begin_errand(self, key: int, body: Message, answered: Callable[[Any], None]) -> None:
        self._errand = Errand(key, body, answered)
        self._pursue()

    def _on_answer(self, body: Any, errand: Errand) -> None:
        """What passes is asked again, a little later."""
        code = _error_of(body)
        self.count(API_NAMES[errand.key], code)
        if errand is not self._errand:
            return
        if code in PASSING:
            errand.is_asked = False
        else:
            self._errand = None
            errand.answered(body)

    # ---- connections

    def on_ready(self) -> None:
        if not self.has_found_coordinator:
            body = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[self._score.id])
            self.ask(FIND_COORDINATOR, FIND_VERSION, body, self._found)

    def _found(self, body: FindCoordinatorResponse, _: Any) -> None:
        """Whoever coordinates: that somebody does is enough."""
        self.has_found_coordinator = body.coordinators[0].error_code == ErrorCode.NONE
        if not self.has_found_coordinator:
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self.on_ready)

    def on_leader_ready(self, line: Line) -> None:
        self._pursue()

    def refresh_soon(self) -> None:
        """It is told where to send: metadata are nothing to it."""

    def on_lost(self, line: Line) -> None:
        for write in self.writes.values():
            if write.broker == line.node:
                write.may_arrive = write.is_asked = False
        if self._errand is not None and line.node == self._coordinator:
            self._errand.is_asked = False

    # ---- writing

    def _addition(self, broker: int) -> AddPartitionsToTxnRequest:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self._topics[broker], partitions=[0])
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._score.id, v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1], v3_and_below_topics=[topic],
        )  # fmt: skip

    def _added(self, body: Any) -> None:
        """The partition may be written to."""

    def _produced_by(self, write: Write) -> ProduceRequest:
        record = Record(0, self.cluster.client_clock_ms(), None, write.value.to_bytes(VALUE_HEAD, "big"), ())
        data = build(
            [record], producer_id=write.producer[0], producer_epoch=write.producer[1], base_sequence=write.sequence,
            transactional=True,
        )  # fmt: skip
        partition = ProduceRequest.PartitionProduceData(index=0, records=bytes(data))
        topic = ProduceRequest.TopicProduceData(name=self._topics[write.broker], partition_data=[partition])
        return ProduceRequest(transactional_id=self._score.id, acks=-1, timeout_ms=PATIENCE_MS, topic_data=[topic])

    def _on_produced(self, body: ProduceResponse, write: Write) -> None:
        answer = body.responses[0].partition_responses[0]
        self.count("Produce", answer.error_code)
        write.may_arrive = write.is_asked = False
        if answer.error_code == ErrorCode.NONE and not write.is_settled:
            write.is_settled = True
            self.notebook.ok(write.operation, self._mops(write.broker, write.value, answer.base_offset))

    def _mops(self, broker: int, value: int, offset: int | None = None) -> list[MicroOperation]:
        return [send(f"{self._topics[broker]}-0", value, offset, "all")]

    def _leave_open(self, write: Write, reason: str) -> None:
        """What is known of a write when its transaction ends is all that counts; what is heard later is nothing."""
        if not write.is_settled:
            write.is_settled = True
            self.notebook.info(write.operation, reason, self._mops(write.broker, write.value))

    # ---- ends and sessions

    def _close(self, commits: bool) -> None:
        """The open transaction is over for the history, unless a commit is asked for: then its answer decides."""
        name, self._open = self._open, ""
        if not name:
            return
        for write in self.writes.values():
            if write.transaction == name:
                self._leave_open(write, "late")
        operation = self.notebook.invoke("end", txn=name, commit=commits)
        if commits:
            self._commit = operation
        else:
            self.notebook.ok(operation)

    def _ended(self, body: EndTxnResponse) -> None:
        operation, self._commit = self._commit, None
        if body.error_code != ErrorCode.NONE:
            self._producer = NOBODY
            if operation is not None:
                self.notebook.info(operation, error_name(body.error_code))
            return
        if operation is not None:
            self.notebook.ok(operation)
        if self._score.version > 1:
            self._producer = body.producer_id, body.producer_epoch

    def _begun(self, body: InitProducerIdResponse) -> None:
        if body.error_code == ErrorCode.NONE:
            self._producer = body.producer_id, body.producer_epoch
            self.cluster.claim_producer_id(*self._producer, self.name)
        if self._is_retiring:
            if self._commit is not None:
                self.notebook.info(self._commit, "no answer")
            self.finish()


def _error_of(body: Any) -> int:
    """The first error of an answer of the coordinator's."""
    if hasattr(body, "error_code") and body.error_code != ErrorCode.NONE:
        return body.error_code
    topics = getattr(body, "results_by_topic_v3_and_below", ())
    codes = (each.partition_error_code for topic in topics for each in topic.results_by_partition)
    return next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)
