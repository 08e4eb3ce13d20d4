"""PRD: batches that Produce refuses. A refusal changes neither the log nor the results of the request's other partitions."""

import time
from contextlib import nullcontext, suppress
from typing import Any, TypedDict, Unpack
from uuid import UUID

from conformance.answers import AnswerParts, only
from conformance.batches import (
    CODECS,
    CONTROL,
    LOG_APPEND_TIME,
    ZSTD,
    Record,
    batch,
    batches,
    message_set,
    patched,
    records,
    values,
)
from conformance.broker import Broker
from conformance.changes import closes_on_unreadable_batches, refusals
from conformance.observations import Skipped
from conformance.requirement import requirement
from conformance.steps import about
from conformance.wire import Closed, Failed
from linearizability.client.requests import Topic, produce_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import NO_UUID

FIRST_WITH_RECORD_ERRORS = 8
WINDOW_MS, HOUR_MS = 600_000, 3_600_000
"""The window of accepted timestamps is wider than any difference of clocks; HOUR_MS is outside of it."""
WITH_BATCHES = 3
"""The first version of Produce with record batches."""
REFUSED = frozenset(ErrorCode) - {ErrorCode.NONE}
"""Any error, where it only matters that nothing is stored; PRD-26 judges the code."""
BY_ID = 13
"""The first version of Produce with topic ids."""


class Refusals(TypedDict, total=False):
    """Further forms of a refusal of bad records that are accepted or tolerated."""

    tolerated: frozenset[ErrorCode] | set[ErrorCode]
    others_too: bool
    """Whether the good records of the request may be refused with the same error."""
    unreadable: bool
    """Whether the batches cannot be iterated: an old Kafka closes the connection."""
    may_close: bool
    """Whether any broker may close the connection."""


def expect_refused(
    broker: Broker,
    topic: Topic,
    records: bytes | None,
    *accepted: ErrorCode,
    what: str = "",
    version: int | None = None,
    **also: Unpack[Refusals],
) -> Any:
    """Produce bad records to partition 0 and good ones to partition 1 of a topic, in one request.

    Expect that the bad ones are refused with one of the errors and not stored, and that the good ones are stored, or with
    `others_too` refused with the same error and not stored. Returns the refusal; None if the connection was closed instead.
    """
    if broker.version_for(ProduceRequest) < WITH_BATCHES:
        broker.skip(f"needs Produce v{WITH_BATCHES}: record batches (magic 2, KIP-98)")
    accepted, also_tolerated = refusals(broker, accepted)
    before = broker.end_offset(topic, 0), broker.end_offset(topic, 1)
    request = produce_request({(topic, 0): records, (topic, 1): good()})
    try:
        answer = broker.call(request, version, to=broker.leader(topic))
    except Closed:
        if not (also.get("unreadable") and closes_on_unreadable_batches(broker)):
            if not also.get("may_close"):
                raise
            broker.tolerate(f"{what}: the connection is closed")
        after = broker.end_offset(topic, 0), broker.end_offset(topic, 1)
        broker.expect_equal(f"{what}: the log end offsets after the connection was closed", after, before)
        return None
    results = AnswerParts({one.index: one for one in only(answer.responses, "topic in the answer").partition_responses})
    bad, other = results[0], results[1]
    broker.expect_error(
        bad.error_code,
        *accepted,
        tolerated={*also.get("tolerated", ()), *also_tolerated},
        what=what,
        message=bad.error_message,
    )
    if not also.get("others_too") or other.error_code != bad.error_code:
        broker.expect_error(other.error_code, ErrorCode.NONE, what="the other partition")
    stored = other.error_code == ErrorCode.NONE
    after = broker.end_offset(topic, 0), broker.end_offset(topic, 1)
    broker.expect_equal("the log end offsets", after, (before[0], before[1] + stored))
    return bad


def good() -> bytes:
    """A batch that every topic accepts."""
    return batch(Record(b"good", key=b"key"))


