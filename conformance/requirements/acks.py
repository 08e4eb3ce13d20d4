"""ACK: what an acknowledgement promises, and how records are stored: order, timestamps, compression."""

import time
from contextlib import nullcontext, suppress

from conformance.answers import only
from conformance.batches import (
    CODECS,
    LOG_APPEND_TIME,
    NONE,
    RECENT_MS,
    Record,
    batch,
    batches,
    records,
    stored_as,
    values,
)
from conformance.broker import Broker
from conformance.changes import codecs
from conformance.cluster import QUICK, cluster
from conformance.moments import LAG_MS, in_time
from conformance.requirement import requirement
from conformance.steps import about, directly
from conformance.wire import Misbehaved, NoAnswer, Unreadable
from linearizability.client.requests import Topic, produce_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.primitives import NO_UUID

WITH_LOG_START = 5
"""The first version of Produce whose response has the log start offset (KIP-107)."""
CLOCKS_MS = 60_000
"""The largest accepted difference between the target's clock and the suite's."""
REPLICATED_S = 120.0
"""The deadline of a test with several replicas."""
FREEZES = ("pause", "resume")
ANY_RECORD = (
    Record(b"value", b"key", (("h", b"1"), ("h", b"2"), ("", b""), ("null", None)), RECENT_MS),
    Record(None, b"key", (), RECENT_MS + 7),
    Record(b"", None, (("ü", b"\x00\xff"),), RECENT_MS - 1),
    Record(None, None, (), RECENT_MS),
    Record(b"x" * 5000, b"", (), RECENT_MS + 1),
)
"""Records with all valid kinds of fields: timestamps out of order, null and empty keys and values, repeated header names."""


def contents(read: list[Record]) -> list[tuple[object, ...]]:
    """The contents that a consumer must read: value, key, headers and timestamp of each record."""
    return [(record.value, record.key, record.headers, record.timestamp) for record in read]


@requirement(
    "ACK-01",
    notices="misread: producers report this offset to the application, which stores it or waits for it",
    source="UnifiedLog.append; ProduceResponse schema",
    sentence="An acknowledged batch has its first record at the base offset of the response, its records follow without a gap, "
    "and the next batch begins right after.",
    accepted="base offsets 0, 3, 4 for batches of 3, 1 and 2 records, with acks=1 and acks=-1; each record at its offset",
)
def consecutive_offsets(broker: Broker) -> None:
    for acks in (1, -1):
        topic = broker.topic()
        sizes = ((b"a", b"b", b"c"), (b"d",), (b"e", b"f"))
        bases = [broker.append(topic, batch(*some), acks=acks) for some in sizes]
        broker.expect_equal(f"the base offsets with acks={acks}", bases, [0, 3, 4])
        placed = [(record.offset, record.value) for record in records(broker.log(topic))]
        broker.expect_equal("the records", placed, list(enumerate((b"a", b"b", b"c", b"d", b"e", b"f"))))
        broker.expect_equal("the log end offset", broker.end_offset(topic), 6)


@requirement(
    "ACK-02",
    apis={"Produce": 3},
    notices="stuck: clients with acks=0 take an answer to it as the answer to the next request, and close the connection",
    source="KafkaApis.handleProduceRequest (acks=0)",
    sentence="Produce with acks=0 is stored and never answered: the next thing on the connection is the next request's answer.",
    accepted="no bytes for the produce; the answer to the request after it; the record in the log",
)
def no_answer_to_acks_0(broker: Broker) -> None:
    topic = broker.topic()
    connection = broker.connect(broker.leader(topic))
    version = broker.version_for(ProduceRequest)
    for value in (b"a", b"b", b"c"):
        connection.send(produce_request({(topic, 0): batch(value)}, acks=0), version, awaited=False)
    try:
        broker.metadata([], to=connection)  # refuses an answer that is not its own
    except Unreadable as failure:
        broker.fail(f"an answer to one of the three, or none to the request after them: {failure}")
    broker.expect(connection.is_silent(0.1), "three produces were not answered, the request after them was")
    broker.eventually(lambda: broker.end_offset(topic) == 3, "the three records are in the log")
    broker.expect_equal("the log", values(broker.log(topic)), [b"a", b"b", b"c"])


