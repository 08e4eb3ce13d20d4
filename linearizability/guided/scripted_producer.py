"""A scripted producer: its driver decides to which node it sends a record, and when it repeats one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from linearizability.client.errors import error_name
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import produce_request, produced
from linearizability.history.operations import MicroOperation, send
from linearizability.simulation.client import INIT_PRODUCER_ID, PRODUCE, SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import Line
from linearizability.simulation.producing import ACKS, PRODUCE_TIMEOUT_MS, VALUE_HEAD
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.init_producer_id import InitProducerIdResponse
from reference.protocol.messages.produce import ProduceResponse
from reference.protocol.primitives import FIRST_OFFSET, NO_PRODUCER_ID, ProducerEpoch
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.record import Record

PRODUCE_VERSION = 9
RESPONSE_TIMEOUT_MS = 3_000
"""How long it waits for the last responses."""


@dataclass(slots=True, eq=False)
class Sent:
    """One record, in a batch of its own."""

    number: int
    acks: str
    operation: int
    attempts: int = 0
    is_settled: bool = False
    """It was acknowledged, or refused for good."""


class ScriptedProducer(SimulatedClient):
    """The producer of a script of replication."""

    def __init__(
        self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, topic: str, idempotent: bool
    ) -> None:
        super().__init__(cluster, number, recorder)
        self._topic = topic
        self._idempotent = idempotent
        self._producer_id = NO_PRODUCER_ID
        self._sent: list[Sent] = []
        self._waiting: deque[tuple[int, Sent]] = deque()
        """Records to be sent, and their nodes, as soon as these are connected."""

    @property
    def is_prepared(self) -> bool:
        return self._producer_id >= 0 or not self._idempotent

    # ---- what the driver calls

    def produce(self, node: int, acks: str) -> None:
        """Send a new record."""
        number = len(self._sent)
        sent = Sent(number, acks, self.recorder.invoke("send", self._mops(number, acks)))
        self._sent.append(sent)
        self._send_soon(node, sent)

    def retry(self, node: int) -> None:
        """Send the oldest record again whose outcome is unknown."""
        unsettled = next((sent for sent in self._sent if not sent.is_settled), None)
        if unsettled is not None:
            self._send_soon(node, unsettled)

    def retire(self) -> None:
        """Finish, once RESPONSE_TIMEOUT_MS has passed."""
        self.world.after(RESPONSE_TIMEOUT_MS * MICROSECONDS_A_MS, self._give_up)

    def _give_up(self) -> None:
        for sent in self._sent:
            if not sent.is_settled:
                self._leave_open(sent, "no answer")
        self.finish()

    # ---- connections

    def on_ready(self) -> None:
        if not self.is_prepared:
            self.ask(INIT_PRODUCER_ID, 4, ProducerSession().begin(), self._on_producer_id)
        self.on_leader_ready(self.home)

    def _on_producer_id(self, body: InitProducerIdResponse, _: Any) -> None:
        if body.error_code == ErrorCode.NONE:
            self._producer_id = body.producer_id
        else:
            self.hang_up("no producer id")

    def on_leader_ready(self, line: Line) -> None:
        waiting, self._waiting = self._waiting, deque()
        for node, sent in waiting:
            self._send_soon(node, sent)

    def refresh_soon(self) -> None:
        """The driver names the node to send to: no metadata is needed."""

    # ---- sending

    def _send_soon(self, node: int, sent: Sent) -> None:
        line = self.line_to(node)
        if line is None:
            self._waiting.append((node, sent))
            return
        sent.attempts += 1
        records = {(self._topic, 0): self._bytes(sent)}
        body = produce_request(records, acks=ACKS[sent.acks], timeout_ms=PRODUCE_TIMEOUT_MS)
        if sent.acks == "0":
            self.ask(PRODUCE, PRODUCE_VERSION, body, None, line=line)
            self._leave_open(sent, "acks=0 has no response")
            return
        self.ask(PRODUCE, PRODUCE_VERSION, body, self._on_produced, sent, PRODUCE_TIMEOUT_MS * 2, line)

    def _value(self, number: int) -> int:
        return (self.number << 32) | number

    def _bytes(self, sent: Sent) -> bytes:
        value = self._value(sent.number).to_bytes(VALUE_HEAD, "big")
        records = [Record(FIRST_OFFSET, self.cluster.client_clock_ms(), None, value, ())]
        if not self._idempotent:
            return bytes(build(records))
        return bytes(build(records, producer=BatchProducer(self._producer_id, ProducerEpoch(0), sent.number)))

    def _on_produced(self, body: ProduceResponse, sent: Sent) -> None:
        answer = produced(body)
        code = answer.error_code
        self.count("Produce", code)
        if sent.is_settled:
            return
        if code == ErrorCode.NONE:
            end = answer.base_offset + 1
            self.cluster.promises.on_acknowledged((self._topic, 0), end, self.name, sent.acks)
            sent.is_settled = True
            self.recorder.ok(sent.operation, self._mops(sent.number, sent.acks, answer.base_offset))
        else:
            self._leave_open(sent, error_name(code))

    def _leave_open(self, sent: Sent, reason: str) -> None:
        """It stays unknown whether the record was written."""
        sent.is_settled = True
        self.recorder.info(sent.operation, reason, self._mops(sent.number, sent.acks))

    def _mops(self, number: int, acks: str, offset: int | None = None) -> list[MicroOperation]:
        return [send(f"{self._topic}-0", self._value(number), offset, acks)]
