"""Which messages between voters wait while a cluster is driven through a script of the metadata quorum.

One connection carries a voter's requests to another in order, so a step also lets earlier messages pass.
A response that carries a newer epoch is a step of its own (LearnEpoch).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from linearizability.guided.driver import Driver
from linearizability.guided.scripts import NodeStep
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.traffic import Message
from reference.controller.quorum import Quorum
from reference.protocol.errors import ErrorCode

FETCHES = frozenset({"AnswerFetch", "ApplyFetch"})
GRANTS = frozenset({"GrantPreVote", "GrantVote"})
COUNTS = frozenset({"BecomeCandidate", "BecomeLeader"})
ELECTING = frozenset({"vote", "begin-epoch", "end-epoch"})
ANSWERED = frozenset({"vote-answer", "begin-epoch-answer", "end-epoch-answer", "metadata"})
DECIDING = frozenset({"registration", "heartbeat", "proposal"})
"""Requests upon which an active controller appends records that the script does not have."""


class QuorumHolds(Driver[NodeStep]):
    """Decides for each message whether it waits."""

    def __init__(self, cluster: SimulatedCluster, steps: Sequence[NodeStep], nodes: Sequence[int]) -> None:
        super().__init__(cluster, steps, nodes)
        self._has_begun = False
        self._first_epoch = 0
        self._would_vote: set[tuple[int, int]] = set()
        """Voters that have granted a pre-vote, and the candidate; the response waits."""

    def _quorum(self, voter: int) -> Quorum | None:
        node = self._cluster.machine(voter).node
        return node.quorum if node is not None else None

    def _epoch_of(self, voter: int) -> int:
        quorum = self._quorum(voter)
        return quorum.epoch if quorum is not None else -1

    @property
    def _due(self) -> NodeStep | None:
        """The current step while it is not taken: afterwards messages may have to wait for the next one."""
        return self._step if self._step is not None and not self._is_made(self._step) else None

    # ---- filtering messages

    def holds(self, message: Message) -> bool:
        if message.kind in DECIDING:
            return True
        if not self._has_begun:
            return message.kind in ELECTING
        rule = HOLDS.get(message.kind)
        return rule is not None and not self._carries_epoch(message) and rule(self, message)

    def loses(self, message: Message) -> bool:
        """A voter without a leader fetches from any voter: lose the fetch unless it goes to the step's leader."""
        step = self._due
        if message.kind != "metadata-fetch" or step is None or step.action not in FETCHES:
            return False
        follower, leader = _follower_and_leader(step)
        return message.asker == follower and message.asked != leader

    def _carries_epoch(self, message: Message) -> bool:
        """Whether in this step one of the two voters learns the other's epoch, from its request or its response."""
        step = self._due
        if step is None or step.action != "LearnEpoch":
            return False
        pair = message.asker, message.asked
        return pair == (step.broker, step.other) or (pair == (step.other, step.broker) and message.kind not in ANSWERED)

    def _carries_newer_epoch(self, message: Message, epoch: int) -> bool:
        return epoch > self._epoch_of(message.asker)

    # ---- elections

    def _holds_vote(self, message: Message) -> bool:
        step = self._due
        if step is None:
            return True
        pair = message.asked, message.asker
        if step.action in GRANTS:
            return (step.broker, step.other) != pair
        return step.action not in FETCHES or _follower_and_leader(step) != pair

    def _holds_leaders_request(self, message: Message) -> bool:
        """BeginQuorumEpoch of the leader that the step's follower fetches from passes; that of an old leader has no effect."""
        said = message.body.topics[0].partitions[0].leader_epoch
        if said < self._epoch_of(message.asked):
            return self._holds_vote(message) and message.kind == "begin-epoch"
        return self._holds_vote(message)

    def _holds_vote_answer(self, message: Message) -> bool:
        answer = message.body.topics[0].partitions[0]
        if answer.vote_granted:
            self._would_vote.add((message.asked, message.asker))
        if self._carries_newer_epoch(message, answer.leader_epoch):
            return True
        step = self._due
        return step is None or step.action not in COUNTS or step.broker != message.asker

    def _holds_answer_to_leader(self, message: Message) -> bool:
        answers = message.body.topics
        return bool(answers) and self._carries_newer_epoch(message, answers[0].partitions[0].leader_epoch)

    # ---- fetches

    def _holds_fetch(self, message: Message) -> bool:
        step = self._due
        return step is None or step.action not in FETCHES or message.asker != _follower_and_leader(step)[0]

    def _holds_fetched(self, message: Message) -> bool:
        answers = message.body.responses
        if not answers:
            return False
        answer = answers[0].partitions[0]
        if self._carries_newer_epoch(message, answer.current_leader.leader_epoch):
            return True
        if answer.error_code != ErrorCode.NONE or not self._brings(message, answer):
            return False
        step = self._due
        return (
            step is None or step.action != "ApplyFetch" or (step.broker, step.other) != (message.asker, message.asked)
        )

    def _brings(self, message: Message, answer: Any) -> bool:
        """Whether a response changes its receiver's log, or its high watermark."""
        quorum = self._quorum(message.asker)
        if quorum is None or answer.records or answer.diverging_epoch.epoch >= 0 or answer.snapshot_id.epoch >= 0:
            return True
        return min(answer.high_watermark, quorum.log_end_offset) > quorum.high_watermark


def _follower_and_leader(step: NodeStep) -> tuple[int, int]:
    """The two voters of a fetch's step: AnswerFetch is the leader's, ApplyFetch the follower's."""
    return (step.other, step.broker) if step.action == "AnswerFetch" else (step.broker, step.other)


HOLDS: dict[str, Callable[[QuorumHolds, Message], bool]] = {
    "vote": QuorumHolds._holds_vote,
    "vote-answer": QuorumHolds._holds_vote_answer,
    "begin-epoch": QuorumHolds._holds_leaders_request,
    "begin-epoch-answer": QuorumHolds._holds_answer_to_leader,
    "end-epoch": QuorumHolds._holds_leaders_request,
    "end-epoch-answer": QuorumHolds._holds_answer_to_leader,
    "metadata-fetch": QuorumHolds._holds_fetch,
    "metadata": QuorumHolds._holds_fetched,
}
"""Kind of message -> whether it must wait; other kinds pass."""
