"""Scores of coordinators: steps of `spec/transactions` and `spec/groups` that a cluster is to be led through.

Here it is clients that take most steps, and they are without a will of their own (`prompting_transactions.py`,
`prompting_groups.py`): what they ask leaves them when its cue comes. `tidegauge spec behaviours --faults` writes such scores.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from linearizability.simulation.score import Step


class TransactionCue(Step):
    """A step of a transactional id; `broker` is the leader of the partition that it is about."""

    transaction: int = -1
    """Of a write: the specification's number of the transaction that it belongs to."""
    marker: Literal["", "commit", "abort"] = ""
    """How a transaction is to end, or which marker is to be appended."""


class TransactionScore(BaseModel):
    """The steps of one transactional id, its coordinator and the partitions that it writes to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    brokers: tuple[int, ...] = Field(min_length=2)
    """The first coordinates, each of the others leads the only partition of one topic."""
    topics: tuple[str, ...] = Field(min_length=1)
    version: Literal[1, 2] = 2
    """transaction.version as the client speaks it: before KIP-890 it adds partitions itself."""
    cues: tuple[TransactionCue, ...]


class GroupCue(Step):
    """A step of a consumer group; partitions have the specification's names."""

    member: str = ""
    epoch: int = -1
    """Of a heartbeat: the member's epoch after it."""
    partitions: frozenset[str] = frozenset()
    """Of a heartbeat: what the member is given after it."""
    target: dict[str, frozenset[str]] = {}
    """Of a new target: what each member is to have."""


class GroupScore(BaseModel):
    """The steps of one group of the new protocol (KIP-848), on one broker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str
    brokers: tuple[int, ...] = Field(min_length=1)
    """Whoever coordinates, and leads what the group reads."""
    topic: str
    members: tuple[str, ...]
    partitions: tuple[str, ...]
    """The specification's names of the topic's partitions: which is which is seen when the first ones are given."""
    cues: tuple[GroupCue, ...]
