"""FET: how long a fetch waits, and what ends the wait.

Waits are judged by the order of responses and by their contents, not by the clock: a fetch that must not wait gets its response
while an earlier one still waits. Only lower bounds are measured.
"""

# A loop over the versions that are served always runs.
# pyright: reportPossiblyUnboundVariable=false

import time
from collections.abc import Generator
from contextlib import contextmanager

from conformance.answers import AnswerParts, only
from conformance.batches import batch, records, values
from conformance.broker import Broker
from conformance.changes import has_leader_epochs
from conformance.requirement import requirement
from conformance.requirements.fetch import PLENTY, partitions_of, served_bytes
from conformance.transactions import TransactionalProducer
from conformance.wire import BrokerConnection
from linearizability.client.requests import READ_COMMITTED, Topic, fetch_request
from reference.protocol.errors import ErrorCode

LONG_MS = 10_000
"""A max_wait_ms that no fetch of these tests may wait out."""

SHORT_MS = 300
"""A max_wait_ms that a fetch waits out."""


@contextmanager
def a_fetch_waits(broker: Broker) -> Generator[BrokerConnection]:
    """Send a fetch without enough data before the block; at the end of the block it must still wait."""
    idle = broker.topic()
    connection = broker.connect(broker.leader(idle))
    request = fetch_request({(idle, 0): 0}, max_wait_ms=LONG_MS)
    connection.send(request, broker.version_for(request), note="waits for nothing")
    until = time.monotonic() + LONG_MS / 1000
    yield connection
    if time.monotonic() < until and not connection.is_silent(0.001):
        broker.fail(f"a fetch with max_wait_ms={LONG_MS} at the end of an empty log was answered too soon")


@requirement(
    "FET-04",
    notices="client: answered early consumers ask in a busy loop; answered late they see a closed partition late",
    source="ReplicaManager.fetchMessages; DelayedFetch",
    sentence="A fetch at the log end waits up to max_wait_ms, and is then answered with no records and no error.",
    accepted="empty with NONE(0), not before max_wait_ms; a shorter wait ends before a longer one that was asked earlier",
)
def waits_at_the_end(broker: Broker) -> None:
    topic = broker.topic()
    end = broker.append(topic, batch(b"x")) + 1
    with a_fetch_waits(broker):
        started = time.monotonic()
        found = broker.fetch(topic, end, max_wait_ms=SHORT_MS)
        waited_ms = (time.monotonic() - started) * 1000
        broker.expect_error(found.error_code, ErrorCode.NONE)
        broker.expect_equal("the bytes of records", len(found.records or b""), 0)
        broker.expect_equal("the high watermark", found.high_watermark, end)
        broker.expect(
            waited_ms >= SHORT_MS * 0.9, f"answered after {waited_ms:.0f} ms, not before max_wait_ms of {SHORT_MS} ms"
        )


@requirement(
    "FET-05",
    apis={"Produce": 3, "Fetch": 4},
    notices="client: each record reaches consumers up to fetch.max.wait.ms late",
    source="ReplicaManager.fetchMessages; FetchRequest schema (MinBytes)",
    sentence="A fetch is answered at once when max_wait_ms is 0, when min_bytes are there (or min_bytes is 0), or when it names "
    "no partition; otherwise it waits, and is answered with what there is after max_wait_ms.",
    accepted="at once while an older fetch still waits; with too few bytes not before max_wait_ms, and with the records",
)
def min_bytes_or_max_wait(broker: Broker) -> None:
    topic = broker.topic()
    data = batch(b"x" * 100)
    broker.append(topic, data)
    with a_fetch_waits(broker):
        at_once = {
            "no wait, too few bytes": fetch_request({(topic, 0): 0}, max_wait_ms=0, min_bytes=PLENTY),
            "exactly enough bytes": fetch_request({(topic, 0): 0}, max_wait_ms=LONG_MS, min_bytes=len(data)),
            "no bytes wanted": fetch_request({(topic, 0): 1}, max_wait_ms=LONG_MS, min_bytes=0),
            "no partition": fetch_request({}, max_wait_ms=LONG_MS, min_bytes=PLENTY),
        }
        for what, request in at_once.items():
            started = time.monotonic()
            answer = broker.call(request, to=broker.leader(topic), timeout_s=2 * LONG_MS / 1000)
            waited_ms = (time.monotonic() - started) * 1000
            broker.expect_error(answer.error_code, ErrorCode.NONE, what=what)
            broker.expect(waited_ms < LONG_MS * 0.9, f"{what}: answered at once, not after {waited_ms:.0f} ms")
            sizes = {"no bytes wanted": {0: 0}, "no partition": {}}.get(what, {0: len(data)})
            broker.expect_equal(f"{what}: the bytes by partition", served_bytes(answer), sizes)
        started = time.monotonic()
        found = broker.fetch(topic, 0, max_wait_ms=SHORT_MS, min_bytes=len(data) + 1)
        waited_ms = (time.monotonic() - started) * 1000
        broker.expect_equal("one byte too few: the records", values(found.records), [b"x" * 100])
        broker.expect(waited_ms >= SHORT_MS * 0.9, f"one byte too few: after {waited_ms:.0f} of {SHORT_MS} ms")


