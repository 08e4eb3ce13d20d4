"""FET: the records in a fetch response: visibility and limits."""

# A loop over the versions that are served always runs.
# pyright: reportPossiblyUnboundVariable=false

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from conformance.answers import AnswerParts, only
from conformance.batches import (
    CODECS,
    RECENT_MS,
    Record,
    batch,
    batches,
    idempotent,
    next_offset,
    records,
    stored_as,
    values,
)
from conformance.broker import Broker
from conformance.changes import codecs
from conformance.observations import Skipped
from conformance.requirement import requirement
from conformance.steps import about
from conformance.wire import Closed
from linearizability.client.requests import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Topic,
    delete_topics_request,
    fetch_request,
)
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.primitives import NO_UUID

PLENTY = 1 << 20
"""A limit above the size of any log in these tests."""
BY_ID = 13
"""The first version of Fetch with topic ids."""


def partitions_of(answer: Any) -> list[Any]:
    """The partitions of a Fetch answer, in its order."""
    return [partition for topic in answer.responses for partition in topic.partitions]


def served_bytes(answer: Any) -> dict[int, int]:
    """Partition -> bytes of records, in the answer's order."""
    return AnswerParts({one.partition_index: len(one.records or b"") for one in partitions_of(answer)})


def versions_to_ask(broker: Broker) -> list[int]:
    """The versions to test: one before sessions, the last with topic names, and the highest."""
    lowest, highest = broker.versions_of(FetchRequest)
    return sorted({max(lowest, 4), min(BY_ID - 1, highest), highest})


@requirement(
    "FET-01",
    notices="data: a consumer passes over records, or reads what a new leader does not have",
    source="FetchIsolation; Partition.readRecords",
    sentence="A consumer is given acknowledged records, only records below the high watermark that the same answer names, and "
    "at its end nothing, for both isolation levels.",
    accepted="in every version: all records below the high watermark, none at it; without transactions the last stable offset "
    "is the high watermark (for read_uncommitted it is in the answer since 2.2)",
    requires=("BAS-03",),
)
def below_the_high_watermark(broker: Broker) -> None:
    topic = broker.topic()
    lowest, highest = broker.versions_of(FetchRequest)
    for version in range(max(lowest, 4), highest + 1):
        base = broker.append(topic, batch(b"a", b"b"))
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            found = broker.fetch(topic, base, version=version, isolation=isolation)
            broker.expect_error(found.error_code, ErrorCode.NONE, what=f"v{version}")
            broker.expect_equal("the records", values(found.records), [b"a", b"b"])
            broker.expect_equal("the high watermark", found.high_watermark, base + 2)
            if isolation == READ_COMMITTED or broker.is_kafka("2.2"):
                broker.expect_equal("the last stable offset", found.last_stable_offset, base + 2)
            at_end = broker.fetch(topic, base + 2, version=version, isolation=isolation)
            broker.expect_error(at_end.error_code, ErrorCode.NONE, what=f"v{version} at the high watermark")
            broker.expect_equal("the bytes at the high watermark", len(at_end.records or b""), 0)


@requirement(
    "FET-02",
    notices="stuck: all consumers reset their position on this code alone; without it they wait at that offset for ever",
    source="UnifiedLog.read; ReplicaManager.readFromLog (LogReadResult of an error)",
    sentence="A fetch below the log start offset or above the log end offset is OFFSET_OUT_OF_RANGE, without records.",
    accepted="OFFSET_OUT_OF_RANGE(1) in every version, for the offsets -1, log start - 1, log end + 1; NONE(0) at both ends; the "
    "log begins at 0 where DeleteRecords is not served",
)
def out_of_range(broker: Broker) -> None:
    topic, stored, start = broker.topic(), [b"a", b"b", b"c", b"d"], 0
    for value in stored:
        broker.append(topic, batch(value))
    with suppress(Skipped):
        start = broker.delete_records(topic, 2)
        broker.expect_equal("the log start offset", start, 2)
    for version in versions_to_ask(broker):
        for offset in (-1, *range(start), 5, 1 << 40):
            found = broker.fetch(topic, offset, version=version)
            broker.expect_error(found.error_code, ErrorCode.OFFSET_OUT_OF_RANGE, what=f"v{version}, offset {offset}")
            broker.expect_equal("the bytes of records", len(found.records or b""), 0)
        for offset in (start, 4):
            found = broker.fetch(topic, offset, version=version)
            broker.expect_error(found.error_code, ErrorCode.NONE, what=f"v{version}, offset {offset}")
            records = values(broker.log(topic, offset=offset, version=version))
            broker.expect_equal("the records", records, stored[offset:])
            broker.expect_equal("the log start offset", found.log_start_offset, start if version >= 5 else -1)


