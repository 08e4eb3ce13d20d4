"""Read as a read_committed consumer does: it filters out the transactions that the broker lists as aborted.

committed(broker, topic)                          # the committed records, in the order of the log
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
    """The aborted transactions of a fetched partition: producer ids and first offsets."""
    return [(one.producer_id, one.first_offset) for one in cast(Sequence[Any], part.aborted_transactions or ())]


def counting_records(data: bytes, aborted: list[tuple[int, int]]) -> list[Record]:
    """The records of one response that a read_committed consumer returns to its application (KIP-98).

    Leaves out an aborted transaction from the batch with its first offset up to its abort marker.
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
    """All committed records from an offset up to the last stable offset, with fetches of `partition_max_bytes`."""
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
    """The values of all committed records."""
    return [record.value for record in committed(broker, topic, **options)]


def expect_committed(broker: Broker, what: str, topic: Topic, *wanted: bytes, partition: int = 0) -> None:
    """Require that a read_committed consumer gets exactly these values."""
    broker.expect_equal(what, committed_values(broker, topic, partition=partition), list(wanted))


def expect_ended(broker: Broker, topic: Topic, value: bytes, *, committed: bool) -> None:
    """Require that a transaction of one record has ended in its partition: only markers of this outcome follow the record.

    There may be several: a coordinator repeats a marker after a lost response, and after it has loaded its state.
    """
    stable = broker.end_offset(topic, isolation=READ_COMMITTED)
    broker.expect(stable > 1, f"nothing is open in {topic.name}, whose last stable offset is {stable}")
    log = broker.log(topic)
    written = [record.value for one in batches(log) if not one.attributes & CONTROL for record in one.records()]
    broker.expect_equal("what was written", written, [value])
    ends = {one.kind for one in markers(log)}
    broker.expect_equal("the kinds of its markers", ends, {COMMIT if committed else ABORT})
    expect_committed(broker, f"the committed records of {topic.name}", topic, *([value] if committed else []))
