"""A follower's steps: append the leader's records, and truncate a log that diverges from the leader's.

`Following` is made when a leader epoch begins. In: what came back from the leader: records (`append_fetched`), a diverging
epoch (`truncate`), or the leader's bounds, where a fetch was out of range (`truncate_to_leader_end`, `start_over_at`). Offsets
and epochs are the leader's, kept as they are. `fetcher` sends the requests.

With the historical rule `high-watermark` a follower cuts its log to its own high watermark when a leader epoch begins, and from
then on believes that logs of equal length are equal. That loses and forks committed records (KIP-101); it is here so that
tests of the testers have something to find. Source: Kafka's `AbstractFetcherThread`, `ReplicaFetcherThread`; KIP-101,
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
    """A replica that follows, in one leader epoch: its steps. It keeps nothing that another role would have to reset."""

    replica: Replica

    @classmethod
    def with_log_cut(cls, replica: Replica) -> Following:
        """The role in a newer leader epoch. Errors: StorageError when the log cannot be cut; nothing has changed.

        Cutting nothing off still forgets the epoch of a leadership in which this replica wrote nothing: it must not be taken
        for the epoch of the records that now come.
        """
        log = replica.log
        # With leader epochs nothing is cut here: the leader says where the logs part. Before KIP-101 a follower could
        # go by its high watermark only, and what it cut off may have been committed.
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
        """Append the records of an answer, and take over high watermark and log start; True when one of them moved.

        Errors: LogError for an answer to a fetch from another offset; RecordsError for corrupt bytes; StorageError.
        """
        replica, log_end = self.replica, self.replica.log.log_end_offset
        # The log has moved since the fetch was sent: the records would be appended in the wrong place.
        if fetch_offset != log_end:
            raise LogError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{replica.name}: records were fetched from {fetch_offset}, and the log ends at {log_end}",
            )
        # Records first: the high watermark is adopted as far as the log goes.
        grew = len(records) > 0 and self._append(records, now)
        moved = self.adopt_high_watermark(leader_high_watermark)
        # The leader's log may start beyond what is known here to be committed; a log start must not be above the high
        # watermark.
        cut = self.replica.log.advance_log_start_offset(min(leader_log_start, self.replica.high_watermark))
        return grew or moved or cut

    def _append(self, records: Buffer, now: TimestampMs) -> bool:
        before = self.replica.log.log_end_offset
        try:
            self._begin_with_whole_batch(records, now)
            self.replica.log.append_as_follower(records, now, self.replica.state.leader_epoch)
        finally:
            # Of several batches those before one that the disk refused are appended, and must be traced.
            if self.replica.log.log_end_offset > before and self.replica.trace is not None:
                self.replica.trace_step(
                    "AppendFetched",
                    follower=self.replica.node,
                    leader=self.replica.state.leader,
                    end=self.replica.log.log_end_offset,
                )
        return self.replica.log.log_end_offset > before

    def _begin_with_whole_batch(self, records: Buffer, now: TimestampMs) -> None:
        """A leader's log may start within a batch (DeleteRecords): an empty log begins with the whole of it."""
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
        """Believe the leader, as far as the own log goes; a new leader may know less than the one before."""
        adopted = follower_high_watermark(leader_high_watermark, self.replica.log.log_end_offset)
        # Deleted records were committed, whatever a leader that has just been elected knows.
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
        """Truncate by the leader's answer: its largest epoch up to ours, and the offset where that epoch ended.

        Gives the new end. The next fetch shows whether the logs now agree, or the leader names an epoch before.
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
        """A fetch from beyond the leader's log was out of range: truncate to the leader's end. False if nothing was cut.

        Errors: StorageError.
        """
        if not 0 <= end < self.replica.log.log_end_offset:
            return False
        self._cut(end)
        return True

    def _cut(self, offset: Offset) -> None:
        log = self.replica.log
        with self.replica.cutting_log():  # after an unclean election the leader may lack what was committed
            log.truncate_to(offset)
        if self.replica.trace is not None:
            self.replica.trace_step(
                "Truncate", follower=self.replica.node, leader=self.replica.state.leader, end=log.log_end_offset
            )

    def start_over_at(self, offset: Offset, now: TimestampMs) -> bool:
        """The leader's log begins after the end of ours: all that is here is stale. False where it does not.

        No step of the specification, which knows no retention. Errors: StorageError.
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