@requirement(
    "ACK-03",
    notices="data: the close makes clients with acks=0 look for the new leader; without it they send into nothing for ever",
    source="KafkaApis.handleProduceRequest (closeConnection)",
    sentence="Produce with acks=0 that is refused for any partition closes the connection: there is no other way to say so.",
    accepted="closed without an answer, for an unknown partition and for a damaged batch",
)
def close_for_acks_0(broker: Broker) -> None:
    topic = broker.topic()
    for what, bad in {
        "an unknown partition": {(topic, 9): batch(b"x")},
        "a damaged batch": {(topic, 0): batch(b"x", crc=0)},
    }.items():
        connection = broker.connect(broker.leader(topic))
        request = produce_request(bad, acks=0)
        connection.send(request, broker.version_for(ProduceRequest), awaited=False)
        broker.expect_closed(connection, what=f"the connection after {what}")
    broker.expect_equal("the log end offset", broker.end_offset(topic), 0)


@requirement(
    "ACK-10",
    notices="misread: Java's RecordMetadata and every consumer report these timestamps; Streams windows by them",
    source="KIP-32; LogValidator; message.timestamp.type",
    sentence="A CreateTime topic stores the timestamps that were sent and answers log_append_time -1; a LogAppendTime topic "
    "gives the batch the time of its append, sets the type bit and answers that time.",
    accepted="these timestamps, for a plain and for a compressed batch; a clock within a minute of the suite's",
)
def timestamp_types(broker: Broker) -> None:
    sent = 1_700_000_000_000
    for name in ("none", "gzip"):
        data = batch(Record(b"a", timestamp=sent), Record(b"b", timestamp=sent + 5), codec=CODECS[name])
        created = broker.topic()
        broker.expect_equal("log_append_time (CreateTime)", broker.produce(created, data).log_append_time_ms, -1)
        times = [record.timestamp for record in records(broker.log(created))]
        broker.expect_equal(f"{name}: the stored timestamps", times, [sent, sent + 5])
        appended = broker.topic(configs={"message.timestamp.type": "LogAppendTime"})
        before = int(time.time() * 1000)
        answered = broker.produce(appended, data).log_append_time_ms
        after = int(time.time() * 1000)
        broker.expect(
            before - CLOCKS_MS <= answered <= after + CLOCKS_MS, f"{name}: log_append_time is now, within a minute"
        )
        stored = only(batches(broker.log(appended)), "batch in the log")
        broker.expect(
            bool(stored.attributes & LOG_APPEND_TIME), f"{name}: attributes {stored.attributes:#x}, the type bit is set"
        )
        broker.expect_equal("the batch's maximum timestamp", stored.max_timestamp, answered)
        stored.expect_crc()


@requirement(
    "ACK-11",
    notices="operator: the topic's codec decides what a disk holds, and which consumers can read it",
    source="compression.type; LogValidator",
    sentence="compression.type=producer keeps the batch's codec; another one rewrites batches to that codec; consumers see the "
    "same records each time.",
    accepted="for each codec sent (zstd since 2.1, KIP-110): the "
    "codec of the topic in the log, the same records, offsets and timestamps",
)
def topic_compression(broker: Broker) -> None:
    sent = codecs(broker)
    for wanted in ("producer", "uncompressed", *(name for name in sent if name != "none")):
        with broker.case(wanted):
            topic = broker.topic(configs={"compression.type": wanted})
            with about("ACK-12"):
                for codec in sent.values():
                    broker.append(topic, batch(*ANY_RECORD, codec=codec))
            stored = batches(broker.log(topic))
            kept = {"producer": list(sent.values()), "uncompressed": [NONE] * len(sent)}
            expected = kept.get(wanted) or [sent[wanted]] * len(sent)
            found = [one.codec for one in stored for _ in range(one.count)]
            broker.expect_equal("the records' codecs in the log", found, [one for one in expected for _ in ANY_RECORD])
            for one in stored:
                one.expect_crc()
            read = records(broker.log(topic))
            broker.expect(
                contents(read) == contents(list(ANY_RECORD)) * len(sent), f"{len(read)} records are as they were sent"
            )
            broker.expect_equal("their offsets", [record.offset for record in read], list(range(5 * len(sent))))