@requirement(
    "PRD-01",
    notices="stuck: Java, librdkafka and sarama fetch metadata and send again on this code; on others they fail the records",
    source="KafkaApis.handleProduceRequest; KIP-516",
    sentence="A topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; from v13 on an unknown topic id is "
    "UNKNOWN_TOPIC_ID.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3), and UNKNOWN_TOPIC_ID(100) for an id; no topic is created by it",
)
def unknown_topic_or_partition(broker: Broker) -> None:
    topic = broker.topic()
    highest = broker.version_for(ProduceRequest)
    result = broker.produce(topic, good(), partition=7)
    broker.expect_error(
        result.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=f"an unknown partition, v{highest}"
    )
    nowhere = Topic(broker.unused_name(), NO_UUID, 1)
    result = broker.produce(nowhere, good(), version=min(highest, BY_ID - 1))
    broker.expect_error(result.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what="an unknown topic by name")
    found = broker.describe_topic(nowhere.name)
    broker.expect_error(found.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what="Metadata of that topic")
    if highest >= BY_ID:
        result = broker.produce(Topic("", UUID(int=topic.id.int ^ 0xFFFF), 1), good())
        broker.expect_error(result.error_code, ErrorCode.UNKNOWN_TOPIC_ID, what="an unknown topic id")


@requirement(
    "PRD-03",
    notices="none seen: all clients write magic 2 from v3 on",
    source="ProduceRequest.validateRecords; KIP-98",
    sentence="From v3 on, records in a format older than magic 2 are refused with INVALID_RECORD.",
    accepted="INVALID_RECORD(87), for a message set of magic 0 and of magic 1, in v3 and in the highest version; before 2.4 "
    "(KIP-467) CORRUPT_MESSAGE(2), before 2.8 (KAFKA-9628) a closed connection",
    apis={"Produce": 3},
)
def old_magic(broker: Broker) -> None:
    topic = broker.topic(2)
    for version in broker.versions_among(ProduceRequest, 3):
        for magic in (0, 1):
            data = message_set(b"old", magic)
            expect_refused(
                broker,
                topic,
                data,
                ErrorCode.INVALID_RECORD,
                version=version,
                what=f"magic {magic}, v{version}",
                unreadable=True,
            )


@requirement(
    "PRD-04",
    notices="none seen: all clients send one batch a partition; a broker that stores both harms no client",
    source="ProduceRequest.validateRecords",
    sentence="From v3 on, no batch at all, or more than one for a partition, is refused with INVALID_RECORD.",
    accepted="INVALID_RECORD(87), for no bytes and for two batches; before 2.4 (KIP-467) CORRUPT_MESSAGE(2), before 2.8 "
    "(KAFKA-9628) a closed connection",
    draft="null records were thought to be refused too: Kafka 4.3.1 trips over them (NullPointerException) and never answers",
)
def one_batch_each(broker: Broker) -> None:
    topic = broker.topic(2)
    for what, data in {"no bytes": b"", "two batches": good() + good()}.items():
        with broker.case(what):
            expect_refused(broker, topic, data, ErrorCode.INVALID_RECORD, unreadable=True)


@requirement(
    "PRD-07",
    notices="client: the Java producer splits a batch on this code and sends the halves; on others it fails all of it",
    source="UnifiedLog.analyzeAndValidateRecords; max.message.bytes, default 1048588",
    sentence="A batch larger than max.message.bytes is refused with MESSAGE_TOO_LARGE; one of exactly that size is stored.",
    accepted="MESSAGE_TOO_LARGE(10) for one byte more, NONE(0) for the limit itself; by default the limit is 1048588 (before "
    "2.5, KAFKA-4203: 1000012)",
)
def too_large(broker: Broker) -> None:
    default = 1_048_588 if broker.is_kafka("2.5") else 1_000_012
    for limit, configs in ((1000, {"max.message.bytes": "1000"}), (default, {})):
        topic = broker.topic(2, configs=configs)
        overhead = len(batch(bytes(limit - 100))) - (limit - 100)
        fits, too_big = batch(bytes(limit - overhead)), batch(bytes(limit - overhead + 1))
        broker.expect_equal("the sizes of the batches", (len(fits), len(too_big)), (limit, limit + 1))
        expect_refused(broker, topic, too_big, ErrorCode.MESSAGE_TOO_LARGE, what=f"{limit + 1} bytes")
        broker.append(topic, fits)
        broker.saw(f"{limit} bytes were stored")


