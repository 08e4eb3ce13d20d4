"""A producer on the raw wire that reports exact outcomes.

Client libraries try again by themselves and report only how the last attempt ended; when librdkafka gives a record up, its
idempotent session ends too, unseen. This producer's outcomes are exact. Each partition has a *sender* of its own: a thread, a
connection to the leader, one batch in flight.

- Without idempotence a batch is sent once. The recorded outcome is the one that its answer, or the lack of one, proves.
- With idempotence the same batch goes out under the same sequence numbers until its outcome is known. The session ends only
  where the broker says that it has lost it; then the sender begins a new incarnation, under a new process number.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from linearizability.client.errors import error_name
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import Topic, produce_request, produced
from linearizability.history.operations import send
from linearizability.history.recorder import Recorder
from linearizability.targets.address import parse_address
from linearizability.targets.wire import Wire, WireError
from linearizability.workload.client_run import ClientRun
from linearizability.workload.outcomes import NEVER_APPENDED_CODES, SESSION_LOST_CODES
from linearizability.workload.profile import PROCESSES_A_CLIENT, Producing
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_UUID,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from reference.protocol.records.batch import BatchProducer, add_to_sequence, build
from reference.protocol.records.compression import Codec
from reference.protocol.records.legacy import write_message_set
from reference.protocol.records.record import Record

MOST_SENDERS = 10
INCARNATIONS_A_SENDER = PROCESSES_A_CLIENT // MOST_SENDERS
RECORDS_A_BATCH = 50
PRODUCE_TIMEOUT_MS = 5_000
"""The broker's own bound on waiting for the in-sync replicas."""
ANSWER_WITHIN_S = 8.0
CONNECT_WITHIN_S = 2.0
PAUSE_S = 0.1
"""Before an unknown leader is looked for again, and before a batch is tried again."""
LAST_TRIES_S = 20.0
"""How long, after the stop sign, a batch is still tried."""
FIRST_BATCHES_V = 3
"""Produce's first version that carries record batches; older brokers take message sets."""
FIRST_IDS_V = 13
"""Produce's first version that names topics by id."""


class SessionLost(Exception):
    """The broker does not know the producer's session any more; the text is its error."""


@dataclass
class Leader:
    """A connection to the partition's presumed leader."""

    wire: Wire
    version: int
    topic_id: UUID


@dataclass
class Session:
    """An idempotent producer's identity on one partition; -1 without idempotence."""

    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    sequence: int = -1


def run(client_run: ClientRun) -> None:
    """Produce to all partitions until asked to stop."""
    senders = [
        PartitionSender(client_run, partition) for partition in range(min(client_run.task.partitions, MOST_SENDERS))
    ]
    threads = [threading.Thread(target=sender.run, name=f"sender {sender.partition}") for sender in senders]
    for thread in threads:
        thread.start()
    at_work = True
    while at_work:
        at_work = any(thread.is_alive() for thread in threads)
        client_run.report()
        broken = next((sender.broken for sender in senders if sender.broken), None)
        if broken is not None:
            client_run.stopping.set()
            raise broken
        time.sleep(PAUSE_S)


