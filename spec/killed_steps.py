"""Adds the last append of a killed process, which it had no time to trace.

A node first appends to its log and then traces the append. `kill -9` between the two leaves records in the log without a row,
and the next incarnation recovers them. A process takes one step at a time, so a kill hides at most one. If exactly one recovered
log is longer than its last row reports, the missing append is added at the end of the killed incarnation, and the specification
judges it like any other step. Other differences are not repaired: the specification rejects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from spec.cluster_trace import METADATA, Row, begins_incarnation


def with_killed_steps(rows: Sequence[Row]) -> list[Row]:
    """One node's rows, with the hidden append, if there is one, at the end of each killed incarnation."""
    starts = [place for place, row in enumerate(rows) if begins_incarnation(row)]
    whole: list[Row] = []
    for start, end in pairwise([0, *starts, len(rows)]):
        whole += [*rows[start:end], *_hidden_append(rows[start:end], rows[end:])]
    return whole


def _hidden_append(killed: Sequence[Row], later: Sequence[Row]) -> list[Row]:
    """The hidden append at the end of `killed`, by the log recovered in `later`; [] unless exactly one log is longer."""
    if any(row["action"] == "ShutDown" for row in killed):
        return []
    last = {row["partition"]: row for row in killed if _is_of_log(row)}
    recovered = [next((row for row in later if row.get("partition") == name), None) for name in last]
    found = [row for row in recovered if row is not None and row["action"] == "Restart"]
    longer = [row for row in found if row["leo"] > last[row["partition"]]["leo"]]
    if len(longer) != 1:
        return []
    name, end = longer[0]["partition"], longer[0]["leo"]
    roles = (row for row in reversed(killed) if row.get("partition") == name and _shows_role(row))
    step = next((_append(row, end) for row in roles), None)
    return [] if step is None else [last[name] | step | {"leo": end}]


def _is_of_log(row: Row) -> bool:
    return "leo" in row and row.get("partition") not in (None, METADATA)


def _shows_role(row: Row) -> bool:
    return row["action"] in ("BecomeLeader", "BecomeFollower") or "leader" in row["args"]


def _append(row: Row, end: int) -> Row | None:
    """The append of a leader or a follower, by a row that shows its role; None if the row does not name the leader."""
    node, leader = row["node"], row["args"].get("leader")
    if node == leader or row["action"] == "BecomeLeader":
        return {"action": "Produce", "args": {"leader": node, "acks": "all", "end": end}}
    if leader is None:
        return None
    return {"action": "AppendFetched", "args": {"follower": node, "leader": leader, "end": end}}
