"""IDM: the idempotent producer. One producer id, one partition, one copy of every batch."""

import time
from typing import Any

from conformance.answers import only
from conformance.batches import batch, idempotent, values
from conformance.broker import EARLIEST, Broker
from conformance.requirement import requirement
from conformance.steps import built_on
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_records import DeleteRecordsRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest

LAST_SEQUENCE = 2_147_483_647
"""The largest sequence number; the next one is 0."""
REMEMBERED = 5
"""The number of a producer's latest batches that a partition remembers (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""
NO_PRODUCER = -1
"""The producer id, and the producer epoch, of records without a producer."""
EXPIRATION_MS = 3000
"""The producer.id.expiration.ms in requirements of expired producers."""
ATTEMPTS = 5
"""The number of attempts to send two requests within EXPIRATION_MS."""


KNOWN_ALREADY = frozenset({ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""Tolerated for a batch that is sent again: clients take it as success (Java: Sender.completeBatch; librdkafka alike)."""


class Producer:
    """An idempotent producer that can send any sequence number. Values contain it, so that duplicates can be recognized."""

    def __init__(self, broker: Broker, topic: Topic, identity: tuple[int, int] | None = None) -> None:
        self.broker, self.topic = broker, topic
        self.id, self.epoch = identity or broker.producer_id()

    def batch(self, sequence: int, count: int = 1, epoch: int | None = None) -> bytes:
        """A batch of `count` records, from this sequence number on."""
        records = [f"{self.id}:{sequence}+{number}".encode() for number in range(count)]
        return idempotent(records, self.id, self.epoch if epoch is None else epoch, sequence)

    def send(self, sequence: int, count: int = 1, *, epoch: int | None = None, partition: int = 0) -> Any:
        """Produce a batch; return the partition's result, also an error."""
        return self.broker.produce(self.topic, self.batch(sequence, count, epoch), partition=partition)

    def stored(self, sequence: int, count: int = 1, *, epoch: int | None = None, partition: int = 0) -> int:
        """Produce a batch that must be appended at the log's end; return its base offset."""
        end = self.broker.end_offset(self.topic, partition)
        result = self.send(sequence, count, epoch=epoch, partition=partition)
        self.broker.expect_error(result.error_code, ErrorCode.NONE, what=f"sequence {sequence}, {count} records")
        self.broker.expect_equal("their base offset", result.base_offset, end)
        after = self.broker.end_offset(self.topic, partition)
        self.broker.expect_equal("the log end offset after it", after, end + count)
        return end

    def refused(
        self,
        sequence: int,
        count: int = 1,
        *accepted: ErrorCode,
        epoch: int | None = None,
        what: str = "",
        tolerated: tuple[ErrorCode, ...] = (),
    ) -> None:
        """Produce a batch that must be refused with one of the errors, without a change of the log."""
        end = self.broker.end_offset(self.topic)
        result = self.send(sequence, count, epoch=epoch)
        what = what or f"sequence {sequence}, {count} records"
        self.broker.expect_error(result.error_code, *accepted, tolerated=tolerated, what=what)
        self.broker.expect_equal("the log end offset after it", self.broker.end_offset(self.topic), end)

    def known_already(self, sequence: int, count: int, base_offset: int) -> None:
        """Produce a stored batch again: expect success with the first copy's offset, and no second copy."""
        end = self.broker.end_offset(self.topic)
        result = self.send(sequence, count)
        what = f"sequence {sequence} again"
        self.broker.expect_error(result.error_code, ErrorCode.NONE, tolerated=KNOWN_ALREADY, what=what)
        if result.error_code == ErrorCode.NONE:
            self.broker.expect_equal("its base offset", result.base_offset, base_offset)
        self.broker.expect_equal("the log end offset after it", self.broker.end_offset(self.topic), end)


def written_topic(broker: Broker) -> Topic:
    """A topic with one record: from 4.5 on a producer's first sequence in an empty topic must be 0 (KAFKA-15591)."""
    topic = broker.topic()
    broker.append(topic, batch(b"before"))
    return topic


