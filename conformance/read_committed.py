"""Reading as a read_committed consumer does: what the broker lists as aborted is left out by who reads.

committed(broker, topic)                          # the records that count, in the order of the log
marker_of(batch)                                  # what a control batch says of its transaction
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from conformance.batches import CONTROL, TRANSACTIONAL, Batch, Record, batches
from conformance.broker import READ_COMMITTED, Broker, Topic, only
from conformance.transaction_client import expect_agreed
from conformance.wire import Failed

ABORT, COMMIT = 0, 1
"""Types of control records that end a transaction."""
WHOLE = 50 << 20
CONTROL_KEY = struct.Struct(">hh")
CONTROL_VALUE = struct.Struct(">hi")
MAX_FETCHES = 10_000


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction in a partition, as its control batch has it."""

    offset: int
    kind: int
    """ABORT or COMMIT."""
    producer_id: int
    producer_epoch: int
    key_version: int
    value_version: int
    coordinator_epoch: int


def marker_of(batch: Batch) -> Marker:
    """What a control batch says. Errors: Failed where it is not of the form that KIP-98 gives it."""
    record = only(batch.records(), f"record in the control batch at {batch.base_offset}")
    key, value = record.key or b"", record.value or b""
    if len(key) < CONTROL_KEY.size or len(value) < CONTROL_VALUE.size:
        raise Failed(f"the control record at {batch.base_offset} has key {key.hex(' ')} and value {value.hex(' ')}")
    key_version, kind = CONTROL_KEY.unpack_from(key)
    value_version, coordinator_epoch = CONTROL_VALUE.unpack_from(value)
    return Marker(
        batch.base_offset, kind, batch.producer_id, batch.producer_epoch, key_version, value_version, coordinator_epoch
    )


def markers(data: bytes) -> list[Marker]:
    """The markers in fetched bytes."""
    return [marker_of(one) for one in batches(data) if one.attributes & CONTROL]


def aborted_of(part: Any) -> list[tuple[int, int]]:
    """The aborted transactions that a fetched partition lists: producer ids and first offsets."""
    return [(one.producer_id, one.first_offset) for one in part.aborted_transactions or []]


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
    broker: Broker, topic: Topic, *, partition: int = 0, offset: int = 0, partition_max_bytes: int = WHOLE,
    to: tuple[str, int] | None = None,
) -> list[Record]:  # fmt: skip
    """All that counts from an offset up to the last stable one, fetched in pieces of so many bytes."""
    found: list[Record] = []
    for _ in range(MAX_FETCHES):
        part = broker.fetch(
            topic, offset, partition=partition, isolation=READ_COMMITTED, partition_max_bytes=partition_max_bytes,
            to=broker.connection(to) if to else None,
        )  # fmt: skip
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