@requirement(
    "ACK-12",
    notices="data: what consumers get is not what producers sent",
    source="KIP-98 message format; KIP-82 headers; KIP-110 zstd",
    sentence="Batches of every codec bring back keys, values, headers, their order and timestamps as they were sent.",
    accepted="equal records for none, gzip, snappy, lz4 and (since 2.1) zstd, one record a batch and many",
)
def every_codec_comes_back(broker: Broker) -> None:
    many = [
        Record(f"value {number}".encode() * 9, f"{number % 7}".encode(), (), RECENT_MS + number)
        for number in range(500)
    ]
    for name, codec in codecs(broker).items():
        with broker.case(name):
            topic = broker.topic()
            broker.append(topic, batch(*ANY_RECORD, codec=codec))
            broker.append(topic, batch(*many, codec=codec))
            sent, read = [*ANY_RECORD, *many], records(broker.log(topic))
            whole = [one.value or b"" for one in read] == [one.value or b"" for one in sent]
            with directly() if whole else nullcontext():  # all that was sent was read: nothing else is the cause
                broker.expect(contents(read) == contents(sent), f"{len(read)} records are as they were sent")


@requirement(
    "ACK-13",
    notices="client: Java compares it on UNKNOWN_PRODUCER_ID, to distinguish removed records from lost ones",
    source="ProduceResponse schema (LogStartOffset, v5+); KIP-107",
    sentence="From v5 on the response carries the partition's log start offset.",
    accepted="in every version 0 at first, and after DeleteRecords what ListOffsets gives as the earliest offset",
    apis={"Produce": WITH_LOG_START, "DeleteRecords": 0},
)
def log_start_in_the_response(broker: Broker) -> None:
    topic = broker.topic()
    lowest, highest = broker.versions_of(ProduceRequest)

    def expect_in_each(start: int, when: str) -> None:
        for version in range(max(lowest, WITH_LOG_START), highest + 1):
            result = broker.produce(topic, batch(b"a", b"b", b"c"), version=version)
            broker.expect_error(result.error_code, ErrorCode.NONE, what=f"v{version}")
            broker.expect_equal(f"v{version}: the log start offset {when}", result.log_start_offset, start)

    expect_in_each(0, "at first")
    broker.delete_records(topic, 2)
    expect_in_each(broker.start_offset(topic), "after DeleteRecords")


@requirement(
    "ACK-14",
    notices="misread: a null value deletes its key in compacted topics, Streams and Connect; an empty one does not",
    source="DefaultRecord.writeTo",
    sentence="A null value, an empty value, a null key and an empty key are four different things, and stay so.",
    accepted="each of the nine pairs comes back as it was sent, compressed and not",
)
def null_is_not_empty(broker: Broker) -> None:
    pairs = [(key, value) for key in (None, b"", b"k") for value in (None, b"", b"v")]
    known = codecs(broker)
    for name in ("none", list(known)[-1]):
        topic = broker.topic()
        broker.append(topic, batch(*(Record(value, key) for key, value in pairs), codec=known[name]))
        read = [(record.key, record.value) for record in records(broker.log(topic))]
        broker.expect_equal(f"{name}: keys and values", read, pairs)


