"""A follower's steps: append the leader's records, and truncate a log that diverges from the leader's.

A `Following` exists for one leader epoch. In: the leader's response, with records (`append_fetched`), a diverging epoch
(`truncate`), or after an out-of-range fetch the leader's bounds (`truncate_to_leader_end`, `start_over_at`). Offsets
and epochs are the leader's, stored unchanged. `fetcher` sends the requests.

With the historical rule `high-watermark` a follower truncates its log to its own high watermark when a leader epoch
begins. From then on it treats logs of equal length as equal. That loses and forks committed records (KIP-101). It is
here so that the tests of the checkers have a bug to find. Source: Kafka's `AbstractFetcherThread`,
`ReplicaFetcherThread`; KIP-101,
KIP-279, KIP-595.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import NO_OFFSET, Buffer, LeaderEpoch, Offset, TimestampMs
from reference.protocol.records.batch import read_batches
from reference.replication.high_watermark import follower_high_watermark
from reference.replication.replica import Replica
from reference.storage.errors import LogError
from reference.storage.truncation_point import truncation_point


@dataclass(slots=True, eq=False)
class Following:
    """The role of a follower in one leader epoch: its steps. It has no state of its own."""

    replica: Replica

    @classmethod
    def with_log_cut(cls, replica: Replica) -> Following:
        """The role in a newer leader epoch. Errors: StorageError if the log cannot be truncated; then nothing has
        changed.

        Also a truncation to the log end drops the epoch of a leadership in which this replica appended nothing. It must
        not become the epoch of the records that now come.
        """
        log = replica.log
        # With leader epochs nothing is truncated here: the leader reports where the logs diverge. Before KIP-101 a
        # follower had only its high watermark, and may have truncated committed records.
        kept = replica.high_watermark if replica.truncation == "high-watermark" else log.log_end_offset
        with replica.cutting_log():
            log.truncate_to(min(kept, log.log_end_offset))
        return cls(replica)

    # ---- what a leader sends

    def append_fetched(
        self,
        fetch_offset: Offset,
        records: Buffer,
        leader_high_watermark: Offset,
        leader_log_start: Offset,
        now: TimestampMs,
    ) -> bool:
        """Append a response's records, and adopt its high watermark and log start; True if log end, high watermark or
        log start moved.

        Errors: LogError for a response to a fetch from another offset; RecordsError for corrupt bytes; StorageError.
        """
        replica, log_end = self.replica, self.replica.log.log_end_offset
        # The log has changed since the fetch was sent: the records would be appended at the wrong offset.
        if fetch_offset != log_end:
            raise LogError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{replica.name}: records were fetched from {fetch_offset}, and the log ends at {log_end}",
            )
        # Records first: the high watermark is adopted only up to the log end.
        grew = len(records) > 0 and self._append(records, now)
        moved = self.adopt_high_watermark(leader_high_watermark)
        # The leader's log start may be above the high watermark here, which a log start must not exceed.
        cut = self.replica.log.advance_log_start_offset(min(leader_log_start, self.replica.high_watermark))
        return grew or moved or cut

    def _append(self, records: Buffer, now: TimestampMs) -> bool:
        before = self.replica.log.log_end_offset
        try:
            self._begin_with_whole_batch(records, now)
            self.replica.log.append_as_follower(records, now, self.replica.state.leader_epoch)
        finally:
            # If the disk refuses one of several batches, the ones before it are appended, and must be traced.
            if self.replica.log.log_end_offset > before and self.replica.trace is not None:
                self.replica.trace_step(
                    "AppendFetched",
                    follower=self.replica.node,
                    leader=self.replica.state.leader,
                    end=self.replica.log.log_end_offset,
                )
        return self.replica.log.log_end_offset > before

    def _begin_with_whole_batch(self, records: Buffer, now: TimestampMs) -> None:
        """Start an empty log at the beginning of the first batch: DeleteRecords may put the leader's log start within a batch."""
        log = self.replica.log
        if log.log_start_offset != log.log_end_offset:
            return
        first = next(iter(read_batches(records)), None)
        if first is None or first.header.leader_epoch > self.replica.state.leader_epoch:
            return
        if first.header.base_offset < log.log_end_offset <= first.header.last_offset:
            with self.replica.cutting_log():
                log.truncate_fully_and_start_at(first.header.base_offset, now)

    def adopt_high_watermark(self, leader_high_watermark: Offset) -> bool:
        """Adopt the leader's high watermark up to this log's end; a new leader's may be lower than the previous leader's."""
        adopted = follower_high_watermark(leader_high_watermark, self.replica.log.log_end_offset)
        # Deleted records were committed, even if a newly elected leader's high watermark is below them.
        adopted = max(adopted, self.replica.log.log_start_offset)
        if adopted == self.replica.high_watermark:
            return False
        self.replica.high_watermark = adopted
        if self.replica.trace is not None:
            self.replica.trace_step(
                "AdoptHighWatermark",
                follower=self.replica.node,
                leader=self.replica.state.leader,
                highWatermark=adopted,
            )
        return True

    # ---- where the logs part

    def truncate(self, diverging_epoch: LeaderEpoch, end: Offset) -> Offset:
        """Truncate by the leader's response: its largest epoch not above this log's last, and that epoch's end offset.

        Return the new log end offset. The next fetch shows whether the logs agree, or the leader reports an earlier
        epoch.
        Errors: StorageError.
        """
        log = self.replica.log
        own = log.end_offset_for_epoch(diverging_epoch)
        point = truncation_point(
            diverging_epoch,
            max(end, NO_OFFSET),
            own.leader_epoch,
            own.end_offset,
            log.log_end_offset,
            self.replica.high_watermark,
        )
        self._cut(point.offset)
        return log.log_end_offset

    def truncate_to_leader_end(self, end: Offset) -> bool:
        """Truncate to the leader's end after a fetch beyond it was out of range. False if nothing was truncated.

        Errors: StorageError.
        """
        if not 0 <= end < self.replica.log.log_end_offset:
            return False
        self._cut(end)
        return True

    def _cut(self, offset: Offset) -> None:
        log = self.replica.log
        with self.replica.cutting_log():  # after an unclean election the leader may lack committed records
            log.truncate_to(offset)
        if self.replica.trace is not None:
            self.replica.trace_step(
                "Truncate", follower=self.replica.node, leader=self.replica.state.leader, end=log.log_end_offset
            )

    def start_over_at(self, offset: Offset, now: TimestampMs) -> bool:
        """Empty the log and restart it at the leader's log start, if that is above this log's end; otherwise return
        False.

        The specification has no retention, and no such step. Errors: StorageError.
        """
        if offset <= self.replica.log.log_end_offset:
            return False
        with self.replica.cutting_log():
            self.replica.log.truncate_fully_and_start_at(offset, now)
        if self.replica.trace is not None:
            self.replica.trace_step(
                "StartOver", follower=self.replica.node, leader=self.replica.state.leader, end=offset
            )
        return True