@requirement(
    "PRD-08",
    notices="none seen: clients do not distinguish this code from any other that is final",
    source="UnifiedLog.append (RecordBatchTooLargeException); segment.bytes",
    sentence="A batch within max.message.bytes that no segment can hold is refused with RECORD_LIST_TOO_LARGE.",
    accepted="RECORD_LIST_TOO_LARGE(18), for 1.5 MiB with segment.bytes of 1 MiB",
    tolerated="MESSAGE_TOO_LARGE(10)",
)
def larger_than_a_segment(broker: Broker) -> None:
    topic = broker.topic(2, configs={"segment.bytes": "1048576", "max.message.bytes": "4000000"})
    data = batch(bytes(1_500_000))
    expect_refused(broker, topic, data, ErrorCode.RECORD_LIST_TOO_LARGE, tolerated={ErrorCode.MESSAGE_TOO_LARGE})


@requirement(
    "PRD-13",
    notices="data: compaction drops a record without a key, although it was acknowledged",
    source="LogValidator.validateKey; KIP-467 (record errors, v8+)",
    sentence="A record without a key is refused by a compacted topic with INVALID_RECORD, and nothing of its batch is stored.",
    accepted="INVALID_RECORD(87), in v7, v8 and the highest version",
    tolerated="another error (PRD-26), as long as nothing is stored",
)
def no_key_for_compaction(broker: Broker) -> None:
    topic = broker.topic(2, configs={"cleanup.policy": "compact"})
    highest = broker.version_for(ProduceRequest)
    for version in sorted({min(7, highest), min(8, highest), highest}):
        expect_refused(
            broker,
            topic,
            two_without_a_key(),
            ErrorCode.INVALID_RECORD,
            version=version,
            what=f"v{version}",
            tolerated=REFUSED,
        )


def two_without_a_key() -> bytes:
    """A batch of four records, of which the second and the last have no key."""
    return batch(Record(b"a", key=b"k"), b"b", Record(b"c", key=b""), b"d")


