"""A follower's progress as its leader records it: log end offset, time and incarnation of its last fetch."""

from __future__ import annotations

from dataclasses import dataclass

from reference.protocol.primitives import LONG_AGO, NO_OFFSET, BrokerEpoch, Offset, TimestampMs
from reference.replication.isr import NEVER_FETCHED, caught_up_at

UNKNOWN = NO_OFFSET


@dataclass(slots=True)
class Progress:
    """The leader's record of a follower; a new leader epoch begins with an empty one (Kafka's `ReplicaState`)."""

    end: Offset = UNKNOWN
    """Its log end offset, from its last fetch; -1 while unknown."""
    log_start: Offset = UNKNOWN
    broker_epoch: BrokerEpoch = NEVER_FETCHED
    last_fetch: TimestampMs = LONG_AGO
    leader_end_at_fetch: Offset = UNKNOWN
    """The leader's own log end offset at that time."""
    last_caught_up: TimestampMs = LONG_AGO

    def take_fetch(
        self, offset: Offset, log_start: Offset, broker_epoch: BrokerEpoch, leader_end: Offset, now: TimestampMs
    ) -> bool:
        """Record a fetch; True if the follower's log end offset or incarnation changed."""
        has_changed = offset != self.end or broker_epoch != self.broker_epoch
        # A clock that was set back must not make a follower lag.
        now = max(now, self.last_fetch, self.last_caught_up)
        self.last_caught_up = caught_up_at(
            offset, leader_end, now, self.leader_end_at_fetch, self.last_fetch, self.last_caught_up
        )
        self.end, self.log_start, self.broker_epoch = offset, log_start, broker_epoch
        self.last_fetch = now
        self.leader_end_at_fetch = max(leader_end, self.leader_end_at_fetch)
        return has_changed

    def was_caught_up(self, at: TimestampMs) -> None:
        """Record that the follower also fetched at that time, with the leader's log end offset unchanged since its
        recorded fetch."""
        self.last_fetch = max(self.last_fetch, at)
        self.last_caught_up = max(self.last_caught_up, at)
