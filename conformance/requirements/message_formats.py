"""FMT: message formats 0 and 1 of old clients: how the broker converts them, and newer records for such clients.

Kafka 4.0 has removed them (KIP-724): it serves Produce from v3 on, and Fetch from v4 on. Since 0.11 the log holds record
batches (magic 2), unless the topic has another message.format.version; before 0.11 it held messages of magic 1.
"""

import time
from collections.abc import Sequence

from conformance.batches import CODECS, RECENT_MS, Record, batch, idempotent, records
from conformance.broker import Broker
from conformance.message_sets import LOG_APPEND_TIME, NO_TIMESTAMP, Message, Stored, message_set, stored
from conformance.requirement import requirement
from conformance.requirements.acks import CLOCKS_MS
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest

LAST = "3.9"
"""The last release with the old formats."""
PRODUCES = ((0, 0), (1, 0), (2, 1))
"""(version of Produce, the newest magic that its clients write)."""
FETCHES = ((0, 0), (1, 0), (2, 1), (3, 1))
"""(version of Fetch, the magic that its clients read)."""
WITH_BATCHES = 4
"""The first version of Fetch with record batches."""
STAMP = RECENT_MS
MESSAGES = (
    Message(b"one", b"key", STAMP + 5), Message(None, b"key", STAMP), Message(b"", None, STAMP + 9), Message(b"four", b"", STAMP)
)  # fmt: skip
"""Null, empty and other keys and values, with timestamps out of order."""
OLD_WRAPPERS = ("gzip", "snappy")
"""Codecs of all clients of that time. lz4 is left out: with magic 0 its frames had another checksum."""


def fetched(broker: Broker, topic: Topic, version: int, first: int = 0) -> list[Stored]:
    """The messages that an old consumer reads from an offset to the log's end, in several fetches if necessary. Messages before
    the fetch offset are dropped, as clients do."""
    collected: list[Stored] = []
    offset, end = first, broker.end_offset(topic)
    while offset < end:
        found = broker.fetch(topic, offset, version=version)
        broker.expect_error(found.error_code, ErrorCode.NONE, what=f"Fetch v{version} at offset {offset}")
        part = [one for one in stored(bytes(found.records or b"")) if one.message.offset >= offset]
        broker.expect(bool(part), f"Fetch v{version} at offset {offset} of {end} gives {len(part)} messages")
        collected += part
        offset = part[-1].message.offset + 1
    return collected


def expect_read(
    broker: Broker, topic: Topic, wanted: Sequence[Message], what: str, *, first: int = 0, stamped: bool = True
) -> None:
    """Expect these messages from every version of Fetch, at offsets from `first` on, in the format of that version's clients."""
    for version, magic in FETCHES:
        seen = fetched(broker, topic, version, first)
        reported = f"{what}, read by Fetch v{version}"
        broker.expect_equal(f"{reported}: the magics", {one.magic for one in seen}, {magic})
        expected = [
            Message(one.value, one.key, one.timestamp if magic and stamped else NO_TIMESTAMP, first + at)
            for at, one in enumerate(wanted)
        ]
        broker.expect_equal(reported, [one.message for one in seen], expected)
    highest = broker.version_for(FetchRequest)
    if highest >= WITH_BATCHES:
        found = [one for one in records(broker.log(topic, offset=first)) if one.offset >= first]
        seen_now = [(one.value, one.key, one.timestamp, one.offset) for one in found]
        wanted_now = [
            (one.value, one.key, one.timestamp if stamped else NO_TIMESTAMP, first + at)
            for at, one in enumerate(wanted)
        ]
        broker.expect_equal(f"{what}, read by Fetch v{highest}", seen_now, wanted_now)