@requirement(
    "ACK-15",
    notices="stuck: kafka-go uses v2, v3 and v7, librdkafka up to v10, franz-go v13: each needs the version that is reported",
    source="KafkaApis.handleProduceRequest; ProduceRequest schema",
    sentence="Every served version of Produce stores the batch and answers its base offset, by topic name below "
    "v13 and by topic id from it on.",
    accepted="NONE(0) and the next base offset in each version from v3 on; the same bytes in the log each time",
    tolerated="the records in other batches, of which FET-15 speaks",
)
def every_version_stores(broker: Broker) -> None:
    topic = broker.topic()
    lowest, highest = broker.versions_of(ProduceRequest)
    data = batch(b"x")
    for number, version in enumerate(range(max(lowest, 3), highest + 1)):
        named = Topic(topic.name if version < 13 else "", topic.id if version >= 13 else NO_UUID, 1)
        result = broker.produce(named, data, version=version)
        broker.expect_error(result.error_code, ErrorCode.NONE, what=f"v{version}")
        broker.expect_equal(f"v{version}: the base offset", result.base_offset, number)
    log, count = broker.log(topic), highest - max(lowest, 3) + 1
    stored = batches(log)
    broker.expect_equal("the values in the log", values(log), [b"x"] * count)
    if len(stored) != count or any(one.data != stored_as(data, one) for one in stored):
        broker.tolerate(f"{len(stored)} batches are in the log, and not the {count} as they were sent")


@requirement(
    "ACK-04",
    notices="data: acknowledged before all in-sync replicas have it, a record is lost with the leader",
    source="Partition.checkEnoughReplicasReachOffset; DelayedProduce",
    sentence="Produce with acks=-1 is answered once the high watermark is past the batch: a fetch right after it gets the batch.",
    accepted="each of thirty batches from a fetch that does not wait, at the leader of three replicas",
    nodes=3, configs=QUICK, deadline_s=REPLICATED_S,
)  # fmt: skip
def shown_once_acknowledged(broker: Broker) -> None:
    with cluster(broker) as nodes:
        topic = nodes.topic(*nodes.cast(), in_sync=2)
        for number in range(30):
            offset = broker.append(topic, batch(b"%d" % number), acks=-1)
            part = broker.fetch(topic, offset, max_wait_ms=0)
            found = (values(part.records or b""), part.high_watermark)
            broker.expect_equal(
                f"records and high watermark after offset {offset}", found, ([b"%d" % number], offset + 1)
            )


@requirement(
    "ACK-05",
    notices="data: the promise of min.insync.replicas; librdkafka sends again, so what was appended is doubled",
    source="Partition.appendRecordsToLeader; min.insync.replicas",
    sentence="Produce with acks=-1 to a partition with fewer than min.insync.replicas in sync is NOT_ENOUGH_REPLICAS, and "
    "nothing is appended.",
    accepted="NOT_ENOUGH_REPLICAS(19), the same log end offset; NONE(0) once a replica is back",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=REPLICATED_S,
)  # fmt: skip
def not_enough_replicas(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower, in_sync=2)
        nodes.freeze_out(topic, follower, b"a")
        for _ in range(3):
            result = broker.produce(topic, batch(b"refused"), acks=-1)
            broker.expect_error(result.error_code, ErrorCode.NOT_ENOUGH_REPLICAS)
        nodes.resume(follower)
        nodes.await_isr(topic, leader, follower)
        broker.expect_equal("the next base offset", broker.append(topic, batch(b"b"), acks=-1), 1)
        broker.expect_equal("the log", values(broker.log(topic)), [b"a", b"b"])


def expect_kept(broker: Broker, topic: Topic) -> None:
    """Expect the acknowledged record a, and a record c behind it. The record b, which ran out of time, may be between them."""
    end = broker.append(topic, batch(b"c"), acks=1) + 1
    broker.eventually(lambda: broker.end_offset(topic) == end, "the follower has copied the log", within_s=REPLICATED_S)
    log = values(broker.log(topic))
    if log == [b"a", b"c"]:
        broker.tolerate("the record that ran out of time is not stored")
    else:
        broker.expect_equal("the log", log, [b"a", b"b", b"c"])


