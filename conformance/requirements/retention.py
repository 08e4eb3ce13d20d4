"""RET: retention and segments. Old records are removed in whole segments from the log's start; nothing else changes."""

import time
from contextlib import suppress
from typing import Any

from conformance.answers import only
from conformance.batches import Record, batch, batches, records, values
from conformance.broker import Broker
from conformance.cluster import JudgedCluster
from conformance.readiness import serves
from conformance.requirement import requirement, untestable
from conformance.requirements.config_changes import SET, altered
from conformance.wire import Failed, NoAnswer
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_records import DeleteRecordsRequest

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
LOOKS_OFTEN = {"log.retention.check.interval.ms": "300"}
"""How often the broker looks for expired segments; the default is five minutes."""
FIRST_LOOK_S = 60.0
"""The time limit for a broker before 3.9 (KAFKA-16991), whose first check comes half a minute after its start in any case."""
IN_SYNC_S = 8.0
"""How long a frozen follower stays in sync: until broker.session.timeout.ms, 9 s, or replica.lag.time.max.ms."""
ROLLS = {"segment.ms": str(MINUTE_MS)}
"""A record more than a minute younger than the segment's first begins a new segment."""


def now_ms() -> int:
    """The time, as record timestamps count it."""
    return int(time.time() * 1000)


def aged(broker: Broker, topic: Topic, *ages_ms: int, size: int = 10) -> list[int]:
    """Append one batch for each age, in this order; return their base offsets."""
    now = now_ms()
    return [broker.append(topic, batch(Record(bytes(size), timestamp=now - age))) for age in ages_ms]


def look_within_s(broker: Broker) -> float:
    """How long to wait for the next check of expired segments; 0 is the suite's usual time."""
    return 0.0 if broker.is_kafka("3.9") else FIRST_LOOK_S


def expect_start(broker: Broker, topic: Topic, start: int, what: str) -> None:
    """Wait until the log starts at `start`. If a fetch shows that it does and ListOffsets does not, the failure is LOF-01's."""
    what_comes = f"{what}: the log starts at {start}"
    try:
        broker.eventually(lambda: broker.start_offset(topic) >= start, what_comes, within_s=look_within_s(broker))
    except NoAnswer as failure:
        with suppress(Failed):
            named = broker.start_offset(topic)
            if named < start and broker.fetch(topic, named).error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                failure.built_on = "LOF-01"
        raise
    broker.expect_equal(f"{what}: the log start offset", broker.start_offset(topic), start)


class Watch:
    """Waits until the broker has checked every log for expired segments, by a separate topic whose records are expired at once.

    A check visits each log once. When the topic's records are removed for the third time, a whole check has run since `wait`.
    """

    def __init__(self, broker: Broker, topic: Topic | None = None) -> None:
        self.broker = broker
        self.topic = topic or broker.topic(configs={"retention.ms": str(MINUTE_MS)})

    def wait(self) -> None:
        """Wait until the broker has checked every log once."""
        for _ in range(3):
            end = aged(self.broker, self.topic, HOUR_MS)[0] + 1
            self.broker.eventually(
                lambda end=end: self.broker.start_offset(self.topic) == end,
                "an expired record is removed",
                within_s=look_within_s(self.broker),
            )


@requirement(
    "RET-01",
    notices="data: records that are younger than retention.ms are removed",
    source="UnifiedLog.deleteRetentionMsBreachedSegments; retention.ms",
    sentence="A segment whose largest timestamp is older than retention.ms is removed and the log starts after it; the active "
    "segment is rolled for that. A segment with a younger record stays whole.",
    accepted="of three segments the two old ones go; a log of old records goes up to its end, and offsets go on from there; old "
    "records beside a young one stay",
    configs=LOOKS_OFTEN,
    deadline_s=90,
    requires=("FET-02",),
)
def old_segments_go(broker: Broker) -> None:
    hour = {"retention.ms": str(HOUR_MS)}
    segments, active, mixed = (broker.topic(configs=hour | more) for more in (ROLLS, {}, {}))
    aged(broker, segments, 4 * HOUR_MS, 3 * HOUR_MS, 0)
    aged(broker, active, 4 * HOUR_MS, 3 * HOUR_MS)
    now = now_ms()
    ages = 4 * HOUR_MS, 0  # in one batch: by itself the old record would expire before the young one comes
    broker.append(mixed, batch(*(Record(b"mixed", timestamp=now - age) for age in ages)))
    aged(broker, mixed, 4 * HOUR_MS)
    expect_start(broker, segments, 2, "three segments, one of them young")
    broker.expect_equal("the offsets that are left", offsets(broker, segments, 2), [2])
    early = broker.fetch(segments, 1)
    broker.expect_error(early.error_code, ErrorCode.OFFSET_OUT_OF_RANGE, what="a fetch at offset 1")
    expect_start(broker, active, 2, "an active segment of old records")
    broker.expect_equal("its end", broker.end_offset(active), 2)
    broker.expect_equal("the next offset", broker.append(active, batch(b"next")), 2)
    Watch(broker).wait()
    broker.expect_equal("the start of the segment of both", broker.start_offset(mixed), 0)
    broker.expect_equal("the offsets in it", offsets(broker, mixed, 0), [0, 1, 2])
    broker.expect_equal("the young record's log still starts at", broker.start_offset(segments), 2)
    broker.expect_equal("what came last", values(broker.log(active, offset=2)), [b"next"])