@requirement(
    "FET-08",
    apis={"Produce": 3, "Fetch": 4},
    notices="stuck: a consumer whose limit is below the next batch gets nothing, for ever (KIP-74); Java takes limits of 0",
    source="KIP-74; ReplicaManager.readFromLog (minOneMessage); ConsumerConfig (max.partition.fetch.bytes, atLeast(0))",
    sentence="The first partition that has records gives at least one whole batch, even one larger than partition_max_bytes and "
    "max_bytes: a consumer always gets on.",
    accepted="exactly the first batch, from the first partition of the request that has one, with limits of 1 and 0 bytes",
    tolerated="more than that, beyond the limits: FET-09 judges them",
)
def one_batch_at_least(broker: Broker) -> None:
    topic = broker.topic(3)
    data = batch(b"x" * 1000)
    for partition in (0, 1):
        for _ in range(2):
            broker.append(topic, data, partition=partition)
    for version in versions_to_ask(broker):
        for limits in ((1, PLENTY), (PLENTY, 1), (1, 1), (0, 0)):
            request = fetch_request(
                {(topic, 2): 0, (topic, 1): 0, (topic, 0): 0}, max_bytes=limits[0], partition_max_bytes=limits[1]
            )
            answer = broker.call(request, version, to=broker.leader(topic))
            sizes = {0: 0, 1: 0, 2: 0} | served_bytes(answer)  # FSS-01 judges that no partition is left out
            what = f"v{version}, max_bytes={limits[0]}, partition_max_bytes={limits[1]}"
            if sizes[1] >= len(data) and sum(sizes.values()) > len(data) and not sizes[2]:
                broker.tolerate(f"{what}: the bytes by partition are {sizes}, more than one batch of {len(data)}")
                continue
            broker.expect_equal(f"{what}: the bytes by partition", sizes, {0: 0, 1: len(data), 2: 0})