@requirement(
    "ACK-06",
    notices="data: an acknowledgement from fewer than min.insync.replicas is lost with one more broker",
    source="Partition.checkEnoughReplicasReachOffset; Partition.isUnderMinIsr; DelayedProduce",
    sentence="Produce with acks=-1 that is appended, and of whose replicas fewer than min.insync.replicas stay in sync, is never "
    "acknowledged; whether it stays is open.",
    accepted="since Kafka 4.0 REQUEST_TIMED_OUT(7), before that NOT_ENOUGH_REPLICAS_AFTER_APPEND(20), although the follower that "
    "did not copy it has left the ISR",
    tolerated="the other one of the two; the record is not stored",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=REPLICATED_S,
    draft="the draft knew NOT_ENOUGH_REPLICAS_AFTER_APPEND only; since Kafka 4.0 the high watermark stands still below "
    "min.insync.replicas, so the write runs out of time instead",
)  # fmt: skip
def not_enough_replicas_any_more(broker: Broker) -> None:
    expected, other = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    if not broker.is_kafka("4.0"):
        expected, other = other, expected
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()

        def once() -> bool:
            topic = nodes.topic(leader, follower, in_sync=2)
            first = broker.produce(topic, batch(b"a"), acks=-1)
            if first.error_code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                return False
            broker.expect_error(first.error_code, ErrorCode.NONE, what="the batch before")
            with nodes.paused(follower):
                to = broker.connect(nodes.address(leader), timeout_s=60.0)
                result = broker.produce(topic, batch(b"b"), acks=-1, timeout_ms=3 * LAG_MS, to=to)
                # By a ZooKeeper others learn of a smaller ISR seconds later; this error reports it by itself.
                left = result.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
                left = left or follower not in nodes.state(topic).isr
            if result.error_code == ErrorCode.NOT_ENOUGH_REPLICAS or not left:
                return False
            broker.expect_error(result.error_code, expected, tolerated=[other])
            nodes.await_isr(topic, leader, follower)
            expect_kept(broker, topic)
            return True

        in_time(broker, once)


@requirement(
    "ACK-07",
    notices="stuck: producers with acks=1 stop with the second broker, though Kafka serves them",
    source="Partition.appendRecordsToLeader; documentation, design 4.7",
    sentence="Produce with acks=1 and with acks=0 is not held to min.insync.replicas.",
    accepted="NONE(0) and the next base offset with one of two replicas in sync; every record once the other one is back",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=REPLICATED_S,
)  # fmt: skip
def fewer_for_less(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower, in_sync=2)
        nodes.freeze_out(topic, follower, b"a")
        broker.expect_equal("the base offset with acks=1", broker.append(topic, batch(b"b"), acks=1), 1)
        connection = broker.connect(nodes.address(leader))
        request = produce_request({(topic, 0): batch(b"c")}, acks=0)
        connection.send(request, broker.version_for(request), awaited=False, note="acks=0")
        broker.metadata([], to=connection)
        broker.expect_equal("the next base offset with acks=1", broker.append(topic, batch(b"d"), acks=1), 3)
        nodes.resume(follower)
        broker.eventually(lambda: broker.end_offset(topic) == 4, "all records are visible", within_s=REPLICATED_S)
        broker.expect_equal("the log", values(broker.log(topic)), [b"a", b"b", b"c", b"d"])


