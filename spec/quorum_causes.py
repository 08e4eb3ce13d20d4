"""The causes of a voter's step on other voters, so that the rows of all voters can be merged into one order (`merging.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spec.cluster_trace import Row

NodeEpoch = tuple[int, int]
"""(epoch, voter)."""


class QuorumCauses:
    """The facts in the quorum's rows so far that may be causes of other rows."""

    def __init__(self) -> None:
        self._majority = 1
        self._epochs: dict[int, int] = {}
        self._candidates: set[NodeEpoch] = set()
        self._votes: dict[NodeEpoch, set[int]] = {}
        """(epoch, candidate) -> its voters, itself included."""
        self._leaders: set[NodeEpoch] = set()
        self._ends: dict[NodeEpoch, int] = {}
        self._marks: dict[NodeEpoch, int] = {}
        self._own_marks: dict[int, int] = {}

    def is_caused(self, row: Row) -> bool:
        """Whether all causes of the row are in the order."""
        needs = _NEEDS.get(row["action"])
        return needs is None or needs(self, row)

    def take(self, row: Row) -> None:
        """Note the facts of a row that is now in the order."""
        node, action = row["node"], row["action"]
        node_epoch = row["epoch"], node
        self._majority = len(row["voters"]) // 2 + 1 if "voters" in row else self._majority
        self._epochs[node] = row["epoch"]
        self._ends[node_epoch] = max(row["leo"], self._ends.get(node_epoch, 0))
        self._marks[node_epoch] = max(row["highWatermark"], self._marks.get(node_epoch, 0))
        self._own_marks[node] = row["highWatermark"]
        if action in ("BecomeCandidate", "GrantVote"):
            self._votes.setdefault((row["epoch"], row.get("to", node)), set()).add(node)
        if action == "BecomeCandidate":
            self._candidates.add(node_epoch)
        if action == "BecomeLeader":
            self._leaders.add(node_epoch)

    def has_epoch(self, row: Row) -> bool:
        return self._epochs.get(row["from"], 0) >= row["epoch"]

    def has_candidate(self, row: Row) -> bool:
        return (row["epoch"], row["to"]) in self._candidates

    def has_votes(self, row: Row) -> bool:
        return len(self._votes.get((row["epoch"], row["node"]), ())) >= self._majority

    def has_follower(self, row: Row) -> bool:
        return self._ends.get((row["epoch"], row["from"]), -1) >= row["end"]

    def has_answer(self, row: Row) -> bool:
        leader = row["epoch"], row["from"]
        has_records = row["lastEpoch"] != row["epoch"] or self._ends.get(leader, 0) >= row["leo"]
        known = max(self._own_marks.get(row["node"], 0), self._marks.get(leader, 0))
        return leader in self._leaders and has_records and known >= row["highWatermark"]


_NEEDS: dict[str, Callable[[QuorumCauses, dict[str, Any]], bool]] = {
    "LearnEpoch": QuorumCauses.has_epoch,
    "GrantVote": QuorumCauses.has_candidate,
    "BecomeLeader": QuorumCauses.has_votes,
    "AnswerFetch": QuorumCauses.has_follower,
    "ApplyFetch": QuorumCauses.has_answer,
}
"""Step -> whether its causes are in the order. A pre-vote needs none: the candidate, which receives it, traces it."""
