"""CMP: compaction. The last record of each key is kept at its offset; these requirements say when other records are removed."""

from conformance.answers import only
from conformance.batches import CONTROL, Record, batch, batches, idempotent, records
from conformance.broker import Broker
from conformance.changes import codecs
from conformance.readiness import serves
from conformance.requirement import requirement
from conformance.requirements.idempotence import KNOWN_ALREADY
from conformance.requirements.retention import HOUR_MS, MINUTE_MS, now_ms
from conformance.transactions import TransactionalProducer
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_records import DeleteRecordsRequest

CLEANS_OFTEN = {"log.cleaner.backoff.ms": "100"}
"""How often the broker looks for logs to compact; the default is 15 s."""
REMEMBERS_PRODUCERS = {"producer.id.expiration.ms": "86400000"}
"""Kafka's default, so that the short expiration that another requirement sets does not apply here."""
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": str(MINUTE_MS)}
"""Any dirty log is compacted; a record more than a minute younger than the segment's first one begins a new segment."""
STEP_MS = 2 * MINUTE_MS
"""The difference between the timestamps of two records in consecutive segments."""

Pair = tuple[bytes, bytes | None]
"""A key and a value."""


def compacted(broker: Broker, **configs: str) -> Topic:
    """A topic that is compacted as soon as a segment is closed; names of configs have underscores in place of dots."""
    return broker.topic(configs=COMPACTED | {name.replace("_", "."): value for name, value in configs.items()})


def each_in_its_segment(broker: Broker, topic: Topic, *pairs: Pair, youngest_ms: int | None = None) -> int:
    """Append each pair as a batch in its own segment; the last segment is active. Return the last batch's base offset."""
    last = now_ms() if youngest_ms is None else youngest_ms
    base = -1
    for number, (key, value) in enumerate(pairs, 1 - len(pairs)):
        base = broker.append(topic, batch(Record(value, key, timestamp=last + number * STEP_MS)))
    return base


