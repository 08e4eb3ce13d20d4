"""One partition's replica: it follows the metadata, and serves clients and other replicas.

In each leader epoch a replica leads or follows: its `role` is one value, `Leading` or `Following`, which is replaced
when a leader epoch begins. The roles have their steps under the names of the specification. This module has the rest:
the metadata, produce requests, consumers' fetches, DeleteRecords, and the start and end of an incarnation. Each method
changes this object and its log, at a time that the caller passes. Nothing here waits; the caller keeps delayed
operations.

Only the leader serves clients, except that any replica serves a fetch with the client's rack (Fetch v11 and later), up
to its own high watermark (KIP-392).

A node drives a replica like this:
- it creates a replica on its log, and calls `restart` with the checkpointed high watermark if there was an earlier incarnation;
- for every record of the partition in the metadata: `take_up(state, now)`; `brokers`, `min_isr`, `lag_max_ms` are kept
  current by the node;
- after each call that may have moved something, on the leader: `leading.take_proposal()` for the controller,
  `leading.answer_to_produce(end)` for delayed produce requests;
- periodically, on the leader: `leading.shrink_isr(now)`.

Source: requirements ACK-*, FET-*, EPO-*, LOF-*, REP-*; Kafka's documentation, "Replication".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import NO_EPOCH, Buffer, LeaderEpoch, NodeId, Offset, TimestampMs
from reference.protocol.records.batch import read_batches, records_of
from reference.protocol.records.control import read_end_transaction
from reference.protocol.records.validate import Origin
from reference.replication.follower import Following
from reference.replication.leader import Leading
from reference.replication.partition_state import NO_STATE, PartitionState
from reference.replication.proposal import Proposal
from reference.replication.reading import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    FoundOffset,
    Read,
)
from reference.replication.replica import Replica, Trace
from reference.storage.log import AppendInfo, Log
from reference.storage.verification import NOT_REQUIRED, Guard

__all__ = [
    "ACKS_ALL",
    "EARLIEST",
    "EARLIEST_LOCAL",
    "EARLIEST_PENDING_UPLOAD",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "NO_STATE",
    "FoundOffset",
    "Partition",
    "PartitionState",
    "Read",
    "Replica",
    "Trace",
]

ACKS_ALL = -1

ACKS_NAMES = {0: "zero", 1: "one", ACKS_ALL: "all"}
"""The names of acks in the specification."""


def transaction_of(records: Buffer) -> dict[str, Any]:
    """More fields of a transactional batch's trace: `producer`, its id and epoch, and for a control batch the `marker`."""
    batch = next(iter(read_batches(records)))
    header = batch.header
    if not header.is_transactional:
        return {}
    reported: dict[str, Any] = {"producer": [header.producer_id, header.producer_epoch]}
    if header.is_control:
        committed = read_end_transaction(next(iter(records_of(batch.data)))).committed
        reported["marker"] = "commit" if committed else "abort"
    return reported


