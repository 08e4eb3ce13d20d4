"""The roles of a quorum member, and the state that each role keeps.

Epoch, vote and leader are not here: they survive a change of role and a crash (`quorum_state`). Source: KIP-595, KIP-996;
org.apache.kafka.raft.QuorumState.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar
from uuid import UUID

from reference.controller.quorum_snapshots import SnapshotReceipt
from reference.controller.quorum_voters import Voter
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.primitives import AT_ONCE, NO_OFFSET, NO_TIMESTAMP, NO_UUID, NodeId, Offset, TimestampMs

NEVER = TimestampMs(2**63 - 1)
"""A deadline that is none."""


class Role(Enum):
    """A member's role in its epoch."""

    UNATTACHED = "unattached"
    """It knows of no leader, or cannot reach it, and waits for one."""
    PROSPECTIVE = "prospective"
    """It asks whether it would win an election, without a new epoch (pre-vote)."""
    CANDIDATE = "candidate"
    """It has voted for itself in a new epoch and asks for votes."""
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    """It led this epoch, and will not lead it again."""


TRANSITIONS: dict[tuple[Role, Role], str] = {
    (Role.UNATTACHED, Role.UNATTACHED): "a newer epoch, or its vote is given",
    (Role.UNATTACHED, Role.PROSPECTIVE): "the election timeout is over",
    (Role.UNATTACHED, Role.FOLLOWER): "a leader of this or a newer epoch is known",
    (Role.PROSPECTIVE, Role.UNATTACHED): "a newer epoch, or lost and no leader is known",
    (Role.PROSPECTIVE, Role.PROSPECTIVE): "its vote is given",
    (Role.PROSPECTIVE, Role.CANDIDATE): "a majority would vote for it",
    (Role.PROSPECTIVE, Role.FOLLOWER): "a leader is known, or lost and the last leader is known",
    (Role.CANDIDATE, Role.UNATTACHED): "a newer epoch",
    (Role.CANDIDATE, Role.PROSPECTIVE): "the election timeout is over",
    (Role.CANDIDATE, Role.LEADER): "a majority has voted for it",
    (Role.CANDIDATE, Role.FOLLOWER): "a leader of this or a newer epoch is known",
    (Role.LEADER, Role.UNATTACHED): "a newer epoch",
    (Role.LEADER, Role.RESIGNED): "a clean shutdown, no majority fetches from it, or it was removed from the voters",
    (Role.LEADER, Role.FOLLOWER): "a leader of a newer epoch is known",
    (Role.FOLLOWER, Role.UNATTACHED): "a newer epoch, or an observer's leader is silent",
    (Role.FOLLOWER, Role.PROSPECTIVE): "the fetch timeout is over",
    (Role.FOLLOWER, Role.FOLLOWER): "a leader of a newer epoch is known",
    (Role.RESIGNED, Role.UNATTACHED): "a newer epoch, or the election timeout is over",
    (Role.RESIGNED, Role.FOLLOWER): "a leader of a newer epoch is known",
}
"""The steps from role to role, and why they are taken; any other is a mistake of ours."""

OBSERVER_ROLES = frozenset({Role.UNATTACHED, Role.FOLLOWER})
"""The roles of a member without a vote."""


@dataclass(slots=True)
class Unattached:
    role: ClassVar[Role] = Role.UNATTACHED
    deadline: TimestampMs


@dataclass(slots=True)
class Nominee:
    """A member that asks for votes, before an election or in one."""

    role: Role
    deadline: TimestampMs
    granted: set[NodeId]
    refused: set[NodeId] = field(default_factory=set[NodeId])


@dataclass(slots=True)
class Progress:
    """Another member's progress, as the leader knows it from its fetches."""

    directory: UUID = NO_UUID
    end: Offset = NO_OFFSET
    """Up to where its log is durable; -1 before its first fetch in this epoch."""
    last_fetch: TimestampMs = NO_TIMESTAMP
    leader_end_then: Offset = NO_OFFSET
    """Where the leader's log ended at that fetch."""
    caught_up: TimestampMs = NO_TIMESTAMP
    """When it last had all that the leader had."""

    def fetched(self, end: Offset, leader_end: Offset, now: TimestampMs) -> None:
        """The member has asked for records from `end` on."""
        if end >= leader_end:
            self.caught_up = max(now, self.caught_up)
        elif 0 < self.leader_end_then <= end:
            self.caught_up = max(self.last_fetch, self.caught_up)
        self.leader_end_then = leader_end
        self.last_fetch = max(now, self.last_fetch)
        self.end = end


@dataclass(slots=True)
class VoterChange:
    """A voter that is being added or removed: one at a time (KIP-853)."""

    request: AddRaftVoterRequest | RemoveRaftVoterRequest
    token: object
    """The caller's, for the response."""
    deadline: TimestampMs
    offset: Offset | None = None
    """Where the new voters are in the log; None before."""


@dataclass(slots=True)
class Leader:
    role: ClassVar[Role] = Role.LEADER
    epoch_start: Offset
    check_quorum_at: TimestampMs
    begin_epoch_at: TimestampMs
    voters: dict[NodeId, Progress]
    """The other voters."""
    observers: dict[NodeId, Progress] = field(default_factory=dict[NodeId, Progress])
    fetched: set[NodeId] = field(default_factory=set[NodeId])
    """Voters that have fetched since a majority last had."""
    change: VoterChange | None = None
    """The voter that is being added or removed."""
    reported: dict[NodeId, Voter] = field(default_factory=dict[NodeId, Voter])
    """What voters of the configuration say of themselves (UpdateRaftVoter), until kraft.version is raised."""

    @property
    def deadline(self) -> TimestampMs:
        change = NEVER if self.change is None else self.change.deadline
        return min(self.check_quorum_at, self.begin_epoch_at, change)


@dataclass(slots=True)
class Follower:
    role: ClassVar[Role] = Role.FOLLOWER
    deadline: TimestampMs
    has_fetched: bool = False
    """Whether the leader has answered a fetch: then it is alive, and no other node gets a pre-vote."""
    receipt: SnapshotReceipt | None = None
    """The snapshot that the leader is sending; meanwhile no records are fetched."""
    next_report: TimestampMs = AT_ONCE
    """When the leader may be asked again for a change of this node's own entry among the voters."""
    has_reported: bool = False
    """Whether the leader knows the entry that kraft.version 0 writes nowhere."""


@dataclass(slots=True)
class Resigned:
    role: ClassVar[Role] = Role.RESIGNED
    deadline: TimestampMs
    successors: list[NodeId]
    """The voters by how much of the log they have, the most first."""
    unaware: set[NodeId]
    """Voters that have not acknowledged the resignation."""


RoleState = Unattached | Nominee | Leader | Follower | Resigned
