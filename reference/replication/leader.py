"""A leader's steps: followers' progress, the high watermark, and the in-sync replicas.

A `Leading` exists for one leader epoch, so that no state of one epoch is used in another.
In: a newer partition state of the same leader epoch (`commit_isr`), a follower's fetch (`answer_fetch`), the outcome of a
proposal (`proposal_answered`), time (`shrink_isr`). Out: the replica's `high_watermark`, and one proposal at a time for the
controller (`take_proposal`).

The high watermark is the least log end offset of the *maximal* ISR: the members of the committed ISR and of the pending
proposal. It also waits for a caught-up follower that may join, as otherwise the follower of a busy partition would never catch
up with it. It never goes back within a leader epoch. It does not advance while the ISR is smaller than min.insync.replicas, so
that each replica which leaves the ISR for the ELR has every committed record (KIP-966). Source: Kafka's `Partition`
(maybeIncrementLeaderHW, maybeExpandIsr, maybeShrinkIsr, handleAlterPartitionError); KIP-497, KIP-903.

The AlterPartition response may arrive before the leader has replayed the record it produced. It does not carry the
min.insync.replicas by which the controller computed the ELR. So a replica removed by a response still counts toward
the high watermark until its PartitionChangeRecord is replayed (`removed_pending_replay`). In Kafka 4.3.1 and 4.4.0 it does not
count: they lose acknowledged records where min.insync.replicas is raised meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import (
    LONG_AGO,
    NO_EPOCH,
    NO_TIMESTAMP,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    TimestampMs,
)
from reference.replication.high_watermark import next_high_watermark
from reference.replication.isr import NO_BROKER_EPOCH, effective_min_isr, is_admissible, is_lagging, may_join
from reference.replication.partition_state import PartitionState
from reference.replication.progress import Progress
from reference.replication.proposal import AcceptedIsr, Proposal, ProposalOutcome, outcome_of
from reference.replication.reading import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NOT_FOUND,
    FollowerFetch,
    FoundOffset,
    Read,
)
from reference.replication.replica import Replica
from reference.storage.log import TimestampOffset


@dataclass(slots=True, eq=False)
class Leading:
    """The leader's role of a replica in one leader epoch: its state and its steps."""

    replica: Replica
    epoch_start: Offset
    """The log end offset at which this leader epoch began."""
    followers: dict[NodeId, Progress]
    """The progress of each other replica of the assignment."""
    pending: Proposal | None = None
    """The proposed ISR, until its outcome is known."""
    pending_is_sent: bool = False
    removed_pending_replay: frozenset[NodeId] = frozenset()
    """Replicas that an AlterPartition response removed from the ISR; they count until the record is replayed."""

    # ---- leader epochs

    @classmethod
    def from_log_end(cls, replica: Replica, state: PartitionState, now: TimestampMs) -> Leading:
        """The role in a newer leader epoch, which begins at the log end offset. Errors: StorageError; nothing changes then.

        Kafka keeps followers' progress when the same broker is elected again. The specification resets it, at the cost of one
        fetch.
        """
        # Before the first append of the epoch: its start is where the previous epoch ended, for which followers ask (KIP-101).
        replica.log.assign_epoch_start(state.leader_epoch, replica.log.log_end_offset)
        followers = {
            # A member of the ISR has a whole replica.lag.time.max.ms to find this leader before it counts as lagging.
            follower: Progress(last_caught_up=now if follower in state.isr else LONG_AGO)
            for follower in state.replicas
            if follower != replica.node
        }
        return cls(replica, replica.log.log_end_offset, followers)

    def commit_isr(
        self, state: PartitionState, now: TimestampMs, removed_pending_replay: frozenset[NodeId] = frozenset()
    ) -> bool:
        """Adopt a newer partition state of this leader epoch: a replayed record, or an accepted proposal.

        It settles a pending proposal. False where its partition epoch is not newer.
        `removed_pending_replay`: replicas that left the ISR and still count; empty for a replayed record.
        """
        if state.leader_epoch != self.replica.state.leader_epoch:
            return False
        # Responses and records arrive in either order. An older one would add a removed replica again, or drop one that counts.
        if state.partition_epoch <= self.replica.state.partition_epoch:
            return False
        self.assign(state)
        self.pending, self.pending_is_sent, self.removed_pending_replay = None, False, removed_pending_replay
        if self.replica.trace is not None:
            self.replica.trace_step("CommitIsr", leader=self.replica.node, partitionEpoch=state.partition_epoch)
        self.advance_high_watermark(now)
        return True

    def take_known_isr(self, state: PartitionState, now: TimestampMs) -> bool:
        """Replay the record of an ISR that an AlterPartition response reported earlier; True when something changed.

        The record's assignment may be new. The min.insync.replicas in force at the record is now known, so replicas that the
        response removed no longer count.
        """
        replica = self.replica
        if state.partition_epoch < replica.state.partition_epoch:
            return False
        is_new, counted = state != replica.state, self.removed_pending_replay
        if is_new:
            self.assign(state)
        if counted:
            self.removed_pending_replay = frozenset()
            self.advance_high_watermark(now)
        return is_new or bool(counted)

    def assign(self, state: PartitionState) -> None:
        """Adopt a state: keep the progress of replicas that stay assigned, and begin that of new ones."""
        self.replica.state = state
        self.followers = {
            follower: self.followers.get(follower) or Progress()
            for follower in state.replicas
            if follower != self.replica.node
        }

    # ---- followers' fetches

    def answer_fetch(self, asked: FollowerFetch, now: TimestampMs) -> Read:
        """Serve a follower's fetch up to the log end offset, and record the follower's progress.

        A delayed fetch is read again by `read_as_follower`, which records no progress. The response carries the high watermark
        from before this fetch, as Kafka's does; the next response carries an advanced one.
        Errors: KafkaError UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER (also for a fetch of an earlier incarnation),
        OFFSET_OUT_OF_RANGE; StorageError.
        """
        replica, follower = self.replica, asked.follower
        read = self.read_as_follower(asked)
        if replica.trace is not None and self._has_deleted(asked.last_fetched_epoch):
            replica.trace_step("AnswerFromLogStart", leader=replica.node, follower=follower)
        # A diverging follower does not hold this log's records: its offset must not count toward the high watermark.
        if read.diverging is not None:
            return read
        # Before the progress is recorded: since an earlier incarnation's fetch the follower's log may have lost its end.
        self._require_present_incarnation(follower, asked.broker_epoch)
        progress = self.followers[follower]
        end_before = progress.end
        low_before = self.low_watermark() if asked.log_start != progress.log_start else None
        log_end = replica.log.log_end_offset
        # A fetch from the middle of a batch means that the follower has none of the batch: batches are replicated
        # whole.
        end = asked.offset if asked.offset == log_end else replica.log.batch_start(asked.offset)
        has_changed = progress.take_fetch(end, asked.log_start, asked.broker_epoch, log_end, now)
        if has_changed and replica.trace is not None:
            replica.trace_step(
                "AnswerFetch", leader=replica.node, follower=follower, end=end, brokerEpoch=asked.broker_epoch
            )
        proposes = self.expand_isr(follower)
        # After the proposal: a follower that is about to join counts already, and may hold the high watermark back.
        commits = end != end_before and self.advance_high_watermark(now)
        read.moved = proposes or commits or (low_before is not None and low_before != self.low_watermark())
        return read

    def read_as_follower(self, asked: FollowerFetch) -> Read:
        """A follower's fetch: records up to the log end offset, or the diverging epoch. Errors: as `answer_fetch`."""
        replica, state = self.replica, self.replica.state
        if asked.follower not in self.followers:
            # A reassignment may have added it in metadata that this leader has not replayed: both errors are retriable.
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER if asked.asked_epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"Replica {asked.follower} is not a replica of {replica.name} in leader epoch {state.leader_epoch} with"
                f" partition epoch {state.partition_epoch}.",
            )
        read = replica.look_at(asked.offset, asked.last_fetched_epoch)
        if read.diverging is None and asked.offset < replica.log.log_end_offset:
            read.records = replica.log.read(asked.offset, asked.max_bytes, None, asked.minimum_one).records
        return read

    def _has_deleted(self, epoch: LeaderEpoch) -> bool:
        """Whether retention has deleted an epoch and all before it: its end is unknown, and the response carries the log start
        offset instead, as Kafka's does. The specification has no retention, and no such step."""
        start = self.replica.log.log_start_offset
        return 0 <= epoch < self.replica.state.leader_epoch and start > 0 and epoch < self.replica.log.epoch_at(start)

    def _require_present_incarnation(self, follower: NodeId, broker_epoch: BrokerEpoch) -> None:
        peer = self.replica.brokers(follower)
        if broker_epoch == NO_BROKER_EPOCH or peer is None or peer.is_fenced or peer.broker_epoch is None:
            return
        if broker_epoch < peer.broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {follower} fetched with broker epoch {broker_epoch}, but is registered with {peer.broker_epoch}.",
            )

    # ---- the high watermark

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, or the number of replicas where that is smaller."""
        return effective_min_isr(self.replica.min_isr, len(self.replica.state.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.replica.state.isr) < self.effective_min_isr

    def is_in_maximal_isr(self, broker: NodeId) -> bool:
        """Whether a broker is in the committed ISR or in the pending proposal, which the controller may have accepted already."""
        return broker in self.replica.state.isr or (self.pending is not None and broker in self.pending.isr)

    def advance_high_watermark(self, now: TimestampMs) -> bool:
        """Advance the high watermark to the least log end offset of the replicas that count; True when it moved."""
        # With an ISR below the minimum it would commit records that a leader elected from the ELR may lack (KIP-966).
        if self.is_under_min_isr:
            return False
        moved = next_high_watermark(
            self.replica.high_watermark, self.replica.log.log_end_offset, self._counted_ends(now)
        )
        if moved == self.replica.high_watermark:
            return False
        self.replica.high_watermark = moved
        if self.replica.trace is not None:
            self.replica.trace_step("AdvanceHighWatermark", leader=self.replica.node, highWatermark=moved)
        return True

    def _counted_ends(self, now: TimestampMs) -> Iterator[Offset]:
        # Not the committed ISR alone: the controller may have accepted the pending proposal and elect a leader from it (KIP-497).
        for follower, progress in self.followers.items():
            if (
                self.is_in_maximal_isr(follower)
                or follower in self.removed_pending_replay
                or self._is_about_to_join(follower, progress, now)
            ):
                yield progress.end

    def _is_about_to_join(self, follower: NodeId, progress: Progress, now: TimestampMs) -> bool:
        lags = is_lagging(
            progress.end, self.replica.log.log_end_offset, progress.last_caught_up, now, self.replica.lag_max_ms
        )
        return not lags and self._is_admissible(follower)

    def is_committed(self, end: Offset) -> bool:
        """Whether everything below an offset is committed."""
        return self.replica.high_watermark >= end

    def answer_to_produce(self, end: Offset) -> ErrorCode | None:
        """The error code for a produce request with acks=all; None while it must wait (ACK-04, ACK-06).

        NOT_ENOUGH_REPLICAS_AFTER_APPEND where the records are committed and the ISR is now below min.insync.replicas.
        """
        if not self.is_committed(end):
            return None
        # The maximal ISR, as in Kafka: the controller may have accepted the pending proposal already.
        members = {*self.replica.state.isr, *(self.pending.isr if self.pending is not None else ())}
        return ErrorCode.NONE if len(members) >= self.effective_min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # ---- the ISR

    def expand_isr(self, follower: NodeId) -> bool:
        """Propose to add a caught-up follower; it counts from now on. False where a proposal is pending, or it may not join."""
        progress = self.followers.get(follower)
        if progress is None or self.pending is not None or follower in self.replica.state.isr:
            return False
        if not may_join(progress.end, self.replica.high_watermark, self.epoch_start) or not self._is_admissible(
            follower
        ):
            return False
        self._propose((*self.replica.state.isr, follower))
        if self.replica.trace is not None:
            self.replica.trace_step("ExpandIsr", leader=self.replica.node, follower=follower)
        return True

    def shrink_isr(self, now: TimestampMs) -> bool:
        """Propose to remove the first lagging member; it counts until the PartitionChangeRecord of its removal is replayed.

        The ISR loses one member at a time, as in the specification; Kafka removes all lagging members at once. The node proposes
        the next removal as soon as this one is settled.
        """
        if self.pending is not None:
            return False
        for follower in self.replica.state.isr:
            if follower != self.replica.node and self._lags(follower, now):
                self._propose(tuple(member for member in self.replica.state.isr if member != follower))
                if self.replica.trace is not None:
                    self.replica.trace_step("ShrinkIsr", leader=self.replica.node, follower=follower)
                return True
        return False

    def _lags(self, follower: NodeId, now: TimestampMs) -> bool:
        progress = self.followers.get(follower)
        if progress is None:
            return True
        return is_lagging(
            progress.end, self.replica.log.log_end_offset, progress.last_caught_up, now, self.replica.lag_max_ms
        )

    def _is_admissible(self, follower: NodeId) -> bool:
        peer = self.replica.brokers(follower)
        if peer is None:
            return False
        fetched = self.followers[follower].broker_epoch
        registered = fetched if peer.broker_epoch is None else peer.broker_epoch
        return is_admissible(fetched, registered, peer.is_fenced, peer.is_shutting_down)

    # ---- proposals

    def _propose(self, isr: tuple[NodeId, ...]) -> None:
        epochs = tuple(self._broker_epoch_of(member) for member in isr)
        self.pending = Proposal(self.replica.state.leader_epoch, self.replica.state.partition_epoch, isr, epochs)
        self.pending_is_sent = False

    def _broker_epoch_of(self, member: NodeId) -> BrokerEpoch:
        """NO_BROKER_EPOCH, which the controller does not check, for a member that has not fetched in this leader epoch.

        If the member restarted, the controller has removed it and raised the partition epoch, which it checks.
        """
        if member == self.replica.node:
            peer = self.replica.brokers(member)
            return peer.broker_epoch if peer is not None and peer.broker_epoch is not None else NO_BROKER_EPOCH
        progress = self.followers.get(member)
        return max(progress.broker_epoch, NO_BROKER_EPOCH) if progress is not None else NO_BROKER_EPOCH

    def take_proposal(self) -> Proposal | None:
        """The proposal to send to the controller, returned once. The caller reports its outcome to `proposal_answered`."""
        if self.pending is None or self.pending_is_sent:
            return None
        self.pending_is_sent = True
        return self.pending

    def proposal_answered(
        self, proposal: Proposal, error: ErrorCode, now: TimestampMs, accepted: AcceptedIsr | None = None
    ) -> ProposalOutcome | None:
        """Apply the outcome of a proposal; None where it is no longer the pending one.

        `error` is the partition's error in the response, or the response's own. Where there was no response it is one such as
        NETWORK_EXCEPTION: `take_proposal` then returns the same proposal again.
        """
        if self.pending is not proposal:
            return None
        outcome = outcome_of(error)
        if outcome is ProposalOutcome.COMMITTED and accepted is not None:
            self._take_accepted(accepted, now)
        # Any other error leaves it pending: the controller may have accepted an earlier copy, and elect one of its members.
        elif outcome is ProposalOutcome.ROLLED_BACK:
            self.roll_back_isr(now)
        elif outcome is ProposalOutcome.SENT_AGAIN:
            self.pending_is_sent = False
        return outcome

    def _take_accepted(self, accepted: AcceptedIsr, now: TimestampMs) -> None:
        """A response of another leader epoch or an older partition epoch settles nothing; a replayed record will."""
        state, isr = self.replica.state, accepted.isr
        if accepted.leader_epoch != state.leader_epoch or accepted.partition_epoch < state.partition_epoch:
            return
        if accepted.partition_epoch == state.partition_epoch:
            self.pending, self.pending_is_sent = None, False
            return
        self.commit_isr(
            replace(state, isr=isr, partition_epoch=accepted.partition_epoch),
            now,
            self._removed_pending_replay_after(isr),
        )

    def _removed_pending_replay_after(self, isr: tuple[NodeId, ...]) -> frozenset[NodeId]:
        """The replicas that still count after a response: all that left the ISR since the last replayed record."""
        return self.removed_pending_replay | {*self.replica.state.isr} - {*isr}

    def roll_back_isr(self, now: TimestampMs) -> None:
        """Drop the pending proposal, which the controller refused for good."""
        self.pending, self.pending_is_sent = None, False
        if self.replica.trace is not None:
            self.replica.trace_step("RollBackIsr", leader=self.replica.node)
        # The replica that was to join no longer holds the high watermark back.
        self.advance_high_watermark(now)

    # ---- offsets by epoch, time or place

    def offset_for_leader_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch not above this one in the leader's log, and its end offset (EPO-04 to EPO-06)."""
        end = self.replica.log.end_offset_for_epoch(epoch)
        return end.leader_epoch, end.end_offset

    def list_offset(self, timestamp: TimestampMs, committed: bool, *, for_replica: bool = False) -> FoundOffset:
        """ListOffsets (LOF-01 to LOF-12) for a timestamp in ms, or a special one such as LATEST.

        A replica sees the whole log; a client sees it up to the high watermark or, with `committed`, the last stable offset.
        Errors: KafkaError OFFSET_NOT_AVAILABLE while the high watermark is below the start of this leader epoch
        (KIP-207; clients before ListOffsets v5 receive LEADER_NOT_AVAILABLE).
        """
        log = self.replica.log
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return FoundOffset(log.log_start_offset, NO_TIMESTAMP, log.epoch_at(log.log_start_offset))
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return NOT_FOUND
        limit = log.log_end_offset if for_replica else self._visible_end(committed)
        if timestamp == LATEST:
            self._require_settled_end(for_replica)
            return FoundOffset(limit, NO_TIMESTAMP, self.replica.state.leader_epoch)
        found = log.latest_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        return self._if_visible(found, limit, for_replica)

    def _visible_end(self, committed: bool) -> Offset:
        return self.replica.last_stable_offset() if committed else self.replica.high_watermark

    def _if_visible(self, found: TimestampOffset | None, limit: Offset, for_replica: bool) -> FoundOffset:
        if found is None or found.offset >= limit:
            self._require_settled_end(for_replica)
            return NOT_FOUND
        return FoundOffset(found.offset, found.timestamp, found.leader_epoch)

    def _require_settled_end(self, for_replica: bool) -> None:
        replica = self.replica
        if not for_replica and replica.high_watermark < self.epoch_start:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"The high watermark {replica.high_watermark} of {replica.name} is behind {self.epoch_start}, where leader"
                f" epoch {replica.state.leader_epoch} began.",
            )

    # ---- deleted records

    def low_watermark(self) -> Offset:
        """The least log start offset of this leader and the followers on unfenced brokers; -1 while one is unknown.

        DeleteRecords waits for it.
        """
        lowest = self.replica.log.log_start_offset
        for follower, progress in self.followers.items():
            peer = self.replica.brokers(follower)
            if peer is not None and not peer.is_fenced:
                lowest = min(lowest, progress.log_start)
        return lowest