@dataclass(slots=True, eq=False)
class Partition(Replica):
    """A partition's replica on this node, with its role."""

    role: Leading | Following | None = None
    """Replaced when a leader epoch begins; None until the replica has replayed the partition's record."""

    @property
    def leading(self) -> Leading | None:
        """The leader's role; None if this replica does not lead."""
        return self.role if isinstance(self.role, Leading) else None

    @property
    def pending(self) -> Proposal | None:
        """The leader's proposal without a known outcome; None if there is none, or if this replica does not lead."""
        return self.role.pending if isinstance(self.role, Leading) else None

    def require_leader(self, asked_epoch: LeaderEpoch = NO_EPOCH) -> Leading:
        """Errors: KafkaError NOT_LEADER_OR_FOLLOWER; FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH (EPO-01, EPO-02)."""
        # The epoch first, as in Kafka: a former leader answers a client with an old epoch with FENCED_LEADER_EPOCH.
        self.require_epoch(asked_epoch)
        if not isinstance(self.role, Leading):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.role

    def require_follower_of(self, leader: NodeId) -> Following:
        """Errors: KafkaError NOT_LEADER_OR_FOLLOWER for a response from a node that does not lead the partition."""
        if not isinstance(self.role, Following) or self.state.leader != leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} does not follow broker {leader}")
        return self.role

    # ---- following the metadata

    def take_up(self, state: PartitionState, now: TimestampMs) -> bool:
        """Apply the partition's newest metadata; True if role, ISR, assignment or the counted replicas changed.

        Errors: StorageError; the replica then acts as before.
        """
        if self._begins_epoch(state):
            if state.leader == self.node:
                self.become_leader(state, now)
            else:
                self.become_follower(state)
            return True
        if state.leader_epoch != self.state.leader_epoch or state.leader != self.state.leader:
            return False
        leading = self.leading
        if leading is None:
            return self._take_newer_record(state)
        return leading.commit_isr(state, now) or leading.take_known_isr(state, now)

    def _begins_epoch(self, state: PartitionState) -> bool:
        """Whether the state begins a role: any state for a replica without a role, else one of a newer leader epoch."""
        return self.role is None or state.leader_epoch > self.state.leader_epoch

    def become_leader(self, state: PartitionState, now: TimestampMs) -> None:
        # The disk may fail here, before any change: the replica then keeps its role and epoch.
        leading = Leading.from_log_end(self, state, now)
        self.role, self.state = leading, state
        self._trace_role("BecomeLeader")
        leading.advance_high_watermark(now)

    def become_follower(self, state: PartitionState) -> None:
        """Begin a leader epoch in which another broker leads, or none."""
        self.role, self.state = Following.with_log_cut(self), state
        self._trace_role("BecomeFollower")

    def _trace_role(self, action: str) -> None:
        if self.trace is not None:
            epochs = {"leaderEpoch": self.state.leader_epoch, "partitionEpoch": self.state.partition_epoch}
            self.trace_step(action, broker=self.node, **epochs)

    def _take_newer_record(self, state: PartitionState) -> bool:
        """Adopt a follower's record of the same leader epoch, whose assignment may be new; return whether the state changed."""
        if state.partition_epoch < self.state.partition_epoch or state == self.state:
            return False
        self.state = state
        return True

    def learn_min_isr(self, min_isr: int) -> None:
        """Apply the topic's min.insync.replicas from a replayed record; a leader uses it at once."""
        if min_isr == self.min_isr:
            return
        self.min_isr = min_isr
        if self.is_leader and self.trace is not None:
            self.trace_step("LearnMinIsr", leader=self.node, minIsr=min_isr)

    def give_up_replica(self) -> None:
        """Drop the role of a replica that was moved to other brokers, and whose log is deleted."""
        self._forget_role()
        if self.trace is not None:
            gone = {"node": self.node, "partition": self.name, "action": "GiveUpReplica", "args": {"broker": self.node}}
            self.trace("GiveUpReplica", gone | {"leo": 0, "hw": 0, "leaderEpoch": -1, "partitionEpoch": -1})

    # ---- incarnations

    def restart(self, checkpoint: Offset) -> None:
        """Begin an incarnation on a recovered log, with the checkpointed high watermark, at most the log end offset."""
        self._forget_role()
        # The checkpoint may be above a log end that was lost, or below a log start that was stored later.
        self.high_watermark = checkpoint
        self.keep_high_watermark_within_log()
        if self.trace is not None:
            self.trace_step("Restart", broker=self.node, end=self.log.log_end_offset, highWatermark=self.high_watermark)

    def replace_log(self, copy: Log) -> None:
        """Continue on a copy of the log, in another directory.

        The copy may start at a higher offset: after a crash the log may have an old log start, and the copy lacks
        deleted records.
        """
        self.log = copy
        self.keep_high_watermark_within_log()

    def shut_down(self) -> None:
        """Drop the role because the process ends cleanly."""
        self._forget_role()
        if self.trace is not None:
            self.trace_step("ShutDown", broker=self.node)

    def _forget_role(self) -> None:
        self.role, self.state = None, NO_STATE

    # ---- clients

    def produce(
        self,
        records: Buffer,
        now: TimestampMs,
        *,
        required_acks: int = ACKS_ALL,
        min_isr: int | None = None,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        guard: Guard | None = NOT_REQUIRED,
    ) -> AppendInfo:
        """Append a producer's batch in this leader epoch.

        `min_isr` is for callers that do not keep the attribute `min_isr` current. The last two arguments are those of
        the log's `append_as_leader`.
        Errors: KafkaError NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (ACK-05); RecordsError and LogError for an
        invalid batch; StorageError.
        """
        if min_isr is not None:
            self.min_isr = min_isr
        leading = self.require_leader()
        # Before the append: with too few in-sync replicas nothing is appended (ACK-05).
        if required_acks == ACKS_ALL and leading.is_under_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.state.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{leading.effective_min_isr} for partition {self.name}",
            )
        info = self.log.append_as_leader(records, self.state.leader_epoch, now, origin, transaction_version, guard)
        if not info.is_duplicate and self.trace is not None:
            self.trace_step(
                "Produce",
                leader=self.node,
                acks=ACKS_NAMES[required_acks],
                end=self.log.log_end_offset,
                **transaction_of(records),
            )
        # If this replica is alone in the ISR, no follower's fetch will advance the high watermark.
        leading.advance_high_watermark(now)
        return info

    def acknowledge(self, end: Offset) -> None:
        """Trace the acks=all response for the records below an offset."""
        if self.trace is not None:
            self.trace_step("Acknowledge", leader=self.node, end=end)

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

        `committed` selects read_committed. `last_epoch` is the epoch of the record before the offset, -1 if the client
        sends none. `from_any_replica` lets a follower serve the fetch. An offset between the high watermark and the log
        end returns no records and no error.
        Errors: KafkaError as for `require_leader`, OFFSET_OUT_OF_RANGE (FET-02); LogError.
        """
        self.require_reader(asked_epoch, from_any_replica)
        found = self.look_at(offset, last_epoch)
        if found.diverging is not None:
            return found
        # Never beyond the high watermark: a consumed record must survive every clean election.
        limit = found.last_stable_offset if committed else self.high_watermark
        if offset < limit:
            found.records = self.log.read(offset, max_bytes, limit, minimum_one).records
        if committed:
            found.aborted = self.log.aborted_transactions(offset, limit)
        return found

    def require_reader(self, asked_epoch: LeaderEpoch, from_any_replica: bool) -> None:
        """Errors: KafkaError as for `require_leader`, also if the replica has no role."""
        if from_any_replica and isinstance(self.role, Following):
            self.require_epoch(asked_epoch)
        else:
            self.require_leader(asked_epoch)

    def consume(self, end: Offset) -> None:
        """Trace a consumer's read of the records below an offset."""
        if self.trace is not None:
            self.trace_step("Consume", broker=self.node, end=end)

    def delete_records(self, offset: Offset) -> Offset:
        """Advance the log start to an offset (-1: to the high watermark); return the low watermark after it (TOP-19).

        The request is complete when the low watermark reaches the offset: followers advance their log start by their
        fetches.
        Errors: KafkaError NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION without the `delete` policy, OFFSET_OUT_OF_RANGE.
        """
        leading = self.require_leader()
        if not self.log.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        target = self.high_watermark if offset == -1 else offset
        # Records that are not committed must be kept: the next leader may lack them, and its log would end before its
        # start.
        if target < 0 or target > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log.advance_log_start_offset(target)
        return leading.low_watermark()
