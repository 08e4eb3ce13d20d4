"""PRD: malformed batches, which must be refused and must not change the log."""

import time

from conformance.batches import (
    CODECS,
    CONTROL,
    HEADER_BYTES,
    Record,
    batch,
    batches,
    compress,
    idempotent,
    patched,
    values,
    varint,
    write_record,
)
from conformance.broker import Broker
from conformance.changes import codecs, has_leader_epochs
from conformance.requirement import requirement
from conformance.requirements.produce import REFUSED, expect_refused, good
from conformance.steps import about
from conformance.wire import Closed
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

DAMAGED = (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR)
"""The errors for bytes that are not records: Kafka itself returns all three."""


@requirement(
    "PRD-05",
    notices="stuck: Java consumers stop at a batch with a wrong CRC, for ever; librdkafka with check.crcs skips it",
    source="UnifiedLog.analyzeAndValidateRecords",
    sentence="A batch whose CRC-32C is wrong is refused with CORRUPT_MESSAGE, for every codec.",
    accepted="CORRUPT_MESSAGE(2); the log stays as it was",
    tolerated="another error (PRD-26), as long as nothing is stored",
)
def wrong_crc(broker: Broker) -> None:
    topic = broker.topic(2)
    for name, codec in codecs(broker).items():
        with broker.case(name):
            data = batch(b"x" * 50, codec=codec)
            expect_refused(
                broker, topic, patched(data, crc=0), ErrorCode.CORRUPT_MESSAGE, what="CRC 0", tolerated=REFUSED
            )
            flipped = data[:-1] + bytes((data[-1] ^ 1,))
            expect_refused(
                broker,
                topic,
                flipped,
                ErrorCode.CORRUPT_MESSAGE,
                what="one bit flipped in the last byte",
                tolerated=REFUSED,
            )


@requirement(
    "PRD-06",
    notices="stuck: Java consumers throw at an unknown magic or a batch without a header, and come no further",
    source="ByteBufferLogInputStream.nextBatch",
    sentence="A batch that announces fewer bytes than its header has, or an unknown magic, is refused with CORRUPT_MESSAGE.",
    accepted="CORRUPT_MESSAGE(2); the other partitions of the request may be refused with it; before 2.8 (KAFKA-9628) a closed "
    "connection",
    tolerated="another error (PRD-26), as long as nothing is stored",
    draft="the other partitions were thought to be untouched: Kafka 4.3.1 refuses the whole request",
)
def impossible_header(broker: Broker) -> None:
    topic = broker.topic(2)
    for what, header in {"length 10": {"length": 10}, "magic 3": {"magic": 3}, "magic -1": {"magic": -1}}.items():
        with broker.case(what):
            data = patched(good(), **header)
            expect_refused(
                broker, topic, data, ErrorCode.CORRUPT_MESSAGE, others_too=True, unreadable=True, tolerated=REFUSED
            )


@requirement(
    "PRD-09",
    notices="none seen: all clients write 0, and a broker that puts its own offset there harms no client",
    source="UnifiedLog.analyzeAndValidateRecords",
    sentence="A client's batch whose base offset is not 0 is refused with INVALID_RECORD.",
    accepted="INVALID_RECORD(87), for base offsets 1, 5 and -1; before 2.4 (KIP-467) CORRUPT_MESSAGE(2)",
)
def base_offset_not_zero(broker: Broker) -> None:
    topic = broker.topic(2)
    for offset in (1, 5, -1):
        expect_refused(
            broker, topic, batch(b"x", base_offset=offset), ErrorCode.INVALID_RECORD, what=f"base offset {offset}"
        )


