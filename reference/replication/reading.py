"""Reads by clients: records below the high watermark, or below the last stable offset.

Only the leader serves clients, except that a fetch which carries the client's rack (Fetch v11 and later) is served by any
replica, up to its own high watermark (KIP-392). Source: requirements FET-*, EPO-*, LOF-*, TXV-06.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from reference.replication.replica import Replica, Role
from reference.storage.log import AbortedTransaction, LogSlice, TimestampOffset

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
"""Timestamps of ListOffsets that ask for a place instead of a time."""


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A ListOffsets result: -1 where nothing was found."""

    offset: Offset
    timestamp: TimestampMs
    leader_epoch: LeaderEpoch


NOT_FOUND = FoundOffset(NO_OFFSET, NO_TIMESTAMP, NO_EPOCH)


@dataclass(slots=True)
class Read:
    """A fetch's view of a partition. `records` pins its file until it is released."""

    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records: LogSlice | bytes = b""
    aborted: Sequence[AbortedTransaction] | None = None
    diverging: tuple[LeaderEpoch, Offset] | None = None
    """Where the asker's log and this one part: the largest epoch up to the asker's last, and where that ended here."""
    moved: bool = False
    """Whether a follower's fetch moved the high watermark or the low watermark, or led to a proposal."""


class Readable(Replica):
    """A replica that is read from."""

    __slots__ = ()

    def last_stable_offset(self) -> Offset:
        """Below it every transaction has ended: the first open transaction's start, at most the high watermark (TXV-06)."""
        return self.log.last_stable_offset(self.high_watermark)

    def read(
        self,
        offset: Offset,
        *,
        max_bytes: int,
        minimum_one: bool,
        committed: bool,
        asked_epoch: LeaderEpoch,
        last_epoch: LeaderEpoch,
        from_any_replica: bool = False,
    ) -> Read:
        """Serve a consumer's fetch: records from an offset up to the high watermark or the last stable offset.

        `committed` asks for read_committed; `last_epoch` is the epoch of the record before the offset, -1 where the
        client does not say; `from_any_replica` lets a follower serve it. An offset between the high watermark and the
        log's end gives no records and no error.
        Errors: KafkaError as for `require_leader`, OFFSET_OUT_OF_RANGE (FET-02); LogError.
        """
        self.require_reader(asked_epoch, from_any_replica)
        found = self.look_at(offset, last_epoch)
        if found.diverging is not None:
            return found
        limit = found.last_stable_offset if committed else self.high_watermark
        if offset < limit:
            found.records = self.log.read(offset, max_bytes, limit, minimum_one).records
        if committed:
            found.aborted = self.log.aborted_transactions(offset, limit)
        return found

    def require_reader(self, asked_epoch: LeaderEpoch, from_any_replica: bool) -> None:
        """Errors: KafkaError as for `require_leader`; a replica without a role serves no fetch."""
        if from_any_replica and self.role is Role.FOLLOWER:
            self.require_epoch(asked_epoch)
        else:
            self.require_leader(asked_epoch)

    def look_at(self, offset: Offset, last_epoch: LeaderEpoch) -> Read:
        """The bounds for a fetch from this offset, without records yet. Errors: KafkaError OFFSET_OUT_OF_RANGE."""
        log = self.log
        found = Read(self.high_watermark, self.last_stable_offset(), log.log_start_offset)
        if last_epoch >= 0:
            end = log.end_offset_for_epoch(last_epoch)
            if end.end_offset < 0 or offset < log.log_start_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if end.leader_epoch < last_epoch or end.end_offset < offset:
                found.diverging = (end.leader_epoch, end.end_offset)
                return found
        if offset < log.log_start_offset or offset > log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return found

    def offset_for_leader_epoch(self, epoch: LeaderEpoch, asked_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Where an epoch ends on this leader (EPO-04 to EPO-06). Errors: as for `require_leader`."""
        self.require_leader(asked_epoch)
        end = self.log.end_offset_for_epoch(epoch)
        return end.leader_epoch, end.end_offset

    # ---- offsets by time or place

    def list_offset(
        self, timestamp: TimestampMs, committed: bool, asked_epoch: LeaderEpoch, *, for_replica: bool = False
    ) -> FoundOffset:
        """ListOffsets (LOF-01 to LOF-12) for a timestamp or a special one; replicas see the whole log, clients what is committed.

        Errors: as for `require_leader`; KafkaError OFFSET_NOT_AVAILABLE while a new leader does not know yet how far
        its predecessor had committed (KIP-207; clients before ListOffsets v5 receive LEADER_NOT_AVAILABLE).
        """
        self.require_leader(asked_epoch)
        log = self.log
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return FoundOffset(log.log_start_offset, NO_TIMESTAMP, log.epoch_at(log.log_start_offset))
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return NOT_FOUND
        limit = log.log_end_offset if for_replica else self._visible_end(committed)
        if timestamp == LATEST:
            self._require_settled_end(for_replica)
            return FoundOffset(limit, NO_TIMESTAMP, self.state.leader_epoch)
        found = log.latest_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        return self._if_visible(found, limit, for_replica)

    def _visible_end(self, committed: bool) -> Offset:
        return self.last_stable_offset() if committed else self.high_watermark

    def _if_visible(self, found: TimestampOffset | None, limit: Offset, for_replica: bool) -> FoundOffset:
        if found is None or found.offset >= limit:
            self._require_settled_end(for_replica)
            return NOT_FOUND
        return FoundOffset(found.offset, found.timestamp, found.leader_epoch)

    def _require_settled_end(self, for_replica: bool) -> None:
        if not for_replica and self.high_watermark < self.epoch_start:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"The high watermark {self.high_watermark} of {self.name} is behind {self.epoch_start}, where leader"
                f" epoch {self.state.leader_epoch} began.",
            )
