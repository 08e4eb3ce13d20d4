"""One partition's replica: it follows the metadata, and serves producers, consumers and other replicas.

In each leader epoch a replica leads or follows. `leader` and `follower` hold the steps of the two roles under the names that
they have in the specification, `reading` what clients may see, and this module the rest: following the metadata, producing,
deleting records, and the end and beginning of an incarnation. Each method is a plain call that changes this object and its log,
at a time that the caller gives; nothing here waits, delayed operations are the caller's.

A node drives it so:
- it creates a replica on its log, and calls `restart` with the checkpointed high watermark if there was an earlier incarnation;
- for every record of the partition in the metadata: `take_up(state, now)`; `brokers`, `min_isr`, `lag_max_ms` are kept
  current by the node;
- after each call that may have moved something: `take_proposal()` for the controller, `answer_to_produce(end)` for delayed
  produce requests;
- at `shrink_deadline()`: `shrink_isr(now)`.

Source: requirements ACK-*, FET-*, EPO-*, LOF-*, REP-*; Kafka's documentation, "Replication".
"""

from __future__ import annotations

from typing import Any

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import NO_OFFSET, Buffer, Offset, TimestampMs
from reference.protocol.records.batch import read_batches, records_of
from reference.protocol.records.control import read_end_transaction
from reference.protocol.records.validate import Origin
from reference.replication.follower import Following
from reference.replication.leader import Leading
from reference.replication.partition_state import NO_STATE, PartitionState
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
from reference.replication.replica import Replica, Role, Trace
from reference.storage.log import AppendInfo
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
    "Role",
    "Trace",
]

ACKS_ALL = -1

ACKS_NAMES = {0: "zero", 1: "one", ACKS_ALL: "all"}
"""As the specification names them."""


def transaction_of(records: Buffer) -> dict[str, Any]:
    """What a trace says besides of a transactional batch: `producer`, its id and epoch, and the `marker` that it is."""
    batch = next(iter(read_batches(records)))
    header = batch.header
    if not header.is_transactional:
        return {}
    reported: dict[str, Any] = {"producer": [header.producer_id, header.producer_epoch]}
    if header.is_control:
        committed = read_end_transaction(next(iter(records_of(batch.data)))).committed
        reported["marker"] = "commit" if committed else "abort"
    return reported


class Partition(Leading, Following):
    """A partition's replica on this node."""

    __slots__ = ()

    # ---- following the metadata

    def take_up(self, state: PartitionState, now: TimestampMs) -> bool:
        """Act by the partition's newest metadata; True when role, ISR, assignment or counted replicas changed.

        Errors: StorageError; the replica then acts as before.
        """
        if self.is_newer(state):
            return self.become_leader(state, now) if state.leader == self.node else self.become_follower(state)
        if state.leader_epoch != self.state.leader_epoch or state.leader != self.state.leader:
            return False
        if self.commit_isr(state, now):
            return True
        takes_assignment = self._take_assignment(state)
        return self.replay_record(state, now) or takes_assignment

    def _take_assignment(self, state: PartitionState) -> bool:
        """The record of an ISR that this leader knows already from the response; its replicas may be new."""
        if state.partition_epoch < self.state.partition_epoch or state == self.state:
            return False
        if self.is_leader:
            self.assign(state)
        else:
            self.state = state
        return True

    def give_up_replica(self) -> None:
        """The partition was moved to other brokers: the log is deleted, and the replica has no role any more."""
        self._forget_role()
        if self.trace is not None:
            gone = {"node": self.node, "partition": self.name, "action": "GiveUpReplica", "args": {"broker": self.node}}
            self.trace("GiveUpReplica", gone | {"leo": 0, "hw": 0, "leaderEpoch": -1, "partitionEpoch": -1})

    # ---- incarnations

    def restart(self, checkpoint: Offset) -> None:
        """The log was recovered after an earlier incarnation: its high watermark is the checkpoint's, as far as the log goes."""
        self.role, self.state = Role.NONE, NO_STATE
        self.high_watermark = max(min(checkpoint, self.log.log_end_offset), self.log.log_start_offset)
        if self.trace is not None:
            self.trace_step("Restart", broker=self.node, end=self.log.log_end_offset, highWatermark=self.high_watermark)

    def shut_down(self) -> None:
        """The process ends cleanly: the replica has no role any more."""
        self._forget_role()
        if self.trace is not None:
            self.trace_step("ShutDown", broker=self.node)

    def _forget_role(self) -> None:
        self.role, self.state = Role.NONE, NO_STATE
        self.followers, self.pending, self.pending_is_sent, self.epoch_start = {}, None, False, NO_OFFSET
        self.removed_pending_replay = frozenset()

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

        `min_isr` is for callers that do not keep the attribute of that name current; the last two as for the log's
        `append_as_leader`.
        Errors: KafkaError NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (ACK-05); RecordsError and LogError for what may
        not be stored; StorageError when the disk refuses.
        """
        if min_isr is not None:
            self.min_isr = min_isr
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.state.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{self.effective_min_isr} for partition {self.name}",
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
        self.advance_high_watermark(now)
        return info

    def consume(self, end: Offset) -> None:
        """A consumer was given the records below an offset: a step, if a tracer wants to know."""
        if self.trace is not None:
            self.trace_step("Consume", broker=self.node, end=end)

    def delete_records(self, offset: Offset) -> Offset:
        """Move the log's start up to an offset (-1: up to the high watermark); gives the low watermark then (TOP-19).

        It is done when the low watermark has reached the offset: followers learn of it by their fetches.
        Errors: KafkaError NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION without the `delete` policy, OFFSET_OUT_OF_RANGE.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self.log.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log.advance_log_start_offset(target)
        return self.low_watermark()