@requirement(
    "PRD-14",
    notices="operator: one record of the year 3000 keeps its segment for ever, and shifts every search by time",
    source="LogValidator.validateTimestamp; KIP-32; KIP-937",
    sentence="A create time outside of the topic's window around now is refused with INVALID_TIMESTAMP, from v8 on with the "
    "index of the bad record; by default the window ends one hour from now and has no beginning.",
    accepted="INVALID_TIMESTAMP(32) before and after a window of ten minutes, and beyond an hour by default; index 1 is named; "
    "before 4.0 (KIP-1030) the default window has no end, before 3.6 (KIP-937) one configuration gives both bounds",
)
def timestamp_window(broker: Broker) -> None:
    now = int(time.time() * 1000)
    bounds = ("before", "after") if broker.is_kafka("3.6") else ("difference",)
    narrow = broker.topic(2, configs={f"message.timestamp.{bound}.max.ms": str(WINDOW_MS) for bound in bounds})
    usual, in_two_hours = (
        broker.topic(2),
        batch(Record(b"now", timestamp=now), Record(b"then", timestamp=now + 2 * HOUR_MS)),
    )
    named = [1] if broker.version_for(ProduceRequest) >= FIRST_WITH_RECORD_ERRORS else []
    cases = [
        (narrow, batch(Record(b"now", timestamp=now), Record(b"then", timestamp=now - 2 * WINDOW_MS)), "too long ago"),
        (narrow, batch(Record(b"now", timestamp=now), Record(b"then", timestamp=now + 2 * WINDOW_MS)), "too far ahead"),
    ]
    if broker.is_kafka("4.0"):
        cases.append((usual, in_two_hours, "in two hours, by default"))
    elif "message.timestamp.after.max.ms" not in broker.subject.profile.pinned:
        broker.append(usual, in_two_hours)
    for topic, data, what in cases:
        bad = expect_refused(broker, topic, data, ErrorCode.INVALID_TIMESTAMP, what=what)
        broker.expect_equal("the indexes of bad records", [error.batch_index for error in bad.record_errors], named)
    broker.append(narrow, batch(Record(b"x", timestamp=now - WINDOW_MS // 2)))
    broker.append(usual, batch(Record(b"x", timestamp=1)))
    broker.saw("within the window and, by default, 1970 are stored")


@requirement(
    "PRD-15",
    notices="misread: consumers take the batch's largest timestamp for each record's where this bit is set",
    source="LogValidator.assignOffsetsNonCompressed; message.timestamp.type",
    sentence="A batch that claims LogAppendTime in its attributes does not make a CreateTime topic store append times: the bit "
    "is cleared and the client's timestamps stay.",
    accepted="stored with the bit cleared, the client's timestamps and a CRC that holds; or INVALID_TIMESTAMP(32)",
    draft="it was thought to be refused with INVALID_TIMESTAMP: Kafka 4.3.1 stores it and clears the bit",
)
def claims_append_time(broker: Broker) -> None:
    topic = broker.topic()
    stamp = int(time.time() * 1000) - 5000
    broker.append(topic, batch(b"x", timestamp=stamp))
    usual = [record.timestamp for record in records(broker.log(topic))]
    if usual != [stamp]:
        failure = Failed(f"a usual batch is stored with {usual}, not {stamp}")
        failure.built_on = "ACK-10"
        raise failure
    for name, judged in (("none", nullcontext()), ("gzip", about("ACK-12"))):
        with judged:
            data = batch(b"x", codec=CODECS[name], timestamp=stamp, attributes=LOG_APPEND_TIME | CODECS[name])
            result = broker.produce(topic, data)
            broker.expect_error(result.error_code, ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP, what=name)
            for one in batches(broker.log(topic)):
                one.expect_crc()
                bit = one.attributes & LOG_APPEND_TIME
                broker.expect_equal("the bit of LogAppendTime in the stored attributes", bit, 0)
                broker.expect_equal("the stored timestamps", {record.timestamp for record in one.records()}, {stamp})


@requirement(
    "PRD-16",
    notices="none seen: librdkafka and Java ask for Produce v7 before they write zstd",
    source="KIP-110; ProduceRequest.validateRecords",
    sentence="zstd below v7 is refused with UNSUPPORTED_COMPRESSION_TYPE.",
    accepted="UNSUPPORTED_COMPRESSION_TYPE(76) in v3 and v6; NONE(0) in v7",
    since="2.1",
)
def zstd_too_early(broker: Broker) -> None:
    topic = broker.topic(2)
    for version in (3, 6):
        data = batch(b"x", codec=ZSTD)
        expect_refused(broker, topic, data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, version=version, what=f"v{version}")
    broker.append(topic, batch(b"x", codec=ZSTD), version=7)
    broker.saw("v7 stores it")


@requirement(
    "PRD-18",
    notices="data: librdkafka's acks may be 0 to 1000; a broker that takes 2 for 1 acknowledges what it may lose",
    source="ReplicaManager.isValidRequiredAcks",
    sentence="acks other than -1, 0 and 1 are refused with INVALID_REQUIRED_ACKS for every partition; nothing is stored.",
    accepted="INVALID_REQUIRED_ACKS(21) for both partitions, for acks 2, -2 and 32767",
    tolerated="another error (PRD-26), as long as nothing is stored",
)
def invalid_acks(broker: Broker) -> None:
    topic = broker.topic(2)
    for acks in (2, -2, 32767):
        answer = broker.call(
            produce_request({(topic, 0): good(), (topic, 1): good()}, acks=acks), to=broker.leader(topic)
        )
        results = only(answer.responses, "topic in the answer").partition_responses
        broker.expect_equal("the partitions that are answered", sorted(one.index for one in results), [0, 1])
        for result in results:
            code = ErrorCode.INVALID_REQUIRED_ACKS
            broker.expect_error(result.error_code, code, tolerated=REFUSED, what=f"acks={acks}")
    broker.expect_equal("the log end offsets", (broker.end_offset(topic, 0), broker.end_offset(topic, 1)), (0, 0))


@requirement(
    "PRD-19",
    notices="security: any producer could move or remove the offsets of any group",
    source="ReplicaManager.appendRecordsToLeader (internalTopicsAllowed)",
    sentence="An ordinary client's write to an internal topic is refused with INVALID_TOPIC_EXCEPTION.",
    accepted="INVALID_TOPIC_EXCEPTION(17)",
    tolerated="another error (PRD-26), as long as nothing is stored",
)
def internal_topic(broker: Broker) -> None:
    broker.coordinator(broker.unused_name("group"))
    internal = broker.internal_topic("__consumer_offsets")
    end = broker.end_offset(internal)
    result = broker.produce(internal, good())
    broker.expect_error(result.error_code, ErrorCode.INVALID_TOPIC_EXCEPTION, tolerated=REFUSED)
    if result.error_code != ErrorCode.INVALID_TOPIC_EXCEPTION:
        broker.expect(b"good" not in values(broker.log(internal, offset=end)), "nothing of it is stored")


@requirement(
    "PRD-26",
    notices="client: Java sends again, for two minutes, what is refused with a retriable code, as CORRUPT_MESSAGE is",
    source="LogValidator.validateBatch, validateKey; UnifiedLog.analyzeAndValidateRecords; Errors (RetriableException)",
    sentence="A batch that was damaged on its way is refused with CORRUPT_MESSAGE, after which clients send it again; one that "
    "is wrong as it was sent with the final INVALID_RECORD, and wrong acks or an internal topic with final codes of their own.",
    accepted="CORRUPT_MESSAGE(2) for a wrong CRC; INVALID_RECORD(87) for a control batch, a wrong count and a compacted topic's "
    "record without a key, before 2.4 (KIP-467) CORRUPT_MESSAGE(2); INVALID_REQUIRED_ACKS(21); INVALID_TOPIC_EXCEPTION(17)",
    apis={"Produce": WITH_BATCHES},
)
def codes_of_refusals(broker: Broker) -> None:
    plain, compacted = broker.topic(), broker.topic(configs={"cleanup.policy": "compact"})
    marker = batch(Record(b"\x00\x00\x00\x00\x00\x00", key=b"\x00\x00\x00\x01"), attributes=CONTROL)
    cases: dict[str, tuple[Topic, bytes, int, ErrorCode]] = {
        "a wrong CRC": (plain, patched(good(), crc=0), -1, ErrorCode.CORRUPT_MESSAGE),
        "a control batch": (plain, marker, -1, ErrorCode.INVALID_RECORD),
        "no key": (compacted, batch(b"x"), -1, ErrorCode.INVALID_RECORD),
        "acks=2": (plain, good(), 2, ErrorCode.INVALID_REQUIRED_ACKS),
    }
    with suppress(Skipped):
        broker.coordinator(broker.unused_name("group"))
        internal = broker.internal_topic("__consumer_offsets")
        cases["an internal topic"] = internal, good(), -1, ErrorCode.INVALID_TOPIC_EXCEPTION
    if broker.is_kafka("2.0"):
        cases["a wrong count"] = plain, patched(batch(b"a", b"b"), count=1), -1, ErrorCode.INVALID_RECORD
    for what, (topic, data, acks, code) in cases.items():
        with broker.case(what):
            accepted, tolerated = refusals(broker, (code,))
            seen = broker.produce(topic, data, acks=acks).error_code
            if seen == ErrorCode.NONE:
                broker.skip("the batch is not refused: another requirement judges that")
            broker.expect_error(seen, *accepted, tolerated=tolerated)


@requirement(
    "PRD-27",
    notices="none seen: Java, librdkafka and franz-go look at the code first, and at no offset beside an error",
    source="ReplicaManager.appendToLocalLog (LogAppendInfo.UNKNOWN_LOG_APPEND_INFO); ProduceResponse schema",
    sentence="The answer for a refused partition has no offset and no time: base offset and append time are -1.",
    accepted="-1 for both, for an unknown partition, a wrong CRC, a control batch and acks=2",
    apis={"Produce": WITH_BATCHES},
)
def no_offset_beside_an_error(broker: Broker) -> None:
    topic = broker.topic()
    marker = batch(Record(b"\x00\x00\x00\x00\x00\x00", key=b"\x00\x00\x00\x01"), attributes=CONTROL)
    cases = {
        "an unknown partition": broker.produce(topic, good(), partition=7),
        "a wrong CRC": broker.produce(topic, patched(good(), crc=0)),
        "a control batch": broker.produce(topic, marker),
        "acks=2": broker.produce(topic, good(), acks=2),
    }
    for what, result in cases.items():
        broker.expect(result.error_code != ErrorCode.NONE, f"{what} is refused")
        seen = result.base_offset, result.log_append_time_ms
        broker.expect_equal(f"{what}: base offset and append time", seen, (-1, -1))


@requirement(
    "PRD-28",
    notices="client: Java fails the named records with the error, and those beside them with another message",
    source="KIP-467 (record errors, v8+); LogValidator.validateKey",
    sentence="From v8 on the response names the batch index of each record for which a batch was refused.",
    accepted="the indexes 1 and 3 of a batch of four for a compacted topic (before 2.5, KAFKA-8729, the first)",
    apis={"Produce": 8},
)
def names_the_bad_records(broker: Broker) -> None:
    topic = broker.topic(configs={"cleanup.policy": "compact"})
    for version in sorted({8, broker.version_for(ProduceRequest)}):
        refused = broker.produce(topic, two_without_a_key(), version=version)
        if refused.error_code == ErrorCode.NONE:
            broker.skip("records without a key are not refused, of which PRD-13 speaks")
        wanted = [1, 3] if broker.is_kafka("2.5") else [1]
        broker.expect_equal(f"v{version}: the indexes", [error.batch_index for error in refused.record_errors], wanted)


@requirement(
    "PRD-29",
    notices="data: Java and librdkafka report to each batch's sender what its partition was answered",
    source="ReplicaManager.appendToLocalLog; ProduceResponse schema",
    sentence="In one request for several partitions each has its own answer: one that is refused does not spoil the others.",
    accepted="NONE(0), its own base offset and one record more for each good partition, UNKNOWN_TOPIC_OR_PARTITION(3) for an "
    "unknown one, wherever it comes in the request, in every version",
    apis={"Produce": WITH_BATCHES},
)
def each_partition_has_its_answer(broker: Broker) -> None:
    topic = broker.topic(3)
    orders = ((9, 0, 1, 2), (0, 9, 1, 2), (0, 1, 2, 9))
    first, last = broker.versions_of(ProduceRequest)
    for version in range(max(first, WITH_BATCHES), last + 1):
        with broker.case(f"v{version}"):
            before = broker.end_offset(topic, 0)
            for number, order in enumerate(orders):
                request = produce_request({(topic, partition): good() for partition in order})
                answer = broker.call(request, version, to=broker.leader(topic))
                results = only(answer.responses, "topic in the answer").partition_responses
                seen = {one.index: (one.error_code, one.base_offset) for one in results if one.index != 9}
                broker.expect_equal("the good ones", seen, dict.fromkeys(range(3), (ErrorCode.NONE, before + number)))
                codes = [one.error_code for one in results if one.index == 9]
                broker.expect_equal("the errors of the unknown one", codes, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
            ends = [broker.end_offset(topic, partition) for partition in range(3)]
            broker.expect_equal("the log end offsets", ends, [before + len(orders)] * 3)
