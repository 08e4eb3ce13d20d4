"""Reading as a read_committed consumer does: what the broker lists as aborted is left out by who reads.

committed(broker, topic)                          # the records that count, in the order of the log
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from conformance.batches import CONTROL, TRANSACTIONAL, Record, batches
from conformance.broker import Broker
from conformance.markers import ABORT, COMMIT, marker_of, markers
from conformance.transaction_client import expect_agreed
from conformance.wire import Failed
from linearizability.client.requests import READ_COMMITTED, Topic

WHOLE = 50 << 20
MAX_FETCHES = 10_000


def aborted_of(part: Any) -> list[tuple[int, int]]:
    """The aborted transactions that a fetched partition lists: producer ids and first offsets."""
    return [(one.producer_id, one.first_offset) for one in cast(Sequence[Any], part.aborted_transactions or ())]


def counting_records(data: bytes, aborted: list[tuple[int, int]]) -> list[Record]:
    """The records of one answer that a read_committed consumer hands on (KIP-98).

    A transaction is left out from the batch on that reaches its first offset, up to its abort marker.
    """
    due = sorted(aborted, key=lambda one: one[1])
    leaving_out: set[int] = set()
    counting: list[Record] = []
    for one in batches(data):
        while due and due[0][1] < one.next_offset:
            leaving_out.add(due.pop(0)[0])
        if one.attributes & CONTROL:
            if marker_of(one).kind == ABORT:
                leaving_out.discard(one.producer_id)
        elif not (one.attributes & TRANSACTIONAL and one.producer_id in leaving_out):
            counting += one.records()
    return counting


def committed(
    broker: Broker,
    topic: Topic,
    *,
    partition: int = 0,
    offset: int = 0,
    partition_max_bytes: int = WHOLE,
    to: tuple[str, int] | None = None,
) -> list[Record]:
    """All that counts from an offset up to the last stable one, fetched in pieces of so many bytes."""
    found: list[Record] = []
    for _ in range(MAX_FETCHES):
        part = broker.fetch(
            topic,
            offset,
            partition=partition,
            isolation=READ_COMMITTED,
            partition_max_bytes=partition_max_bytes,
            to=broker.connection(to) if to else None,
        )
        expect_agreed(f"a fetch at offset {offset}", part.error_code)
        data = bytes(part.records or b"")
        if not batches(data):
            return found
        found += [one for one in counting_records(data, aborted_of(part)) if one.offset >= offset]
        offset = batches(data)[-1].next_offset
    raise Failed(f"no end of the log after {MAX_FETCHES} fetches")


def committed_values(broker: Broker, topic: Topic, **options: Any) -> list[bytes | None]:
    """The values of all that counts."""
    return [record.value for record in committed(broker, topic, **options)]


def expect_committed(broker: Broker, what: str, topic: Topic, *wanted: bytes, partition: int = 0) -> None:
    """A read_committed consumer gets these values, and nothing else."""
    broker.expect_equal(what, committed_values(broker, topic, partition=partition), list(wanted))


def expect_ended(broker: Broker, topic: Topic, value: bytes, *, committed: bool) -> None:
    """A transaction of one record is over in its partition: nothing follows the record but markers of this outcome.

    There may be several: a coordinator sends a marker again after an answer that is lost, and after it has loaded its state.
    """
    stable = broker.end_offset(topic, isolation=READ_COMMITTED)
    broker.expect(stable > 1, f"nothing is open in {topic.name}, whose stable end is {stable}")
    log = broker.log(topic)
    written = [record.value for one in batches(log) if not one.attributes & CONTROL for record in one.records()]
    broker.expect_equal("what was written", written, [value])
    ends = {one.kind for one in markers(log)}
    broker.expect_equal("the kinds of its markers", ends, {COMMIT if committed else ABORT})
    expect_committed(broker, f"what counts in {topic.name}", topic, *([value] if committed else []))
