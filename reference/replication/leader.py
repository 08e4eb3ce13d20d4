"""A leader's steps: followers' progress, the high watermark, and the in-sync replicas.

In: a new leader epoch (`become_leader`), a newer record of the same leader epoch (`commit_isr`), a follower's fetch
(`answer_fetch`), the answer to a proposal (`proposal_answered`), time (`shrink_isr`, due at `shrink_deadline`). Out:
`high_watermark`, and a proposal for the controller (`take_proposal`), one at a time.

The high watermark is the least log end offset of the *maximal* ISR: the committed members and those of the pending
proposal. It also waits for a follower that is caught up and may be about to join, for otherwise a busy partition's
follower would chase it for ever. It never goes back within a leader epoch, and does not advance while the ISR is smaller than
min.insync.replicas, so that any replica that then leaves the ISR has every committed record (KIP-966). Source: Kafka's
`Partition` (maybeIncrementLeaderHW, maybeExpandIsr, maybeShrinkIsr, handleAlterPartitionError); KIP-497, KIP-903.

The AlterPartition response may arrive before the leader has replayed the record it produced, and does not say by which
min.insync.replicas the controller judged which replicas stay eligible. So a replica removed by a response still counts toward
the high watermark until its PartitionChangeRecord is replayed (`removed_pending_replay`). Kafka 4.3.1 and 4.4.0 do without,
and lose acknowledged records where min.insync.replicas is raised meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import (
    LONG_AGO,
    NO_EPOCH,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    TimestampMs,
)
from reference.replication.high_watermark import next_high_watermark
from reference.replication.isr import UNSAID, effective_min_isr, is_admissible, is_lagging, may_join
from reference.replication.partition_state import NO_PARTITION_EPOCH, PartitionState
from reference.replication.progress import UNKNOWN, Progress
from reference.replication.proposal import Proposal, ProposalOutcome, outcome_of
from reference.replication.reading import Read, Readable
from reference.replication.replica import Role


class Leading(Readable):
    """A replica that leads."""

    __slots__ = ()

    # ---- leader epochs

    def become_leader(self, state: PartitionState, now: TimestampMs) -> bool:
        """Begin a newer leader epoch at the log's end. False, without effect, for an epoch that is not newer.

        Errors: StorageError when the epoch's start cannot be stored; nothing has then changed.
        """
        if not self.is_newer(state):
            return False
        self.log.assign_epoch_start(state.leader_epoch, self.log.log_end_offset)
        self.role, self.state = Role.LEADER, state
        self.epoch_start = self.log.log_end_offset
        self.pending, self.pending_is_sent, self.removed_pending_replay = None, False, frozenset()
        # Kafka keeps followers' progress when the same broker is elected again. The specification resets it, at the cost of
        # one fetch.
        self.followers = {
            follower: Progress(last_caught_up=now if follower in state.isr else LONG_AGO)
            for follower in state.replicas
            if follower != self.node
        }
        if self.trace is not None:
            self.trace_step(
                "BecomeLeader",
                broker=self.node,
                leaderEpoch=state.leader_epoch,
                partitionEpoch=state.partition_epoch,
            )
        self.advance_high_watermark(now)
        return True

    def is_newer(self, state: PartitionState) -> bool:
        """Whether a state begins a leader epoch here: any state for a replica without a role, else a newer leader epoch."""
        return self.role is Role.NONE or state.leader_epoch > self.state.leader_epoch

    def commit_isr(
        self, state: PartitionState, now: TimestampMs, removed_pending_replay: frozenset[NodeId] = frozenset()
    ) -> bool:
        """Adopt a newer record of this leader epoch; it settles a pending proposal. False where it is not newer.

        `removed_pending_replay`: replicas that left the ISR and still count; empty where the record itself was replayed.
        """
        if not self.is_leader or state.leader_epoch != self.state.leader_epoch:
            return False
        if state.partition_epoch <= self.state.partition_epoch:
            return False
        self.assign(state)
        self.pending, self.pending_is_sent, self.removed_pending_replay = None, False, removed_pending_replay
        if self.trace is not None:
            self.trace_step("CommitIsr", leader=self.node, partitionEpoch=state.partition_epoch)
        self.advance_high_watermark(now)
        return True

    def replay_record(self, state: PartitionState, now: TimestampMs) -> bool:
        """The record of an AlterPartition response is replayed, and with it its settings: replicas that left count no more."""
        if not self.removed_pending_replay or state.partition_epoch < self.state.partition_epoch:
            return False
        self.removed_pending_replay = frozenset()
        self.advance_high_watermark(now)
        return True

    def assign(self, state: PartitionState) -> None:
        """Follow the assignment: the progress of replicas that stay is kept, that of new ones begins."""
        self.state = state
        self.followers = {
            follower: self.followers.get(follower) or Progress() for follower in state.replicas if follower != self.node
        }

    # ---- followers' fetches

    def answer_fetch(
        self,
        follower: NodeId,
        broker_epoch: BrokerEpoch,
        fetch_offset: Offset,
        last_fetched_epoch: LeaderEpoch,
        asked_epoch: LeaderEpoch,
        now: TimestampMs,
        max_bytes: int,
        minimum_one: bool,
        log_start: Offset = UNKNOWN,
    ) -> Read:
        """Serve a follower's fetch up to the log's end, and learn from it how far the follower is.

        A delayed fetch is read again by `read_as_follower`, which learns nothing. The response carries the high watermark
        from before this fetch, as Kafka's does: the next response carries the one that this fetch has advanced.
        Errors: KafkaError FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER (also for a fetch of an
        earlier incarnation), OFFSET_OUT_OF_RANGE; StorageError.
        """
        read = self.read_as_follower(follower, fetch_offset, last_fetched_epoch, asked_epoch, max_bytes, minimum_one)
        if self.trace is not None and self._has_deleted(last_fetched_epoch):
            self.trace_step("AnswerFromLogStart", leader=self.node, follower=follower)
        if read.diverging is not None:
            return read
        self._require_present_incarnation(follower, broker_epoch)
        progress = self.followers[follower]
        end_before = progress.end
        low_before = self.low_watermark() if log_start != progress.log_start else None
        is_news = progress.take_fetch(fetch_offset, log_start, broker_epoch, self.log.log_end_offset, now)
        if is_news and self.trace is not None:
            self.trace_step(
                "AnswerFetch", leader=self.node, follower=follower, end=fetch_offset, brokerEpoch=broker_epoch
            )
        proposes = self.expand_isr(follower)
        commits = fetch_offset != end_before and self.advance_high_watermark(now)
        read.moved = proposes or commits or (low_before is not None and low_before != self.low_watermark())
        return read

    def read_as_follower(
        self,
        follower: NodeId,
        fetch_offset: Offset,
        last_fetched_epoch: LeaderEpoch,
        asked_epoch: LeaderEpoch,
        max_bytes: int,
        minimum_one: bool,
    ) -> Read:
        """A follower's fetch: records up to the log's end, or where the logs diverge. Errors: as `answer_fetch`."""
        self.require_leader(asked_epoch)
        if follower not in self.followers:
            # A reassignment may have added it in metadata that this leader has not replayed: it is to try again.
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER if asked_epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"Replica {follower} is not a replica of {self.name} in leader epoch {self.state.leader_epoch} with"
                f" partition epoch {self.state.partition_epoch}.",
            )
        read = self.look_at(fetch_offset, last_fetched_epoch)
        if read.diverging is None and fetch_offset < self.log.log_end_offset:
            read.records = self.log.read(fetch_offset, max_bytes, None, minimum_one).records
        return read

    def _has_deleted(self, epoch: LeaderEpoch) -> bool:
        """Whether nothing is left of an epoch, and of all before it: where it ended cannot be known, and the log's start is
        answered instead, as by Kafka. No step of the specification, which knows no retention."""
        start = self.log.log_start_offset
        return 0 <= epoch < self.state.leader_epoch and start > 0 and epoch < self.log.epoch_at(start)

    def _require_present_incarnation(self, follower: NodeId, broker_epoch: BrokerEpoch) -> None:
        peer = self.brokers(follower)
        if broker_epoch == UNSAID or peer is None or peer.is_fenced or peer.broker_epoch is None:
            return
        if broker_epoch < peer.broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {follower} fetched in its incarnation {broker_epoch}, and is registered in {peer.broker_epoch}.",
            )

    # ---- the high watermark

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, or all replicas where there are fewer."""
        return effective_min_isr(self.min_isr, len(self.state.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.state.isr) < self.effective_min_isr

    def learn_min_isr(self, min_isr: int) -> None:
        """The topic's min.insync.replicas is replayed; for a leader it takes effect at once."""
        if min_isr == self.min_isr:
            return
        self.min_isr = min_isr
        if self.is_leader and self.trace is not None:
            self.trace_step("LearnMinIsr", leader=self.node, minIsr=min_isr)

    def is_in_maximal_isr(self, broker: NodeId) -> bool:
        """Whether a broker is in sync, or may be so already without this leader knowing."""
        return broker in self.state.isr or (self.pending is not None and broker in self.pending.isr)

    def advance_high_watermark(self, now: TimestampMs) -> bool:
        """Advance the high watermark to the least log end offset of the replicas that count; True when it moved."""
        if self.is_under_min_isr:
            return False
        moved = next_high_watermark(self.high_watermark, self.log.log_end_offset, self._counted_ends(now))
        if moved == self.high_watermark:
            return False
        self.high_watermark = moved
        if self.trace is not None:
            self.trace_step("AdvanceHighWatermark", leader=self.node, highWatermark=moved)
        return True

    def _counted_ends(self, now: TimestampMs) -> Iterator[Offset]:
        for follower, progress in self.followers.items():
            if (
                self.is_in_maximal_isr(follower)
                or follower in self.removed_pending_replay
                or self._is_about_to_join(follower, progress, now)
            ):
                yield progress.end

    def _is_about_to_join(self, follower: NodeId, progress: Progress, now: TimestampMs) -> bool:
        lags = is_lagging(progress.end, self.log.log_end_offset, progress.last_caught_up, now, self.lag_max_ms)
        return not lags and self._is_admissible(follower)

    def is_committed(self, end: Offset) -> bool:
        """Whether everything below an offset is committed."""
        return self.high_watermark >= end

    def answer_to_produce(self, end: Offset) -> ErrorCode | None:
        """The response to a producer that waits for acks=all; None while it must wait (ACK-04, ACK-06).

        NOT_ENOUGH_REPLICAS_AFTER_APPEND where the records are committed, but by an ISR that has become too small.
        """
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self.is_committed(end):
            return None
        members = {*self.state.isr, *(self.pending.isr if self.pending is not None else ())}
        return ErrorCode.NONE if len(members) >= self.effective_min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def acknowledge(self, end: Offset) -> None:
        """Trace that acks=all was answered for the records below an offset."""
        if self.trace is not None:
            self.trace_step("Acknowledge", leader=self.node, end=end)

    # ---- the ISR

    def expand_isr(self, follower: NodeId) -> bool:
        """Propose to add a caught-up follower; it counts from now on. False where it may not join, or a proposal is pending."""
        progress = self.followers.get(follower)
        if progress is None or self.pending is not None or follower in self.state.isr:
            return False
        if not may_join(progress.end, self.high_watermark, self.epoch_start) or not self._is_admissible(follower):
            return False
        self._propose((*self.state.isr, follower))
        if self.trace is not None:
            self.trace_step("ExpandIsr", leader=self.node, follower=follower)
        return True

    def shrink_isr(self, now: TimestampMs) -> bool:
        """Propose to remove the first member that lags; it counts until the controller has accepted.

        One member at a time, as in the specification (Kafka removes all lagging members at once): the next one is due as soon
        as the first has left, see `shrink_deadline`.
        """
        if not self.is_leader or self.pending is not None:
            return False
        for follower in self.state.isr:
            if follower != self.node and self._lags(follower, now):
                self._propose(tuple(member for member in self.state.isr if member != follower))
                if self.trace is not None:
                    self.trace_step("ShrinkIsr", leader=self.node, follower=follower)
                return True
        return False

    def shrink_deadline(self) -> TimestampMs | None:
        """When `shrink_isr` may have something to do; None while no replica is behind, or a proposal is pending."""
        if not self.is_leader or self.pending is not None:
            return None
        end = self.log.log_end_offset
        members = [self.followers[member] for member in self.state.isr if member in self.followers]
        caught_up = [progress.last_caught_up for progress in members if progress.end != end]
        return min(caught_up) + self.lag_max_ms + 1 if caught_up else None

    def _lags(self, follower: NodeId, now: TimestampMs) -> bool:
        progress = self.followers.get(follower)
        if progress is None:
            return True
        return is_lagging(progress.end, self.log.log_end_offset, progress.last_caught_up, now, self.lag_max_ms)

    def _is_admissible(self, follower: NodeId) -> bool:
        peer = self.brokers(follower)
        if peer is None:
            return False
        fetched = self.followers[follower].broker_epoch
        registered = fetched if peer.broker_epoch is None else peer.broker_epoch
        return is_admissible(fetched, registered, peer.is_fenced, peer.is_shutting_down)

    # ---- proposals

    def _propose(self, isr: tuple[NodeId, ...]) -> None:
        epochs = tuple(self._broker_epoch_of(member) for member in isr)
        self.pending = Proposal(self.state.leader_epoch, self.state.partition_epoch, isr, epochs)
        self.pending_is_sent = False

    def _broker_epoch_of(self, member: NodeId) -> BrokerEpoch:
        """UNSAID for a member that has not fetched yet: if it restarted, its removal has raised the partition epoch."""
        if member == self.node:
            peer = self.brokers(member)
            return peer.broker_epoch if peer is not None and peer.broker_epoch is not None else UNSAID
        progress = self.followers.get(member)
        return max(progress.broker_epoch, UNSAID) if progress is not None else UNSAID

    def take_proposal(self) -> Proposal | None:
        """The proposal to send to the controller, given out once; the caller passes the response or failure back."""
        if self.pending is None or self.pending_is_sent:
            return None
        self.pending_is_sent = True
        return self.pending

    def proposal_answered(
        self,
        proposal: Proposal,
        error: ErrorCode,
        now: TimestampMs,
        *,
        leader_epoch: LeaderEpoch = NO_EPOCH,
        partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH,
        isr: tuple[NodeId, ...] = (),
    ) -> ProposalOutcome | None:
        """Settle a proposal: `error` is the partition's in the response, or the whole response's.

        Without a response it is NETWORK_EXCEPTION or the like: the proposal can be taken again, unchanged.
        None for a proposal that is no longer the pending one.
        """
        if self.pending is not proposal:
            return None
        outcome = outcome_of(error)
        if outcome is ProposalOutcome.COMMITTED:
            self._take_accepted(leader_epoch, partition_epoch, isr, now)
        elif outcome is ProposalOutcome.ROLLED_BACK:
            self.roll_back_isr(now)
        elif outcome is ProposalOutcome.SENT_AGAIN:
            self.pending_is_sent = False
        return outcome

    def _take_accepted(
        self, leader_epoch: LeaderEpoch, partition_epoch: PartitionEpoch, isr: tuple[NodeId, ...], now: TimestampMs
    ) -> None:
        """A response of another leader epoch or an older partition epoch settles nothing: replayed metadata will."""
        if leader_epoch != self.state.leader_epoch or partition_epoch < self.state.partition_epoch:
            return
        if partition_epoch == self.state.partition_epoch:
            self.pending, self.pending_is_sent = None, False
            return
        self.commit_isr(
            replace(self.state, isr=isr, partition_epoch=partition_epoch), now, self._removed_pending_replay_after(isr)
        )

    def _removed_pending_replay_after(self, isr: tuple[NodeId, ...]) -> frozenset[NodeId]:
        """The replicas that still count after a response with an ISR: all that left since the last replayed record."""
        return self.removed_pending_replay | {*self.state.isr} - {*isr}

    def roll_back_isr(self, now: TimestampMs) -> None:
        """The controller refused the proposal for good: only the committed ISR counts again."""
        self.pending, self.pending_is_sent = None, False
        if self.trace is not None:
            self.trace_step("RollBackIsr", leader=self.node)
        self.advance_high_watermark(now)

    # ---- deleted records

    def low_watermark(self) -> Offset:
        """The least log start of the replicas whose brokers are alive: what DeleteRecords waits for; -1 while unknown."""
        lowest = self.log.log_start_offset
        for follower, progress in self.followers.items():
            peer = self.brokers(follower)
            if peer is not None and not peer.is_fenced:
                lowest = min(lowest, progress.log_start)
        return lowest
