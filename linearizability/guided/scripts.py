"""Scripts: the steps of a behaviour of the specification that a simulated cluster is to take, in order.

`tidegauge spec behaviours --faults` writes schedules with scripts; none has to be written by hand.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Step(BaseModel):
    """One step of any script. A field that is not given is -1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: str
    """The action of the specification."""
    broker: int = -1
    """The broker that takes the step, or that the controller's step is about; of two brokers the one that acts."""


class NodeStep(Step):
    """A step of a replica, a voter or the controller; epochs and decisions count from the script's first state."""

    other: int = -1
    """The second broker: the leader of a follower's step, the follower of a leader's."""
    end: int = -1
    """The log end offset, or high watermark, after the step."""
    leader_epoch: int = -1
    decision: int = -1
    """How many changes of the partition the controller has made by then; of a replica's step: the replica has replayed."""
    leader: int = -1
    """The leader after a decision of the controller."""
    replicas: tuple[int, ...] = ()
    """Of a reassignment: the target replicas."""
    min_isr: int = -1
    """min.insync.replicas, where it is changed or replayed."""
    acks: str = ""
    loses_tail: bool = False
    """Of a crash: bytes that were not fsynced are lost."""
    fetches_late: bool = False
    """Of a crash: the broker's last fetch is still on its way."""


class ReplicationScript(BaseModel):
    """The steps of one partition's replicas and of the controller."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: str
    brokers: tuple[int, ...] = Field(min_length=2)
    """The replicas of the topic's only partition; the first is the first leader, and all are in the ISR."""
    others: tuple[int, ...] = ()
    """Brokers that may be given a replica later."""
    idempotent: bool = False
    """Whether the records are those of an idempotent producer."""
    steps: tuple[NodeStep, ...]

    @property
    def all_brokers(self) -> tuple[int, ...]:
        return *self.brokers, *self.others


class QuorumScript(BaseModel):
    """The steps of the metadata quorum. `broker` is the voter that takes the step, `other` the second voter that it names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    voters: tuple[int, ...] = Field(min_length=2)
    """They begin with equal logs and without a leader, in an epoch without votes."""
    steps: tuple[NodeStep, ...]

    @property
    def all_brokers(self) -> tuple[int, ...]:
        return self.voters


class TransactionStep(Step):
    """A step of a transactional id; `broker` is the leader of the partition that it is about."""

    transaction: int = -1
    """Of a write: the specification's number of its transaction."""
    marker: Literal["", "commit", "abort"] = ""
    """How a transaction is to end, or which marker is to be appended."""


class TransactionScript(BaseModel):
    """The steps of one transactional id, its coordinator and the partitions that it writes to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    brokers: tuple[int, ...] = Field(min_length=2)
    """The first is the coordinator, each of the others leads the only partition of one topic."""
    topics: tuple[str, ...] = Field(min_length=1)
    version: Literal[1, 2] = 2
    """transaction.version as the client speaks it: before KIP-890 it adds partitions itself."""
    steps: tuple[TransactionStep, ...]

    @property
    def all_brokers(self) -> tuple[int, ...]:
        return self.brokers


class GroupStep(Step):
    """A step of a consumer group; partitions have the specification's names."""

    member: str = ""
    epoch: int = -1
    """Of a heartbeat: the member's epoch after it."""
    partitions: frozenset[str] = frozenset()
    """Of a heartbeat: the member's assignment after it."""
    target: dict[str, frozenset[str]] = {}
    """Of a new target assignment: each member's partitions."""


class GroupScript(BaseModel):
    """The steps of one group of the new protocol (KIP-848), on one broker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str
    brokers: tuple[int, ...] = Field(min_length=1)
    """The coordinator, which also leads the partitions that the group reads."""
    topic: str
    members: tuple[str, ...]
    partitions: tuple[str, ...]
    """The specification's names of the topic's partitions; the first assignments show which is which."""
    steps: tuple[GroupStep, ...]

    @property
    def all_brokers(self) -> tuple[int, ...]:
        return self.brokers


Script = ReplicationScript | QuorumScript | TransactionScript | GroupScript
