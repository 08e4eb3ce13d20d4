"""One replica of one partition, without the work of its role: its log, how far it is committed, and the trace of its steps.

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
"""Takes a step's name and a row of the trace: the form is that of `spec/trace.py`."""


@dataclass(slots=True, eq=False)
class Replica:
    """A partition's replica on this node."""

    topic: TopicName
    topic_id: TopicId
    index: int
    log: Log
    node: NodeId
    state: PartitionState = NO_STATE
    """The metadata that it acts by; NO_STATE while it has no role."""
    high_watermark: Offset = FIRST_OFFSET
    trace: Trace | None = None
    """Called for every step that the specification knows, by the step's name there."""
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
        """Whether the metadata that it acts by names this node as the leader."""
        return self.state.leader == self.node

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.state.leader_epoch

    @property
    def name(self) -> str:
        """`topic-index`, as its folder is called."""
        return f"{self.topic}-{self.index}"

    def require_epoch(self, asked_epoch: LeaderEpoch) -> None:
        """Errors: KafkaError FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH."""
        code = check_leader_epoch(asked_epoch, self.state.leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    @property
    def last_fetched_epoch(self) -> LeaderEpoch:
        """The epoch of the log's last record, by which a leader sees whether the logs agree; -1 for no comparison."""
        return NO_EPOCH if self.truncation == "high-watermark" else self.log.leader_epoch

    # ---- the high watermark and the log

    @contextmanager
    def cutting_log(self) -> Generator[None]:
        """Within it the log may be cut. A cut that has begun counts, also where the disk refuses the rest of it."""
        try:
            yield
        finally:
            self.keep_high_watermark_within_log()

    def keep_high_watermark_within_log(self) -> None:
        """The log was cut, recovered or replaced.

        A high watermark beyond its end would call committed whatever is appended next; below its start nothing is left that is
        not committed.
        """
        self.high_watermark = max(min(self.high_watermark, self.log.log_end_offset), self.log.log_start_offset)

    # ---- reading

    def last_stable_offset(self) -> Offset:
        """Below it every transaction has ended: the first open transaction's start, at most the high watermark (TXV-06)."""
        return self.log.last_stable_offset(self.high_watermark)

    def look_at(self, offset: Offset, last_epoch: LeaderEpoch) -> Read:
        """The bounds for a fetch from this offset, without records yet. Errors: KafkaError OFFSET_OUT_OF_RANGE."""
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
        """One row of the trace: the step and the state after it. Check `trace` first: tracing is not free."""
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
