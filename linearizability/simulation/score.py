"""A score: the steps of the specification that a cluster is to be led through, one after the other.

While it is played, everything between its brokers that a step of the specification is made of (fetches, metadata,
proposals, registrations, heartbeats of fenced brokers, and their answers) waits on the wire until its cue: the cluster is
led step by step, wherever its own rules allow the step. At the first that does not come in time the score is left, and the
cluster left alone. `tidegauge spec behaviours --faults` writes scores; nobody has to write one by hand.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Step(BaseModel):
    """One step of any chapter. What is not said is -1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: str
    broker: int = -1
    """Whose step it is, or whom the controller's step is about; of two brokers the one that acts."""


class Cue(Step):
    """One step of replication; epochs and decisions count from the score's first state."""

    other: int = -1
    """The second broker: the leader of a follower's step, the follower of a leader's."""
    end: int = -1
    """Log end offset, or high watermark, that the step leads to."""
    leader_epoch: int = -1
    decision: int = -1
    """How many changes of the partition the controller has made by then; of a replica's step: has heard of."""
    leader: int = -1
    """Who leads after a decision of the controller's."""
    replicas: tuple[int, ...] = ()
    """Of a reassignment: who is to have a replica."""
    min_isr: int = -1
    """min.insync.replicas, where it is changed or replayed."""
    acks: str = ""
    loses_tail: bool = False
    """Of a crash: what was not fsynced is gone."""
    fetches_late: bool = False
    """Of a crash: the broker's last fetch is still on its way."""


class Score(BaseModel):
    """The steps, and on whom they are played."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: str
    brokers: tuple[int, ...] = Field(min_length=2)
    """The replicas of the topic's only partition; the first leads to begin with, and all are in the ISR."""
    others: tuple[int, ...] = ()
    """Brokers that may be given a replica later."""
    idempotent: bool = False
    """Whether the records are those of an idempotent producer."""
    cues: tuple[Cue, ...]

    @property
    def all_brokers(self) -> tuple[int, ...]:
        return *self.brokers, *self.others


class QuorumScore(BaseModel):
    """The steps of the metadata quorum. A cue's `broker` is the voter whose step it is, `other` the second one that it names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    voters: tuple[int, ...] = Field(min_length=2)
    """They begin with one log and without a leader, in an epoch in which nobody has voted."""
    cues: tuple[Cue, ...]
