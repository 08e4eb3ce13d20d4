"""LOF: offsets by timestamp, and the special timestamps: earliest, latest, the largest."""

from typing import Any

from conformance.answers import AnswerParts, only
from conformance.batches import CODECS, RECENT_MS, Record, batch
from conformance.broker import EARLIEST, LATEST, MAX_TIMESTAMP, Broker
from conformance.changes import codecs
from conformance.requirement import requirement
from conformance.steps import built_on
from conformance.transactions import TransactionalProducer
from conformance.wire import Closed, Failed
from linearizability.client.requests import READ_COMMITTED, READ_UNCOMMITTED, Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.list_offsets import ListOffsetsRequest

EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
"""Special timestamps of logs with tiered storage (KIP-405, KIP-1005, KIP-1023)."""
SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""Special timestamp -> the first version of ListOffsets with it; EARLIEST and LATEST are in all versions."""
STAMP = RECENT_MS
"""The time from which the timestamps of these tests are counted."""


def versions_of(broker: Broker, since: int = 1) -> range:
    """The versions that the target serves, from `since` on; v0 has another protocol."""
    lowest, highest = broker.versions_of(ListOffsetsRequest)
    return range(max(lowest, since), highest + 1)


def at(found: Any) -> tuple[int, int]:
    """Offset and timestamp of a result; the timestamp is counted from STAMP unless it is -1."""
    return found.offset, found.timestamp - STAMP if found.timestamp >= 0 else -1


@built_on("LOF-03")
def expect_found(broker: Broker, found: Any, wanted: bool) -> None:
    """Expect that a record is found for a timestamp, or that none is."""
    broker.expect_equal("whether a record is found", found.offset >= 0, wanted)


def expect_at(broker: Broker, topic: Topic, timestamp: int, wanted: tuple[int, int], **options: Any) -> None:
    """Expect this offset and timestamp for a timestamp; both timestamps are counted from STAMP."""
    found = broker.offset_of(topic, timestamp if timestamp < 0 else STAMP + timestamp, **options)
    version = f"v{options['version']}: " if options.get("version") else ""
    broker.expect_error(found.error_code, ErrorCode.NONE, what=f"{version}timestamp {timestamp}")
    broker.expect_equal(f"{version}offset and timestamp for {timestamp}", at(found), wanted)


def expect_offset(broker: Broker, topic: Topic, special: int, wanted: int, **options: Any) -> None:
    """Expect this offset for a special timestamp; clients use no other field of the response."""
    found = broker.offset_of(topic, special, **options)
    version = f"v{options['version']}: " if options.get("version") else ""
    broker.expect_error(found.error_code, ErrorCode.NONE, what=f"{version}timestamp {special}")
    broker.expect_equal(f"{version}offset for {special}", found.offset, wanted)


def stamped(*stamps: int, codec: int = 0) -> bytes:
    """A batch of records with these timestamps, counted from STAMP."""
    return batch(*(Record(b"%d" % stamp, timestamp=STAMP + stamp) for stamp in stamps), codec=codec)


@requirement(
    "LOF-01",
    notices="data: auto.offset.reset=earliest begins here, in every client: too late loses records, too early fails",
    source="UnifiedLog.fetchOffsetByTimestamp",
    sentence="Timestamp -2 gives the log start offset.",
    accepted="in every version 0 for an empty log and for one with records, and the new log start after DeleteRecords",
    apis={"DeleteRecords": 0},
)
def earliest(broker: Broker) -> None:
    topic = broker.topic()
    for version in versions_of(broker):
        expect_offset(broker, topic, EARLIEST, 0, version=version)
    broker.append(topic, stamped(1, 2, 3))
    expect_offset(broker, topic, EARLIEST, 0)
    broker.delete_records(topic, 2)
    for version in versions_of(broker):
        expect_offset(broker, topic, EARLIEST, 2, version=version)


@requirement(
    "LOF-02",
    notices="data: auto.offset.reset=latest begins here, in every client; tools compute lag from it",
    source="Partition.fetchOffsetForTimestamp",
    sentence="Timestamp -1 gives the high watermark; without transactions read_committed gives the same.",
    accepted="in every version 0 for an empty log, and the number of records after each append",
)
def latest(broker: Broker) -> None:
    topic, end = broker.topic(), 0
    for version in versions_of(broker):
        expect_offset(broker, topic, LATEST, end, version=version)
        end = broker.append(topic, stamped(1, 2)) + 2
        expect_offset(broker, topic, LATEST, end, version=version)
        if version >= 2:
            expect_offset(broker, topic, LATEST, end, version=version, isolation=READ_COMMITTED)


@requirement(
    "LOF-03",
    notices="data: offsetsForTimes of every client, and resets by time, begin after records that they should give",
    source="UnifiedLog.fetchOffsetByTimestamp; LogSegment.findOffsetByTimestamp",
    sentence="A timestamp of 0 or more gives the first record whose timestamp is equal or later, with that record's timestamp; "
    "where there is none, offset -1 and timestamp -1 without an error.",
    accepted="the record itself, also within a batch, for all codecs and in every version; (-1, -1) beyond the last and for an "
    "empty log",
)
def by_timestamp(broker: Broker) -> None:
    for name, codec in codecs(broker).items():
        with broker.case(name):
            topic = broker.topic()
            expect_at(broker, topic, 0, (-1, -1))
            broker.append(topic, stamped(10, 20, 30, codec=codec))
            broker.append(topic, stamped(40, 50, codec=codec))
            broker.append(topic, stamped(60, codec=codec))
            for timestamp, wanted in {
                -STAMP: (0, 10),
                9: (0, 10),
                10: (0, 10),
                11: (1, 20),
                20: (1, 20),
                30: (2, 30),
                31: (3, 40),
                50: (4, 50),
                51: (5, 60),
                60: (5, 60),
                61: (-1, -1),
            }.items():
                found = broker.offset_of(topic, STAMP + timestamp)
                broker.expect_error(found.error_code, ErrorCode.NONE, what=f"timestamp {timestamp}")
                broker.expect_equal(f"offset and timestamp for {timestamp}", at(found), wanted)
            for version in versions_of(broker):
                expect_at(broker, topic, 41, (4, 50), version=version)
                expect_at(broker, topic, 61, (-1, -1), version=version)


@requirement(
    "LOF-04",
    notices="tool: kafka-get-offsets --time max-timestamp and Java's Admin show another record",
    source="KIP-734; UnifiedLog.fetchOffsetByTimestamp (MAX_TIMESTAMP)",
    sentence="From v7 on, timestamp -3 gives the record with the largest timestamp, the first of equals, with its timestamp; for "
    "an empty log offset -1 and timestamp -1.",
    accepted="the record itself, in the middle of a batch and of the log, plain and compressed",
    since="3.8",
    apis={"ListOffsets": 7},
)
def largest_timestamp(broker: Broker) -> None:
    for name in ("none", "gzip"):
        with broker.case(name):
            topic = broker.topic()
            for version in versions_of(broker, SINCE_VERSION[MAX_TIMESTAMP]):
                expect_at(broker, topic, MAX_TIMESTAMP, (-1, -1), version=version)
            for stamps, wanted in (
                ((29, 30, 20), (1, 30)),
                ((5, 6), (1, 30)),
                ((30, 30), (1, 30)),
                ((40, 90, 90, 60), (8, 90)),
                ((1,), (8, 90)),
            ):
                broker.append(topic, stamped(*stamps, codec=CODECS[name]))
                expect_at(broker, topic, MAX_TIMESTAMP, wanted)


@requirement(
    "LOF-05",
    notices="tool: kafka-get-offsets --time earliest-local shows an error where there is no tiered storage",
    source="KIP-405, KIP-1005, KIP-1023; UnifiedLog.fetchOffsetByTimestamp",
    sentence="Without tiered storage, timestamp -4 (v8+) gives the log start offset, and -5 (v9+) and -6 (v11+) give offset -1.",
    accepted="the same as for -2; -1; in every version from that on",
    apis={"ListOffsets": 8, "DeleteRecords": 0},
)
def without_tiers(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, stamped(1, 2, 3))
    for start in (0, 1):
        for version in versions_of(broker, SINCE_VERSION[EARLIEST_LOCAL]):
            expect_offset(broker, topic, EARLIEST_LOCAL, start, version=version)
        for timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            for version in versions_of(broker, SINCE_VERSION[timestamp]):
                expect_offset(broker, topic, timestamp, -1, version=version)
        broker.delete_records(topic, 1)


@requirement(
    "LOF-06",
    notices="tool: kafka-get-offsets shows an offset that means something else, where this is no error",
    source="ReplicaManager.isListOffsetsTimestampUnsupported",
    sentence="A special timestamp that the request's version does not have yet, or that no version has, is UNSUPPORTED_VERSION "
    "for its partition; the other partitions are answered.",
    accepted="UNSUPPORTED_VERSION(35) and offset -1 for -3 below v7, -4 below v8, -5 below v9, -6 below v11, and -99 in every "
    "version",
    tolerated="another offset beside the error: clients look at the error first",
    since="3.9",
)
def special_too_early(broker: Broker) -> None:
    topic = broker.topic(2)
    for partition in range(2):
        broker.append(topic, stamped(1), partition=partition)
    for version in versions_of(broker):
        for timestamp in (*SINCE_VERSION, -99):
            if version >= SINCE_VERSION.get(timestamp, 1000):
                continue
            what = f"v{version}, timestamp {timestamp}"
            by_partition = answered(ask(broker, topic, [(0, timestamp), (1, LATEST)], version))
            bad, other = by_partition[0], by_partition[1]
            broker.expect_error(bad.error_code, ErrorCode.UNSUPPORTED_VERSION, what=what)
            tolerate_offset(broker, bad, what)
            broker.expect_equal(f"{what}: the other partition", (other.error_code, other.offset), (ErrorCode.NONE, 1))


def ask(broker: Broker, topic: Topic, wanted: list[tuple[int, int]], version: int | None = None) -> list[Any]:
    """The results of ListOffsets for pairs (partition, timestamp) of a topic; pairs may be repeated."""
    table = ListOffsetsRequest.ListOffsetsPartition
    partitions = [table(partition_index=partition, timestamp=timestamp) for partition, timestamp in wanted]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic.name, partitions=partitions)]
    )
    answer = broker.call(request, version, to=broker.leader(topic))
    return [partition for one in answer.topics for partition in one.partitions]


def answered(answers: list[Any]) -> AnswerParts[int, Any]:
    """The results by partition. Errors: Failed if a partition has several."""
    numbers = [one.partition_index for one in answers]
    if len(set(numbers)) != len(numbers):
        raise Failed(f"a partition has several results (partitions {numbers})")
    return AnswerParts({one.partition_index: one for one in answers})


def tolerate_offset(broker: Broker, found: Any, what: str) -> None:
    """Note an offset beside an error, where Kafka gives -1."""
    if found.offset != -1:
        broker.tolerate(f"{what}: the offset beside the error is {found.offset}")


@requirement(
    "LOF-07",
    notices="none seen: clients build requests from maps, with each partition once",
    source="ReplicaManager.fetchOffset (duplicatePartitions)",
    sentence="A partition that a request names twice is INVALID_REQUEST; the other partitions are answered.",
    accepted="INVALID_REQUEST(42) and offset -1 for each answer to it, at least one; NONE(0) for the other",
    tolerated="another offset beside the error: clients look at the error first",
)
def named_twice(broker: Broker) -> None:
    topic = broker.topic(2)
    for partition in range(2):
        broker.append(topic, stamped(1), partition=partition)
    for version in versions_of(broker):
        for timestamps in ((LATEST, LATEST), (EARLIEST, LATEST)):
            wanted = [(0, timestamps[0]), (1, LATEST), (0, timestamps[1])]
            answer = ask(broker, topic, wanted, version)
            doubled = [one for one in answer if one.partition_index == 0]
            broker.expect(bool(doubled), f"v{version}: {len(doubled)} answers for the partition named twice")
            for one in doubled:
                broker.expect_error(one.error_code, ErrorCode.INVALID_REQUEST, what=f"v{version}")
                tolerate_offset(broker, one, f"v{version}")
            other = only([one for one in answer if one.partition_index == 1], "answer for the other partition")
            broker.expect_equal("the other partition", (other.error_code, other.offset), (ErrorCode.NONE, 1))


@requirement(
    "LOF-10",
    notices="client: Java begins to fetch with this epoch; without it lost records go unnoticed until the next batch",
    source="KIP-320; KAFKA-7568; ListOffsetsResponse schema (LeaderEpoch, v4+)",
    since="2.2",
    sentence="From v4 on the answer has the leader epoch of the offset: the current one at the end of the log, the batch's for a "
    "record, -1 where nothing was found.",
    accepted="the epoch that Metadata gives for -1, -2 and a record; -1 for a timestamp beyond the last",
    apis={"ListOffsets": 4},
)
def leader_epoch_of_an_offset(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, stamped(1, 2))
    epoch = broker.leader_epoch(topic)
    for version in versions_of(broker, 4):
        for timestamp, wanted in ((LATEST, epoch), (EARLIEST, epoch), (STAMP + 2, epoch), (STAMP + 3, -1)):
            found = broker.offset_of(topic, timestamp, version=version)
            expect_found(broker, found, wanted >= 0)
            broker.expect_equal(f"v{version}: the leader epoch for {timestamp}", found.leader_epoch, wanted)


@requirement(
    "LOF-11",
    notices="data: a consumer that begins at the end passes over a record, or is set back",
    source="Partition.fetchOffsetForTimestamp (high watermark)",
    sentence="The latest offset never goes back, and is never beyond the next record's offset.",
    accepted="over 50 appends in turn, before each: at least the last one, at most the base offset of the append; after an "
    "acknowledgement beyond its records",
)
def latest_only_grows(broker: Broker) -> None:
    topic, before = broker.topic(), 0
    for number in range(50):
        asked = broker.end_offset(topic)
        base = broker.append(topic, batch(*[b"x"] * (number % 3 + 1)), acks=(-1, 1)[number % 2])
        after = broker.end_offset(topic)
        if not before <= asked <= base:
            broker.fail(f"latest was {asked} after {before}, and the next record got offset {base}")
        if after < base + number % 3 + 1:
            broker.fail(f"latest is {after} after a record at {base + number % 3} was acknowledged")
        before = after
    broker.saw(f"latest grew up to {before}")


@requirement(
    "LOF-12",
    notices="data: a search by time passes over records that are late enough",
    source="LogSegment.findOffsetByTimestamp; FileRecords.searchForTimestamp",
    sentence="Where timestamps repeat or go back, the first record by position that is late enough is given, not the one nearest "
    "in time.",
    accepted="the first by position, within a batch and over batches, plain and compressed",
)
def first_by_position(broker: Broker) -> None:
    for name in ("none", "lz4"):
        with broker.case(name):
            topic = broker.topic()
            for stamps in ((10, 10, 10), (50, 20), (30, 40), (50, 50), (60, 5), (55,)):
                broker.append(topic, stamped(*stamps, codec=CODECS[name]))
            for timestamp, wanted in {
                1: 0,
                10: 0,
                11: 3,
                20: 3,
                30: 3,
                50: 3,
                51: 9,
                55: 9,
                61: -1,
            }.items():
                found = broker.offset_of(topic, STAMP + timestamp)
                expect_found(broker, found, wanted >= 0)
                broker.expect_equal(f"the offset for {timestamp}", found.offset, wanted)


@requirement(
    "LOF-13",
    notices="data: Streams and read_committed consumers take this for the end: beyond it they wait for what may be aborted",
    source="KIP-98; Partition.fetchOffsetForTimestamp (lastFetchableOffset)",
    sentence="While a transaction is open, read_committed sees the log end at the last stable offset: -1 gives that, and no "
    "record from it on is found.",
    accepted="the offset of the transaction's first record; (-1, -1) for its timestamps and for -3; all as usual with "
    "read_uncommitted and after the commit",
    tolerated="another answer for -3: tools ask for it, and no consumer (LOF-04)",
    apis={"AddPartitionsToTxn": 0, "EndTxn": 0},
)
def last_stable_offset(broker: Broker) -> None:
    topic = broker.topic()
    producer = TransactionalProducer(broker)
    broker.append(topic, stamped(10))
    stable = producer.append(topic, Record(b"open", timestamp=STAMP + 20))
    broker.append(topic, stamped(30))
    for version in versions_of(broker, 2):
        expect_offset(broker, topic, LATEST, stable, version=version, isolation=READ_COMMITTED)
        expect_offset(broker, topic, LATEST, 3, version=version)
    for timestamp, committed, uncommitted in (
        (10, (0, 10), (0, 10)),
        (11, (-1, -1), (1, 20)),
        (30, (-1, -1), (2, 30)),
    ):
        expect_at(broker, topic, timestamp, committed, isolation=READ_COMMITTED)
        expect_at(broker, topic, timestamp, uncommitted)
    if versions_of(broker)[-1] >= SINCE_VERSION[MAX_TIMESTAMP]:
        for isolation, wanted in ((READ_COMMITTED, (-1, -1)), (READ_UNCOMMITTED, (2, 30))):
            seen = at(broker.offset_of(topic, MAX_TIMESTAMP, isolation=isolation))
            if seen != wanted:
                broker.tolerate(f"offset and timestamp for -3, isolation level {isolation}: {seen}, not {wanted}")
    producer.commit()
    expect_offset(broker, topic, LATEST, 4, isolation=READ_COMMITTED)
    expect_at(broker, topic, 30, (2, 30), isolation=READ_COMMITTED)


@requirement(
    "LOF-14",
    apis={"Metadata": 4},
    notices="client: Java renews metadata and asks again on this code; librdkafka gives up at once",
    source="KafkaApis.handleListOffsetRequest",
    sentence="An unknown topic or partition is UNKNOWN_TOPIC_OR_PARTITION, and no topic is created; the other partitions are "
    "answered.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3) and offset -1 in every version; Metadata does not know the topic afterwards",
    tolerated="another offset beside the error: clients look at the error first",
)
def unknown_topic_or_partition(broker: Broker) -> None:
    topic = broker.topic()
    nowhere = Topic(broker.unused_name(), topic.id, 1)
    for version in versions_of(broker):
        by_partition = answered(ask(broker, topic, [(7, LATEST), (0, LATEST)], version))
        bad, other = by_partition[7], by_partition[0]
        broker.expect_error(bad.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=f"v{version}, a partition")
        tolerate_offset(broker, bad, f"v{version}, a partition")
        broker.expect_equal("the other partition", (other.error_code, other.offset), (ErrorCode.NONE, 0))
        bad = only(ask(broker, nowhere, [(0, LATEST)], version), "answer")
        broker.expect_error(bad.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=f"v{version}, a topic")
    found = broker.describe_topic(nowhere.name)
    broker.expect_error(found.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what="Metadata of that topic")


@requirement(
    "LOF-15",
    notices="none seen: all clients ask for isolation level 0 or 1",
    source="IsolationLevel.forId (IllegalArgumentException)",
    sentence="An isolation level that does not exist is refused.",
    accepted="UNKNOWN_SERVER_ERROR(-1) for isolation level 2, in each version with the field",
    tolerated="a closed connection, as of Kafka 2.4.1",
    apis={"ListOffsets": 2},
    since="2.8",
)
def unknown_isolation_level(broker: Broker) -> None:
    topic = broker.topic()
    for version in versions_of(broker, 2):
        try:
            found = broker.offset_of(topic, LATEST, version=version, isolation=2)
        except Closed:
            broker.tolerate(f"v{version}: the connection was closed")
            continue
        broker.expect_error(found.error_code, ErrorCode.UNKNOWN_SERVER_ERROR, what=f"v{version}, isolation level 2")


@requirement(
    "LOF-16",
    notices="none seen: clients and tools take the offset alone",
    source="UnifiedLog.fetchOffsetByTimestamp (RecordBatch.NO_TIMESTAMP)",
    sentence="What is found for timestamps -2 and -1 has timestamp -1.",
    accepted="-1 in every version with the field, for an empty log and for one with records",
)
def timestamp_of_special_offsets(broker: Broker) -> None:
    topic = broker.topic()
    for records in (0, 3):
        if records:
            broker.append(topic, stamped(1, 2, 3))
        for version in versions_of(broker):
            for special in (EARLIEST, LATEST):
                found = broker.offset_of(topic, special, version=version)
                what = f"v{version}: timestamp of what is found for {special}, {records} records"
                broker.expect_equal(what, found.timestamp, -1)
