"""One replica of one partition, without its role: its log, its high watermark, and the trace of its steps.

`leader.Leading` and `follower.Following` hold the steps of the two roles; `partition.Partition` is a replica with its role.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import FIRST_OFFSET, NO_EPOCH, LeaderEpoch, NodeId, Offset, TopicId, TopicName
from reference.replication.fencing import check_leader_epoch
from reference.replication.partition_state import NO_STATE, Brokers, PartitionState, TruncationRule, no_brokers
from reference.replication.reading import Read
from reference.storage.log import Log

LAG_MAX_MS = 30_000
"""Default of replica.lag.time.max.ms."""

Trace = Callable[[str, Mapping[str, Any]], None]
"""Receives a step's name and its row of the trace, in the format of `spec/trace.py`."""


@dataclass(slots=True, eq=False)
class Replica:
    """A partition's replica on this node."""

    topic: TopicName
    topic_id: TopicId
    index: int
    log: Log
    node: NodeId
    state: PartitionState = NO_STATE
    """The partition state in force; NO_STATE while the replica has no role."""
    high_watermark: Offset = FIRST_OFFSET
    trace: Trace | None = None
    """Called for every step of the specification, with the step's name there."""
    brokers: Brokers = no_brokers
    truncation: TruncationRule = "leader-epoch"
    min_isr: int = 1
    """min.insync.replicas of the topic."""
    lag_max_ms: int = LAG_MAX_MS
    """replica.lag.time.max.ms"""
    key: tuple[TopicName, int] = field(init=False)
    """Topic and index."""

    def __post_init__(self) -> None:
        self.key = self.topic, self.index

    @property
    def is_leader(self) -> bool:
        """Whether the partition state in force names this node as the leader."""
        return self.state.leader == self.node

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.state.leader_epoch

    @property
    def name(self) -> str:
        """`topic-index`, the name of the replica's folder."""
        return f"{self.topic}-{self.index}"

    def require_epoch(self, asked_epoch: LeaderEpoch) -> None:
        """Errors: KafkaError FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH."""
        code = check_leader_epoch(asked_epoch, self.state.leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    @property
    def last_fetched_epoch(self) -> LeaderEpoch:
        """The epoch of the log's last record, by which the leader detects divergence; -1 to disable the check."""
        return NO_EPOCH if self.truncation == "high-watermark" else self.log.leader_epoch

    # ---- the high watermark and the log

    @contextmanager
    def cutting_log(self) -> Generator[None]:
        """A block that may truncate the log. It adjusts the high watermark at its end, also after a partial truncation."""
        try:
            yield
        finally:
            self.keep_high_watermark_within_log()

    def keep_high_watermark_within_log(self) -> None:
        """Adjust the high watermark after the log was truncated, recovered or replaced.

        Above the log end it would mark the next records as committed. Below the log start it would be lower than
        committed records that were deleted.
        """
        self.high_watermark = max(min(self.high_watermark, self.log.log_end_offset), self.log.log_start_offset)

    # ---- reading

    def last_stable_offset(self) -> Offset:
        """The start of the first open transaction, at most the high watermark (TXV-06): all transactions below it have ended."""
        return self.log.last_stable_offset(self.high_watermark)

    def look_at(self, offset: Offset, last_epoch: LeaderEpoch) -> Read:
        """The bounds for a fetch from an offset, without records. Errors: KafkaError OFFSET_OUT_OF_RANGE."""
        log = self.log
        found = Read(self.high_watermark, self.last_stable_offset(), log.log_start_offset)
        if last_epoch >= 0 and not (
            last_epoch == log.leader_epoch and log.log_start_offset <= offset <= log.log_end_offset
        ):
            end = log.end_offset_for_epoch(last_epoch)
            if end.end_offset < 0 or offset < log.log_start_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            if end.leader_epoch < last_epoch or end.end_offset < offset:
                found.diverging = (end.leader_epoch, end.end_offset)
                return found
        if offset < log.log_start_offset or offset > log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return found

    # ---- tracing

    def trace_step(self, action: str, **arguments: Any) -> None:
        """Write one row of the trace: the step and the state after it. Check `trace` first: tracing costs time."""
        assert self.trace is not None
        row: dict[str, Any] = {
            "node": self.node,
            "partition": self.name,
            "action": action,
            "args": arguments,
            "leo": self.log.log_end_offset,
            "hw": self.high_watermark,
            "leaderEpoch": self.state.leader_epoch,
            "partitionEpoch": self.state.partition_epoch,
        }
        if self.is_leader:
            row |= {"isr": list(self.state.isr), "minIsr": self.min_isr}
        self.trace(action, row)
