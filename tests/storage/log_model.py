"""A model of a log: a list of batches that knows no files."""

from __future__ import annotations

from typing import NamedTuple

from reference.protocol.records.batch import records_of

START = 1_700_000_000_000
TOMBSTONES_STAY_MS = 1_000
"""Longer than a run without a long tick, shorter than a long tick."""


class Plain(NamedTuple):
    """A record as the model keeps it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def plain(batch: memoryview | bytes) -> tuple[Plain, ...]:
    return tuple(
        Plain(one.offset, one.timestamp, one.key and bytes(one.key), None if one.value is None else bytes(one.value))
        for one in records_of(memoryview(batch))
    )


class Stored(NamedTuple):
    """A batch as the model keeps it."""

    base: int
    last: int
    data: bytes
    epoch: int
    records: tuple[Plain, ...]
    producer: int = -1
    transactional: bool = False
    marker: bool | None = None
    """True for a commit, False for an abort."""
    next_sequence: int = 0
    """The sequence number with which its producer goes on."""
