"""A partition that is fetched from a leader, and its stage.

After an out-of-range fetch come two ListOffsets (Kafka's `fetchOffsetAndTruncate`). A log that is longer than the
leader's is truncated to the leader's end. A log that ends before the leader's start is emptied, and begins there again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from reference.protocol.primitives import AT_ONCE, LeaderEpoch, NodeId, TimestampMs
from reference.replication.fetch_session import Key, Wanted
from reference.replication.follower import Following
from reference.replication.partition import EARLIEST, LATEST, Partition


class Stage(Enum):
    """The request that a partition needs next."""

    FETCHING = auto()
    ASKING_END = auto()
    ASKING_START = auto()
    FAILED = auto()


TRANSITIONS: dict[tuple[Stage, Stage], str] = {
    (
        Stage.FETCHING,
        Stage.FETCHING,
    ): "the leader answered with an error: the same fetch again after replica.fetch.backoff.ms",
    (Stage.FETCHING, Stage.ASKING_END): "OFFSET_OUT_OF_RANGE",
    (Stage.FETCHING, Stage.FAILED): "FENCED_LEADER_EPOCH, or the log refuses the records",
    (Stage.ASKING_END, Stage.FETCHING): "ours was longer, and is cut; or an error",
    (Stage.ASKING_END, Stage.ASKING_START): "ours is not longer: it may end before the leader's begins",
    (Stage.ASKING_END, Stage.FAILED): "FENCED_LEADER_EPOCH, or the log refuses the cut",
    (Stage.ASKING_START, Stage.FETCHING): "begun again at the leader's start where ours ended before it; or an error",
    (Stage.ASKING_START, Stage.FAILED): "FENCED_LEADER_EPOCH, or the log refuses the cut",
}
"""The transitions between stages, with their causes. A failed partition is followed again in the next leader epoch."""

PLACES: dict[Stage, int] = {Stage.ASKING_END: LATEST, Stage.ASKING_START: EARLIEST}
"""The timestamp that a stage's ListOffsets asks for."""


@dataclass(slots=True)
class Followed:
    """A partition in the leader epoch in which it is followed."""

    partition: Partition
    leader_epoch: LeaderEpoch
    stage: Stage = Stage.FETCHING
    ready_at: TimestampMs = AT_ONCE
    """The time from which the partition may be requested again."""
    asked: Wanted | None = None
    """The fields of its last fetch, in the session or in flight; None while it is not fetched."""
    waits: bool = False
    """Whether it is in the fetcher's heap, to be fetched again at `ready_at`."""
    noted: str = ""
    """The failure that was logged last, so that a repeated failure is logged once."""
    key: Key = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.partition.topic_id, self.partition.index

    def go_to(self, stage: Stage) -> None:
        assert (self.stage, stage) in TRANSITIONS, f"{self.partition.name}: {self.stage.name} to {stage.name}"
        self.stage = stage

    def is_followed_from(self, leader: NodeId) -> bool:
        """Whether the replica still follows that broker in that leader epoch."""
        partition = self.partition
        return (
            isinstance(partition.role, Following)
            and partition.state.leader == leader
            and partition.state.leader_epoch == self.leader_epoch
        )