@requirement(
    "PRD-10",
    since="2.0",
    notices="misread: Java consumers throw on a wrong count and come no further; offsets follow from the last delta",
    source="LogValidator.validateBatch; KAFKA-6554",
    sentence="A batch whose record count and last offset delta disagree, or whose count is not positive, is refused with "
    "INVALID_RECORD.",
    accepted="INVALID_RECORD(87); before 2.4 (KIP-467) CORRUPT_MESSAGE(2)",
    tolerated="another error (PRD-26), as long as nothing is stored",
)
def counts_disagree(broker: Broker) -> None:
    topic = broker.topic(2)
    two = batch(b"a", b"b")
    cases = {
        "last offset delta one too high": patched(two, last_offset_delta=2),
        "last offset delta one too low": patched(two, last_offset_delta=0),
        "last offset delta -1": patched(two, last_offset_delta=-1),
        "count one too high": patched(two, count=3, last_offset_delta=2),
        "count one too low": patched(two, count=1, last_offset_delta=0),
        "count 0": patched(two, count=0, last_offset_delta=-1),
        "count -1": patched(two, count=-1),
        "no records": batch(),
    }
    for what, data in cases.items():
        with broker.case(what):
            expect_refused(broker, topic, data, ErrorCode.INVALID_RECORD, tolerated=REFUSED)


@requirement(
    "PRD-11",
    notices="data: a client's batch would end another one's transaction, and consumers skip it as a marker",
    source="LogValidator.validateBatch",
    sentence="A batch with the control bit set by a client is refused with INVALID_RECORD.",
    accepted="INVALID_RECORD(87); before 2.4 (KIP-467) CORRUPT_MESSAGE(2)",
    tolerated="another error (PRD-26), as long as nothing is stored",
)
def control_bit(broker: Broker) -> None:
    topic = broker.topic(2)
    marker = batch(Record(b"\x00\x00\x00\x00\x00\x00", key=b"\x00\x00\x00\x01"), attributes=CONTROL)
    expect_refused(broker, topic, marker, ErrorCode.INVALID_RECORD, tolerated=REFUSED)


@requirement(
    "PRD-12",
    notices="none seen: no client writes it, and a broker that ignores the producer id harms no client",
    source="LogValidator.validateBatch",
    sentence="A batch with a producer id and a negative base sequence is refused with INVALID_RECORD.",
    accepted="INVALID_RECORD(87); before 2.4 (KIP-467) CORRUPT_MESSAGE(2)",
)
def negative_sequence(broker: Broker) -> None:
    topic = broker.topic(2)
    producer_id, epoch = broker.producer_id()
    expect_refused(broker, topic, idempotent([b"x"], producer_id, epoch, -1), ErrorCode.INVALID_RECORD)


