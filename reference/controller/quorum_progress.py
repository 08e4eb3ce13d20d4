"""The leader's record of the other members' progress, from their fetches.

Source: org.apache.kafka.raft.LeaderState (ReplicaState, updateVoterAndObserverStates).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from reference.controller.quorum_voters import VoterSet
from reference.protocol.messages.describe_quorum import DescribeQuorumResponse
from reference.protocol.primitives import NO_OFFSET, NO_TIMESTAMP, NO_UUID, NodeId, Offset, TimestampMs

MAX_OBSERVERS = 1000
"""The most observers that a leader records."""

OBSERVER_SESSION_MS = 300_000
"""The time without a fetch after which an observer is dropped (LeaderState.OBSERVER_SESSION_TIMEOUT_MS)."""


@dataclass(slots=True)
class Progress:
    """Another member's progress, from its fetches."""

    directory: UUID = NO_UUID
    end: Offset = NO_OFFSET
    """The end of its durable log; -1 before its first fetch in this epoch."""
    last_fetch: TimestampMs = NO_TIMESTAMP
    leader_end_then: Offset = NO_OFFSET
    """The leader's log end offset at that fetch."""
    caught_up: TimestampMs = NO_TIMESTAMP
    """The last time at which it had the leader's whole log."""

    def fetched(self, end: Offset, leader_end: Offset, now: TimestampMs) -> None:
        """Record a fetch from `end`."""
        if end >= leader_end:
            self.caught_up = max(now, self.caught_up)
        elif 0 < self.leader_end_then <= end:
            self.caught_up = max(self.last_fetch, self.caught_up)
        self.leader_end_then = leader_end
        self.last_fetch = max(now, self.last_fetch)
        self.end = end


Replica = tuple[NodeId, UUID]
"""A node with one data directory."""


@dataclass(slots=True, eq=False)
class Members:
    """The voters except the leader, and the observers."""

    voters: dict[NodeId, Progress]
    observers: dict[Replica, Progress] = field(default_factory=dict[Replica, Progress])
    fetched: set[NodeId] = field(default_factory=set[NodeId])
    """Voters that have fetched since the check-quorum timer last restarted."""

    def count_by(self, voters: VoterSet, others: Sequence[NodeId]) -> None:
        """Keep the progress of each member under a new voter set; a member that is no voter any more becomes an observer.

        `others` are the new voters except the leader.
        """
        former = {(id, progress.directory): progress for id, progress in self.voters.items()}
        self.voters = {}
        for id in others:
            key = id, voters.directory_of(id)
            found = former.pop(key, None) or self.observers.pop(key, None)
            self.voters[id] = found or Progress(key[1])
        for key, progress in former.items():
            self.observers.setdefault(key, progress)
        self.fetched &= self.voters.keys()

    def observer_fetched(self, id: NodeId, directory: UUID, end: Offset, leader_end: Offset, now: TimestampMs) -> None:
        """Record an observer's fetch from `end`."""
        self.drop_silent(now)
        key = id, directory
        if key in self.observers or len(self.observers) < MAX_OBSERVERS:
            self.observers.setdefault(key, Progress(directory)).fetched(end, leader_end, now)

    def drop_silent(self, now: TimestampMs) -> None:
        for observer in [key for key, seen in self.observers.items() if now - seen.last_fetch >= OBSERVER_SESSION_MS]:
            del self.observers[observer]


def described(members: Mapping[Replica, Progress]) -> list[DescribeQuorumResponse.ReplicaState]:
    return [
        DescribeQuorumResponse.ReplicaState(
            replica_id=id,
            replica_directory_id=directory,
            log_end_offset=progress.end,
            last_fetch_timestamp=progress.last_fetch,
            last_caught_up_timestamp=progress.caught_up,
        )
        for (id, directory), progress in sorted(members.items())
    ]