@requirement(
    "FET-06",
    apis={"Produce": 3, "Fetch": 4},
    notices="client: each record reaches consumers up to fetch.max.wait.ms late",
    source="DelayedFetch.tryComplete (case G)",
    sentence="A waiting fetch is answered by the append that makes up min_bytes, and not by one before it.",
    accepted="one batch where it is enough; both batches where two are needed, also over two partitions; before half of "
    "max_wait_ms, so that a broker that looks again within that time is not distinguished from one that is woken",
)
def woken_by_an_append(broker: Broker) -> None:
    topic = broker.topic(2)
    data = batch(b"x" * 100)
    offsets = {0: broker.append(topic, data) + 1, 1: 0}
    stored = len(broker.log(topic))  # a broker may encode the batch again
    for what, needed, appended in (
        ("one batch", 1, [0]),
        ("two batches", stored + 1, [0, 0]),
        ("two partitions", stored + 1, [0, 1]),
    ):
        connection = broker.connect(broker.leader(topic))
        asked = {(topic, partition): offset for partition, offset in offsets.items()}
        request = fetch_request(asked, max_wait_ms=LONG_MS, min_bytes=needed)
        started = time.monotonic()
        connection.send(request, broker.version_for(request), note=what)
        connection.is_silent(0.05)  # time for the fetch to arrive before the appends; otherwise the test sees less
        for partition in appended:
            offsets[partition] = broker.append(topic, data, partition=partition) + 1
        answer = connection.receive(timeout_s=LONG_MS / 1000 + 5)
        waited_ms = (time.monotonic() - started) * 1000
        given = {one.partition_index: len(records(bytes(one.records or b""))) for one in partitions_of(answer)}
        expected = {partition: appended.count(partition) for partition in (0, 1)}
        broker.expect_equal(f"{what}: the records by partition", AnswerParts(given), expected)
        broker.expect(waited_ms < LONG_MS / 2, f"{what}: answered after {waited_ms:.0f} of {LONG_MS} ms")


