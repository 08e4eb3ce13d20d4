"""A client that creates a topic, writes it, reads it, deletes it, and creates it again under the same name.

It alone uses the topic. Records are sent and read by topic id: each answer is about one topic of the name. Each record says for
which one it was sent. One request is under way at a time. A batch whose outcome is unknown is not sent again: a new producer id
follows it. Otherwise the producer id stays the same over the topics, and sequence numbers begin again with each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from linearizability.client.errors import STALE
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import FetchFrom, Topic, fetch_request, new_topic, produce_request, produced
from linearizability.simulation.administering import CREATE_TIMEOUT_MS, CREATE_TOPICS_VERSION, NOT_YET
from linearizability.simulation.batches import batches_in, header_of, records_in
from linearizability.simulation.client import (
    CREATE_TOPICS,
    FETCH,
    INIT_PRODUCER_ID,
    METADATA,
    METADATA_VERSION,
    PRODUCE,
    SimulatedClient,
)
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS, Line
from linearizability.simulation.schedule import Recreator
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.init_producer_id import InitProducerIdResponse
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.primitives import NO_PRODUCER_ID, Buffer, Offset, ProducerEpoch
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.record import Record

TOPIC = "again"
KEY = TOPIC, 0
DELETE_TOPICS, DELETE_TOPICS_VERSION = 20, 6
INIT_VERSION, PRODUCE_VERSION, FETCH_VERSION = 4, 13, 13
"""Produce and Fetch name topics by their ids from these versions on."""
PRODUCE_TIMEOUT_MS = 1_000
FETCH_BYTES = 1_500
LONGEST_GAP_MS = 100
"""Between a deletion and the next creation."""
READS_PERCENT = 20
MOST_RECORDS = 6
"""In a batch."""
NUMBER_BYTES = 4
UNWRITTEN = STALE | {
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT
}  # fmt: skip
"""Errors of a batch that may or may not be stored; those of its sequence number are none of them."""


@dataclass(slots=True)
class Own:
    """The present topic of the name, as its client knows it."""

    id: UUID
    batches: int
    """How many batches it gets before it is deleted."""
    sequence: int = 0
    stored: dict[int, int] = field(default_factory=dict[int, int])
    """Offset -> the number of the acknowledged record there."""
    end: int = 0
    """What is acknowledged ends there."""
    position: int | None = None
    """How far it is read, while it is."""
    delete_asked: bool = False


class SimulatedRecreator(SimulatedClient):
    """Goes through the same steps with one topic of the name after the other."""

    def __init__(self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, plan: Recreator) -> None:
        super().__init__(cluster, number, recorder)
        self._plan = plan
        self._topic: Own | None = None
        self._former: set[UUID] = set()
        """Topics of the name that are deleted."""
        self._producer_id = NO_PRODUCER_ID
        self._numbers = 0
        self._sent: Line | None = None
        """Where a batch is under way."""
        self._waits = False

    # ---- the connection

    def on_ready(self) -> None:
        self._go_on()

    def on_leader_ready(self, line: Line) -> None:
        self._go_on()

    def on_lost(self, line: Line) -> None:
        if self._sent is line:
            self._doubt()
        self._later(BACKOFF_MS)

    def _later(self, pause_ms: int) -> None:
        if not self._waits:
            self._waits = True
            self.world.after(pause_ms * MICROSECONDS_A_MS, self._wake)

    def _wake(self) -> None:
        self._waits = False
        self._go_on()

    def _stale(self) -> None:
        self.refresh_soon()
        self._later(BACKOFF_MS)

    def _go_on(self) -> None:
        """Take the next step: create the topic, read on, begin to read, write or delete."""
        if self.finished or not self.is_ready or self.in_flight or self._waits:
            return
        topic = self._topic
        if topic is None:
            self._create()
            return
        line = self.line_to(self.leaders.get(KEY, -1))
        if topic.delete_asked or (topic.batches == 0 and topic.position is None and not self.cluster.is_over):
            self._delete(topic)
        elif line is None:
            self._stale()
        elif topic.position is not None:
            self._fetch(line, topic, topic.position)
        elif self.cluster.is_over or self.chance.randrange(100) < READS_PERCENT:
            topic.position = 0
            self._fetch(line, topic, 0)
        elif self._producer_id < 0:
            self.ask(INIT_PRODUCER_ID, INIT_VERSION, ProducerSession().begin(), self._on_producer_id)
        else:
            self._write(line, topic)

    # ---- the topic

    def _create(self) -> None:
        wanted = new_topic(
            TOPIC, configs=self._plan.configs, replication_factor=self.cluster.schedule.replication_factor
        )
        body = CreateTopicsRequest(topics=[wanted], timeout_ms=CREATE_TIMEOUT_MS)
        self.ask(CREATE_TOPICS, CREATE_TOPICS_VERSION, body, self._on_created)

    def _on_created(self, body: CreateTopicsResponse, _: Any) -> None:
        answer = body.topics[0]
        self.count("CreateTopics", answer.error_code)
        if answer.error_code == ErrorCode.NONE:
            self._begin(answer.topic_id)
        elif answer.error_code not in (*NOT_YET, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise self.groundless("CreateTopics", answer.error_code)
        # A topic that exists may be one that an earlier request has created, whose answer was lost.
        self._stale()

    def _begin(self, topic_id: UUID) -> None:
        """A topic of the name exists that is none of the deleted ones. Errors: Violation."""
        if topic_id in self._former:
            self.world.broken("topic-id-twice", f"{TOPIC} is {topic_id} again")
        self.world.counts["topics created under one name"] += 1
        self._topic = Own(topic_id, self.chance.randrange(1, self._plan.batches + 1))
        for known in (self.leaders, self.leader_epochs, self.replicas):
            known.pop(KEY, None)

    def _delete(self, topic: Own) -> None:
        topic.delete_asked = True
        states = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic.id)]
        body = DeleteTopicsRequest(topics=states, timeout_ms=CREATE_TIMEOUT_MS)
        self.ask(DELETE_TOPICS, DELETE_TOPICS_VERSION, body, self._on_deleted, topic)

    def _on_deleted(self, body: DeleteTopicsResponse, topic: Own) -> None:
        code = body.responses[0].error_code
        self.count("DeleteTopics", code)
        if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):  # the second where an earlier answer was lost
            self._former.add(topic.id)
            self._topic = None
            self._later(self.chance.randrange(1, LONGEST_GAP_MS))
        elif code in NOT_YET:
            self._later(BACKOFF_MS)
        else:
            raise self.groundless("DeleteTopics", code)

    def ask_metadata(self) -> None:
        """See `SimulatedClient`; a node may yet know a deleted topic of the name, or none."""
        body = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
        )
        self._refreshing = True
        self.ask(METADATA, METADATA_VERSION, body, self._on_place)

    def _on_place(self, body: MetadataResponse, _: Any) -> None:
        self._refreshing = False
        answer = body.topics[0]
        if answer.error_code == ErrorCode.NONE and answer.topic_id not in self._former:
            if self._topic is None:
                self._begin(answer.topic_id)
            if self._topic is not None and self._topic.id == answer.topic_id:
                for partition in answer.partitions:
                    self._learn(KEY, partition)
        self._go_on()

    # ---- writing

    def _on_producer_id(self, body: InitProducerIdResponse, _: Any) -> None:
        self.count("InitProducerId", body.error_code)
        if body.error_code != ErrorCode.NONE:
            self.hang_up("no producer id")
            return
        self.cluster.promises.claim_producer_id(body.producer_id, body.producer_epoch, self.name)
        self._producer_id = body.producer_id
        if self._topic is not None:
            self._topic.sequence = 0
        self._go_on()

    def _write(self, line: Line, topic: Own) -> None:
        count = self.chance.randrange(1, MOST_RECORDS + 1)
        numbers = range(self._numbers + 1, self._numbers + count + 1)
        self._numbers += count
        now = self.cluster.client_clock_ms()
        records = [
            Record(Offset(delta), now, None, topic.id.bytes + number.to_bytes(NUMBER_BYTES, "big"))
            for delta, number in enumerate(numbers)
        ]
        batch = build(records, producer=BatchProducer(self._producer_id, ProducerEpoch(0), topic.sequence))
        topic.sequence += count
        topic.batches -= 1
        self._sent = line
        body = produce_request({(self._named(topic), 0): batch}, timeout_ms=PRODUCE_TIMEOUT_MS)
        self.ask(PRODUCE, PRODUCE_VERSION, body, self._on_produced, (topic, numbers), PRODUCE_TIMEOUT_MS * 2, line)

    def _named(self, topic: Own) -> Topic:
        return Topic(TOPIC, topic.id, 1)

    def _on_produced(self, body: Any, sent: tuple[Own, range]) -> None:
        topic, numbers = sent
        answer = produced(body)
        self.count("Produce", answer.error_code)
        if answer.error_code == ErrorCode.NONE:
            self._sent = None
            self.world.counts["records in topics that are created again"] += len(numbers)
            topic.stored |= {answer.base_offset + delta: number for delta, number in enumerate(numbers)}
            topic.end = max(topic.end, answer.base_offset + len(numbers))
            self._later(self._plan.pause_ms)
            return
        if answer.error_code not in UNWRITTEN and not self._may_have_lost(topic):
            raise self.groundless(f"Produce to a topic that was just created ({TOPIC})", answer.error_code)
        self._doubt()
        self._stale()

    def _doubt(self) -> None:
        """What is under way may be stored now or later."""
        self._sent, self._producer_id = None, NO_PRODUCER_ID

    # ---- reading

    def _fetch(self, line: Line, topic: Own, position: int) -> None:
        begin = FetchFrom(position, self.leader_epochs.get(KEY, -1))
        wanted = {(self._named(topic), 0): begin}
        body = fetch_request(wanted, max_wait_ms=0, min_bytes=0, partition_max_bytes=FETCH_BYTES)
        self.ask(FETCH, FETCH_VERSION, body, self._on_fetched, topic, line=line)

    def _on_fetched(self, body: FetchResponse, topic: Own) -> None:
        answer = body.responses[0].partitions[0]
        self.count("Fetch partition", answer.error_code)
        if answer.error_code == ErrorCode.NONE:
            self._read_on(topic, answer)
        elif answer.error_code in STALE:
            self._stale()
        elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._may_have_lost(topic):
            topic.position = 0
            self._stale()
        else:
            raise self.groundless("Fetch", answer.error_code)

    def _read_on(self, topic: Own, answer: FetchResponse.PartitionData) -> None:
        assert topic.position is not None
        before = topic.position
        for batch in batches_in(cast(Buffer, answer.records or b"")):
            for record in records_in(batch):
                self._judge(topic, record)
            topic.position = max(topic.position, header_of(batch).next_offset)
        self._require_committed(topic)
        if before < topic.position < answer.high_watermark:
            self._go_on()
        elif topic.position < max(answer.high_watermark, 0 if self._may_have_lost(topic) else topic.end):
            self._stale()  # a new leader learns late how far the log is committed
        else:
            topic.position = None
            self.world.counts["topics of one name read"] += 1
            if self.cluster.is_over:
                self.finish()
            else:
                self._later(self._plan.pause_ms)

    def _judge(self, topic: Own, record: Record) -> None:
        """Errors: Violation."""
        value = bytes(record.value or b"")
        topic_id, number = UUID(bytes=value[:16]), int.from_bytes(value[16:], "big")
        where = f"{TOPIC}-0 of topic {topic.id} has at {record.offset}"
        if topic_id != topic.id:
            text = f"{where} a record that was sent to topic {topic_id}"
            self.world.broken("record-of-a-deleted-topic", text)
        elif topic.stored.get(record.offset, number) != number and not self._may_have_lost(topic):
            text = f"{where} record {number}, where {topic.stored[record.offset]} was acknowledged"
            self.world.broken("record-replaced", text)

    def _require_committed(self, topic: Own) -> None:
        """What is read is committed, in this very topic. Errors: Violation."""
        checker = self.cluster.checker
        oracle = checker.oracle_of_id(topic.id, 0) if checker is not None else None
        if oracle is not None and (topic.position or 0) > oracle.committed_end and not oracle.is_excused:
            text = f"{self.name} reads {oracle.name} up to {topic.position}, committed up to {oracle.committed_end}"
            self.world.broken("consumed-before-commit", text)

    def _may_have_lost(self, topic: Own) -> bool:
        """Whether this very topic may have lost records."""
        checker = self.cluster.checker
        if checker is not None:
            oracle = checker.oracle_of_id(topic.id, 0)
            return oracle is not None and oracle.is_excused
        is_flushed = self._plan.configs.get("flush.messages") == "1"
        return not is_flushed and any(machine.power_losses for machine in self.cluster.machines)
