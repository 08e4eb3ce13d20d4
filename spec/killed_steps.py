"""The last step of a process that was killed before it had written that step down.

A node appends to its log first and traces the append then. `kill -9` between the two leaves records in the log that no row
speaks of, and the incarnation that recovers this log finds them. A process does one step at a time, so a kill hides one step
at most: where exactly one log turns out longer than the last row about it said, its append is put at the end of the killed
incarnation, for the specification to judge as any other. Whatever else differs stays as it is, and is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from spec.cluster_trace import METADATA, Row, begins_incarnation


def with_killed_steps(rows: Sequence[Row]) -> list[Row]:
    """One node's rows, and at the end of each killed incarnation the append that the kill hid."""
    starts = [place for place, row in enumerate(rows) if begins_incarnation(row)]
    whole: list[Row] = []
    for start, end in pairwise([0, *starts, len(rows)]):
        whole += [*rows[start:end], *_hidden_append(rows[start:end], rows[end:])]
    return whole


def _hidden_append(killed: Sequence[Row], later: Sequence[Row]) -> list[Row]:
    """The append at the end of `killed`, as the logs that were recovered `later` show it; [] where there is no single one."""
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
    """The append of the replica whose role a row shows; None where it follows a leader that the row does not name."""
    node, leader = row["node"], row["args"].get("leader")
    if node == leader or row["action"] == "BecomeLeader":
        return {"action": "Produce", "args": {"leader": node, "acks": "all", "end": end}}
    if leader is None:
        return None
    return {"action": "AppendFetched", "args": {"follower": node, "leader": leader, "end": end}}
