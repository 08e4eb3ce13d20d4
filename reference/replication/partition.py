"""One replica of one partition: its log, its role, and how far it is committed.

A replica leads in an epoch or it does not; clients are served by the leader. What is stored is the log's matter, what may
be seen is this module's: consumers read below the high watermark (or below the last stable offset), whatever the log
holds beyond it. Source: requirements ACK-*, FET-*, EPO-*, LOF-*, REP-*; Kafka's documentation, "Replication".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import Buffer, Epoch, NodeId, Offset, TimestampMs, TopicId, TopicName
from reference.protocol.records.validate import Origin
from reference.replication.fencing import NO_EPOCH, check_leader_epoch
from reference.replication.high_watermark import next_high_watermark
from reference.storage.log import AbortedTransaction, AppendInfo, Log, LogSlice

ACKS_ALL = -1

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
"""Timestamps of ListOffsets that ask for a place instead of a time."""


Trace = Callable[[str, Mapping[str, Any]], None]
"""Takes a step's name and what there is to say of it."""


@dataclass(frozen=True, slots=True)
class Reign:
    """Who leads a partition, as the controller's records say."""

    leader: NodeId
    leader_epoch: Epoch
    partition_epoch: Epoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """What ListOffsets answers: -1 where nothing was found."""

    offset: Offset
    timestamp: TimestampMs
    leader_epoch: Epoch


@dataclass(slots=True)
class Read:
    """What a fetch sees of a partition. `records` pins its file until it is released."""

    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records: LogSlice | bytes = b""
    aborted: Sequence[AbortedTransaction] | None = None
    diverging: tuple[Epoch, Offset] | None = None


@dataclass(slots=True)
class Partition:
    """A partition's replica on this node."""

    topic: TopicName
    topic_id: TopicId
    index: int
    log: Log
    node: NodeId
    reign: Reign
    high_watermark: Offset = 0
    trace: Trace | None = None
    """Told of every step that the specification knows, by the step's name there."""
    follower_ends: dict[NodeId, Offset] = field(default_factory=dict[NodeId, Offset])
    """Log end offsets of the other replicas, as their fetches told; -1 while unknown."""

    @property
    def is_leader(self) -> bool:
        return self.reign.leader == self.node

    @property
    def leader_epoch(self) -> Epoch:
        return self.reign.leader_epoch

    # ---- roles

    def become_leader(self, reign: Reign) -> None:
        """A new reign of this replica begins at the end of its log."""
        self.reign = reign
        self.follower_ends = {replica: -1 for replica in reign.replicas if replica != self.node}
        if self.trace is not None:
            self._tell("BecomeLeader")
        self.log.assign_epoch_start(reign.leader_epoch, self.log.log_end_offset)
        self.advance_high_watermark()

    def advance_high_watermark(self) -> bool:
        """Commit what every in-sync replica has; True when the high watermark moved."""
        ends = [self.follower_ends.get(replica, -1) for replica in self.reign.isr if replica != self.node]
        moved = next_high_watermark(self.high_watermark, self.log.log_end_offset, ends)
        if moved == self.high_watermark:
            return False
        self.high_watermark = moved
        if self.trace is not None:
            self._tell("AdvanceHighWatermark")
        return True

    def _tell(self, action: str) -> None:
        """One line of the trace: the step and the state after it."""
        assert self.trace is not None
        self.trace(
            action,
            {
                "node": self.node,
                "partition": f"{self.topic}-{self.index}",
                "leader_epoch": self.reign.leader_epoch,
                "partition_epoch": self.reign.partition_epoch,
                "leo": self.log.log_end_offset,
                "hw": self.high_watermark,
                "isr": list(self.reign.isr),
            },
        )

    # ---- guards

    def require_leader(self, asked_epoch: Epoch = NO_EPOCH) -> None:
        """Errors: KafkaError NOT_LEADER_OR_FOLLOWER; FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH (EPO-01, EPO-02)."""
        code = check_leader_epoch(asked_epoch, self.reign.leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ---- writing

    def produce(
        self,
        records: Buffer,
        now: TimestampMs,
        *,
        required_acks: int = ACKS_ALL,
        min_isr: int = 1,
        origin: Origin = Origin.CLIENT,
    ) -> AppendInfo:
        """Append a producer's batch in this reign.

        Errors: KafkaError NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (ACK-05); RecordsError and LogError for what may
        not be stored; StorageError when the disk refuses.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        enough = min(min_isr, len(self.reign.replicas))
        if required_acks == ACKS_ALL and len(self.reign.isr) < enough:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {list(self.reign.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{enough} for partition {self.topic}-{self.index}",
            )
        info = self.log.append_as_leader(records, self.reign.leader_epoch, now, origin)
        if self.trace is not None:
            self._tell("Produce")
        self.advance_high_watermark()
        return info

    def delete_records(self, offset: Offset) -> Offset:
        """Move the log's start up to an offset (-1: up to the high watermark); gives the new low watermark (TOP-19).

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
        return self.log.log_start_offset

    # ---- reading

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
        asked_epoch: Epoch,
        last_epoch: Epoch,
    ) -> Read:
        """Serve a consumer's fetch: records from an offset up to what it may see.

        `committed` asks for read_committed; `last_epoch` is the epoch of the record before the offset, -1 where the
        client does not say. An offset between the high watermark and the log's end gives no records and no error.
        Errors: KafkaError as for `require_leader`, OFFSET_OUT_OF_RANGE (FET-02).
        """
        self.require_leader(asked_epoch)
        log = self.log
        stable = self.last_stable_offset()
        found = Read(self.high_watermark, stable, log.log_start_offset)
        if last_epoch >= 0:
            end = log.end_offset_for_epoch(last_epoch)
            if end.end_offset < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if end.leader_epoch < last_epoch or end.end_offset < offset:
                found.diverging = (end.leader_epoch, end.end_offset)
                return found
        if offset < log.log_start_offset or offset > log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        limit = stable if committed else self.high_watermark
        if offset < limit:
            found.records = log.read(offset, max_bytes, limit, minimum_one).records
        if committed:
            found.aborted = log.aborted_transactions(offset, limit)
        return found

    def offset_for_leader_epoch(self, epoch: Epoch, asked_epoch: Epoch) -> tuple[Epoch, Offset]:
        """Where an epoch ends on this leader (EPO-04 to EPO-06). Errors: as for `require_leader`."""
        self.require_leader(asked_epoch)
        end = self.log.end_offset_for_epoch(epoch)
        return end.leader_epoch, end.end_offset

    def list_offset(self, timestamp: TimestampMs, committed: bool, asked_epoch: Epoch) -> FoundOffset:
        """The offset for a time or a place (LOF-01 to LOF-12). Errors: as for `require_leader`."""
        self.require_leader(asked_epoch)
        log = self.log
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return FoundOffset(log.log_start_offset, -1, log.epoch_at(log.log_start_offset))
        limit = self.last_stable_offset() if committed else self.high_watermark
        if timestamp == LATEST:
            return FoundOffset(limit, -1, self.reign.leader_epoch)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return FoundOffset(-1, -1, -1)
        found = log.latest_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if found is None or found.offset >= limit:
            return FoundOffset(-1, -1, -1)
        return FoundOffset(found.offset, found.timestamp, found.leader_epoch)