@requirement(
    "FMT-01",
    notices="data: old producers' records are lost or changed, and no client reports them",
    source="KIP-32; KIP-98 (up-conversion); LogValidator.convertAndAssignOffsetsNonCompressed",
    sentence="Messages of magic 0 and 1 in Produce v0 to v2 are stored: every version of Fetch gives the same keys and values at "
    "the next offsets, with the timestamps of magic 1, and -1 for those of magic 0.",
    accepted="NONE(0), the next base offset, and equal messages in Fetch v0 to v3 and the highest",
    until=LAST,
    apis={"Produce": 2, "Fetch": 3},
)
def old_messages_are_stored(broker: Broker) -> None:
    for version, newest in PRODUCES:
        for magic in range(newest + 1):
            with broker.case(f"Produce v{version}, magic {magic}"):
                topic = broker.topic()
                for turn in range(2):
                    base = broker.append(topic, message_set(MESSAGES, magic), version=version)
                    broker.expect_equal("the base offset", base, turn * len(MESSAGES))
                expect_read(broker, topic, MESSAGES * 2, "two message sets", stamped=magic == 1)


@requirement(
    "FMT-02",
    notices="misread: old consumers take inner offsets for places in the log, and commit what they did not read",
    source="KIP-31 (relative offsets); LogValidator; AbstractLegacyRecordBatch",
    sentence="A compressed wrapper's messages get offsets of their own, one after the other; what old consumers are given as a "
    "wrapper holds absolute inner offsets in magic 0 and relative ones in magic 1, and its own offset is its last one's.",
    accepted="gzip and snappy, magic 0 and 1: every version of Fetch gives the same messages at their offsets, between plain "
    "ones",
    until=LAST,
    apis={"Produce": 2, "Fetch": 3},
)
def wrappers(broker: Broker) -> None:
    for name in OLD_WRAPPERS:
        for version, magic in ((1, 0), (2, 1)):
            with broker.case(f"{name}, magic {magic}"):
                topic, single = broker.topic(), MESSAGES[:1]
                for messages, codec in ((single, 0), (MESSAGES, CODECS[name]), (MESSAGES, CODECS[name]), (single, 0)):
                    broker.append(topic, message_set(messages, magic, codec=codec), version=version)
                wanted = (*single, *MESSAGES, *MESSAGES, *single)
                expect_read(broker, topic, wanted, f"wrappers of {name}", stamped=magic == 1)
                middle = 3  # within the first wrapper: its later messages, and all behind it
                expect_read(
                    broker, topic, wanted[middle:], "from within a wrapper on", first=middle, stamped=magic == 1
                )


@requirement(
    "FMT-03",
    notices="misread: a consumer that knows no record batches takes them for damaged messages, and stops",
    source="KIP-98 (down-conversion); AbstractRecords.downConvert; KIP-283",
    sentence="Record batches are given to Fetch v0 and v1 as messages of magic 0, to v2 and v3 as magic 1: with right checksums, "
    "the same offsets, keys and values, without headers, and from magic 1 on with their timestamps.",
    accepted="equal messages for plain, gzip and snappy batches and for an idempotent producer's, also from within a batch on",
    since="0.11",
    until=LAST,
    apis={"Produce": 3, "Fetch": 4},
)
def batches_for_old_consumers(broker: Broker) -> None:
    topic = broker.topic()
    written = [Record(one.value, one.key, (("header", b"x"),), one.timestamp) for one in MESSAGES]
    producer_id, epoch = broker.producer_id()
    for name in ("none", *OLD_WRAPPERS):
        broker.append(topic, batch(*written, codec=CODECS[name]))
    broker.append(topic, idempotent(written, producer_id, epoch, 0))
    expect_read(broker, topic, MESSAGES * 4, "four batches")
    expect_read(broker, topic, (MESSAGES * 4)[5:], "from within a batch on", first=5)


@requirement(
    "FMT-04",
    notices="data: what was damaged on its way is stored, and every consumer stops there",
    source="LegacyRecord.ensureValid; LogValidator",
    sentence="A message of magic 0 or 1 whose CRC-32 is wrong is refused with CORRUPT_MESSAGE, and nothing of its set is stored.",
    accepted="CORRUPT_MESSAGE(2) for a plain message, for one among right ones and for a wrapper; the log end stays",
    until=LAST,
    apis={"Produce": 2, "Fetch": 3},
)
def wrong_crc(broker: Broker) -> None:
    topic = broker.topic()
    for magic in (0, 1):
        good = message_set(MESSAGES[:1], magic)
        bad = good[:-1] + bytes((good[-1] ^ 1,))
        wrapper = message_set(MESSAGES, magic, codec=CODECS["gzip"])
        damaged = {
            "a message": bad,
            "the second of three": good + bad + good,
            "a wrapper": wrapper[:-1] + bytes((wrapper[-1] ^ 1,)),
        }
        for what, data in damaged.items():
            with broker.case(f"{what}, magic {magic}"):
                result = broker.produce(topic, data, version=2)
                broker.expect_error(result.error_code, ErrorCode.CORRUPT_MESSAGE)
                broker.expect_equal("the log end offset", broker.end_offset(topic), 0)


