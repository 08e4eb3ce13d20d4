"""A follower's steps: append the leader's records, and truncate a log that diverges from the leader's.

In: a new leader epoch (`become_follower`) and what came back from the leader: records (`append_fetched`), a diverging epoch
(`truncate`), or the leader's bounds, where a fetch was out of range (`truncate_to_leader_end`, `start_over_at`). Offsets and
epochs are the leader's, kept as they are. `fetcher` is who asks.

With the historical rule `high-watermark` a follower cuts its log to its own high watermark when a leader epoch begins, and from
then on believes that logs of equal length are equal. That loses and forks committed records (KIP-101); it is here so that
tests of the testers have something to find. Source: Kafka's `AbstractFetcherThread`, `ReplicaFetcherThread`; KIP-101,
KIP-279, KIP-595.
"""

from __future__ import annotations

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import NO_EPOCH, NO_OFFSET, Buffer, LeaderEpoch, NodeId, Offset, TimestampMs
from reference.protocol.records.batch import read_batches
from reference.replication.high_watermark import follower_high_watermark
from reference.replication.partition_state import PartitionState
from reference.replication.replica import Replica, Role
from reference.storage.errors import LogError
from reference.storage.truncation_point import truncation_point


class Following(Replica):
    """A replica that follows."""

    __slots__ = ()

    def become_follower(self, state: PartitionState) -> bool:
        """Another broker leads from now on, or no replica; False, and nothing, for a leader epoch that is not newer.

        Errors: StorageError when the log cannot be cut; the replica then acts as before.
        """
        if self.role is not Role.NONE and state.leader_epoch <= self.state.leader_epoch:
            return False
        log = self.log
        # Cutting nothing off still forgets the epoch of a leadership in which this replica wrote nothing: it must not be
        # taken for the epoch of the records that now come.
        kept = self.high_watermark if self.truncation == "high-watermark" else log.log_end_offset
        log.truncate_to(min(kept, log.log_end_offset))
        self.role, self.state = Role.FOLLOWER, state
        self.followers, self.pending, self.pending_is_sent, self.epoch_start = {}, None, False, NO_OFFSET
        self.removed_pending_replay = frozenset()
        self.high_watermark = min(self.high_watermark, log.log_end_offset)
        if self.trace is not None:
            self.trace_step(
                "BecomeFollower",
                broker=self.node,
                leaderEpoch=state.leader_epoch,
                partitionEpoch=state.partition_epoch,
            )
        return True

    @property
    def last_fetched_epoch(self) -> LeaderEpoch:
        """The epoch of the log's last record, by which a leader sees whether the logs agree; -1 for no comparison."""
        return NO_EPOCH if self.truncation == "high-watermark" else self.log.leader_epoch

    # ---- what a leader sends

    def append_fetched(
        self,
        leader: NodeId,
        fetch_offset: Offset,
        records: Buffer,
        leader_high_watermark: Offset,
        leader_log_start: Offset,
        now: TimestampMs,
    ) -> bool:
        """Append the records of an answer, and take over high watermark and log start; True when one of them moved.

        Errors: KafkaError NOT_LEADER_OR_FOLLOWER for an answer of a node that does not lead here; LogError for one to a fetch
        from another offset; RecordsError for corrupt bytes; StorageError.
        """
        self._require_following(leader)
        if fetch_offset != self.log.log_end_offset:
            raise LogError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{self.name}: records were fetched from {fetch_offset}, and the log ends at {self.log.log_end_offset}",
            )
        grew = len(records) > 0 and self._append(leader, records, now)
        moved = self.adopt_high_watermark(leader, leader_high_watermark)
        cut = self.log.advance_log_start_offset(min(leader_log_start, self.high_watermark))
        return grew or moved or cut

    def _require_following(self, leader: NodeId) -> None:
        if self.role is not Role.FOLLOWER or self.state.leader != leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} does not follow broker {leader}")

    def _append(self, leader: NodeId, records: Buffer, now: TimestampMs) -> bool:
        before = self.log.log_end_offset
        try:
            self._begin_with_whole_batch(records, now)
            self.log.append_as_follower(records, now)
        finally:
            # Of several batches those before one that the disk refused are appended, and must be traced.
            if self.log.log_end_offset > before and self.trace is not None:
                self.trace_step("AppendFetched", follower=self.node, leader=leader, end=self.log.log_end_offset)
        return self.log.log_end_offset > before

    def _begin_with_whole_batch(self, records: Buffer, now: TimestampMs) -> None:
        """A leader's log may start within a batch (DeleteRecords): an empty log begins with the whole of it."""
        log = self.log
        if log.log_start_offset != log.log_end_offset:
            return
        first = next(iter(read_batches(records)), None)
        if first is not None and first.header.base_offset < log.log_end_offset <= first.header.last_offset:
            log.truncate_fully_and_start_at(first.header.base_offset, now)
            self.high_watermark = min(self.high_watermark, log.log_end_offset)

    def adopt_high_watermark(self, leader: NodeId, leader_high_watermark: Offset) -> bool:
        """Believe the leader, as far as the own log goes; a new leader may know less than the one before."""
        adopted = follower_high_watermark(leader_high_watermark, self.log.log_end_offset)
        adopted = max(adopted, self.log.log_start_offset)
        if adopted == self.high_watermark:
            return False
        self.high_watermark = adopted
        if self.trace is not None:
            self.trace_step("AdoptHighWatermark", follower=self.node, leader=leader, highWatermark=adopted)
        return True

    # ---- where the logs part

    def truncate(self, leader: NodeId, diverging_epoch: LeaderEpoch, end: Offset) -> Offset:
        """Truncate by the leader's answer: its largest epoch up to ours, and the offset where that epoch ended.

        Gives the new end. The next fetch shows whether the logs now agree, or the leader names an epoch before.
        Errors: KafkaError NOT_LEADER_OR_FOLLOWER; StorageError.
        """
        self._require_following(leader)
        log = self.log
        own = log.end_offset_for_epoch(diverging_epoch)
        point = truncation_point(
            diverging_epoch,
            max(end, NO_OFFSET),
            own.leader_epoch,
            own.end_offset,
            log.log_end_offset,
            self.high_watermark,
        )
        self._cut(leader, point.offset)
        return log.log_end_offset

    def truncate_to_leader_end(self, leader: NodeId, end: Offset) -> bool:
        """A fetch from beyond the leader's log was out of range: truncate to the leader's end. False if nothing was cut.

        Errors: KafkaError NOT_LEADER_OR_FOLLOWER; StorageError.
        """
        self._require_following(leader)
        if not 0 <= end < self.log.log_end_offset:
            return False
        self._cut(leader, end)
        return True

    def _cut(self, leader: NodeId, offset: Offset) -> None:
        log = self.log
        log.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, log.log_end_offset)
        if self.trace is not None:
            self.trace_step("Truncate", follower=self.node, leader=leader, end=log.log_end_offset)

    def start_over_at(self, leader: NodeId, offset: Offset, now: TimestampMs) -> bool:
        """The leader's log begins after the end of ours: all that is here is stale. False where it does not.

        No step of the specification, which knows no retention. Errors: KafkaError NOT_LEADER_OR_FOLLOWER; StorageError.
        """
        self._require_following(leader)
        if offset <= self.log.log_end_offset:
            return False
        self.log.truncate_fully_and_start_at(offset, now)
        self.high_watermark = offset
        if self.trace is not None:
            self.trace_step("StartOver", follower=self.node, leader=leader, end=offset)
        return True