def found(broker: Broker, topic: Topic, start: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of all records from `start` on."""
    return [(one.offset, one.key, one.value) for one in records(broker.log(topic, offset=start)) if one.offset >= start]


def offsets(broker: Broker, topic: Topic) -> list[int]:
    """The offsets of all records. No compaction takes all: a log that seems empty is read again."""
    seen = found(broker, topic) or found(broker, topic)
    return [offset for offset, _, _ in seen]


def expect_offsets(broker: Broker, topic: Topic, wanted: list[int], what: str) -> None:
    """Wait until exactly the records at these offsets are left."""
    broker.eventually(lambda: len(offsets(broker, topic)) <= len(wanted), f"{what}: {len(wanted)} records are left")
    broker.expect_equal(f"{what}: the offsets that are left", offsets(broker, topic), wanted)


class Watch:
    """Waits until the broker has compacted all dirty logs, by superseding a record in a separate topic."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topic = compacted(broker)
        self._time_ms = now_ms() - HOUR_MS

    def wait(self) -> None:
        """Wait until the broker has compacted the separate topic twice."""
        for _ in range(2):
            self._time_ms += 2 * STEP_MS
            compact_once_more(self.broker, self.topic, self._time_ms)


@requirement(
    "CMP-01",
    notices="data: a table that is read from the log lacks keys, or has old values",
    source="documentation, Log Compaction; LogCleaner",
    sentence="After compaction the last record of each key is there, with its offset, timestamp, headers and value; what is "
    "left stands in its old order; compressed batches stay compressed by their codec.",
    accepted="of records of three keys in several segments the last of each key, and what is in the active segment; the same "
    "of batches of three keys with each codec",
    configs=CLEANS_OFTEN,
    deadline_s=60,
)
def the_last_of_each_key(broker: Broker) -> None:
    topic = compacted(broker)
    pairs: list[Pair] = [(b"abcab"[number % 5 :][:1], b"%d" % number) for number in range(12)]
    each_in_its_segment(broker, topic, *pairs, (b"z", b"end"))
    last = {key: offset for offset, (key, _) in enumerate(pairs)}
    wanted = sorted([*last.values(), len(pairs)])
    expect_offsets(broker, topic, wanted, "three keys")
    stays = [(offset, *(*pairs, (b"z", b"end"))[offset]) for offset in wanted]
    broker.expect_equal("the records that are left", found(broker, topic), stays)
    for name, codec in codecs(broker).items():
        with broker.case(name):
            thinned(broker, codec)


def thinned(broker: Broker, codec: int) -> None:
    """Compact two batches with the keys a, b, c and b, c, d, and judge the result: the first keeps its first record only."""
    topic, old = compacted(broker), now_ms() - HOUR_MS
    kept = [Record(b"1" * 50, b"a", (("h", b"x"), ("n", None)), old), Record(b"2" * 50, b"d", (), old + 2 * STEP_MS)]
    first = [kept[0], *(Record(b"superseded", key, (), old + 5) for key in (b"b", b"c"))]
    second = [*(Record(b"stays", key, (), old + STEP_MS) for key in (b"b", b"c")), kept[1]]
    for written in (first, second):
        broker.append(topic, batch(*written, codec=codec))
    broker.append(topic, batch(Record(b"end", b"z")))
    expect_offsets(broker, topic, [0, 3, 4, 5, 6], "two batches")
    left = batches(broker.log(topic))
    kept_as = [one.codec for one in left for _ in range(one.count)]
    broker.expect_equal("the codecs of the records", kept_as, [codec, codec, codec, codec, 0])
    broker.expect(all(one.crc_holds for one in left), "the checksums of the batches hold")
    seen = [(one.value, one.headers, one.timestamp) for one in records(broker.log(topic)) if one.offset in (0, 5)]
    broker.expect_equal("values, headers, timestamps", seen, [(one.value, one.headers, one.timestamp) for one in kept])


@requirement(
    "CMP-02",
    notices="none seen: consumers at the head are safe by CMP-05, and others expect compaction",
    source="documentation, Log Compaction; LogCleanerManager.cleanableOffsets",
    sentence="The active segment is not compacted.",
    accepted="three records of one key in the active segment stay while others are compacted; in a closed segment the first "
    "two of them go",
    configs=CLEANS_OFTEN,
    deadline_s=60,
)
def the_active_segment_stays(broker: Broker) -> None:
    topic = compacted(broker)
    now = now_ms()
    for value in (b"1", b"2", b"3"):
        broker.append(topic, batch(Record(value, b"k", timestamp=now)))
    Watch(broker).wait()
    broker.expect_equal("the offsets in the active segment", offsets(broker, topic), [0, 1, 2])
    broker.append(topic, batch(Record(b"end", b"z", timestamp=now + STEP_MS)))
    expect_offsets(broker, topic, [2, 3], "once the segment is closed")


@requirement(
    "CMP-03",
    notices="data: consumers that are behind by less than the lag miss records, as the documentation promises them",
    source="min.compaction.lag.ms; LogCleanerManager.cleanableOffsets",
    sentence="A segment with a record younger than min.compaction.lag.ms is not compacted, nor is anything behind it.",
    accepted="with a lag of an hour a record of three hours ago, superseded two hours ago, goes; superseded ones of half an hour "
    "ago stay",
    configs=CLEANS_OFTEN,
    deadline_s=60,
)
def young_records_stay(broker: Broker) -> None:
    topic = compacted(broker, min_compaction_lag_ms=str(HOUR_MS))
    now = now_ms()
    ages = (3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS // 2, HOUR_MS // 3, 0)
    for number, age in enumerate(ages):
        broker.append(topic, batch(Record(b"%d" % number, b"k", timestamp=now - age)))
    expect_offsets(broker, topic, [1, 2, 3, 4], "a lag of an hour")
    Watch(broker).wait()
    broker.expect_equal("the offsets later", offsets(broker, topic), [1, 2, 3, 4])


@requirement(
    "CMP-04",
    notices="data: a table that is read again keeps keys that were deleted",
    source="KIP-534; delete.retention.ms; Cleaner.shouldRetainRecord",
    sentence="A record without a value removes the earlier ones of its key, and stays itself for delete.retention.ms from the "
    "first compaction that meets it on; a later compaction removes it.",
    accepted="with delete.retention.ms of a day the tombstone is there after three compactions; with 100 it goes (since 3.1; "
    "before KIP-534 it could stay for ever, KAFKA-8522)",
    configs=CLEANS_OFTEN,
    deadline_s=90,
)
def tombstones_stay_for_a_time(broker: Broker) -> None:
    long, short = compacted(broker), compacted(broker, delete_retention_ms="100")
    old = now_ms() - HOUR_MS
    for topic in (long, short):
        each_in_its_segment(
            broker, topic, (b"gone", b"1"), (b"gone", None), (b"k", b"2"), (b"k", b"3"), youngest_ms=old
        )
    expect_offsets(broker, long, [1, 2, 3], "the first compaction")
    for number in range(1, 4):
        compact_once_more(broker, long, old + number * HOUR_MS // 4)
    broker.expect((1, b"gone", None) in found(broker, long), "the tombstone is there after three more")
    if not broker.is_kafka("3.1"):  # KAFKA-8522: until then a tombstone could stay for ever
        return
    number = 0

    def is_gone() -> bool:
        nonlocal number
        number += 1
        compact_once_more(broker, short, old + number * 2 * STEP_MS)
        return 1 not in offsets(broker, short)

    broker.eventually(is_gone, "with delete.retention.ms of 100 the tombstone is removed", within_s=40)


def compact_once_more(broker: Broker, topic: Topic, time_ms: int) -> None:
    """Supersede a record and wait until it is removed: by then the log has been compacted."""
    base = broker.append(topic, batch(Record(b"old", b"again", timestamp=time_ms)))
    for number in (1, 2):
        broker.append(topic, batch(Record(b"new", b"again", timestamp=time_ms + number * STEP_MS // 2 + number)))
    broker.eventually(lambda: base not in offsets(broker, topic), "a superseded record is removed")


@requirement(
    "CMP-05",
    notices="data: a consumer at the head misses changes of its keys",
    source="documentation, Log Compaction (guarantees)",
    sentence="A consumer that keeps up with the head of the log sees every record.",
    accepted="a consumer that reads after each of 30 records of two keys, in as many segments, gets all of them, while "
    "what it has read is compacted behind it",
    configs=CLEANS_OFTEN,
    deadline_s=60,
)
def who_keeps_up_sees_all(broker: Broker) -> None:
    topic = compacted(broker)
    seen: list[tuple[int, bytes | None, bytes | None]] = []
    start = now_ms() - 30 * STEP_MS
    for number in range(30):
        value = b"%d" % number
        broker.append(topic, batch(Record(value, b"ab"[number % 2 :][:1], timestamp=start + number * STEP_MS)))
        seen += found(broker, topic, number)
    broker.expect_equal("what the consumer saw", [offset for offset, _, _ in seen], list(range(30)))
    broker.expect_equal("the values", [value for _, _, value in seen], [b"%d" % number for number in range(30)])
    expect_offsets(broker, topic, [27, 28, 29], "in the end")


@requirement(
    "CMP-06",
    notices="stuck: consumers at such an offset are refused, or reset by auto.offset.reset",
    source="documentation, Log Compaction; UnifiedLog.read",
    sentence="All offsets stay valid: a fetch at one whose record was compacted away gives the next record that is left.",
    accepted="a fetch at each offset of a compacted log begins with the first record left from there on, without an error",
    configs=CLEANS_OFTEN,
    deadline_s=60,
)
def removed_offsets_are_valid(broker: Broker) -> None:
    topic = compacted(broker)
    last = each_in_its_segment(broker, topic, *[(b"aabaacaab"[n : n + 1], b"%d" % n) for n in range(9)], (b"z", b"end"))
    broker.eventually(
        lambda: 7 in offsets(broker, topic) and 0 not in offsets(broker, topic), "superseded records are removed"
    )
    left = [5, 7, 8, 9]
    expect_offsets(broker, topic, left, "three keys")
    for offset in range(last + 1):
        answer = broker.fetch(topic, offset)
        broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"a fetch at {offset}")
        first = next((one.offset for one in records(bytes(answer.records or b"")) if one.offset >= offset), None)
        broker.expect_equal(f"the first record from {offset} on", first, next(each for each in left if each >= offset))


@requirement(
    "CMP-07",
    notices="operator: changelogs of Streams' windowed stores grow without an end",
    source="cleanup.policy; LogCleaner, UnifiedLog.deleteOldSegments; DeleteRecords",
    sentence="With cleanup.policy=compact,delete superseded records go, and so do segments older than retention.ms; "
    "DeleteRecords is allowed, which it is not with compact alone.",
    accepted="with compact,delete a last record of three hours ago goes under retention.ms of an hour, a superseded one of "
    "minutes ago goes too, and DeleteRecords moves the start; with compact alone DeleteRecords gets POLICY_VIOLATION",
    configs=CLEANS_OFTEN,
    apis={"DeleteRecords": 0},
    deadline_s=60,
)
def both_policies(broker: Broker) -> None:
    both = compacted(broker, cleanup_policy="compact,delete", retention_ms=str(HOUR_MS))
    now = now_ms()
    for key, age in ((b"old", 3 * HOUR_MS), (b"k", HOUR_MS // 2)):
        broker.append(both, batch(Record(b"v", key, timestamp=now - age)))
    # Wait before a second segment closes: compaction would join both, and the joined segment would be as young as that one.
    broker.eventually(lambda: broker.start_offset(both) >= 1, "the segment of three hours ago is removed")
    for key, age in ((b"k", HOUR_MS // 3), (b"z", 0)):
        broker.append(both, batch(Record(b"v", key, timestamp=now - age)))
    broker.eventually(
        lambda: [offset for offset, _, _ in found(broker, both, 1)] == [2, 3], "the superseded record is removed"
    )
    broker.expect_equal("the low watermark after DeleteRecords up to 3", broker.delete_records(both, 3), 3)
    broker.expect_equal("the log start offset", broker.start_offset(both), 3)
    only_compact = compacted(broker)
    each_in_its_segment(broker, only_compact, (b"a", b"1"), (b"b", b"2"))
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1)
    asked = DeleteRecordsRequest.DeleteRecordsTopic(name=only_compact.name, partitions=[partition])
    answer = broker.call(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), to=broker.leader(only_compact))
    result = only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")
    broker.expect_error(result.error_code, ErrorCode.POLICY_VIOLATION, what="DeleteRecords with compact alone")


@requirement(
    "CMP-08",
    notices="data: aborted records count, or transactional ones wait for a marker that is gone",
    source="KIP-98; KIP-534; Cleaner.shouldDiscardBatch, CleanedTransactionMetadata",
    sentence="Records of aborted transactions are removed; a transaction's marker is removed only after all of its records and "
    "delete.retention.ms, and stays as long as one of them.",
    accepted="the record of an aborted transaction goes though it is its key's last; its marker is there with "
    "delete.retention.ms of a day and goes with 100 (since 3.1, KIP-534); the marker of a committed one stays with its record",
    configs=CLEANS_OFTEN,
    deadline_s=120,
)
def aborted_records_go(broker: Broker) -> None:
    long, short = compacted(broker), compacted(broker, delete_retention_ms="100")
    producer = TransactionalProducer(broker)
    for topic in (long, short):
        producer.append(topic, Record(b"aborted", b"a"))
        producer.abort()
        producer.append(topic, Record(b"committed", b"c"))
        producer.commit()
    start = now_ms()
    for topic in (long, short):
        broker.expect_equal("offsets of records and markers", all_offsets(broker, topic), [0, 1, 2, 3])
        each_in_its_segment(broker, topic, (b"k", b"1"), (b"k", b"2"), youngest_ms=start + 2 * STEP_MS)
        broker.eventually(lambda topic=topic: 0 not in all_offsets(broker, topic), "the aborted record is removed")
    for number in range(1, 4):
        compact_once_more(broker, long, start + 3 * number * STEP_MS)
    broker.expect_equal("the markers with a day's retention", markers(broker, long), [1, 3])
    if not broker.is_kafka("3.1"):  # KAFKA-8522: until then a marker could stay for ever
        return
    number = 0

    def is_gone() -> bool:
        nonlocal number
        number += 1
        compact_once_more(broker, short, start + 3 * number * STEP_MS)
        return 1 not in markers(broker, short)

    broker.eventually(
        is_gone, "with delete.retention.ms of 100 the marker of the aborted transaction is removed", within_s=60
    )
    broker.expect_equal("the markers that are left", markers(broker, short), [3])
    broker.expect((2, b"c", b"committed") in found(broker, short), "the committed record is left")


def all_offsets(broker: Broker, topic: Topic) -> list[int]:
    """The offsets of all records, markers among them."""
    return [record.offset for one in batches(broker.log(topic)) for record in one.records()]


def markers(broker: Broker, topic: Topic) -> list[int]:
    """The offsets of the markers."""
    return [record.offset for one in batches(broker.log(topic)) if one.attributes & CONTROL for record in one.records()]


def expect_known(broker: Broker, topic: Topic, first: bytes, what: str) -> None:
    """Require that the log's first batch, sent again, is known."""
    result = broker.produce(topic, first)
    broker.expect_error(result.error_code, ErrorCode.NONE, tolerated=KNOWN_ALREADY, what=what)
    if result.error_code == ErrorCode.NONE:
        broker.expect_equal(f"the base offset of {what}", result.base_offset, 0)


@requirement(
    "CMP-09",
    notices="data: a producer's batch is stored twice, or its next one refused",
    source="Cleaner.cleanInto (isBatchLastRecordOfProducer)",
    sentence="A producer's last batch keeps its sequence numbers when its records are compacted away: a repeated batch is known "
    "again, and the next one fits, also after a restart.",
    accepted="the batch that was compacted away is answered with its old offset and appended no second time, before and after "
    "a restart in good order; the batch that follows it is taken, one that does not is refused",
    tolerated="DUPLICATE_SEQUENCE_NUMBER(46), which clients take as success, without an offset",
    configs={**CLEANS_OFTEN, **REMEMBERS_PRODUCERS},
    hooks=("restart",),
    deadline_s=120,
)
def producers_are_known_again(broker: Broker) -> None:
    topic = compacted(broker)
    id, epoch = broker.producer_id()
    now = now_ms()
    mine = idempotent([Record(b"mine", b"k", timestamp=now)], id, epoch, 0)
    broker.append(topic, mine)
    each_in_its_segment(broker, topic, (b"k", b"other"), (b"z", b"end"), youngest_ms=now + 2 * STEP_MS)
    expect_offsets(broker, topic, [1, 2], "a producer's only record")
    expect_known(broker, topic, mine, "the repeated batch")
    broker.expect_equal("the log end offset", broker.end_offset(topic), 3)
    leader = only(broker.describe_topic(topic.name).partitions, "partition").leader_id
    broker.target.restart(leader)
    broker.eventually(lambda: serves(broker, topic), "the partition is served again", within_s=60)
    expect_known(broker, topic, mine, "the repeated batch after a restart")
    broker.expect_equal("the log end offset after a restart", broker.end_offset(topic), 3)
    wrong = broker.produce(topic, idempotent([Record(b"x", b"k")], id, epoch, 5))
    broker.expect_error(wrong.error_code, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, what="sequence number 5 after 0")
    following = idempotent([Record(b"next", b"k", timestamp=now)], id, epoch, 1)
    broker.expect_equal("the base offset of the following batch", broker.append(topic, following), 3)


@requirement(
    "CMP-10",
    notices="misread: an offset is used twice, and consumers read another record at their position",
    source="Cleaner.cleanInto (the last batch of a round is kept, even if empty)",
    sentence="Compaction changes neither the log start offset nor the end: high watermark, log end offset and the next record's "
    "offset are what they were.",
    accepted="the same start and end before and after compaction, though the record at the start and those before the active "
    "segment are gone; the next record gets the next offset",
    configs=CLEANS_OFTEN,
    deadline_s=60,
)
def both_ends_stay(broker: Broker) -> None:
    topic = compacted(broker)
    each_in_its_segment(broker, topic, *[(b"k", b"%d" % number) for number in range(6)])
    broker.expect_equal("start and end before", (broker.start_offset(topic), broker.end_offset(topic)), (0, 6))
    expect_offsets(broker, topic, [4, 5], "one key")
    broker.expect_equal("start and end after", (broker.start_offset(topic), broker.end_offset(topic)), (0, 6))
    answer = broker.fetch(topic, 0)
    broker.expect_equal("the high watermark that a fetch reports", answer.high_watermark, 6)
    broker.expect_equal("the next record's offset", broker.append(topic, batch(Record(b"next", b"k"))), 6)
