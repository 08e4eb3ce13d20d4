"""The results of reading a partition: a fetch's records and bounds, and offsets of ListOffsets.

Source: requirements FET-*, EPO-*, LOF-*, TXV-06.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reference.protocol.primitives import (
    NO_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    TimestampMs,
)
from reference.replication.progress import UNKNOWN
from reference.storage.log import AbortedTransaction, LogSlice

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = map(
    TimestampMs, (-1, -2, -3, -4, -5, -6)
)
"""Timestamps of ListOffsets that name a position instead of a time."""


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A ListOffsets result: -1 if nothing was found."""

    offset: Offset
    timestamp: TimestampMs
    leader_epoch: LeaderEpoch


NOT_FOUND = FoundOffset(NO_OFFSET, NO_TIMESTAMP, NO_EPOCH)


@dataclass(slots=True)
class Read:
    """The result of a fetch on a partition. `records` pins its file until it is released."""

    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records: LogSlice | bytes = b""
    aborted: Sequence[AbortedTransaction] | None = None
    diverging: tuple[LeaderEpoch, Offset] | None = None
    """Where the follower's log diverges: the largest epoch here that is not above its last one, and that epoch's end offset."""
    moved: bool = False
    """Whether a follower's fetch moved the high watermark or the low watermark, or caused a proposal."""


class FollowerFetch(NamedTuple):
    """A follower's fetch of one partition."""

    follower: NodeId
    broker_epoch: BrokerEpoch
    offset: Offset
    last_fetched_epoch: LeaderEpoch
    asked_epoch: LeaderEpoch
    """The leader epoch of the request; -1 for none."""
    max_bytes: int
    minimum_one: bool
    log_start: Offset = UNKNOWN