def offsets(broker: Broker, topic: Topic, start: int) -> list[int]:
    """The offsets of all records in a read from `start` on."""
    return [record.offset for record in records(broker.log(topic, offset=start))]


@requirement(
    "RET-02",
    notices="data: more is removed than retention.bytes allows",
    source="UnifiedLog.deleteRetentionSizeBreachedSegments; retention.bytes",
    sentence="A log larger than retention.bytes loses whole segments from its start, as long as the rest is no smaller than "
    "retention.bytes.",
    accepted="of five equal segments and retention.bytes of two and a half the first two go, and no third; with exactly five "
    "none goes",
    configs=LOOKS_OFTEN,
    deadline_s=90,
)
def large_logs_shrink(broker: Broker) -> None:
    ages = [(5 - number) * 2 * MINUTE_MS for number in range(5)]
    size = len(batch(Record(bytes(1000), timestamp=now_ms())))
    halved, exact = (
        broker.topic(configs=ROLLS | {"retention.bytes": str(limit)}) for limit in (size * 5 // 2, size * 5)
    )
    for topic in (halved, exact):
        aged(broker, topic, *ages, size=1000)
    expect_start(broker, halved, 2, "retention.bytes of two and a half segments")
    Watch(broker).wait()
    broker.expect_equal("the start after another look", broker.start_offset(halved), 2)
    broker.expect_equal("the offsets that are left", offsets(broker, halved, 2), [2, 3, 4])
    broker.expect_equal("the start of the log of exactly that size", broker.start_offset(exact), 0)


@requirement(
    "RET-03",
    notices="data: records are removed although retention was switched off",
    source="UnifiedLog.deleteRetentionMsBreachedSegments, deleteRetentionSizeBreachedSegments",
    sentence="-1 switches a rule off: with retention.ms=-1 no age, and with retention.bytes=-1 no size removes anything.",
    accepted="records of 1970 stay with retention.ms=-1, and the log keeps its size with retention.bytes=-1; each of them "
    "leaves the other rule in force",
    configs=LOOKS_OFTEN,
    deadline_s=90,
)
def switched_off(broker: Broker) -> None:
    off = {"retention.ms": "-1", "retention.bytes": "-1"}
    neither, by_size, by_age = (
        broker.topic(configs=ROLLS | off | more)
        for more in ({}, {"retention.bytes": "1"}, {"retention.ms": str(HOUR_MS)})
    )
    ages = now_ms(), 5 * HOUR_MS, 0
    for topic in (neither, by_size, by_age):
        aged(broker, topic, *ages)
    expect_start(broker, by_size, 2, "retention.ms=-1 and retention.bytes=1")
    expect_start(broker, by_age, 2, "retention.ms of an hour and retention.bytes=-1")
    Watch(broker).wait()
    broker.expect_equal("with both -1 the log start offset", broker.start_offset(neither), 0)
    broker.expect_equal("and the offsets", offsets(broker, neither, 0), [0, 1, 2])


@requirement(
    "RET-04",
    notices="operator: the disk fills, and records stay longer than was set",
    source="log.retention.check.interval.ms; LogManager.cleanupLogs",
    sentence="The broker looks for expired segments again and again, and looks at every topic with the retention.ms that is "
    "then in force.",
    accepted="three times a record that comes expired goes; one that is kept goes once retention.ms is lowered, and one before a "
    "young record stays",
    configs=LOOKS_OFTEN,
    apis={"IncrementalAlterConfigs": 0},
    deadline_s=90,
)
def looks_again(broker: Broker) -> None:
    mixed, topic = (broker.topic(configs={"retention.ms": str(10 * HOUR_MS)}) for _ in range(2))
    aged(broker, mixed, 5 * HOUR_MS, 0)
    aged(broker, topic, 5 * HOUR_MS)
    watch = Watch(broker)
    watch.wait()
    broker.saw("three times a record that came expired went")
    broker.expect_equal("the start of the log within its retention", broker.start_offset(topic), 0)
    for each in (mixed, topic):
        altered(broker, each, ("retention.ms", SET, str(HOUR_MS)))
    expect_start(broker, topic, 1, "retention.ms lowered")
    watch.wait()
    broker.expect_equal("the start of the log with a young record", broker.start_offset(mixed), 0)


@requirement(
    "RET-05",
    notices="data: records are removed by the time of another clock than the topic's",
    source="UnifiedLog.deleteRetentionMsBreachedSegments (largest timestamp); message.timestamp.type",
    sentence="What counts is the records' timestamps, not the time of writing: an old one expires at once, one in the future "
    "stays; with LogAppendTime the time of writing counts.",
    accepted="with retention.ms of a minute a record of an hour ago goes, one of half an hour ahead stays, and so does one of "
    "an hour ago under LogAppendTime",
    configs=LOOKS_OFTEN,
    deadline_s=90,
)
def timestamps_count(broker: Broker) -> None:
    minute = {"retention.ms": str(MINUTE_MS)}
    old, ahead, stamped = (
        broker.topic(configs=minute | more) for more in ({}, {}, {"message.timestamp.type": "LogAppendTime"})
    )
    aged(broker, ahead, -HOUR_MS // 2)
    aged(broker, stamped, HOUR_MS)
    aged(broker, old, HOUR_MS)
    expect_start(broker, old, 1, "a record of an hour ago")
    Watch(broker).wait()
    broker.expect_equal("a record of half an hour ahead: the log start", broker.start_offset(ahead), 0)
    broker.expect_equal("LogAppendTime: the log start", broker.start_offset(stamped), 0)


@requirement(
    "RET-06",
    notices="data: records are removed that no consumer could read yet",
    source="UnifiedLog.deletableSegments (up to the high watermark)",
    sentence="Nothing above the high watermark is removed, however old it is.",
    accepted="with both followers frozen old records stay above the high watermark; once they are copied they go",
    nodes=3,
    hooks=("pause", "resume"),
    configs=LOOKS_OFTEN,
    deadline_s=120,
)
def not_above_the_high_watermark(broker: Broker) -> None:
    brokers = broker.metadata([]).brokers
    broker.expect(bool(brokers), f"{len(brokers)} brokers, at least one, are in Metadata")
    leader = next((one.node_id for one in brokers if (one.host, one.port) == broker.address), brokers[0].node_id)
    followers = [one.node_id for one in brokers if one.node_id != leader][:2]
    nodes, configs = JudgedCluster(broker), {"retention.ms": str(MINUTE_MS)}
    topic = nodes.topic(leader, *followers, configs=configs)
    watch = Watch(broker, nodes.topic(leader, configs=configs))
    connection = broker.connect(broker.leader(topic))
    watch.wait()  # the first check may come so late that frozen followers are out of the ISR before it
    for follower in followers:
        broker.target.pause(follower)
    began = time.monotonic()
    try:
        now = now_ms()
        for _ in range(2):
            old = batch(Record(b"old", timestamp=now - HOUR_MS))
            result = broker.produce(topic, old, acks=1, to=connection)
            broker.expect_error(result.error_code, ErrorCode.NONE, what="an old record with acks=1")
        watch.wait()
        seen = broker.start_offset(topic), broker.end_offset(topic)
        frozen_s = time.monotonic() - began
    finally:
        for follower in followers:
            broker.target.resume(follower)
    if seen != (0, 0) and frozen_s > IN_SYNC_S:
        broker.skip(f"the broker took {frozen_s:.0f} s to look again: frozen followers may be out of sync by then")
    broker.expect_equal("log start and high watermark while no follower copies", seen, (0, 0))
    broker.eventually(lambda: broker.end_offset(topic) == 2, "the followers copy the records", within_s=30)
    expect_start(broker, topic, 2, "once they are copied")


@requirement(
    "RET-07",
    apis={"Produce": 3, "Fetch": 4},
    notices="data: consumers lose or double records at the boundary of two segments",
    source="UnifiedLog.maybeRoll; segment.bytes, segment.ms",
    sentence="That a log rolls, by segment.ms or by segment.bytes, changes nothing that a client sees: offsets, order, records, "
    "search by time, fetches at every offset and over the boundaries.",
    accepted="the same answers from a log of many segments and from one of a single segment",
)
def rolling_is_invisible(broker: Broker) -> None:
    now = now_ms()
    kinds: dict[str, dict[str, str]] = {
        "segment.ms": ROLLS,
        "segment.bytes": {"segment.bytes": str(1 << 20)},
        "one": {},
    }
    seen: dict[str, Any] = {}
    for what, configs in kinds.items():
        topic = broker.topic(configs=configs)
        stamps = [now - (12 - number) * 2 * MINUTE_MS for number in range(12)]
        for number, stamp in enumerate(stamps):
            value = bytes([number]) * 250_000
            base = broker.append(topic, batch(Record(value, timestamp=stamp), Record(b"tail", timestamp=stamp)))
            broker.expect_equal(f"{what}: base offset {number}", base, 2 * number)
        held = records(broker.log(topic))
        firsts = [first_offset(broker, topic, offset) for offset in range(24)]
        found = [broker.offset_of(topic, stamp - 1) for stamp in stamps]
        seen[what] = (
            [(one.offset, one.timestamp, (one.value or b"")[:1], len(one.value or b"")) for one in held],
            firsts,
            [(one.offset, one.timestamp) for one in found],
        )
        broker.expect_equal(f"{what}: offsets", [one.offset for one in held], list(range(24)))
        broker.expect_equal(f"{what}: the batch at each offset", firsts, [offset // 2 * 2 for offset in range(24)])
        broker.expect_equal(f"{what}: offsets by time", [one.offset for one in found], list(range(0, 24, 2)))
    broker.expect(seen["segment.ms"] == seen["segment.bytes"] == seen["one"], "all three logs give the same answers")


def first_offset(broker: Broker, topic: Topic, offset: int) -> int:
    """The base offset of the first batch in a small fetch at an offset; -1 if it has none."""
    found = broker.fetch(topic, offset, partition_max_bytes=1)
    return next((one.base_offset for one in batches(bytes(found.records or b""))), -1)


@requirement(
    "RET-09",
    notices="data: records that were removed are back after a restart, and consumers read them again",
    source="LogManager.checkpointLogStartOffsets; log.flush.start.offset.checkpoint.interval.ms",
    sentence="The log start offset survives a restart: what DeleteRecords removed, and what expired, stays away.",
    accepted="the same log start offsets, end offsets and records before and after a restart in good order",
    configs=LOOKS_OFTEN,
    apis={"DeleteRecords": 0},
    hooks=("restart",),
    deadline_s=90,
)
def start_survives_a_restart(broker: Broker) -> None:
    deleted, expired = broker.topic(), broker.topic(configs={"retention.ms": str(HOUR_MS)} | ROLLS)
    broker.append(deleted, batch(*(b"%d" % number for number in range(10))))
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=4)
    asked = DeleteRecordsRequest.DeleteRecordsTopic(name=deleted.name, partitions=[partition])
    answer = broker.call(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), to=broker.leader(deleted))
    result = only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")
    broker.expect_error(result.error_code, ErrorCode.NONE, what="DeleteRecords up to 4")
    aged(broker, expired, 3 * HOUR_MS, 0)
    expect_start(broker, expired, 1, "an old segment")
    for topic, start, end in ((deleted, 4, 10), (expired, 1, 2)):
        broker.expect_equal(
            "start and end before", (broker.start_offset(topic), broker.end_offset(topic)), (start, end)
        )
    leaders = {
        only(broker.describe_topic(topic.name).partitions, "partition").leader_id for topic in (deleted, expired)
    }
    for leader in leaders:
        broker.target.restart(leader)
    for topic, start, end in ((deleted, 4, 10), (expired, 1, 2)):
        broker.eventually(lambda topic=topic: serves(broker, topic), f"{topic.name} is served again", within_s=40)
        broker.expect_equal("start and end after", (broker.start_offset(topic), broker.end_offset(topic)), (start, end))
        broker.expect_equal("the offsets in the log", in_log(broker, topic, start), list(range(start, end)))


def in_log(broker: Broker, topic: Topic, start: int) -> list[int]:
    """The offsets of the records from `start` on, without earlier records of the first batch."""
    return [record.offset for record in records(broker.log(topic, offset=start)) if record.offset >= start]


untestable(
    "RET-10",
    notices="none seen: no request waits for the first look",
    sentence="The first look for expired segments comes 30 s after the start (log.initial.task.delay.ms).",
    source="LogManager.startup; log.initial.task.delay.ms (internal)",
    reason="that nothing was removed before is no proof of when the broker looked; a broker that looks earlier harms no client",
)
