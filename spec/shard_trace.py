"""Makes one trace for each consumer group, and one for each transactional id, from the rows that coordinators traced.

A coordinator's row names its shard (a partition of `__consumer_offsets` or `__transaction_state`), its leader epoch, and the
offset after its records. A step counts if every later leader of the shard began with a log that has its records. So the rows of
a shard are ordered by leader epoch, whichever nodes traced them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spec.cluster_trace import Row
from spec.trace_form import Event

GROUP_STEPS = ("JoinGroup", "LeaveGroup", "LoseMember", "RaiseGroupEpoch", "UpdateTarget", "Heartbeat")
"""The coordinator's steps of spec/groups/Groups.tla."""

FIRST_GROUP_EPOCH = 2
"""The group epoch after the first member's join, which creates the group with epoch 1 and raises it."""


class Leaderships:
    """The leader epochs of each partition, and the log end offset at which each began, as the leaders traced them."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._starts: dict[str, list[tuple[int, int]]] = {}
        for row in rows:
            if _begins_leadership(row):
                self._starts.setdefault(row["partition"], []).append((row["leaderEpoch"], row["leo"]))

    def has_lost(self, partition: str, epoch: int, end: int) -> bool:
        """Whether a later leader began with a log that ends before `end`."""
        return any(later > epoch and start < end for later, start in self._starts.get(partition, ()))


def _begins_leadership(row: Row) -> bool:
    return row["action"] == "BecomeLeader" and "leo" in row and "leaderEpoch" in row


def happened(rows: Sequence[Row]) -> list[Row]:
    """The rows of coordinators whose records every later leader of their shard has, ordered by leader epoch."""
    leaderships = Leaderships(rows)
    kept = [
        row
        for row in rows
        if "shard" in row and not leaderships.has_lost(row["shard"], row["coordinatorEpoch"], row["offset"])
    ]
    return sorted(kept, key=lambda row: row["coordinatorEpoch"])


def group_traces(rows: Sequence[Row]) -> dict[str, list[Event]]:
    """The traces of all consumer groups, each from its first member on, up to a step outside the specification."""
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
    """The traces of all transactional ids, each from its first session on, while the producer id is the same."""
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
    """Coordinators' steps and leaders' transactional appends, in order, up to the first loss of committed records.

    A step in a leader epoch that is not the partition's newest by then is left out: it has no effect.
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
    """The rows before the first leader without all committed records: an unclean election, or too many log tails lost at once."""
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
