"""A partition that is fetched from a leader, and the stage that it is at.

A fetch that was out of range is followed by two ListOffsets (Kafka's `fetchOffsetAndTruncate`): the log is cut to the leader's
end where it is longer, and begun again at the leader's start where it ends before that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from reference.protocol.primitives import AT_ONCE, LeaderEpoch, NodeId, TimestampMs
from reference.replication.fetch_session import Key, Wanted
from reference.replication.follower import Following
from reference.replication.partition import EARLIEST, LATEST, Partition


class Stage(Enum):
    """What a partition waits for."""

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
"""The steps from stage to stage, and why they are taken. A failed partition is followed again in the next leader epoch."""

PLACES: dict[Stage, int] = {Stage.ASKING_END: LATEST, Stage.ASKING_START: EARLIEST}
"""The place of the leader's log that a stage asks for."""


@dataclass(slots=True)
class Followed:
    """A partition in the leader epoch in which it is followed."""

    partition: Partition
    leader_epoch: LeaderEpoch
    stage: Stage = Stage.FETCHING
    ready_at: TimestampMs = AT_ONCE
    """It is asked for again from then on."""
    asked: Wanted | None = None
    """The last fetch of it, in the session or in the open request; None while it is not fetched."""
    waits: bool = False
    """Whether it is to be looked at at `ready_at`."""
    noted: str = ""
    """The failure that was noted last: one that repeats itself until it succeeds is worth one line."""
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
