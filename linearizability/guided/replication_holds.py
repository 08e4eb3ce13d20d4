"""Which messages wait while a cluster is driven through a script of replication.

A message between the script's brokers that may be part of a step waits on the wire for that step. A message without effect
passes, a little late: an idle follower's fetch, which keeps it in the ISR, and the heartbeats of unfenced brokers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linearizability.guided.replication_progress import NOT_YET, Progress
from linearizability.guided.scripts import ReplicationScript
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.traffic import Message
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import NodeId

IDLE_MS = 20
"""How long a message without effect waits."""

FOLLOWERS_STEPS = frozenset({"AppendFetched", "AdoptHighWatermark", "Truncate"})
LEADERS_STEPS = frozenset({"AnswerFetch", "ExpandIsr"})
FETCHING = frozenset({"fetch", "fetch-answer"})
BEGINS = frozenset({"BecomeLeader", "BecomeFollower"})


class ReplicationHolds(Progress):
    """Decides for each message whether it waits."""

    def __init__(self, cluster: SimulatedCluster, script: ReplicationScript) -> None:
        super().__init__(cluster, script)
        self._may_replay: dict[int, int] = dict.fromkeys(script.all_brokers, 0)
        """Broker -> the decision up to which it may replay the metadata."""
        self._fetching: set[int] = set()
        """Brokers whose next fetch waits, since it must arrive after their crash."""

    def holds(self, message: Message) -> bool:
        """Whether a message must wait for a later step."""
        if message.asker not in self._nodes or (self._is_ending and message.kind in FETCHING):
            return False
        return HOLDS[message.kind](self, message)

    def loses(self, message: Message) -> bool:
        """RollBackIsr: a proposal is refused as stale, since an earlier copy was accepted whose response is lost."""
        return (
            self._is_step(message, "RollBackIsr") and message.kind == "proposal-answer" and not _refuses(message.body)
        )

    def _is_between(self, message: Message, followers: frozenset[str], leaders: frozenset[str]) -> bool:
        """Whether the step is one of the fetching follower's, or one of the leader's that it fetches from."""
        step = self._step
        if step is None:
            return False
        pair = message.asker, message.asked
        return (step.action in followers and (step.broker, step.other) == pair) or (
            step.action in leaders and (step.other, step.broker) == pair
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
        """Whether a fetch would change nothing in its leader's state."""
        leader = self._replica(message.asked)
        leading = leader.leading if leader is not None else None
        progress = leading.followers.get(NodeId(message.asker)) if leading is not None else None
        if leader is None or progress is None or message.asker not in leader.state.isr:
            return False
        asked = _partition_of(message.body.topics)
        if asked is not None and asked.current_leader_epoch != leader.state.leader_epoch:
            return False
        end = asked.fetch_offset if asked is not None else self._end_of(message.asker)
        if progress.end < 0:
            return end <= leader.high_watermark and not self._is_to_leave(message.asker, message.asked)
        return end == progress.end and progress.broker_epoch == message.body.replica_state.replica_epoch

    def _end_of(self, broker: int) -> int:
        replica = self._replica(broker)
        return replica.log.log_end_offset if replica is not None else NOT_YET

    def _is_to_leave(self, follower: int, leader: int) -> bool:
        """Whether a follower is to leave the ISR before it has fetched in this leader epoch."""
        for step in self._script.steps[self._position :]:
            if (step.broker, step.other) == (leader, follower) and step.action in ("AnswerFetch", "ShrinkIsr"):
                return step.action == "ShrinkIsr"
        return False

    def _holds_fetch_answer(self, message: Message) -> bool:
        data, follower = _partition_of(message.body.responses), self._replica(message.asker)
        if data is None or follower is None or data.error_code != ErrorCode.NONE:
            return False
        if follower.is_leader or follower.state.leader != message.asked:
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
        if registered != NOT_YET and data.high_watermark >= registered and not self._is_step(message, *BEGINS):
            return True
        following = self._may_replay[broker] + 1
        return following < len(self._decisions) and data.high_watermark >= self._decisions[following].end

    def _holds_proposal(self, message: Message) -> bool:
        return not self._is_step(message, "AlterPartition", "RollBackIsr")

    def _holds_proposal_answer(self, message: Message) -> bool:
        return not self._is_step(message, "CommitIsr", "RollBackIsr", *BEGINS)

    def _holds_registration(self, message: Message) -> bool:
        return not self._is_step(message, "RegisterBroker")

    def _holds_heartbeat(self, message: Message) -> bool:
        if message.asker in self._fenced:
            return not self._is_step(message, "UnfenceBroker", "ShutDown")
        return self._is_step(message, "FenceBroker", "ShutDown")


HOLDS: dict[str, Callable[[ReplicationHolds, Message], bool]] = {
    "fetch": ReplicationHolds._holds_fetch,
    "fetch-answer": ReplicationHolds._holds_fetch_answer,
    "metadata-fetch": lambda holds, message: False,
    "metadata": ReplicationHolds._holds_metadata,
    "proposal": ReplicationHolds._holds_proposal,
    "proposal-answer": ReplicationHolds._holds_proposal_answer,
    "registration": ReplicationHolds._holds_registration,
    "heartbeat": ReplicationHolds._holds_heartbeat,
}
"""Kind of message -> whether it must wait."""


def _partition_of(topics: Any) -> Any:
    """The only partition of a fetch request or response; None where it has none."""
    return next((partition for topic in topics for partition in topic.partitions), None)


def _refuses(body: Any) -> bool:
    """Whether an answer to AlterPartition refuses the proposal."""
    codes = [body.error_code, *(each.error_code for topic in body.topics for each in topic.partitions)]
    return any(code != ErrorCode.NONE for code in codes)
