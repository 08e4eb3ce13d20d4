"""The roles of a quorum member, and the transitions between them.

The state of a role is one value, which is replaced with the role: `Leader` (`quorum_leading`), `Follower`
(`quorum_following`), `Prospective` and `Candidate` (`quorum_electing`), `Unattached` and `Resigned`. Epoch, vote and leader
are not part of it: they survive a change of role and a crash (`quorum_state`). Source: KIP-595, KIP-996;
org.apache.kafka.raft.QuorumState.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol

from reference.protocol.primitives import NodeId, TimestampMs

NEVER = TimestampMs(2**63 - 1)
"""No deadline."""


class Role(Enum):
    """A member's role in its epoch."""

    UNATTACHED = "unattached"
    """The member knows no leader, or cannot reach it, and waits for one."""
    PROSPECTIVE = "prospective"
    """The member requests pre-votes, without a new epoch, to learn whether it would win an election."""
    CANDIDATE = "candidate"
    """The member has voted for itself in a new epoch and requests votes."""
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    """The member led this epoch, and will not lead it again."""


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
    (Role.FOLLOWER, Role.UNATTACHED): "a newer epoch",
    (Role.FOLLOWER, Role.PROSPECTIVE): "the fetch timeout is over",
    (Role.FOLLOWER, Role.FOLLOWER): "a leader of a newer epoch is known",
    (Role.RESIGNED, Role.UNATTACHED): "a newer epoch, or the election timeout is over",
    (Role.RESIGNED, Role.FOLLOWER): "a leader of a newer epoch is known",
}
"""The transitions between roles, with their causes; any other is a bug of this module."""

OBSERVER_ROLES = frozenset({Role.UNATTACHED, Role.FOLLOWER})
"""The roles of an observer. A removed leader may also be a candidate until its removal is committed (`may_stand`)."""


class RoleState(Protocol):
    """The state of a role."""

    role: ClassVar[Role]

    @property
    def deadline(self) -> TimestampMs:
        """The time of the role's next work."""
        ...

    def end(self) -> None:
        """Clean up when another role begins."""


@dataclass(slots=True, eq=False)
class Timed:
    """A role that only waits until its deadline, and needs no cleanup."""

    deadline: TimestampMs

    def end(self) -> None:
        return


@dataclass(slots=True, eq=False)
class Unattached(Timed):
    role: ClassVar[Role] = Role.UNATTACHED


@dataclass(slots=True, eq=False)
class Resigned(Timed):
    role: ClassVar[Role] = Role.RESIGNED
    successors: list[NodeId]
    """The other voters by their log end offsets, the highest first."""
    unaware: set[NodeId]
    """Voters that have not acknowledged the resignation."""
