"""Merges the rows of several processes into one order: each row after its causes, and otherwise by time.

Each node writes its rows in the order of its steps, before their effects leave it. A row that depends on another node's step
waits until that step's row is in the order: a leadership needs the controller's record, a fetch response the follower's log end
offset, fetched records the leader's log, a high watermark the leader's, and a decision the proposal or the start of a process
that caused it, and all earlier decisions. `quorum_causes.py` has the causes of the quorum's steps. Among the rows that may come
next, the one with the smallest time `at` is first (a monotonic clock, the same for all processes of a machine). Clocks that
differ make the order less like the real one, and keep the causes. Rows whose causes never come are ordered by time: then the
specification rejects them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from spec.cluster_trace import METADATA, OF_BROKERS, Row, begins_incarnation, without_lost_decisions
from spec.quorum_causes import QuorumCauses

TAKING_UP = ("Restart", "BecomeLeader", "BecomeFollower")

Key = tuple[str, int]
"""A partition and a leader epoch."""


def merged(nodes: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of all nodes in one order."""
    kept = {id(row) for row in without_lost_decisions([row for rows in nodes for row in rows])}
    known = Known([[row for row in rows if id(row) in kept] for rows in nodes if rows])
    order: list[Row] = []
    while heads := known.heads():
        ready = [node for node in heads if known.is_caused(heads[node])]
        chosen = min(ready or heads, key=lambda node: heads[node].get("at", 0))
        order.append(known.take(chosen))
    return order


