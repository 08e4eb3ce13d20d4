"""One replica of one partition: its log, its role, how far it is committed, and the trace that it reports its steps to.

The steps themselves are grouped by role: `leader`, `follower`, and `reading` for what clients may see; `partition` puts
them together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import (
    FIRST_OFFSET,
    NO_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    NodeId,
    Offset,
    TopicId,
    TopicName,
)
from reference.replication.fencing import check_leader_epoch
from reference.replication.partition_state import NO_STATE, Brokers, PartitionState, TruncationRule, no_brokers
from reference.replication.progress import Progress
from reference.replication.proposal import Proposal
from reference.storage.log import Log

LAG_MAX_MS = 30_000
"""Default of replica.lag.time.max.ms."""

Trace = Callable[[str, Mapping[str, Any]], None]
"""Takes a step's name and a row of the trace: the form is that of `spec/trace.py`."""


class Role(Enum):
    """A replica's role in its leader epoch; NONE until it has replayed the partition's record."""

    NONE = auto()
    LEADER = auto()
    FOLLOWER = auto()


@dataclass(slots=True, eq=False)
class Replica:
    """A partition's replica on this node."""

    topic: TopicName
    topic_id: TopicId
    index: int
    log: Log
    node: NodeId
    state: PartitionState = NO_STATE
    """The metadata that it acts by; meaningless while it has no role."""
    high_watermark: Offset = FIRST_OFFSET
    trace: Trace | None = None
    """Called for every step that the specification knows, by the step's name there."""
    brokers: Brokers = no_brokers
    truncation: TruncationRule = "leader-epoch"
    min_isr: int = 1
    """min.insync.replicas of the topic."""
    lag_max_ms: int = LAG_MAX_MS
    """replica.lag.time.max.ms"""
    role: Role = Role.NONE
    followers: dict[NodeId, Progress] = field(default_factory=dict[NodeId, Progress])
    """As a leader: the other replicas of the assignment."""
    pending: Proposal | None = None
    """As a leader: the proposal whose outcome is not known."""
    pending_is_sent: bool = False
    removed_pending_replay: frozenset[NodeId] = frozenset()
    """As a leader: replicas that an AlterPartition response removed from the ISR; they count until the record is replayed."""
    epoch_start: Offset = NO_OFFSET
    """As a leader: where its leader epoch began."""

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.state.leader_epoch

    @property
    def key(self) -> tuple[TopicName, int]:
        return self.topic, self.index

    @property
    def name(self) -> str:
        """`topic-index`, as its folder is called."""
        return f"{self.topic}-{self.index}"

    def require_leader(self, asked_epoch: LeaderEpoch = NO_EPOCH) -> None:
        """Errors: KafkaError NOT_LEADER_OR_FOLLOWER; FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH (EPO-01, EPO-02)."""
        self.require_epoch(asked_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_epoch(self, asked_epoch: LeaderEpoch) -> None:
        """Errors: KafkaError FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH."""
        code = check_leader_epoch(asked_epoch, self.state.leader_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)

    def trace_step(self, action: str, **arguments: Any) -> None:
        """One row of the trace: the step and the state after it. Check `trace` first: tracing is not free."""
        assert self.trace is not None
        acts = self.role is not Role.NONE
        row: dict[str, Any] = {
            "node": self.node,
            "partition": self.name,
            "action": action,
            "args": arguments,
            "leo": self.log.log_end_offset,
            "hw": self.high_watermark,
            "leaderEpoch": self.state.leader_epoch if acts else -1,
            "partitionEpoch": self.state.partition_epoch if acts else -1,
        }
        if self.is_leader:
            row |= {"isr": list(self.state.isr), "minIsr": self.min_isr}
        self.trace(action, row)