@requirement(
    "FMT-05",
    notices="misread: consumers that go by timestamps take the producer's clock for the broker's",
    source="KIP-32; message.timestamp.type; LogValidator",
    sentence="In a LogAppendTime topic messages of magic 0 and 1, plain and wrapped, get the time of the append: Produce v2 "
    "answers "
    "with it, and Fetch v2 gives it with the bit that says so.",
    accepted="one time for a message set, of the request within a minute, in the answer and in every message; in a "
    "CreateTime "
    "topic -1 in the answer and no bit",
    until=LAST,
    apis={"Produce": 2, "Fetch": 3},
)
def append_time(broker: Broker) -> None:
    for codec in (0, CODECS["gzip"]):
        for magic in (0, 1):
            with broker.case(f"magic {magic}, codec {codec}"):
                late = broker.topic(configs={"message.timestamp.type": "LogAppendTime"})
                before = int(time.time() * 1000)
                answer = broker.produce(late, message_set(MESSAGES, magic, codec=codec), version=2)
                after = int(time.time() * 1000)
                broker.expect_error(answer.error_code, ErrorCode.NONE)
                reported = answer.log_append_time_ms
                broker.expect(
                    before - CLOCKS_MS <= reported <= after + CLOCKS_MS,
                    f"the append time {reported} is between {before} and {after}, within a minute",
                )
                seen = fetched(broker, late, 2)
                broker.expect_equal(
                    "the timestamps", [one.message.timestamp for one in seen], [reported] * len(MESSAGES)
                )
                broker.expect(
                    all(one.attributes & LOG_APPEND_TIME for one in seen),
                    "each message has the timestamp type LogAppendTime",
                )
                early = broker.topic()
                answer = broker.produce(early, message_set(MESSAGES, magic, codec=codec), version=2)
                broker.expect_equal("the append time of a CreateTime topic", answer.log_append_time_ms, -1)
                bits = {one.attributes & LOG_APPEND_TIME for one in fetched(broker, early, 2)}
                broker.expect_equal("its bits", bits, {0})


@requirement(
    "FMT-06",
    notices="stuck: an old consumer that is given no whole message asks for the same offset for ever",
    source="FetchRequest v0 to v2 (max_bytes of a partition); KIP-74 (v3)",
    sentence="A message larger than the fetch's limit is cut off below v3, where the client asks again with a larger limit, and "
    "given whole from v3 on; with the larger limit every version gives it.",
    accepted="limit 100 for a message of 1000 bytes: no whole message in v0 to v2, the message in v3; then the message in each",
    until=LAST,
    apis={"Produce": 2, "Fetch": 3},
)
def larger_than_the_limit(broker: Broker) -> None:
    topic, message = broker.topic(), Message(b"x" * 1000, None, STAMP)
    broker.append(topic, message_set([message], 1), version=2)
    for version, magic in FETCHES:
        found = broker.fetch(topic, 0, version=version, partition_max_bytes=100)
        broker.expect_error(found.error_code, ErrorCode.NONE, what=f"v{version}")
        whole = [one.message.value for one in stored(bytes(found.records or b""))]
        broker.expect_equal(f"v{version}, limit 100: whole messages", whole, [message.value] if version >= 3 else [])
        found = broker.fetch(topic, 0, version=version, partition_max_bytes=2000)
        seen = [(one.magic, one.message.value) for one in stored(bytes(found.records or b""))]
        broker.expect_equal(f"v{version}, limit 2000", seen, [(magic, message.value)])