@requirement(
    "ACK-08",
    notices="data: acknowledged early, a record is lost with the leader; never answered, the producer waits for its own timeout",
    source="DelayedProduce; ProduceRequest schema (TimeoutMs)",
    sentence="Produce with acks=-1 that a replica in sync does not copy is REQUEST_TIMED_OUT after the request's timeout; "
    "whether the record stays is open.",
    accepted="REQUEST_TIMED_OUT(7) while a follower is frozen and in sync; the record once it goes on",
    tolerated="the record is not stored",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=REPLICATED_S,
)  # fmt: skip
def timed_out(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()

        def once() -> bool:
            topic = nodes.topic(leader, follower)
            broker.append(topic, batch(b"a"))
            with nodes.paused(follower) as moment:
                result = broker.produce(topic, batch(b"b"), acks=-1, timeout_ms=500)
                seen = broker.end_offset(topic)
                if not moment.keeps(nodes, topic, follower):
                    return False
                broker.expect_error(result.error_code, ErrorCode.REQUEST_TIMED_OUT)
                broker.expect_equal("the high watermark", seen, 1)
            expect_kept(broker, topic)
            return True

        in_time(broker, once, failures=2)


@requirement(
    "ACK-09",
    since="3.7",
    notices="client: a topic with fewer replicas than the broker's min.insync.replicas takes no writes with acks=all",
    source="Partition.effectiveMinIsr; KAFKA-15583",
    sentence="A topic with fewer replicas than min.insync.replicas takes writes with acks=-1 once all its replicas are in sync.",
    accepted="NONE(0) and the record in the log, with one replica and min.insync.replicas=2",
)
def fewer_replicas_than_the_minimum(broker: Broker) -> None:
    topic = broker.topic(configs={"min.insync.replicas": "2"})
    result = broker.produce(topic, batch(b"x"), acks=-1)
    broker.expect_error(result.error_code, ErrorCode.NONE, message=result.error_message)
    broker.expect_equal("the log", values(broker.log(topic)), [b"x"])


@requirement(
    "ACK-16",
    apis={"Produce": 3, "Fetch": 4},
    notices="data: clients put all partitions of a broker into one request; one stale leader would lose the others' records",
    source="KafkaApis.handleProduceRequest; ReplicaManager.appendRecords",
    sentence="Of a produce with acks=0 the partitions that are not refused are stored, although the connection is closed for the "
    "one that is.",
    accepted="the other partition's batch in the log, whichever of the two comes first in the request; the connection closed",
)
def the_rest_of_acks_0(broker: Broker) -> None:
    for refused, stored in ((0, 1), (1, 0)):
        topic = broker.topic(2, configs={"max.message.bytes": "500"})
        connection = broker.connect(broker.leader(topic))
        both = {0: batch(b"good"), 1: batch(b"good")} | {refused: batch(bytes(1000))}
        request = produce_request({(topic, partition): data for partition, data in both.items()}, acks=0)
        connection.send(request, broker.version_for(request), awaited=False, note="acks=0")
        broker.expect_closed(connection)
        broker.expect_equal("the other partition's log", values(broker.log(topic, partition=stored)), [b"good"])
        broker.expect_equal("the end of the refused one's", broker.end_offset(topic, refused), 0)


@requirement(
    "ACK-17",
    apis={"Produce": 3, "Fetch": 4},
    notices="data: records that were acknowledged are gone, and so is their topic",
    source="LogManager.loadLogs; documentation, design, message delivery semantics",
    sentence="A topic, and the records in it that were acknowledged, are there after its only broker was stopped and started "
    "again.",
    accepted="the same partitions and, where there are ids, the same id; the same bytes at the same offsets, and the next record "
    "after them",
    hooks=("restart",),
    deadline_s=120,
)
def survives_a_restart(broker: Broker) -> None:
    count = 1 if broker.subject.profile.default_partitions == 1 and not broker.serves(CreateTopicsRequest) else 2
    topic = broker.topic(count)
    for number in range(10):
        for partition in range(count):
            broker.append(topic, batch(b"%d in %d" % (number, partition)), partition=partition)
    before = [broker.log(topic, partition=partition) for partition in range(count)]
    broker.restart_node(broker.leader_id(topic))
    with suppress(NoAnswer):
        broker.eventually(lambda: is_led(broker, topic), "every partition has a leader")
    found = broker.describe_topic(topic.name)
    broker.expect_error(found.error_code, ErrorCode.NONE, what=f"Metadata of {topic.name} after the restart")
    broker.expect_equal("its id and partitions", (found.topic_id, len(found.partitions)), (topic.id, count))
    broker.await_topic(topic.name, count)
    for partition in range(count):
        broker.expect_equal(
            f"the bytes of partition {partition}", broker.log(topic, partition=partition), before[partition]
        )
        broker.expect_equal("the next record's offset", broker.append(topic, batch(b"next"), partition=partition), 10)


def is_led(broker: Broker, topic: Topic) -> bool:
    """Whether Metadata lists a topic with leaders for all its partitions."""
    with suppress(Misbehaved):
        found = broker.describe_topic(topic.name)
        return found.error_code == ErrorCode.NONE and all(one.leader_id >= 0 for one in found.partitions)
    return False