@requirement(
    "FET-09",
    apis={"Produce": 3, "Fetch": 4},
    notices="stuck: librdkafka closes the connection on an answer above receive.message.max.bytes, and asks the same again",
    source="KIP-74; ReplicaManager.readFromLog; FetchRequest schema (MaxBytes)",
    sentence="Partitions are served in the order of the request, none with more than partition_max_bytes and all together with "
    "no more than max_bytes, once the first batch is out.",
    accepted="the limits hold in each of the cases, no whole batch is left out that would have fitted, and the order of the "
    "request decides who gets the bytes",
    tolerated="fewer batches than would have fitted",
)
def limits_hold(broker: Broker) -> None:
    topic = broker.topic(3)
    data = batch(b"x" * 1000)
    size = len(data)
    for partition in range(3):
        for _ in range(3):
            broker.append(topic, data, partition=partition)
    order = (2, 0, 1)
    for version in versions_to_ask(broker):
        for max_bytes, partition_max_bytes, wanted in (
            (PLENTY, PLENTY, (3, 3, 3)),
            (4 * size, PLENTY, (3, 1, 0)),
            (2 * size - 1, PLENTY, (1, 0, 0)),
            (PLENTY, size + size // 2, (1, 1, 1)),
            (3 * size + 10, size + size // 2, (1, 1, 0)),
        ):
            request = fetch_request(
                {(topic, partition): 0 for partition in order},
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
            )
            found = partitions_of(broker.call(request, version, to=broker.leader(topic)))
            what = f"v{version}, max_bytes={max_bytes}, partition_max_bytes={partition_max_bytes}"
            listed = [one.partition_index for one in found]  # FSS-01 judges that no partition is left out
            broker.expect_equal(f"{what}: the partitions", listed, [one for one in order if one in listed])
            counts = dict.fromkeys(order, 0) | {one.partition_index: len(batches(one.records or b"")) for one in found}
            whole = tuple(counts.values())
            if whole[0] and sum(whole) < sum(wanted):
                broker.tolerate(f"{what}: the whole batches of each are {whole}, and {wanted} would have fitted")
            else:
                broker.expect_equal("the whole batches of each", whole, wanted)
            total = sum(len(one.records or b"") for one in found)
            broker.expect(total <= max_bytes, f"{total} bytes of at most {max_bytes}")
            largest = max((len(one.records or b"") for one in found), default=0)
            broker.expect(largest <= partition_max_bytes, f"{largest} bytes of at most {partition_max_bytes}")


@requirement(
    "FET-10",
    apis={"Produce": 3, "Fetch": 4},
    notices="data: clients skip within the first batch to their offset; a later batch is records lost",
    source="LogSegment.read; FileRecords.slice",
    sentence="A fetch at an offset within a batch gives that whole batch; what is given are whole batches with right CRCs and "
    "perhaps the beginning of the next one.",
    accepted="the batch that holds the offset comes first, for every offset, plain and compressed; a cut-off end is what the log "
    "has there",
    tolerated="other batches than were sent, of which FET-15 speaks: the first one holds the offset, and no record is missing",
)
def whole_batches(broker: Broker) -> None:
    with broker.case("plain"):
        expect_whole_batches(broker, [CODECS["none"]] * 3)
    with broker.case("plain and compressed"), about("ACK-12"):
        expect_whole_batches(broker, [CODECS["none"], CODECS["gzip"], CODECS["none"]])


def expect_whole_batches(broker: Broker, codecs: Sequence[int]) -> None:
    """Require whole batches at each of twelve offsets, of three batches in these codecs."""
    topic = broker.topic()
    for codec in codecs:
        broker.append(topic, batch(b"a" * 50, b"b" * 50, b"c" * 50, b"d" * 50, codec=codec))
    whole = broker.log(topic)
    for one in batches(whole):
        one.expect_crc()
    broker.expect_equal("the values in the log", values(whole), [b"a" * 50, b"b" * 50, b"c" * 50, b"d" * 50] * 3)
    starts = {one.base_offset: whole.index(one.data) for one in batches(whole)}
    kept = [*starts] == [0, 4, 8]
    for offset in range(12):
        got = bytes(broker.fetch(topic, offset, partition_max_bytes=400).records or b"")
        found = batches(got)
        if kept:
            first = [one.base_offset for one in found[:1]]
            broker.expect_equal(f"offset {offset}: the first batch", first, [offset // 4 * 4])
            at = starts[offset // 4 * 4]
            broker.expect(whole[at : at + len(got)] == got, f"its {len(got)} bytes are the log's")
            continue
        broker.expect(
            bool(found) and found[0].base_offset <= offset < found[0].next_offset,
            f"offset {offset}: the first batch holds it",
        )
        given, last = [one.offset for one in records(got)], found[-1].next_offset
        broker.expect_equal(f"offset {offset}: the offsets", given, [*range(found[0].base_offset, last)])
        broker.expect_equal(f"offset {offset}: the values", values(got), values(whole)[found[0].base_offset : last])
        for one in found:
            one.expect_crc()
    if not kept:
        broker.tolerate(f"the log has batches at {[*starts]}, and not as they were sent")


@requirement(
    "FET-11",
    notices="misread: Java and librdkafka renew metadata on these codes; else they read another topic of the same name",
    source="KafkaApis.handleFetchRequest; KIP-516",
    sentence="An unknown topic or partition is UNKNOWN_TOPIC_OR_PARTITION; from v13 on an unknown topic id is UNKNOWN_TOPIC_ID, "
    "also that of a deleted topic whose name another one has. The other partitions are served.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3), UNKNOWN_TOPIC_ID(100); the records of the other partition",
    tolerated="UNKNOWN_TOPIC_OR_PARTITION(3) for no topic id at all, which no client sends",
    draft="INCONSISTENT_TOPIC_ID(103) was asked for an id that is not the log's: Kafka finds a consumer's topic by its id, so "
    "that only a race within the broker can show it",
    exclusive=True,
)
def unknown_topic_or_partition(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"x"))
    highest = broker.version_for(FetchRequest)
    by_name, by_id = Topic(broker.unused_name(), NO_UUID, 1), Topic("", UUID(int=topic.id.int ^ 0xFFFF), 1)
    cases = [
        (f"an unknown partition, v{highest}", (topic, 7), highest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a negative partition", (topic, -1), highest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("an unknown topic by name", (by_name, 0), min(highest, BY_ID - 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    if highest >= BY_ID:
        cases.append(("an unknown topic id", (by_id, 0), highest, ErrorCode.UNKNOWN_TOPIC_ID))
        cases.append(("no topic id", (Topic("", NO_UUID, 1), 0), highest, ErrorCode.UNKNOWN_TOPIC_ID))
        cases.append(("a deleted topic's id", (recreated(broker), 0), highest, ErrorCode.UNKNOWN_TOPIC_ID))
    for what, unknown, version, error in cases:
        with broker.case(what):
            answer = broker.call(fetch_request({unknown: 0, (topic, 0): 0}), version, to=broker.leader(topic))
            codes = AnswerParts({one.partition_index: one for one in partitions_of(answer) if one.error_code})
            bad = only(list(codes.values()), "partition with an error")
            if what == "no topic id" and bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                broker.tolerate(
                    "no topic id is an unknown topic: clients send one, and renew their metadata on either code"
                )
            else:
                broker.expect_error(bad.error_code, error)
            broker.expect_equal("its partition", bad.partition_index, unknown[1])
            read = [value for one in partitions_of(answer) for value in values(one.records or b"")]
            broker.expect_equal("the other partition's records", read, [b"x"])


def recreated(broker: Broker) -> Topic:
    """A deleted topic, after another topic was created with its name."""
    broker.needs_deletion()
    former = broker.topic()
    version = broker.version_for(DeleteTopicsRequest)

    def made_again() -> bool:
        broker.call(delete_topics_request([former.name], version), version)
        found = broker.create_topic(former.name)
        return found.error_code == ErrorCode.NONE

    broker.eventually(made_again, "a deleted topic can be made again")
    broker.eventually(
        lambda: broker.await_topic(former.name).id != former.id, "Metadata has another id for the topic made again"
    )
    return former


@requirement(
    "FET-13",
    notices="client: a consumer without zstd gets batches that it cannot read instead of an error that says so",
    source="KIP-110; KafkaApis.maybeConvertFetchedData (gone in 4.0, with down-conversion: KIP-724)",
    sentence="A topic with compression.type=zstd is served from v10 on; below, Kafka 3.9 and older refuse it with "
    "UNSUPPORTED_COMPRESSION_TYPE, and 4.0 and newer serve it too.",
    accepted="the records in v10 and the highest version; in v4 and v9 UNSUPPORTED_COMPRESSION_TYPE(76) without records, or "
    "since 4.0 the records",
    draft="the refusal was thought to be owed by every release: Kafka 4.3.1 serves zstd in v4 to v9",
    since="2.1",
)
def zstd_too_early(broker: Broker) -> None:
    topic = broker.topic(configs={"compression.type": "zstd"})
    broker.append(topic, batch(b"x"))
    for version in broker.versions_among(FetchRequest, 4, 9, 10):
        found = broker.fetch(topic, 0, version=version)
        refused = version < 10 and not broker.is_kafka("4.0")
        error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if refused else ErrorCode.NONE
        broker.expect_error(found.error_code, error, what=f"v{version}")
        broker.expect_equal("the records", values(found.records or b""), [] if refused else [b"x"])


@requirement(
    "FET-15",
    notices="none seen: clients decode the records, and ACK-12, ACK-14 and PRD-15 hold what is in them",
    source="LogValidator.assignOffsetsNonCompressed; DefaultRecordBatch.setLastOffset, setPartitionLeaderEpoch",
    sentence="A batch comes back byte for byte as it was sent, apart from base offset and leader epoch (and, under "
    "LogAppendTime, the type bit, the maximum timestamp and the CRC).",
    accepted="equal bytes for all codecs, for an idempotent producer's batch and a transactional-looking key, in every version",
)
def byte_for_byte(broker: Broker) -> None:
    topic = broker.topic()
    written = [Record(b"v" * 40, key=b"k", headers=(("h", None),), timestamp=RECENT_MS + n) for n in (0, 9, 3)]
    producer_id, epoch = broker.producer_id()
    sent = [batch(*written, codec=codec) for codec in codecs(broker).values()]
    sent.append(idempotent(written, producer_id, epoch, 0))
    with about("ACK-12"):
        for data in sent:
            broker.append(topic, data)
    lowest, highest = broker.versions_of(FetchRequest)
    for version in range(min(max(lowest, 10), highest), highest + 1):
        stored = batches(broker.log(topic, version=version))
        broker.expect_equal(f"v{version}: the number of batches", len(stored), len(sent))
        for data, one in zip(sent, stored, strict=True):
            same = one.data == stored_as(data, one)
            broker.expect(same, f"v{version}: the batch at offset {one.base_offset} is as it was sent")
            broker.expect(one.crc_holds, f"v{version}: its CRC holds")
    expected = [3 * number for number in range(len(sent))]
    broker.expect_equal("the base offsets", [one.base_offset for one in stored], expected)


@requirement(
    "FET-16",
    apis={"Metadata": 7},
    notices="misread: Java, franz-go and librdkafka check their position by this epoch after a change of leader",
    source="DefaultRecordBatch.setPartitionLeaderEpoch; KIP-101",
    sentence="The partition leader epoch of a batch is that in which its leader appended it, whatever the client wrote there.",
    accepted="the epoch of Metadata at the time of each append, before and after restarts of the leader",
    hooks=("restart",),
    deadline_s=240,
)
def epoch_of_the_append(broker: Broker) -> None:
    epochs: list[int]
    topic, epochs = broker.topic(), []
    for value in (b"a", b"b", b"c"):
        if epochs:
            broker.restart_leader(topic)
        broker.append(topic, batch(value, partition_leader_epoch=77))
        epochs.append(broker.leader_epoch(topic))
    stored = [one.partition_leader_epoch for one in batches(broker.log(topic))]
    broker.expect_equal("the epochs in the log", stored, epochs)
    broker.expect(epochs == sorted(epochs) and epochs[0] < epochs[-1], f"the leader's epochs grew: {epochs}")


@requirement(
    "FET-18",
    notices="data: a consumer loses or doubles records",
    source="LocalLog.read; KIP-74",
    sentence="A scan of a partition gives every record once, in the order of its offset, whatever the limits of the fetches.",
    accepted="offsets 0, 1, 2 ... and the values in the order of sending, with limits of 1, 300, 1000 and 5000 bytes",
)
def scan_in_order(broker: Broker) -> None:
    expected: list[bytes]
    topic, expected, used = broker.topic(configs={"segment.bytes": "1048576"}), [], list(codecs(broker).values())
    for number in range(60):
        written = [b"%d-%d" % (number, index) for index in range(number % 5 + 1)]
        codec = used[number % len(used)]
        broker.append(topic, batch(*written, codec=codec))
        expected += written
    for limit in (1, 300, 1000, 5000):
        read = list(scan(broker, topic, limit))
        broker.expect_equal(f"limit {limit}: the offsets", [one.offset for one in read], list(range(len(expected))))
        broker.expect([one.value for one in read] == expected, f"limit {limit}: {len(read)} values in order")


def scan(broker: Broker, topic: Topic, limit: int) -> Iterable[Record]:
    """All records as a consumer reads them: fetch after fetch, without the records before the fetch offset."""
    offset = 0
    while True:
        data = bytes(broker.fetch(topic, offset, partition_max_bytes=limit, max_bytes=limit).records or b"")
        if not data:
            return
        yield from (one for one in records(data) if one.offset >= offset)
        offset = next_offset(data)


@requirement(
    "FET-23",
    notices="none seen: clients look at the code first; librdkafka reads the high watermark of followers only",
    source="ReplicaManager.readFromLog (LogReadResult of an error); FetchResponse.partitionResponse",
    sentence="The answer for a partition that cannot be read has no offsets: high watermark, last stable offset and log start "
    "are -1.",
    accepted="-1 for all three that the version has, for an unknown partition and for offsets out of range",
    draft="the answer was thought to carry the high watermark and the log start offset: Kafka 4.3.1 answers -1 for both",
    apis={"Fetch": 4},
)
def no_offsets_beside_an_error(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"a"))
    for version in versions_to_ask(broker):
        for partition, offset in ((7, 0), (0, -1), (0, 5)):
            found = broker.fetch(topic, offset, partition=partition, version=version)
            broker.expect(
                found.error_code != ErrorCode.NONE, f"v{version}, partition {partition}, offset {offset}: refused"
            )
            seen = found.high_watermark, found.last_stable_offset, found.log_start_offset
            broker.expect_equal("high watermark, last stable offset and log start", seen, (-1, -1, -1))


@requirement(
    "FET-24",
    notices="none seen: Java, librdkafka and franz-go read null and an empty list alike",
    source="UnifiedLog.read (addAbortedTransactions); FetchResponse schema (AbortedTransactions, nullable)",
    sentence="The list of aborted transactions is null in a read_uncommitted answer, and empty in a read_committed one without "
    "any.",
    accepted="null and the empty list, for a log without transactions",
    apis={"Fetch": 4},
)
def null_or_empty_list(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"a"))
    for isolation, wanted in ((READ_UNCOMMITTED, None), (READ_COMMITTED, [])):  # pyright: ignore[reportUnknownVariableType]
        found = broker.fetch(topic, 0, isolation=isolation).aborted_transactions
        broker.expect_equal(f"isolation level {isolation}: the list", found, wanted)


@requirement(
    "FET-25",
    notices="none seen: all clients ask for isolation level 0 or 1",
    source="IsolationLevel.forId (IllegalArgumentException)",
    sentence="An isolation level that does not exist is refused: a fetch gives nothing.",
    accepted="UNKNOWN_SERVER_ERROR(-1) without records, for isolation level 2",
    tolerated="a closed connection, as of Kafka 2.4.1",
    apis={"Fetch": 4},
    since="2.8",
)
def unknown_isolation_level(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"a"))
    for version in versions_to_ask(broker):
        try:
            answer = broker.call(fetch_request({(topic, 0): 0}, isolation=2), version, to=broker.leader(topic))
        except Closed:
            broker.tolerate(f"v{version}: the connection was closed")
            continue
        errors = {answer.error_code, *(one.error_code for one in partitions_of(answer))} - {ErrorCode.NONE}
        broker.expect_equal(f"v{version}, the errors", errors, {ErrorCode.UNKNOWN_SERVER_ERROR})
        broker.expect_equal(f"v{version}, the bytes of records", sum(served_bytes(answer).values()), 0)


@requirement(
    "FET-26",
    notices="client: Java, librdkafka and franz-go turn to that node, and come back by way of new metadata",
    source="KIP-392; ReplicaManager.findPreferredReadReplica (replica.selector.class)",
    sentence="A client that names no rack is sent to no other replica.",
    accepted="preferred_read_replica -1, with the records, from v11 on",
    since="2.4",
    apis={"Fetch": 11},
)
def no_preferred_replica(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"a"))
    for version in range(11, broker.version_for(FetchRequest) + 1):
        answer = broker.call(fetch_request({(topic, 0): 0}), version, to=broker.leader(topic))
        found = only(partitions_of(answer), "partition in the answer")
        broker.expect_equal(f"v{version}: the preferred replica", found.preferred_read_replica, -1)