class PartitionSender:
    """The producer's sender for one partition."""

    def __init__(self, client_run: ClientRun, partition: int) -> None:
        does = client_run.task.does
        assert isinstance(does, Producing)
        self.client_run = client_run
        self.does = does
        self.partition = partition
        self.key = f"{client_run.task.topic}-{partition}"
        self.acks = {"all": -1, "1": 1}[does.acks]
        self.rate_per_s = does.rate_per_s / min(client_run.task.partitions, MOST_SENDERS)
        self.addresses = [parse_address(text) for text in client_run.task.bootstrap.split(",")]
        self.turn = partition + client_run.task.number
        """Which bootstrap address is asked next."""
        self.leader: Leader | None = None
        self.session = Session()
        self.broken: BaseException | None = None
        self.stop_by: float = 0

    # ---- incarnations

    def run(self) -> None:
        """Produce until asked to stop; an error of the sender itself is left in `broken`."""
        try:
            for number in range(INCARNATIONS_A_SENDER):
                if self.client_run.stopping.is_set():
                    return
                self._live(number)
            raise RuntimeError(f"{self.key}: {INCARNATIONS_A_SENDER} sessions were lost")
        except BaseException as error:
            self.broken = error
        finally:
            self._leave()

    def _live(self, number: int) -> None:
        task = self.client_run.task
        process = task.number * PROCESSES_A_CLIENT + self.partition * INCARNATIONS_A_SENDER + number
        with Recorder.open(task.history, process=process, contract=task.contract, run=task.run) as recorder:
            try:
                self._produce(recorder)
            except SessionLost as lost:
                recorder.mark("note", text=f"{self.key}: the session is lost: {lost}")

    def _produce(self, recorder: Recorder) -> None:
        """Send records at the rate, batch by batch. Errors: SessionLost."""
        if self.does.idempotence:
            self.session = self._new_session()
        due_from = time.monotonic()
        counter = 0
        while not self.client_run.stopping.is_set():
            due = int((time.monotonic() - due_from) * self.rate_per_s) - counter
            if due < 1:
                self.client_run.stopping.wait(min(1 / self.rate_per_s, PAUSE_S))
                continue
            if self._find_leader() is None:
                due_from = time.monotonic() - counter / self.rate_per_s  # missed sends are not made up for
                continue
            count = min(due, RECORDS_A_BATCH)
            self._send(recorder, range(counter, counter + count))
            counter += count

    # ---- one batch

    def _send(self, recorder: Recorder, counters: range) -> None:
        """Invoke, try until the outcome is known, complete. Errors: SessionLost."""
        values = [recorder.process << 32 | counter for counter in counters]
        operations = [recorder.invoke("send", [send(self.key, value)]) for value in values]
        uncertain = ""
        try:
            while True:
                error, offset = self._attempt(values)
                if error == ErrorCode.NONE or error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    self._complete_ok(recorder, operations, values, offset if error == ErrorCode.NONE else -1)
                    return
                if error in SESSION_LOST_CODES and self.does.idempotence:
                    raise SessionLost(_outcome(error))
                if error not in NEVER_APPENDED_CODES:
                    uncertain = uncertain or _outcome(error)
                if not self.does.idempotence or not self._may_try_again(error):
                    self._complete_failed(recorder, operations, uncertain, error)
                    return
        except SessionLost:
            self._complete_failed(recorder, operations, uncertain, None)
            raise
        finally:
            if self.does.idempotence:
                self.session.sequence = add_to_sequence(self.session.sequence, len(values))

    def _attempt(self, values: Sequence[int]) -> tuple[int | None, int]:
        """Send one request; returns the broker's error and the first offset. An error of None: no answer."""
        leader = self._find_leader()
        if leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE if not self.does.idempotence else None, -1
        task = self.client_run.task
        topic = Topic(task.topic, leader.topic_id, task.partitions)
        records = {(topic, self.partition): self._encoded(values, leader.version)}
        request = produce_request(records, acks=self.acks, timeout_ms=PRODUCE_TIMEOUT_MS)
        try:
            answer = leader.wire.call(request, leader.version, timeout_s=ANSWER_WITHIN_S)
            reported = produced(answer)
        except (WireError, ValueError):
            self._leave()
            return None, -1
        if reported.error_code != ErrorCode.NONE:
            self._leave()
        return reported.error_code, reported.base_offset

    def _encoded(self, values: Sequence[int], version: int) -> bytes | bytearray:
        now = TimestampMs(int(time.time() * 1000))
        records = [Record(Offset(number), now, None, str(value).encode()) for number, value in enumerate(values)]
        codec = Codec[self.does.compression.upper()]
        if version < FIRST_BATCHES_V:
            return write_message_set(records, 1 if version == 2 else 0, codec)
        session = self.session
        return build(records, codec=codec, producer=BatchProducer(session.producer_id, session.epoch, session.sequence))

    def _may_try_again(self, error: int | None) -> bool:
        """Wait a little. False when the record itself is refused, or the time after the stop sign is over."""
        if error in NEVER_APPENDED_CODES and error != ErrorCode.NOT_ENOUGH_REPLICAS:
            return False
        time.sleep(PAUSE_S)
        if not self.client_run.stopping.is_set():
            return True
        self.stop_by = self.stop_by or time.monotonic() + LAST_TRIES_S
        return time.monotonic() < self.stop_by

    # ---- outcomes

    def _complete_ok(self, recorder: Recorder, operations: list[int], values: list[int], base: int) -> None:
        for place, (operation, value) in enumerate(zip(operations, values, strict=True)):
            recorder.ok(operation, [send(self.key, value, offset=base + place if base >= 0 else None)])
        self.client_run.count("ok", len(operations))

    def _complete_failed(self, recorder: Recorder, operations: list[int], uncertain: str, error: int | None) -> None:
        """`fail` only when every attempt is known to have left nothing."""
        for operation in operations:
            if uncertain:
                recorder.info(operation, error=uncertain)
            else:
                recorder.fail(operation, error=_outcome(error))
        self.client_run.count("info" if uncertain else "fail", len(operations))

    # ---- the leader

    def _find_leader(self) -> Leader | None:
        """The standing connection, or a new one to the broker that Metadata names; None (after a pause) where there is none."""
        if self.leader is not None:
            return self.leader
        host, port = self.addresses[self.turn % len(self.addresses)]
        self.turn += 1
        with suppress(WireError, ValueError, LookupError, StopIteration):
            self.leader = self._connect(host, port)
        if self.leader is None:
            time.sleep(PAUSE_S)
        return self.leader

    def _connect(self, host: str, port: int) -> Leader:
        """Errors: WireError, LookupError where no leader is named."""
        topics = [MetadataRequest.MetadataRequestTopic(name=self.client_run.task.topic)]
        with Wire.connect(host, port, timeout_s=CONNECT_WITHIN_S) as wire:
            version = wire.version_of(MetadataRequest)
            answer = wire.call(MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4), version)
        topic = answer.topics[0]
        leader_id = next(entry.leader_id for entry in topic.partitions if entry.partition_index == self.partition)
        broker = {broker.node_id: broker for broker in answer.brokers}[leader_id]
        wire = Wire.connect(broker.host, broker.port, timeout_s=CONNECT_WITHIN_S)
        try:
            chosen = wire.version_of(ProduceRequest)
        except BaseException:
            wire.close()
            raise
        topic_id = getattr(topic, "topic_id", NO_UUID)
        if topic_id == NO_UUID:
            chosen = min(chosen, FIRST_IDS_V - 1)
        return Leader(wire, chosen, topic_id)

    def _leave(self) -> None:
        if self.leader is not None:
            self.leader.wire.close()
            self.leader = None

    def _new_session(self) -> Session:
        """A producer id from any broker; waits until one assigns it. Errors: SessionLost when asked to stop."""
        while not self.client_run.stopping.is_set():
            host, port = self.addresses[self.turn % len(self.addresses)]
            self.turn += 1
            with suppress(WireError, ValueError), Wire.connect(host, port, timeout_s=ANSWER_WITHIN_S) as wire:
                answer = wire.call(ProducerSession().begin())
                if answer.error_code == ErrorCode.NONE:
                    return Session(answer.producer_id, answer.producer_epoch, 0)
            time.sleep(PAUSE_S)
        raise SessionLost("stopped before there was one")


def _outcome(code: int | None) -> str:
    """The broker's error by name; NO_ANSWER where there was none."""
    return "NO_ANSWER" if code is None else error_name(code)