@requirement(
    "PRD-17",
    notices="stuck: a Java consumer throws at this batch at each poll, and comes no further",
    source="DefaultRecordBatch.streamingIterator, compressedIterator",
    sentence="A compressed batch that does not decompress, or does not hold the records it announces, is refused; the broker "
    "goes on.",
    accepted="INVALID_RECORD(87), CORRUPT_MESSAGE(2) or UNKNOWN_SERVER_ERROR(-1)",
    tolerated="another error (PRD-26), as long as nothing is stored",
)
def does_not_decompress(broker: Broker) -> None:
    topic = broker.topic(2)
    body = write_record(Record(b"x" * 200), 0)
    for name, codec in codecs(broker).items():
        if not codec:
            continue
        whole = compress(body, codec)
        damages = {
            "garbage": b"this is no compressed data at all",
            "cut in the middle": whole[: len(whole) // 2],
            "half a record inside": compress(body[:-20], codec),
            "nothing inside": compress(b"", codec),
        }
        for what, payload in damages.items():
            with broker.case(f"{name}: {what}"):
                data = batch(b"x", codec=codec, payload=payload)
                expect_refused(broker, topic, data, *DAMAGED, tolerated=REFUSED)
    broker.expect_served()


def malformed_records() -> dict[str, bytes]:
    """Malformed records by description. The size field is correct except in the cases about sizes."""

    def sized(body: bytes) -> bytes:
        return varint(len(body)) + body

    head = b"\x00" + varint(0) + varint(0)
    key, no_headers = varint(-1), varint(0)
    return {
        "a size beyond the batch": varint(1000) + head + key + varint(-1) + no_headers,
        "a negative size": varint(-5) + head + key + varint(-1) + no_headers,
        "a key longer than the record": sized(head + varint(100) + b"k" + varint(-1) + no_headers),
        "a value longer than the record": sized(head + key + varint(100) + b"v" + no_headers),
        "a negative header count": sized(head + key + varint(-1) + varint(-1)),
        "a header with a null key": sized(head + key + varint(-1) + varint(1) + varint(-1) + varint(-1)),
        "more headers than bytes": sized(head + key + varint(-1) + varint(5)),
        "bytes after the headers": sized(head + key + varint(-1) + no_headers + b"more"),
        "bytes after the last record": sized(head + key + varint(-1) + no_headers) + b"\x00\x00",
        "a varint without an end": b"\xff" * 20,
    }


@requirement(
    "PRD-20",
    notices="stuck: a Java consumer throws at this batch at each poll, and comes no further",
    source="DefaultRecord.readFrom; DefaultRecordBatch.iterator",
    sentence="A malformed record in a batch with a right CRC is refused, and nothing of the batch is stored.",
    accepted="INVALID_RECORD(87), CORRUPT_MESSAGE(2) or UNKNOWN_SERVER_ERROR(-1)",
    tolerated="another error (PRD-26), as long as nothing is stored",
    draft="a varint without an end was thought to be INVALID_RECORD or CORRUPT_MESSAGE: Kafka says UNKNOWN_SERVER_ERROR",
)
def malformed_record(broker: Broker) -> None:
    topic = broker.topic(2)
    for what, body in malformed_records().items():
        with broker.case(what):
            expect_refused(broker, topic, batch(b"x", payload=body), *DAMAGED, tolerated=REFUSED)
    broker.expect_served()


@requirement(
    "PRD-24",
    notices="stuck: a Java consumer throws at this batch at each poll, and comes no further",
    source="DefaultRecord.readPartiallyFrom",
    sentence="A malformed record in a compressed batch is refused, and nothing of the batch is stored.",
    accepted="INVALID_RECORD(87), CORRUPT_MESSAGE(2) or UNKNOWN_SERVER_ERROR(-1)",
    tolerated="another error (PRD-26), as long as nothing is stored",
    draft="a wrong size of a record was thought to be refused: Kafka 4.3.1 does not look at it in compressed batches, and "
    "stores what no consumer can read; the two cases are left out",
)
def malformed_compressed_record(broker: Broker) -> None:
    topic = broker.topic(2)
    for what, body in malformed_records().items():
        for name in ("gzip", "zstd" if "zstd" in codecs(broker) else "lz4"):
            if what not in ("a size beyond the batch", "a negative size"):
                with broker.case(f"{what}, {name}"):
                    data = batch(b"x", codec=CODECS[name], payload=compress(body, CODECS[name]))
                    expect_refused(broker, topic, data, *DAMAGED, tolerated=REFUSED)
    broker.expect_served()


@requirement(
    "PRD-21",
    since="2.6",
    notices="misread: consumers add these deltas to the base offset: two records at one offset, and commits that skip",
    source="LogValidator.validateMessagesAndAssignOffsetsCompressed; KAFKA-8729, KAFKA-9669 (2.5.1 takes the batch)",
    sentence="In a compressed batch, offset deltas of records that do not count up from 0 are refused.",
    accepted="INVALID_RECORD(87), CORRUPT_MESSAGE(2) or UNKNOWN_SERVER_ERROR(-1)",
    tolerated="another error (PRD-26), as long as nothing is stored",
    draft="uncompressed batches were thought to be refused too: Kafka 4.3.1 does not look at their deltas, and stores them",
)
def offset_deltas(broker: Broker) -> None:
    topic = broker.topic(2)
    for deltas in ((0, 2), (1, 0), (1, 2)):
        with broker.case(f"deltas {deltas}"), about("ACK-12"):
            body = b"".join(write_record(Record(b"x"), delta) for delta in deltas)
            data = batch(b"a", b"b", codec=CODECS["gzip"], payload=compress(body, CODECS["gzip"]))
            expect_refused(broker, topic, data, *DAMAGED, tolerated=REFUSED)


@requirement(
    "PRD-22",
    notices="misread: what follows a cut-off batch is read as its end, by every consumer and follower",
    source="ByteBufferLogInputStream.nextBatch; ProduceRequest.validateRecords",
    sentence="A batch that is cut off, by the header's length or by the end of the records field, is never stored.",
    accepted="INVALID_RECORD(87) or CORRUPT_MESSAGE(2); before 2.8 (KAFKA-9628) a closed connection",
    tolerated="another error (PRD-26), or a closed connection, as long as nothing is stored",
)
def cut_off(broker: Broker) -> None:
    topic = broker.topic(2)
    data = batch(b"x" * 100)
    for size in (1, 16, HEADER_BYTES - 1, HEADER_BYTES, len(data) - 1):
        with broker.case(f"{size} of {len(data)} bytes"):
            codes = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
            expect_refused(broker, topic, data[:size], *codes, unreadable=True, may_close=True, tolerated=REFUSED)


@requirement(
    "PRD-25",
    notices="misread: what follows those bytes is read from a wrong place, by every consumer and follower",
    source="UnifiedLog.trimInvalidBytes",
    sentence="Bytes after a batch that are no whole batch are never stored: they are cut away, or all is refused.",
    accepted="one batch in the log with NONE(0), or none with INVALID_RECORD(87) or CORRUPT_MESSAGE(2)",
    tolerated="a closed connection, as long as nothing is stored",
)
def bytes_after_the_batch(broker: Broker) -> None:
    data = batch(b"x" * 100)
    for size in (1, 16, 80, len(data) - 1):
        with broker.case(f"{size} bytes after the batch"):
            topic = broker.topic()
            try:
                code = broker.produce(topic, data + data[:size]).error_code
            except Closed:
                broker.tolerate("the connection was closed")
                code = ErrorCode.CORRUPT_MESSAGE
            broker.expect_error(code, ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
            wanted = len(data) if code == ErrorCode.NONE else 0
            fetched = broker.fetch(topic, 0)  # in one fetch: `log` leaves out what is no whole batch
            broker.expect_error(fetched.error_code, ErrorCode.NONE, what="Fetch")
            broker.expect_equal("the bytes in the log", len(bytes(fetched.records or b"")), wanted)


@requirement(
    "PRD-23",
    apis={"Produce": 3, "Fetch": 4},
    notices="stuck: librdkafka writes leader epoch 0, Java, franz-go and aiokafka -1: a broker must take each",
    source="LogValidator; DefaultRecordBatch",
    sentence="Fields that a client may fill in as it likes do not keep a batch from being stored: the leader epoch is replaced, "
    "the maximum timestamp is made right.",
    accepted="NONE(0); the leader's epoch (0 where Metadata has none) and the true maximum timestamp in the stored batch",
    tolerated="leader epoch -1, which clients take for none; the client's own, where no API of the target has leader epochs, as "
    "clients check nothing by it then; the client's maximum timestamp, which they look at for append times alone",
)
def harmless_fields(broker: Broker) -> None:
    topic = broker.topic()
    now = int(time.time() * 1000)
    broker.append(topic, batch(Record(b"x", timestamp=now), partition_leader_epoch=77))
    broker.append(topic, batch(Record(b"y", timestamp=now), max_timestamp=now - 5))
    stored = batches(broker.log(topic))
    known = has_leader_epochs(broker)
    epoch = broker.leader_epoch(topic) if known else 0
    epochs = {one.partition_leader_epoch for one in stored}
    if epochs == {-1} != {epoch}:
        broker.tolerate("each stored batch has leader epoch -1, which clients take for none")
    elif epochs == {77, -1} and not known and not broker.serves(OffsetForLeaderEpochRequest):
        broker.tolerate("the client's leader epochs are stored, and no API of the target has leader epochs")
    else:
        broker.expect_equal("the leader epochs", epochs, {epoch})
    for one in stored:
        one.expect_crc()
        largest = max((each.timestamp or 0 for each in one.records()), default=-1)
        if one is stored[-1] and one.max_timestamp == now - 5 < largest:
            broker.tolerate("the client's maximum timestamp is stored")
        else:
            broker.expect_equal("the maximum timestamp", one.max_timestamp, largest)
    broker.expect_equal("the values", values(broker.log(topic)), [b"x", b"y"])
