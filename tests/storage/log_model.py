"""A model of a log: a list of batches that knows no files."""

from __future__ import annotations

from typing import NamedTuple

from reference.protocol.primitives import NO_PRODUCER_ID, Buffer, LeaderEpoch, Offset, ProducerId, TimestampMs
from reference.protocol.records.batch import records_of

START = TimestampMs(1_700_000_000_000)
TOMBSTONES_STAY_MS = 1_000
"""Longer than a run without a long tick, shorter than a long tick."""


class Plain(NamedTuple):
    """A record as the model keeps it."""

    offset: Offset
    timestamp: TimestampMs
    key: bytes | None
    value: bytes | None


def copied(data: Buffer | None) -> bytes | None:
    return None if data is None else bytes(data)


def plain(batch: Buffer) -> tuple[Plain, ...]:
    return tuple(
        Plain(one.offset, one.timestamp, copied(one.key), copied(one.value)) for one in records_of(memoryview(batch))
    )


class Stored(NamedTuple):
    """A batch as the model keeps it."""

    base: Offset
    last: Offset
    data: bytes
    epoch: LeaderEpoch
    records: tuple[Plain, ...]
    producer: ProducerId = NO_PRODUCER_ID
    transactional: bool = False
    marker: bool | None = None
    """True for a commit, False for an abort."""
    next_sequence: int = 0
    """The next sequence number of its producer."""