class Known:
    """The facts in the rows so far that may be causes of other rows."""

    def __init__(self, streams: Sequence[Sequence[Row]]) -> None:
        self._rows = {rows[0]["node"]: rows for rows in streams if rows}
        self._places = dict.fromkeys(self._rows, 0)
        self._offsets = sorted(row["offset"] for rows in streams for row in rows if "controllerEpoch" in row)
        """The metadata offsets of the decisions that are not in the order yet, ascending."""
        self._decided: dict[str, int] = {}
        """The newest partition epoch of each partition; the largest integer after its last record."""
        self._follower_ends: set[tuple[Key, int, int, int]] = set()
        """(partition and leader epoch, follower, the follower's broker epoch, its log end offset)."""
        self._leader_end: dict[Key, int] = {}
        self._leader_mark: dict[Key, int] = {}
        self._proposed: set[tuple[str, int, int]] = set()
        """(partition, leader, partition epoch that the leader's proposal names)."""
        self._proposals_judged_by: dict[tuple[str, int], int] = {}
        """(partition, leader) -> the number of decisions about brokers before its latest proposal."""
        self._written: set[tuple[str, int]] = set()
        """(partition, a value to which its min.insync.replicas was set)."""
        self._without: set[tuple[str, int]] = set()
        """(partition, a broker that some record of the partition does not list as a replica)."""
        self._quorum = QuorumCauses()
        self._about_brokers = 0
        self._incarnations: dict[int, int] = {}
        found = (_never_registered(node, rows, streams) for node, rows in self._rows.items())
        self._never_registered = {id(row) for rows in found for row in rows}
        """The first rows of incarnations that died before they registered."""
        self._registered: dict[int, int] = {}
        self._broker_epochs: dict[int, int] = {}
        self._strangers: set[int] = set()
        """Nodes whose present incarnation is not registered yet."""
        self._fresh: set[int] = set()
        """Registered nodes whose incarnation has not opened a replica yet."""

    def heads(self) -> dict[int, Row]:
        """The next row of each node that has one."""
        return {node: rows[self._places[node]] for node, rows in self._rows.items() if self._places[node] < len(rows)}

    # ---- may it come

    def is_caused(self, row: Row) -> bool:
        """Whether all causes of the row are in the order."""
        if self._is_about_unseen(row):
            return True
        if "controllerEpoch" in row:
            return self._may_decide(row)
        if "minIsr" in row and (row["partition"], row["minIsr"]) not in self._written:
            return False
        if row.get("partition") == METADATA:
            return self._quorum.is_caused(row)
        needs = _NEEDS.get(row["action"])
        return needs is None or needs(self, row)

    def _is_about_unseen(self, row: Row) -> bool:
        """Whether a row names a node that traces nothing, such as one of Apache Kafka in a mixed cluster."""
        others = {row.get("args", {}).get(part) for part in ("leader", "follower", "broker")} | {
            row.get("from"),
            row.get("to"),
        }
        return bool(others - self._rows.keys() - {None})

    def _may_decide(self, row: Row) -> bool:
        if self._offsets and row["offset"] > self._offsets[0]:
            return False
        if row["action"] == "RegisterBroker":
            broker = row["args"]["broker"]
            return self._registered.get(broker, 0) < self._incarnations.get(broker, 0)
        if row["action"] == "UnfenceBroker":
            broker = row["args"]["broker"]
            return broker == row["node"] or not self._is_taking_up(broker)
        if row["action"] == "AlterPartition":
            leader = row["args"]["leader"]
            return all(
                (name, leader, record["partitionEpoch"] - 1) in self._proposed
                for name, record in row["partitions"].items()
            )
        return True

    def _is_taking_up(self, broker: int) -> bool:
        """Whether a broker still has replicas to open before it is unfenced: it asks for that only after it opened them."""
        head = self.heads().get(broker)
        if head is None:
            return False
        if head["action"] in TAKING_UP and head.get("partition") != METADATA and self.is_caused(head):
            return True
        return broker in self._fresh and self._takes_up_later(broker)

    def _takes_up_later(self, broker: int) -> bool:
        for row in islice(self._rows[broker], self._places[broker], None):
            if begins_incarnation(row):
                return False
            if row["action"] in TAKING_UP and row.get("partition") != METADATA:
                return row["action"] == "Restart" or self.has_record(row)
        return False

    def has_record(self, row: Row) -> bool:
        is_decided = self._decided.get(row["partition"], -1) >= row["args"]["partitionEpoch"]
        return is_decided and row["node"] not in self._strangers

    def has_follower(self, row: Row) -> bool:
        arguments = row["args"]
        follower = arguments["follower"]
        incarnation = arguments.get("brokerEpoch", self._broker_epochs.get(follower, -1))
        return (_key(row), follower, incarnation, arguments["end"]) in self._follower_ends

    def has_records(self, row: Row) -> bool:
        return self._leader_end.get(_key(row), -1) >= row["args"]["end"]

    def has_mark(self, row: Row) -> bool:
        return self._leader_mark.get(_key(row), -1) >= row["args"]["highWatermark"]

    def knows_leadership(self, row: Row) -> bool:
        return _key(row) in self._leader_end

    def has_other_replicas(self, row: Row) -> bool:
        return (row["partition"], row["node"]) in self._without

    def has_refusal(self, row: Row) -> bool:
        return self._about_brokers > self._proposals_judged_by.get((row["partition"], row["node"]), -1)

    # ---- it came

    def take(self, node: int) -> Row:
        """Append a node's next row to the order, note its facts, and return it."""
        row = self._rows[node][self._places[node]]
        self._places[node] += 1
        if row.get("partition") == METADATA:
            self._quorum.take(row)
        if begins_incarnation(row):
            if id(row) not in self._never_registered:
                self._incarnations[row["node"]] = self._incarnations.get(row["node"], 0) + 1
            self._strangers.add(row["node"])
        elif "controllerEpoch" in row:
            self._take_decision(row)
        elif row.get("partition") != METADATA and "leo" in row:
            self._take_step(row)
        return row

    def _take_decision(self, row: Row) -> None:
        if row["action"] in OF_BROKERS:
            self._about_brokers += 1
        if row["action"] == "RegisterBroker":
            broker = row["args"]["broker"]
            self._registered[broker] = self._registered.get(broker, 0) + 1
            self._broker_epochs[broker] = row["args"].get("brokerEpoch", -1)
            self._strangers.discard(broker)
            self._fresh.add(broker)
        for name, record in row["partitions"].items():
            if record is not None:
                self._without |= {(name, node) for node in self._rows if node not in record["replicas"]}
                if "minIsr" in record:
                    self._written.add((name, record["minIsr"]))
            if self._decided.get(name) == sys.maxsize:
                continue
            # After a partition's last record its rows need no record: the specification does not see them.
            self._decided[name] = record["partitionEpoch"] if record is not None else sys.maxsize
        self._offsets.remove(row["offset"])

    def _take_step(self, row: Row) -> None:
        key = _key(row)
        if "isr" in row:
            self._leader_end[key] = max(row["leo"], self._leader_end.get(key, -1))
            self._leader_mark[key] = max(row["hw"], self._leader_mark.get(key, -1))
        else:
            self._take_follower_end(key, row)
        if row["action"] in TAKING_UP:
            self._fresh.discard(row["node"])
        if row["action"] in ("ExpandIsr", "ShrinkIsr"):
            self._proposed.add((row["partition"], row["node"], row["partitionEpoch"]))
            self._proposals_judged_by[row["partition"], row["node"]] = self._about_brokers
        elif row["action"] == "RollBackIsr":
            # The controller refused it: a later decision has a later proposal as its cause.
            self._proposed.discard((row["partition"], row["node"], row["partitionEpoch"]))

    def _take_follower_end(self, key: Key, row: Row) -> None:
        if row["action"] == "Truncate":
            # A truncated log end is no cause any more: a later fetch with that offset needs the next append up to it.
            cut = {end for end in self._follower_ends if end[:2] == (key, row["node"]) and end[3] > row["leo"]}
            self._follower_ends -= cut
        self._follower_ends.add((key, row["node"], self._broker_epochs.get(row["node"], -1), row["leo"]))


def _never_registered(node: int, rows: Sequence[Row], streams: Sequence[Sequence[Row]]) -> list[Row]:
    """The first rows of a node's incarnations that opened no replica, if the others account for all its registrations."""
    opened: dict[int, bool] = {}
    place = -1
    for number, row in enumerate(rows):
        if begins_incarnation(row):
            place = number
            opened[place] = False
        elif place >= 0 and row["action"] in TAKING_UP:
            opened[place] = True
    decisions = (row for each in streams for row in each if row["action"] == "RegisterBroker")
    if sum(row["args"]["broker"] == node for row in decisions) > sum(opened.values()):
        return []
    return [rows[place] for place, has_opened in opened.items() if not has_opened]


def _key(row: Row) -> Key:
    return row["partition"], row["leaderEpoch"]


_NEEDS: dict[str, Callable[[Known, dict[str, Any]], bool]] = {
    "BecomeLeader": Known.has_record,
    "BecomeFollower": Known.has_record,
    "CommitIsr": Known.has_record,
    "AnswerFetch": Known.has_follower,
    "AppendFetched": Known.has_records,
    "AdoptHighWatermark": Known.has_mark,
    "Truncate": Known.knows_leadership,
    "RollBackIsr": Known.has_refusal,
    "GiveUpReplica": Known.has_other_replicas,
}
"""Step of a replica -> whether its causes on other nodes are in the order."""
