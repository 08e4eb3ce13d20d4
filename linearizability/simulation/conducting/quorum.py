"""The conductor of the metadata quorum: leads three voters through elections and fetches, step by step.

What passes between voters waits on the wire until a step needs it (`quorum_waits.py`). No timer goes off by itself, for all
are longer than a score: who is to stand for election runs ahead in time. A step that a voter takes together with another one
(a leader's first record with its reign, a high watermark with a fetch) is kept until its cue comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from linearizability.simulation.conducting.quorum_waits import FETCHES, Waits
from linearizability.simulation.schedule import METADATA_TOPIC
from linearizability.simulation.score import Cue, QuorumScore
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.controller.quorum_roles import Role

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

PATIENCE_MS = 4_000
"""Longer than any election or fetch timeout of a cluster that plays a score of the quorum."""
WITHIN_MS = 300
OWN_ACCORD = frozenset({"AppendRecord", "AdvanceHighWatermark"})
"""Steps that nobody is asked for: a leader takes them together with others, or not at all."""
SETTLING_MS = 100


class QuorumConductor(Waits):
    """Plays one score on the voters."""

    def __init__(self, cluster: Cluster, score: QuorumScore) -> None:
        super().__init__(cluster, score.cues, score.voters)
        self._came: set[tuple[str, int, int]] = set()
        """Steps since the cue, whose they are, and who else takes part."""
        self._unclaimed: Counter[tuple[str, int]] = Counter()
        """Steps of a leader's own accord that no cue has asked for yet."""
        self._votes: dict[int, tuple[int, int]] = {}
        """Each voter's last vote: to whom, and in which epoch."""
        self._reached: dict[tuple[int, int], tuple[int, int]] = {}
        """A leader and a voter -> the leader's epoch, and the end that it was told."""
        self._heard: dict[int, int] = {}
        """The epoch in which a voter last had an answer of its leader: it takes that one for alive."""
        self._before = (0, 0, 0)
        """What the cue's voter showed when the cue came."""

    # ---- the beginning

    def start(self) -> None:
        """All have the same log, nobody leads, and nobody has voted in this epoch: the specification's first state."""
        self._wait_until(self._is_at_rest, self._depose)

    def _is_at_rest(self) -> bool:
        quorums = [self._quorum(voter) for voter in self._places]
        leaders = [quorum for quorum in quorums if quorum is not None and quorum.is_ready]
        ends = {quorum.log_end_offset if quorum is not None else -1 for quorum in quorums}
        return len(leaders) == 1 and {*ends} == {leaders[0].high_watermark}

    def _depose(self) -> None:
        """The leader misses everybody's fetches and resigns; when its time is over once more it begins an epoch without one."""
        leader = next(voter for voter in self._places if (each := self._quorum(voter)) is not None and each.is_leader)
        self._gates.doorkeeper = self
        machine = self._cluster.machine(leader)
        machine.run_ahead(PATIENCE_MS)
        self._wait_until(lambda: self._has_resigned(leader), lambda: machine.run_ahead(PATIENCE_MS))
        self._wait_until(self._is_leaderless, self._begin)

    def _has_resigned(self, voter: int) -> bool:
        quorum = self._quorum(voter)
        return quorum is not None and quorum.role is Role.RESIGNED

    def _is_leaderless(self) -> bool:
        quorums = [self._quorum(voter) for voter in self._places]
        waiting = all(quorum is not None and quorum.role is Role.UNATTACHED for quorum in quorums)
        return waiting and len({quorum.epoch for quorum in quorums if quorum is not None}) == 1

    def _begin(self) -> None:
        quorum = self._quorum(self._places[0])
        assert quorum is not None
        self._first_epoch = quorum.epoch
        self._has_begun = True
        self._call()

    # ---- cues

    def _set_stage(self, cue: Cue) -> None:
        self._came.clear()
        if cue.action == "GrantPreVote" and self._takes_leader_for_alive(cue.broker):
            self._cluster.machine(cue.broker).run_ahead(PATIENCE_MS)
            self._world.after(SETTLING_MS * MICROSECONDS_A_MS, self._cue_in, cue)
        else:
            self._cue_in(cue)

    def _takes_leader_for_alive(self, voter: int) -> bool:
        """Who has heard of a leader grants no pre-vote (KIP-996), which the specification leaves open: it must miss it first."""
        quorum = self._quorum(voter)
        return quorum is not None and quorum.role is Role.FOLLOWER and self._heard.get(voter) == quorum.epoch

    def _bound_ms(self, cue: Cue) -> int:
        return WITHIN_MS

    def _act(self, cue: Cue) -> None:
        self._before = self._shown_by(cue.broker)
        machine = self._cluster.machine(cue.broker)
        if cue.action == "BecomeProspective":
            self._would_vote = {pair for pair in self._would_vote if pair[1] != cue.broker}
            machine.run_ahead(PATIENCE_MS)
        elif cue.action == "Restart":
            machine.crash()
            machine.start()

    def _is_made(self, cue: Cue) -> bool:
        return DONE[cue.action](self, cue)

    def _on_made(self, cue: Cue) -> None:
        self._unclaimed[cue.action, cue.broker] -= 1

    # ---- what has happened

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        if row.get("partition") != f"{METADATA_TOPIC}-0":
            return
        other = row["from"] if action in FETCHES else row.get("to", number)
        self._came.add((action, number, other))
        if action in OWN_ACCORD:
            self._unclaimed[action, number] = max(0, self._unclaimed[action, number]) + 1
        elif action == "BecomeLeader":
            self._unclaimed["AppendRecord", number] = self._unclaimed["AdvanceHighWatermark", number] = 0
        elif action == "GrantVote":
            self._votes[number] = other, row["epoch"]
        elif action == "AnswerFetch":
            self._reached[number, other] = row["epoch"], row["end"]
        elif action == "ApplyFetch":
            self._heard[number] = row["epoch"]

    def _shown_by(self, voter: int) -> tuple[int, int, int]:
        """Epoch, log end offset and high watermark."""
        quorum = self._quorum(voter)
        return (quorum.epoch, quorum.log_end_offset, quorum.high_watermark) if quorum is not None else (0, 0, 0)

    def _has_role(self, cue: Cue) -> bool:
        quorum = self._quorum(cue.broker)
        return quorum is not None and quorum.role is ROLES[cue.action]

    def _would_give_vote(self, cue: Cue) -> bool:
        return (cue.broker, cue.other) in self._would_vote

    def _has_voted(self, cue: Cue) -> bool:
        return self._votes.get(cue.broker) == (cue.other, self._first_epoch + cue.leader_epoch)

    def _has_heard(self, cue: Cue) -> bool:
        return self._shown_by(cue.broker)[0] >= self._first_epoch + cue.leader_epoch

    def _has_appended(self, cue: Cue) -> bool:
        return self._unclaimed[cue.action, cue.broker] > 0

    def _has_committed(self, cue: Cue) -> bool:
        """A high watermark may have moved by two steps at once."""
        _, end, high_watermark = self._shown_by(cue.broker)
        return self._unclaimed[cue.action, cue.broker] > 0 or high_watermark == end

    def _knows_end(self, cue: Cue) -> bool:
        epoch, _, _ = self._shown_by(cue.broker)
        _, end, _ = self._shown_by(cue.other)
        return self._reached.get((cue.broker, cue.other)) == (epoch, end)

    def _has_applied(self, cue: Cue) -> bool:
        has_come = ("ApplyFetch", cue.broker, cue.other) in self._came
        return has_come and self._shown_by(cue.broker)[1:] != self._before[1:]

    def _is_back(self, cue: Cue) -> bool:
        return ("Restart", cue.broker, cue.broker) in self._came


ROLES = {"BecomeProspective": Role.PROSPECTIVE, "BecomeCandidate": Role.CANDIDATE, "BecomeLeader": Role.LEADER}

DONE: dict[str, Callable[[QuorumConductor, Cue], bool]] = {
    "BecomeProspective": QuorumConductor._has_role,
    "GrantPreVote": QuorumConductor._would_give_vote,
    "BecomeCandidate": QuorumConductor._has_role,
    "GrantVote": QuorumConductor._has_voted,
    "BecomeLeader": QuorumConductor._has_role,
    "HearOfEpoch": QuorumConductor._has_heard,
    "AppendRecord": QuorumConductor._has_appended,
    "AnswerFetch": QuorumConductor._knows_end,
    "ApplyFetch": QuorumConductor._has_applied,
    "AdvanceHighWatermark": QuorumConductor._has_committed,
    "Restart": QuorumConductor._is_back,
}
"""By what a step is seen to have been made."""
