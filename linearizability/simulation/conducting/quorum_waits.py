"""What must wait while a score of the metadata quorum is played: everything between voters that no step needs yet.

One connection carries a voter's requests to another in order, so a step lets through what comes before its own message,
too. An answer that tells of a newer epoch is a step of its own (HearOfEpoch).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from linearizability.simulation.conducting.conductor import Conductor
from linearizability.simulation.score import Cue
from linearizability.simulation.traffic import Message
from reference.controller.quorum import Quorum
from reference.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

FETCHES = frozenset({"AnswerFetch", "ApplyFetch"})
GRANTS = frozenset({"GrantPreVote", "GrantVote"})
COUNTS = frozenset({"BecomeCandidate", "BecomeLeader"})
ELECTING = frozenset({"vote", "begin-epoch", "end-epoch"})
ANSWERED = frozenset({"vote-answer", "begin-epoch-answer", "end-epoch-answer", "metadata"})
DECIDING = frozenset({"registration", "heartbeat", "proposal"})
"""What makes an active controller append records that the score does not know."""


class Waits(Conductor[Cue]):
    """Says of each message whether it has to wait."""

    def __init__(self, cluster: Cluster, cues: Sequence[Cue], places: Sequence[int]) -> None:
        super().__init__(cluster, cues, places)
        self._has_begun = False
        self._first_epoch = 0
        self._would_vote: set[tuple[int, int]] = set()
        """Who has answered that it would vote (pre-vote), and for whom; the answer waits."""

    def _quorum(self, voter: int) -> Quorum | None:
        node = self._cluster.machine(voter).node
        return node.quorum if node is not None else None

    def _epoch_of(self, voter: int) -> int:
        quorum = self._quorum(voter)
        return quorum.epoch if quorum is not None else -1

    @property
    def _due(self) -> Cue | None:
        """The cue, as long as its step was not made: then the next one's may have to wait."""
        return self._cue if self._cue is not None and not self._is_made(self._cue) else None

    # ---- doorkeeping

    def holds(self, message: Message) -> bool:
        if message.kind in DECIDING:
            return True
        if not self._has_begun:
            return message.kind in ELECTING
        rule = HOLDS.get(message.kind)
        return rule is not None and not self._is_hearing(message) and rule(self, message)

    def loses(self, message: Message) -> bool:
        """Who fetches from somebody else, for it knows of no leader, is to ask the cue's."""
        cue = self._due
        if message.kind != "metadata-fetch" or cue is None or cue.action not in FETCHES:
            return False
        follower, leader = _follower_and_leader(cue)
        return message.asker == follower and message.asked != leader

    def _is_hearing(self, message: Message) -> bool:
        """Whether the cue is that one of the two hears of the other's epoch: by what it is asked, or answered."""
        cue = self._due
        if cue is None or cue.action != "HearOfEpoch":
            return False
        pair = message.asker, message.asked
        return pair == (cue.broker, cue.other) or (pair == (cue.other, cue.broker) and message.kind not in ANSWERED)

    def _tells_of_newer_epoch(self, message: Message, epoch: int) -> bool:
        return epoch > self._epoch_of(message.asker)

    # ---- elections

    def _holds_vote(self, message: Message) -> bool:
        cue = self._due
        if cue is None:
            return True
        pair = message.asked, message.asker
        if cue.action in GRANTS:
            return (cue.broker, cue.other) != pair
        return cue.action not in FETCHES or _follower_and_leader(cue) != pair

    def _holds_leaders_word(self, message: Message) -> bool:
        """A leader's word is needed by who is to fetch from it; an old one's, of which nobody takes notice, is not held."""
        said = message.body.topics[0].partitions[0].leader_epoch
        if said < self._epoch_of(message.asked):
            return self._holds_vote(message) and message.kind == "begin-epoch"
        return self._holds_vote(message)

    def _holds_vote_answer(self, message: Message) -> bool:
        answer = message.body.topics[0].partitions[0]
        if answer.vote_granted:
            self._would_vote.add((message.asked, message.asker))
        if self._tells_of_newer_epoch(message, answer.leader_epoch):
            return True
        cue = self._due
        return cue is None or cue.action not in COUNTS or cue.broker != message.asker

    def _holds_answer_to_leader(self, message: Message) -> bool:
        answers = message.body.topics
        return bool(answers) and self._tells_of_newer_epoch(message, answers[0].partitions[0].leader_epoch)

    # ---- fetches

    def _holds_fetch(self, message: Message) -> bool:
        cue = self._due
        return cue is None or cue.action not in FETCHES or message.asker != _follower_and_leader(cue)[0]

    def _holds_fetched(self, message: Message) -> bool:
        answers = message.body.responses
        if not answers:
            return False
        answer = answers[0].partitions[0]
        if self._tells_of_newer_epoch(message, answer.current_leader.leader_epoch):
            return True
        if answer.error_code != ErrorCode.NONE or not self._brings(message, answer):
            return False
        cue = self._due
        return cue is None or cue.action != "ApplyFetch" or (cue.broker, cue.other) != (message.asker, message.asked)

    def _brings(self, message: Message, answer: Any) -> bool:
        """Whether an answer changes its reader's log, or its high watermark."""
        quorum = self._quorum(message.asker)
        if quorum is None or answer.records or answer.diverging_epoch.epoch >= 0 or answer.snapshot_id.epoch >= 0:
            return True
        return min(answer.high_watermark, quorum.log_end_offset) > quorum.high_watermark


def _follower_and_leader(cue: Cue) -> tuple[int, int]:
    """The two of a fetch's step: of AnswerFetch it is the leader's step, of ApplyFetch the follower's."""
    return (cue.other, cue.broker) if cue.action == "AnswerFetch" else (cue.broker, cue.other)


HOLDS: dict[str, Callable[[Waits, Message], bool]] = {
    "vote": Waits._holds_vote,
    "vote-answer": Waits._holds_vote_answer,
    "begin-epoch": Waits._holds_leaders_word,
    "begin-epoch-answer": Waits._holds_answer_to_leader,
    "end-epoch": Waits._holds_leaders_word,
    "end-epoch-answer": Waits._holds_answer_to_leader,
    "metadata-fetch": Waits._holds_fetch,
    "metadata": Waits._holds_fetched,
}
"""By the kind of a message: whether it must wait; others need not."""
