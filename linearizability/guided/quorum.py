"""The driver of the metadata quorum: takes three voters through elections and fetches.

Messages between voters wait on the wire until a step needs them (`quorum_holds.py`). All timers are longer than a script, so
none expires by itself: the clock of the voter that is to become a candidate is moved ahead. A leader may take a step together
with another one (its first record when it is elected, a high watermark with a fetch); it counts once the script reaches it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from linearizability.guided.quorum_holds import FETCHES, QuorumHolds
from linearizability.guided.scripts import NodeStep, QuorumScript
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.schedule import METADATA_TOPIC
from linearizability.simulation.world import MICROSECONDS_A_MS
from reference.controller.quorum_roles import Role

RESPONSE_TIMEOUT_MS = 4_000
"""Longer than any election or fetch timeout of these clusters."""
WITHIN_MS = 300
SPONTANEOUS = frozenset({"AppendRecord", "AdvanceHighWatermark"})
"""Steps without a cause of their own: a leader takes them together with others, or not at all."""
SETTLING_MS = 100


class QuorumDriver(QuorumHolds):
    """Drives the voters."""

    def __init__(self, cluster: SimulatedCluster, script: QuorumScript) -> None:
        super().__init__(cluster, script.steps, script.voters)
        self._came: set[tuple[str, int, int]] = set()
        """Actions traced since the step began: the action, its voter, and the other voter that takes part."""
        self._unclaimed: Counter[tuple[str, int]] = Counter()
        """Spontaneous actions of a leader that no step of the script has matched yet."""
        self._votes: dict[int, tuple[int, int]] = {}
        """Voter -> the candidate and the epoch of its last vote."""
        self._reached: dict[tuple[int, int], tuple[int, int]] = {}
        """A leader and a voter -> the leader's epoch, and the end of the voter's log that a fetch has reported to it."""
        self._answered_in: dict[int, int] = {}
        """Voter -> the epoch in which its leader last answered it: the voter treats that leader as alive."""
        self._before = (0, 0, 0)
        """Epoch, log end offset and high watermark of the step's voter when the step began."""

    # ---- the beginning

    def start(self) -> None:
        """The specification's first state: equal logs, no leader, and an epoch without votes."""
        self._wait_until(self._is_at_rest, self._depose)

    def _is_at_rest(self) -> bool:
        quorums = [self._quorum(voter) for voter in self._nodes]
        leaders = [quorum for quorum in quorums if quorum is not None and quorum.is_ready]
        ends = {quorum.log_end_offset if quorum is not None else -1 for quorum in quorums}
        return len(leaders) == 1 and {*ends} == {leaders[0].high_watermark}

    def _depose(self) -> None:
        """The leader misses all fetches and resigns; after another timeout it begins an epoch without a leader."""
        leader = next(voter for voter in self._nodes if (each := self._quorum(voter)) is not None and each.is_leader)
        self._gates.filter = self
        machine = self._cluster.machine(leader)
        machine.run_ahead(RESPONSE_TIMEOUT_MS)
        self._wait_until(lambda: self._has_resigned(leader), lambda: machine.run_ahead(RESPONSE_TIMEOUT_MS))
        self._wait_until(self._is_leaderless, self._begin)

    def _has_resigned(self, voter: int) -> bool:
        quorum = self._quorum(voter)
        return quorum is not None and quorum.role is Role.RESIGNED

    def _is_leaderless(self) -> bool:
        quorums = [self._quorum(voter) for voter in self._nodes]
        waits = Role.UNATTACHED, Role.PROSPECTIVE
        waiting = all(quorum is not None and quorum.role in waits and quorum.leader < 0 for quorum in quorums)
        return waiting and len({quorum.epoch for quorum in quorums if quorum is not None}) == 1

    def _begin(self) -> None:
        quorum = self._quorum(self._nodes[0])
        assert quorum is not None
        self._first_epoch = quorum.epoch
        self._has_begun = True
        self._next_step()

    # ---- steps

    def _prepare(self, step: NodeStep) -> None:
        self._came.clear()
        if step.action == "GrantPreVote" and self._takes_leader_for_alive(step.broker):
            self._cluster.machine(step.broker).run_ahead(RESPONSE_TIMEOUT_MS)
            self._world.after(SETTLING_MS * MICROSECONDS_A_MS, self._begin_step, step)
        else:
            self._begin_step(step)

    def _takes_leader_for_alive(self, voter: int) -> bool:
        """A follower of a live leader grants no pre-vote (KIP-996), which the specification leaves open: its fetch timeout
        must expire first."""
        quorum = self._quorum(voter)
        return quorum is not None and quorum.role is Role.FOLLOWER and self._answered_in.get(voter) == quorum.epoch

    def _bound_ms(self, step: NodeStep) -> int:
        return WITHIN_MS

    def _act(self, step: NodeStep) -> None:
        self._before = self._shown_by(step.broker)
        machine = self._cluster.machine(step.broker)
        if step.action == "BecomeProspective":
            self._would_vote = {pair for pair in self._would_vote if pair[1] != step.broker}
            machine.run_ahead(RESPONSE_TIMEOUT_MS)
        elif step.action == "Restart":
            machine.crash()
            machine.start()

    def _is_made(self, step: NodeStep) -> bool:
        return DONE[step.action](self, step)

    def _on_made(self, step: NodeStep) -> None:
        self._unclaimed[step.action, step.broker] -= 1

    # ---- traced actions

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        if row.get("partition") != f"{METADATA_TOPIC}-0":
            return
        other = row["from"] if action in FETCHES else row.get("to", number)
        self._came.add((action, number, other))
        if action in SPONTANEOUS:
            self._unclaimed[action, number] = max(0, self._unclaimed[action, number]) + 1
        elif action == "BecomeLeader":
            self._unclaimed["AppendRecord", number] = self._unclaimed["AdvanceHighWatermark", number] = 0
        elif action == "GrantVote":
            self._votes[number] = other, row["epoch"]
        elif action == "AnswerFetch":
            self._reached[number, other] = row["epoch"], row["end"]
        elif action == "ApplyFetch":
            self._answered_in[number] = row["epoch"]

    def _shown_by(self, voter: int) -> tuple[int, int, int]:
        """Epoch, log end offset and high watermark."""
        quorum = self._quorum(voter)
        return (quorum.epoch, quorum.log_end_offset, quorum.high_watermark) if quorum is not None else (0, 0, 0)

    def _has_role(self, step: NodeStep) -> bool:
        quorum = self._quorum(step.broker)
        return quorum is not None and quorum.role is ROLES[step.action]

    def _would_give_vote(self, step: NodeStep) -> bool:
        return (step.broker, step.other) in self._would_vote

    def _has_voted(self, step: NodeStep) -> bool:
        return self._votes.get(step.broker) == (step.other, self._first_epoch + step.leader_epoch)

    def _has_learned_epoch(self, step: NodeStep) -> bool:
        return self._shown_by(step.broker)[0] >= self._first_epoch + step.leader_epoch

    def _has_appended(self, step: NodeStep) -> bool:
        return self._unclaimed[step.action, step.broker] > 0

    def _has_committed(self, step: NodeStep) -> bool:
        """A high watermark may advance by two steps at once."""
        _, end, high_watermark = self._shown_by(step.broker)
        return self._unclaimed[step.action, step.broker] > 0 or high_watermark == end

    def _knows_end(self, step: NodeStep) -> bool:
        epoch, _, _ = self._shown_by(step.broker)
        _, end, _ = self._shown_by(step.other)
        return self._reached.get((step.broker, step.other)) == (epoch, end)

    def _has_applied(self, step: NodeStep) -> bool:
        has_come = ("ApplyFetch", step.broker, step.other) in self._came
        return has_come and self._shown_by(step.broker)[1:] != self._before[1:]

    def _is_back(self, step: NodeStep) -> bool:
        return ("Restart", step.broker, step.broker) in self._came


ROLES = {"BecomeProspective": Role.PROSPECTIVE, "BecomeCandidate": Role.CANDIDATE, "BecomeLeader": Role.LEADER}

DONE: dict[str, Callable[[QuorumDriver, NodeStep], bool]] = {
    "BecomeProspective": QuorumDriver._has_role,
    "GrantPreVote": QuorumDriver._would_give_vote,
    "BecomeCandidate": QuorumDriver._has_role,
    "GrantVote": QuorumDriver._has_voted,
    "BecomeLeader": QuorumDriver._has_role,
    "LearnEpoch": QuorumDriver._has_learned_epoch,
    "AppendRecord": QuorumDriver._has_appended,
    "AnswerFetch": QuorumDriver._knows_end,
    "ApplyFetch": QuorumDriver._has_applied,
    "AdvanceHighWatermark": QuorumDriver._has_committed,
    "Restart": QuorumDriver._is_back,
}
"""Action -> whether the state shows that it was taken."""
