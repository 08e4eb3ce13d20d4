"""What must wait while a score of replication is played.

Whatever passes between the score's brokers and may be part of a step waits on the wire until the step's cue. What changes
nothing passes, a little late: an idle follower's fetch, which keeps it in the ISR, and the heartbeats of brokers that are
not fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from linearizability.simulation.conducting.replication_progress import NOT_YET, Progress
from linearizability.simulation.score import Score
from linearizability.simulation.traffic import Message
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

IDLE_MS = 20
"""So long a message waits that changes nothing."""

FOLLOWERS_STEPS = frozenset({"AppendFetched", "AdoptHighWatermark", "Truncate"})
LEADERS_STEPS = frozenset({"AnswerFetch", "ExpandIsr"})
FETCHING = frozenset({"fetch", "fetch-answer"})
BEGINS = frozenset({"BecomeLeader", "BecomeFollower"})


class Holding(Progress):
    """Says of each message whether it has to wait."""

    def __init__(self, cluster: Cluster, score: Score) -> None:
        super().__init__(cluster, score)
        self._heard: dict[int, int] = dict.fromkeys(score.all_brokers, 0)
        """Up to which decision each broker may hear of the metadata."""
        self._fetching: set[int] = set()
        """Brokers whose next fetch waits, for it is to outlive them."""

    def holds(self, message: Message) -> bool:
        """Whether a message has no cue yet."""
        if message.asker not in self._places or (self._is_ending and message.kind in FETCHING):
            return False
        return HOLDS[message.kind](self, message)

    def loses(self, message: Message) -> bool:
        """A proposal is refused as stale for an earlier copy was accepted, and the answer to that never came."""
        return self._is_cue(message, "RollBackIsr") and message.kind == "proposal-answer" and not _refuses(message.body)

    def _is_between(self, message: Message, followers: frozenset[str], leaders: frozenset[str]) -> bool:
        """Whether the cue is a step of the two: of the follower that asks, or of the leader that is asked."""
        cue = self._cue
        if cue is None:
            return False
        pair = message.asker, message.asked
        return (cue.action in followers and (cue.broker, cue.other) == pair) or (
            cue.action in leaders and (cue.other, cue.broker) == pair
        )

    def _holds_fetch(self, message: Message) -> bool:
        if self._is_between(message, FOLLOWERS_STEPS, LEADERS_STEPS):
            return False
        if self._is_between(message, frozenset(), frozenset({"ShrinkIsr"})):
            return True
        if message.asker in self._fetching:
            return True
        waited_us = self._world.now_us - message.since_us
        return waited_us < IDLE_MS * MICROSECONDS_A_MS or not self._is_idle(message)

    def _is_idle(self, message: Message) -> bool:
        """Whether a fetch tells its leader nothing that counts."""
        leader = self._replica(message.asked)
        progress = leader.followers.get(message.asker) if leader is not None and leader.is_leader else None
        if leader is None or progress is None or message.asker not in leader.reign.isr:
            return False
        asked = _partition_of(message.body.topics)
        if asked is not None and asked.current_leader_epoch != leader.reign.leader_epoch:
            return False
        end = asked.fetch_offset if asked is not None else self._end_of(message.asker)
        if progress.end < 0:
            return end <= leader.high_watermark and not self._is_to_leave(message.asker, message.asked)
        return end == progress.end and progress.broker_epoch == message.body.replica_state.replica_epoch

    def _end_of(self, broker: int) -> int:
        replica = self._replica(broker)
        return replica.log.log_end_offset if replica is not None else NOT_YET

    def _is_to_leave(self, follower: int, leader: int) -> bool:
        """Whether a follower is to leave the ISR before it has fetched in this reign."""
        for cue in self._score.cues[self._place :]:
            if (cue.broker, cue.other) == (leader, follower) and cue.action in ("AnswerFetch", "ShrinkIsr"):
                return cue.action == "ShrinkIsr"
        return False

    def _holds_fetch_answer(self, message: Message) -> bool:
        data, follower = _partition_of(message.body.responses), self._replica(message.asker)
        if data is None or follower is None or data.error_code != ErrorCode.NONE:
            return False
        if follower.is_leader or follower.reign.leader != message.asked:
            return False
        brings = bool(data.records) or data.diverging_epoch.epoch >= 0
        if not brings and min(data.high_watermark, follower.log.log_end_offset) == follower.high_watermark:
            return False
        if not brings and message.asker in self._fetching:
            return False
        return not self._is_between(message, FOLLOWERS_STEPS, frozenset() if brings else LEADERS_STEPS)

    def _holds_metadata(self, message: Message) -> bool:
        broker = message.asker
        data = _partition_of(message.body.responses)
        if data is None or data.error_code != ErrorCode.NONE:
            return False
        registered = self._registered.get(broker, NOT_YET)
        if registered != NOT_YET and data.high_watermark >= registered and not self._is_cue(message, *BEGINS):
            return True
        following = self._heard[broker] + 1
        return following < len(self._decisions) and data.high_watermark >= self._decisions[following].end

    def _holds_proposal(self, message: Message) -> bool:
        return not self._is_cue(message, "AlterPartition", "RollBackIsr")

    def _holds_proposal_answer(self, message: Message) -> bool:
        return not self._is_cue(message, "CommitIsr", "RollBackIsr", *BEGINS)

    def _holds_registration(self, message: Message) -> bool:
        return not self._is_cue(message, "RegisterBroker")

    def _holds_heartbeat(self, message: Message) -> bool:
        if message.asker in self._fenced:
            return not self._is_cue(message, "UnfenceBroker", "ShutDown")
        return self._is_cue(message, "FenceBroker", "ShutDown")


HOLDS: dict[str, Callable[[Holding, Message], bool]] = {
    "fetch": Holding._holds_fetch,
    "fetch-answer": Holding._holds_fetch_answer,
    "metadata-fetch": lambda conductor, message: False,
    "metadata": Holding._holds_metadata,
    "proposal": Holding._holds_proposal,
    "proposal-answer": Holding._holds_proposal_answer,
    "registration": Holding._holds_registration,
    "heartbeat": Holding._holds_heartbeat,
}
"""By the kind of a message: whether it must wait."""


def _partition_of(topics: Any) -> Any:
    """The only partition of a fetch, or of the answer to one; None where it says nothing of it."""
    return next((partition for topic in topics for partition in topic.partitions), None)


def _refuses(body: Any) -> bool:
    """Whether an answer to AlterPartition refuses the proposal."""
    codes = [body.error_code, *(each.error_code for topic in body.topics for each in topic.partitions)]
    return any(code != ErrorCode.NONE for code in codes)