def init_producer_id(broker: Broker, version: int | None = None, **fields: Any) -> Any:
    """The response to InitProducerId without a transactional id; waits until the broker can give one."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000, **fields)
    loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def answered() -> Any:
        answer = broker.call(request, version)
        return None if answer.error_code in loading else answer

    return broker.eventually(answered, "InitProducerId is served")


@requirement(
    "IDM-01",
    notices="data: two producers with one id are taken for one: the batches of one are dropped as copies",
    source="KIP-98; TransactionCoordinator.handleInitProducerId",
    sentence="InitProducerId without a transactional id gives a fresh producer id with epoch 0; no id comes twice.",
    accepted="in every version NONE(0), an id of 0 or more that was not given before, epoch 0",
)
def fresh_producer_ids(broker: Broker) -> None:
    given: list[int] = []
    lowest, highest = broker.versions_of(InitProducerIdRequest)
    for version in range(lowest, highest + 1):
        for _ in range(5):
            answer = init_producer_id(broker, version)
            broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"v{version}")
            broker.expect(
                answer.producer_id >= 0 and answer.producer_id not in given,
                f"v{version}: the producer id is 0 or more, and new: {answer.producer_id}",
            )
            broker.expect_equal(f"v{version}: the epoch", answer.producer_epoch, 0)
            given.append(answer.producer_id)


@requirement(
    "IDM-02",
    notices="none seen: clients send both or neither",
    source="KIP-360; KafkaApis.handleInitProducerIdRequest",
    sentence="From v3 on, a producer id without an epoch, or an epoch without an id, is refused with INVALID_REQUEST.",
    accepted="INVALID_REQUEST(42) and no producer id",
    since="2.5",
    apis={"InitProducerId": 3},
)
def half_an_identity(broker: Broker) -> None:
    known, _ = broker.producer_id()
    for version in broker.versions_among(InitProducerIdRequest, 3):
        for producer_id, epoch in ((known, NO_PRODUCER), (NO_PRODUCER, 0)):
            with broker.case(f"id {producer_id}, epoch {epoch}, v{version}"):
                answer = init_producer_id(broker, version, producer_id=producer_id, producer_epoch=epoch)
                broker.expect_error(answer.error_code, ErrorCode.INVALID_REQUEST)
                broker.expect_equal("the producer id", answer.producer_id, NO_PRODUCER)


@built_on("IDM-10")
def begun(broker: Broker, sequence: int, count: int) -> Producer:
    """A producer whose first batch begins with this sequence."""
    producer = Producer(broker, written_topic(broker))
    producer.stored(sequence, count)
    return producer


@requirement(
    "IDM-03",
    notices="stuck: every idempotent producer counts like this, and fails for good when the numbers begin again",
    source="ProducerAppendInfo.inSequence; DefaultRecordBatch.incrementSequence",
    sentence="A batch of n records with first sequence s is followed by one with s + n; after 2147483647 comes 0, between "
    "batches and within one.",
    accepted="NONE(0) and the next offset for each; a batch that starts where the last one did not end is refused; what comes "
    "after 2147483647 is looked at since 2.5 (KIP-360)",
)
def sequences_count_records(broker: Broker) -> None:
    ordinary = Producer(broker, broker.topic())
    for sequence, count in ((0, 1), (1, 3), (4, 2), (6, 1)):
        if sequence:
            ordinary.refused(sequence + 1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        ordinary.stored(sequence, count)
    if not broker.is_kafka("2.5"):  # KIP-360: until then the first sequence was 0, and the last is too far from it
        return
    between = begun(broker, LAST_SEQUENCE - 2, 3)
    between.refused(1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    between.stored(0, 2)
    within = begun(broker, LAST_SEQUENCE - 1, 1)
    within.stored(LAST_SEQUENCE, 3)
    within.refused(0, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    within.stored(2, 1)


@requirement(
    "IDM-04",
    notices="data: a lost batch goes unnoticed and later ones are stored before it; clients send again in order on this code",
    source="ProducerAppendInfo.checkSequence",
    sentence="A sequence that leaves a gap, or goes back to where no batch began, is refused with "
    "OUT_OF_ORDER_SEQUENCE_NUMBER.",
    accepted="OUT_OF_ORDER_SEQUENCE_NUMBER(45); the log stays as it was, and the right sequence is taken afterwards",
    tolerated="DUPLICATE_SEQUENCE_NUMBER(46) for a sequence that is stored: clients take it as success, which it is",
)
def out_of_order(broker: Broker) -> None:
    producer = Producer(broker, broker.topic())
    producer.stored(0, 3)
    producer.stored(3, 3)
    for sequence in (7, 1000, LAST_SEQUENCE, 5, 1):
        with broker.case(f"sequence {sequence} where 6 is due"):
            known = tuple(KNOWN_ALREADY) if sequence < 6 else ()
            producer.refused(sequence, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, tolerated=known)
    producer.stored(6)


@requirement(
    "IDM-05",
    notices="data: every idempotent producer sends again after a lost answer, with up to five in flight, and doubles records",
    source="ProducerStateEntry.NUM_BATCHES_TO_RETAIN; UnifiedLog.analyzeAndValidateProducerState",
    sentence="A batch sent again, while it is one of the producer's last five in the partition, succeeds with its first "
    "offset and is not stored again.",
    accepted="NONE(0) and the original base offset for each of the last five (before 1.0, KAFKA-5494, for the last), in any "
    "order; "
    "the log end stays",
    tolerated="DUPLICATE_SEQUENCE_NUMBER(46), which clients take as success, without an offset",
)
def sent_again(broker: Broker) -> None:
    producer = Producer(broker, broker.topic())
    other = Producer(broker, producer.topic)
    sent: list[tuple[int, int, int]] = []
    remembered = REMEMBERED if broker.is_kafka("1.0") else 1
    for number in range(REMEMBERED + 3):
        sequence, count = sum(count for _, count, _ in sent), number % 3 + 1
        sent.append((sequence, count, producer.stored(sequence, count)))
        other.stored(number)
    last = sent[-remembered:]
    for sequence, count, base_offset in (*last, *reversed(last)):
        producer.known_already(sequence, count, base_offset)
    producer.stored(sum(count for _, count, _ in sent))
    held = values(broker.log(producer.topic))
    broker.expect_equal("the number of different values", len(set(held)), len(held))


@requirement(
    "IDM-06",
    notices="data: stored again, records are doubled, though the producer was promised that they are not",
    source="ProducerAppendInfo.checkSequence",
    sentence="A batch sent again that is older than the producer's last five in the partition is refused, and not stored "
    "again.",
    accepted="OUT_OF_ORDER_SEQUENCE_NUMBER(45); the log stays as it was",
    tolerated="DUPLICATE_SEQUENCE_NUMBER(46), which clients take as success; NONE(0), when the log stays as it was",
)
def forgotten_batch(broker: Broker) -> None:
    producer = Producer(broker, broker.topic())
    for sequence in range(REMEMBERED + 1):
        producer.stored(sequence)
    producer.refused(
        0,
        1,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        what="the sixth last batch again",
        tolerated=(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.NONE),
    )


@requirement(
    "IDM-07",
    notices="data: taken for a copy, records that were never stored are acknowledged",
    source="ProducerStateEntry.batchWithSequenceRange",
    sentence="A batch that begins or ends with a known batch's sequence but has another length is no copy of it, and is "
    "refused.",
    accepted="OUT_OF_ORDER_SEQUENCE_NUMBER(45); the log stays as it was",
    tolerated="DUPLICATE_SEQUENCE_NUMBER(46) where each sequence of the batch is stored, as in IDM-04",
)
def other_length(broker: Broker) -> None:
    producer = Producer(broker, broker.topic())
    producer.stored(0, 3)
    for sequence, count in ((0, 2), (0, 4), (1, 2), (2, 1)):
        with broker.case(f"sequence {sequence}, {count} records, after 0 to 2"):
            known = tuple(KNOWN_ALREADY) if sequence + count <= 3 else ()
            producer.refused(sequence, count, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, tolerated=known)


@requirement(
    "IDM-08",
    notices="data: a batch that was delayed in the network comes in after the producer began again, and is doubled",
    source="ProducerAppendInfo.checkProducerEpoch; KIP-360",
    sentence="An epoch lower than the last one seen of the producer in the partition is refused with INVALID_PRODUCER_EPOCH.",
    accepted="INVALID_PRODUCER_EPOCH(47), for a new sequence and for a copy of a batch of that old epoch",
)
def old_epoch(broker: Broker) -> None:
    producer = Producer(broker, broker.topic())
    producer.stored(0, epoch=0)
    producer.stored(0, epoch=2)
    for sequence, epoch in ((0, 0), (1, 0), (1, 1), (0, 1)):
        with broker.case(f"sequence {sequence} of epoch {epoch}"):
            producer.refused(sequence, 1, ErrorCode.INVALID_PRODUCER_EPOCH, epoch=epoch)
    producer.stored(1, epoch=2)


@requirement(
    "IDM-09",
    notices="data: a lost first batch of the new epoch goes unnoticed",
    source="ProducerAppendInfo.checkSequence",
    sentence="The first batch of a higher epoch has sequence 0; with another one it is refused.",
    accepted="OUT_OF_ORDER_SEQUENCE_NUMBER(45) for the sequences that the old epoch would go on with; NONE(0) for 0",
    tolerated="the refused batch fences the epoch before",
)
def higher_epoch(broker: Broker) -> None:
    producer = Producer(broker, broker.topic())
    producer.stored(0, 2, epoch=0)
    for sequence in (2, 1, 7):
        with broker.case(f"sequence {sequence} of epoch 1"):
            producer.refused(sequence, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, epoch=1)
    old = producer.send(2, epoch=0)
    fenced = {ErrorCode.INVALID_PRODUCER_EPOCH}
    broker.expect_error(old.error_code, ErrorCode.NONE, tolerated=fenced, what="the old epoch goes on")
    producer.stored(0, epoch=1)


@requirement(
    "IDM-10",
    since="2.5",
    notices="stuck: after retention or DeleteRecords removed a producer's state it goes on where it was (KIP-360)",
    source="ProducerAppendInfo.checkSequence (NO_PRODUCER_EPOCH); KIP-360",
    sentence="Of a producer that a partition does not know, the first batch may have any sequence; from then on they count.",
    accepted="NONE(0) for first sequences 0, 17 and 2147483647 and for epoch 3; what does not follow is refused",
)
def unknown_producer(broker: Broker) -> None:
    topic = written_topic(broker)
    for sequence, epoch in ((17, 0), (LAST_SEQUENCE, 0), (5, 3)):
        with broker.case(f"first sequence {sequence}, epoch {epoch}"):
            producer = Producer(broker, topic)
            producer.stored(sequence, epoch=epoch)
            producer.refused((sequence + 2) % 2**31, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, epoch=epoch)
            producer.stored((sequence + 1) % 2**31, epoch=epoch)


@requirement(
    "IDM-11",
    notices="stuck: every producer counts by partition, from 0 on",
    source="KIP-98 (sequence numbers per producer id and partition)",
    sentence="Sequences are counted for each partition apart, and for each producer in it.",
    accepted="each of two producers begins at 0 in each of two partitions; what one stored is no copy for the others",
)
def each_partition_its_own(broker: Broker) -> None:
    topic = broker.topic(2)
    producers = Producer(broker, topic), Producer(broker, topic)
    for sequence in range(3):
        for producer in producers:
            for partition in (0, 1):
                producer.stored(sequence, partition=partition)
    producers[0].stored(3, partition=1)
    producers[0].refused(4, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what="sequence 4 where partition 0 is at 2")
    producers[0].stored(3, partition=0)


def known_producer(broker: Broker) -> Producer:
    """A producer with one record in a separate topic, whose next batch with a gap was refused: the partition knows the producer.

    If more than the expiration passed before the response, an accepted gap proves nothing, and another producer tries.
    """
    for _ in range(ATTEMPTS):
        producer = Producer(broker, broker.topic())
        began = time.monotonic()
        producer.stored(0)
        result = producer.send(50)
        if result.error_code != ErrorCode.NONE or (time.monotonic() - began) * 1000 < EXPIRATION_MS:
            broker.expect_error(
                result.error_code, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what="sequence 50, 1 records"
            )
            return producer
    broker.skip(f"{ATTEMPTS} times the second request was answered more than {EXPIRATION_MS} ms after the first")


@requirement(
    "IDM-13",
    notices="operator: a broker keeps every producer that ever wrote in memory",
    source="producer.id.expiration.ms (default 86400000); ProducerStateManager.removeExpiredProducers",
    sentence="A partition forgets a producer that has not written for producer.id.expiration.ms.",
    accepted="a sequence with a gap, refused at first, is stored once the time is over",
    since="3.4",
    configs={"producer.id.expiration.ms": str(EXPIRATION_MS), "producer.id.expiration.check.interval.ms": "100"},
    alone=True,
    deadline_s=60,
)
def producers_expire(broker: Broker) -> None:
    producer = known_producer(broker)
    taken = broker.eventually(
        lambda: result if (result := producer.send(50)).error_code == ErrorCode.NONE else None,
        "the producer is forgotten, and its sequence 50 taken",
    )
    broker.expect_equal("the base offset of what is then stored", taken.base_offset, 1)


@requirement(
    "IDM-15",
    notices="data: what another session sent is dropped, though acknowledged",
    source="KIP-98; producer configuration enable.idempotence (a single session)",
    sentence="A new session is not deduplicated: the same records with the same sequences of another producer id are stored "
    "again.",
    accepted="NONE(0) and new offsets; both copies are in the log",
)
def another_session(broker: Broker) -> None:
    topic = broker.topic()
    for _ in range(2):
        end = broker.end_offset(topic)
        result = broker.produce(topic, idempotent([b"a", b"b"], *broker.producer_id(), 0))
        broker.expect_error(result.error_code, ErrorCode.NONE)
        broker.expect_equal("the base offset", result.base_offset, end)
    broker.expect_equal("the values in the log", values(broker.log(topic)), [b"a", b"b", b"a", b"b"])


@requirement(
    "IDM-16",
    notices="data: a producer that sends again after DeleteRecords doubles its batch",
    source="ProducerStateManager.onLogStartOffsetIncremented; KIP-360",
    sentence="A producer's batch is still known after DeleteRecords removed it: sent again it is not stored, and a gap is "
    "refused.",
    accepted="NONE(0) with the original base offset; OUT_OF_ORDER_SEQUENCE_NUMBER(45) for the gap",
    tolerated="DUPLICATE_SEQUENCE_NUMBER(46), which clients take as success, without an offset",
    draft="the state was thought to go with the records (any first sequence accepted): Kafka 4.3.1 keeps it",
    since="3.0",
    apis={"DeleteRecords": 0},
)
def known_after_delete_records(broker: Broker) -> None:
    producer = Producer(broker, broker.topic())
    producer.stored(0, 2)
    base_offset = producer.stored(2, 3)
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=-1)
    asked = DeleteRecordsRequest.DeleteRecordsTopic(name=producer.topic.name, partitions=[partition])
    answer = broker.call(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), to=broker.leader(producer.topic))
    deleted = only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")
    broker.expect_error(deleted.error_code, ErrorCode.NONE, what="DeleteRecords")
    broker.expect_equal("the log start offset", broker.offset_of(producer.topic, EARLIEST).offset, 5)
    producer.known_already(2, 3, base_offset)
    producer.refused(9, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    producer.stored(5)