@requirement(
    "FET-07",
    notices="client: consumers learn of a new leader or a reset up to fetch.max.wait.ms late",
    source="ReplicaManager.fetchMessages (errorReadingData)",
    sentence="A fetch of which a partition cannot be read is answered at once, whatever max_wait_ms and min_bytes are.",
    accepted="at once while an older fetch still waits: for an offset out of range, an unknown leader epoch (since 2.1), and "
    "where no partition is known",
    draft="an unknown partition was thought to end the wait of the others too: Kafka 4.3.1 answers it after max_wait_ms",
    requires=("FET-11",),
)
def errors_do_not_wait(broker: Broker) -> None:
    topic = broker.topic(2)
    epoch = broker.leader_epoch(topic)
    cases: dict[str, tuple[dict[tuple[Topic, int], int], int, dict[int, ErrorCode]]] = {
        "out of range": ({(topic, 0): 0, (topic, 1): 77}, -1, {0: ErrorCode.NONE, 1: ErrorCode.OFFSET_OUT_OF_RANGE}),
        "unknown epoch": ({(topic, 0): 0}, epoch + 5, {0: ErrorCode.UNKNOWN_LEADER_EPOCH}),
        "unknown": ({(topic, 7): 0}, -1, {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    }
    if not has_leader_epochs(broker) or epoch < 0:
        del cases["unknown epoch"]
    with a_fetch_waits(broker):
        for what, (asked, epoch, wanted) in cases.items():
            request = fetch_request(asked, max_wait_ms=LONG_MS, min_bytes=PLENTY, current_leader_epoch=epoch)
            answer = broker.call(request, to=broker.leader(topic))
            codes = AnswerParts({one.partition_index: one.error_code for one in partitions_of(answer)})
            broker.expect_equal(f"{what}: the errors by partition", codes, wanted)


@requirement(
    "FET-20",
    notices="client: read_committed consumers, Streams among them, get each transaction up to fetch.max.wait.ms late",
    source="DelayedFetch.tryComplete; Partition.maybeIncrementLeaderHW",
    sentence="A read_committed fetch that waits at the last stable offset is answered when the transaction ends.",
    accepted="the transaction's records, long before max_wait_ms; an append in between does not answer it",
    tolerated="an append in between answers it, without records",
    apis={"AddPartitionsToTxn": 0, "EndTxn": 0},
    requires=("FET-06",),
)
def woken_by_a_commit(broker: Broker) -> None:
    topic = broker.topic()
    producer = TransactionalProducer(broker)
    stable = producer.append(topic, b"open")
    connection = broker.connect(broker.leader(topic))
    request = fetch_request({(topic, 0): stable}, max_wait_ms=LONG_MS, isolation=READ_COMMITTED)
    started = time.monotonic()
    connection.send(request, broker.version_for(request))
    broker.append(topic, batch(b"after"))
    if not connection.is_silent(0.05):
        found = only(partitions_of(connection.receive()), "partition in the answer")
        broker.expect_equal("the records, after an append behind the open transaction", values(found.records), [])
        broker.tolerate("an append behind the open transaction answers it, without records")
        connection.send(request, broker.version_for(request))
    producer.commit()
    found = only(partitions_of(connection.receive(timeout_s=LONG_MS / 1000 + 5)), "partition in the answer")
    waited_ms = (time.monotonic() - started) * 1000
    broker.expect_equal("the records", values(found.records), [b"open", b"after"])
    broker.expect(waited_ms < LONG_MS / 2, f"answered after {waited_ms:.0f} of {LONG_MS} ms")


@requirement(
    "FET-21",
    notices="none seen: clients take an answer that comes early as any other",
    source="KafkaApis.handleFetchRequest (erroneous and interesting partitions)",
    sentence="An unknown partition does not end the wait of the others: it is answered with them, after max_wait_ms or when "
    "min_bytes are there.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3) together with the record that is appended meanwhile",
    tolerated="answered before that, at once",
)
def unknown_partitions_wait(broker: Broker) -> None:
    topic = broker.topic()
    connection = broker.connect(broker.leader(topic))
    request = fetch_request({(topic, 7): 0, (topic, 0): 0}, max_wait_ms=LONG_MS)
    connection.send(request, broker.version_for(request))
    at_once = not connection.is_silent(0.1)
    broker.append(topic, batch(b"x"))
    found = AnswerParts(
        {one.partition_index: one for one in partitions_of(connection.receive(timeout_s=LONG_MS / 1000 + 5))}
    )
    codes = {partition: one.error_code for partition, one in found.items()}
    broker.expect_equal("the errors by partition", codes, {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0: ErrorCode.NONE})
    if at_once:
        broker.tolerate("the other partition did not wait")
    else:
        broker.expect_equal("the other partition's records", values(found[0].records or b""), [b"x"])


@requirement(
    "FET-22",
    notices="none seen: clients take an answer that comes late as any other",
    source="DelayedFetch.tryComplete (case F)",
    sentence="A read_committed fetch from behind the batch at which the last stable offset stands does not wait: it is answered "
    "at once, with no records and no error. One at the last stable offset waits.",
    accepted="empty with NONE(0) long before max_wait_ms from a later batch and from the log end; from the last stable offset "
    "not before max_wait_ms",
    tolerated="not before max_wait_ms",
    apis={"AddPartitionsToTxn": 0, "EndTxn": 0},
)
def beyond_the_last_stable_offset(broker: Broker) -> None:
    topic = broker.topic()
    producer = TransactionalProducer(broker)
    stable = producer.append(topic, b"open")
    behind = broker.append(topic, batch(b"after"))
    for offset in (stable, behind, behind + 1):
        started = time.monotonic()
        found = broker.fetch(topic, offset, max_wait_ms=SHORT_MS, isolation=READ_COMMITTED)
        waited_ms = (time.monotonic() - started) * 1000
        broker.expect_error(found.error_code, ErrorCode.NONE, what=f"from {offset}")
        broker.expect_equal(f"from {offset}: the records", values(found.records or b""), [])
        broker.saw(f"from {offset}: answered after {waited_ms:.0f} of {SHORT_MS} ms")
        has_waited = waited_ms >= SHORT_MS * 0.9
        if offset == stable:
            broker.expect(has_waited, "a fetch at the last stable offset waits")
        elif has_waited:
            broker.tolerate(f"a fetch from {offset}, above the last stable offset {stable}, waits")
    producer.abort()
