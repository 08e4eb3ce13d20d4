"""From what coordinators wrote to one trace for each consumer group, and one for each transactional id.

A coordinator's row names its shard (a partition of `__consumer_offsets` or `__transaction_state`), its
leader epoch and the offset at which its records end. It happened if every later leader of the shard began with a log that has it;
so the rows of a shard have one order, whichever nodes traced them: by leader epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spec.cluster_trace import Row
from spec.trace_form import Event

GROUP_STEPS = ("JoinGroup", "LeaveGroup", "LoseMember", "RaiseGroupEpoch", "UpdateTarget", "Heartbeat")
"""The coordinator's steps of spec/groups/Groups.tla."""

FIRST_GROUP_EPOCH = 2
"""Who joins first makes the group and raises its epoch from 1."""


class Leaderships:
    """The leader epochs of each partition, and the log end offset at which each began, as the leaders traced them."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._starts: dict[str, list[tuple[int, int]]] = {}
        for row in rows:
            if _begins_leadership(row):
                self._starts.setdefault(row["partition"], []).append((row["leaderEpoch"], row["leo"]))

    def has_lost(self, partition: str, epoch: int, end: int) -> bool:
        """Whether some later leader began without what ends there."""
        return any(later > epoch and start < end for later, start in self._starts.get(partition, ()))


def _begins_leadership(row: Row) -> bool:
    return row["action"] == "BecomeLeader" and "leo" in row and "leaderEpoch" in row


def happened(rows: Sequence[Row]) -> list[Row]:
    """The rows of coordinators that every later leader of their shard has, by leader epoch."""
    leaderships = Leaderships(rows)
    kept = [
        row
        for row in rows
        if "shard" in row and not leaderships.has_lost(row["shard"], row["coordinatorEpoch"], row["offset"])
    ]
    return sorted(kept, key=lambda row: row["coordinatorEpoch"])


def group_traces(rows: Sequence[Row]) -> dict[str, list[Event]]:
    """The traces of all consumer groups, each from its first member on, as far as the specification knows the group."""
    found: dict[str, list[Event]] = {}
    current: dict[str, str] = {}
    for row in happened(rows):
        if "group" not in row:
            continue
        group = row["group"]
        if row["action"] == "JoinGroup" and row["args"]["groupEpoch"] == FIRST_GROUP_EPOCH:
            title = f"group {group}"
            current[group] = title if title not in found else f"{title}~{len(found)}"
            found[current[group]] = [{"action": "Begin", "group": group}]
        if row["action"] not in GROUP_STEPS:
            current.pop(group, None)
        elif group in current:
            found[current[group]].append({"action": row["action"], "args": row["args"]})
    return found


# ---- transactional ids


def transaction_traces(rows: Sequence[Row]) -> dict[str, list[Event]]:
    """The traces of all transactional ids, each from its first session on and as long as it has one producer id."""
    found: dict[str, list[Event]] = {}
    producers: dict[int, str] = {}
    for row in _of_transactions(rows):
        if "transactionalId" not in row:
            producer_id, epoch = row["args"]["producer"]
            if producer_id in producers:
                found[producers[producer_id]].append(_appended(row, epoch))
            continue
        title = f"transactional id {row['transactionalId']}"
        is_first = row["producerEpoch"] == 0 and row["state"] == "Empty" and row["producerId"] not in producers
        if row["action"] == "NewSession" and is_first:
            title = title if title not in found else f"{title}~{len(found)}"
            producers = {id: name for id, name in producers.items() if not name.startswith(title.partition("~")[0])}
            producers[row["producerId"]] = title
            found[title] = [{"action": "Begin", "transactionalId": row["transactionalId"]}]
        elif row["producerId"] in producers:
            found[producers[row["producerId"]]].append(_coordinated(row))
    return found


def _of_transactions(rows: Sequence[Row]) -> Iterator[Row]:
    """Coordinators' steps, and what leaders append of transactions, in order; until committed records are lost.

    A step of a coordinator or a leader that a later one has succeeded already changes nothing any more.
    """
    kept = [*_before_loss(rows)]
    leaderships, newest = Leaderships(kept), dict[str, int]()
    for row in kept:
        if _begins_leadership(row):
            newest[row["partition"]] = max(row["leaderEpoch"], newest.get(row["partition"], -1))
        if "transactionalId" in row:
            partition, epoch, end = row["shard"], row["coordinatorEpoch"], row["offset"]
        elif "producer" in row.get("args", {}):
            partition, epoch, end = row["partition"], row["leaderEpoch"], row["leo"]
        else:
            continue
        if epoch >= newest.get(partition, -1) and not leaderships.has_lost(partition, epoch, end):
            yield row


def _before_loss(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows up to the first leader that lacks what was committed: unclean elections, and too many tails lost at once."""
    committed: dict[str, int] = {}
    for row in rows:
        if _begins_leadership(row) and row["leo"] < committed.get(row["partition"], 0):
            return
        if "leo" in row and "leaderEpoch" in row:
            committed[row["partition"]] = max(row["hw"], committed.get(row["partition"], 0))
        yield row


def _appended(row: Row, epoch: int) -> Event:
    marker = row["args"].get("marker")
    arguments = {"partition": row["partition"], "epoch": epoch}
    if marker is None:
        return {"action": "AppendWrite", "args": arguments}
    return {"action": "AppendMarker", "args": arguments | {"marker": marker}}


def _coordinated(row: Row) -> Event:
    names = ("state", "producerEpoch", "partitions")
    return {"action": row["action"], "args": row["args"]} | {name: row[name] for name in names}
