"""From what the nodes of a cluster wrote to one trace for each partition.

Nodes trace the actions of all their partitions, of the metadata quorum, and decisions about brokers, each as one row, in
an order in which no row stands before what caused it: that of a simulated world, or the one that `merging` finds. A trace
(`trace.py`) is one partition's share of it, in the specification's form. This takes:

- A decision of the controller that was never committed did not happen. It was lost if a later leader of the quorum began
  with a log that does not have it: rows of the quorum's `BecomeLeader` say with which.
- A step that concerns a broker stands in the trace of each of its partitions, with the record that it leaves behind.
- To a controller a dead broker is like a silent one, and an incarnation begins
  to matter when it is registered. So the end of an incarnation and the recovery of the log (`Restart`, with the log that the new
  one then turns out to have) stand before the new one's registration, wherever they happened in between. A decision
  that is made for an incarnation that is over by then is thus made in time.
- A trace ends where the partition is deleted, or something is made of it that the specification does not know (`End`), and
  where a log is taken up twice in one incarnation without having been given up in between, which is the disk's doing.
- Its brokers are all that ever have a replica. Those that wrote no row are unseen (nodes of Apache Kafka in a mixed cluster).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from spec.actions import ACTIONS

Row = dict[str, Any]
Event = dict[str, Any]

METADATA = "__cluster_metadata-0"
NAMES = {action.name for action in ACTIONS}
CONTROLLERS = {action.name for action in ACTIONS if action.actor == "controller"}
OF_BROKERS = {action.name for action in ACTIONS if action.actor == "controller" and action.arguments == ("broker",)} - {
    "ElectLeader",
    "ElectUncleanLeader",
}
"""Decisions about a broker: they stand in the traces of all its partitions."""

RECORD = ("leader", "leaderEpoch", "partitionEpoch", "isr", "elr", "replicas", "adding", "removing")


def partition_traces(rows: Sequence[Row]) -> dict[str, list[Event]]:
    """The traces of all partitions that began, by name; a later topic of the same name has a number behind it.

    Rows of coordinators are no part of them (`shard_trace`).
    """
    happened = [row for row in without_lost_decisions(rows) if "shard" not in row]
    incarnations = Incarnations(happened)
    nodes = {row["node"] for row in happened}
    found: dict[str, list[Event]] = {}
    for place, row in enumerate(happened):
        if row["action"] == "Begin":
            for name, first in row["partitions"].items():
                title = name if name not in found else f"{name}~{sum(each.startswith(name) for each in found)}"
                brokers = replicas_ever(name, happened[place:])
                unseen = [broker for broker in brokers if broker not in nodes]
                found[title] = [*Share(name, first, brokers, incarnations, unseen).events(happened, place)]
    return found


def replicas_ever(name: str, rows: Iterable[Row]) -> list[int]:
    """All brokers that a partition is assigned to, from its beginning on."""
    records = (row["partitions"].get(name) for row in rows if "partitions" in row)
    return sorted({broker for record in records if record is not None for broker in record["replicas"]})


# ---- what was committed


def without_lost_decisions(rows: Sequence[Row]) -> Iterator[Row]:
    """All rows but the decisions that some later leader of the quorum did not have."""
    leaderships = [
        (row["epoch"], row["leo"], row["lastEpoch"])
        for row in rows
        if row["action"] == "BecomeLeader" and row.get("partition") == METADATA
    ]
    for row in rows:
        if "controllerEpoch" not in row or not _is_lost(row, leaderships):
            yield row


def _is_lost(row: Row, leaderships: Iterable[tuple[int, int, int]]) -> bool:
    made, end = row["controllerEpoch"], row["offset"]
    return any(epoch > made and (start < end or last < made) for epoch, start, last in leaderships)


# ---- incarnations


@dataclass
class Incarnation:
    """One process of a node: what each partition's log was recovered to, and which were shut down."""

    recovered: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Partition -> log end offset and high watermark at its first step; (0, 0) for a new replica."""
    ended_cleanly: bool = False


class Incarnations:
    """The incarnations of all nodes, in order; each begins with the quorum's `Restart`."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._incarnations: dict[int, list[Incarnation]] = {}
        self.numbers: list[int] = []
        """For each row the number of its node's incarnation, from 1; 0 before the first."""
        for row in rows:
            incarnations = self._incarnations.setdefault(row["node"], [])
            if begins_incarnation(row):
                incarnations.append(Incarnation())
            self.numbers.append(len(incarnations))
            if incarnations and "leo" in row and row.get("partition") != METADATA:
                self._note(incarnations[-1], row)

    def _note(self, incarnation: Incarnation, row: Row) -> None:
        if row["partition"] not in incarnation.recovered:
            is_old = row["action"] == "Restart"
            incarnation.recovered[row["partition"]] = (row["leo"], row["hw"]) if is_old else (0, 0)
        incarnation.ended_cleanly |= row["action"] == "ShutDown"

    def ended_cleanly(self, node: int, number: int) -> bool:
        incarnations = self._incarnations.get(node, [])
        return 0 < number <= len(incarnations) and incarnations[number - 1].ended_cleanly

    def recovered(self, node: int, number: int, partition: str) -> tuple[int, int] | None:
        """The log as an incarnation recovered it; if it ended before it did, as the next one. None: none did."""
        incarnations = self._incarnations.get(node, [])
        return next(
            (
                incarnation.recovered[partition]
                for incarnation in incarnations[number - 1 :]
                if partition in incarnation.recovered
            ),
            None,
        )


def begins_incarnation(row: Row) -> bool:
    return row["action"] == "Restart" and row.get("partition") == METADATA


# ---- one partition


class Share:
    """What of all rows is one partition's."""

    def __init__(
        self, name: str, first: Row, brokers: Sequence[int], incarnations: Incarnations, unseen: Sequence[int] = ()
    ) -> None:
        """`unseen` are brokers that trace nothing: also the ends of their incarnations are not in the trace."""
        self._unseen = unseen
        self._name = name
        self._first = first
        self._incarnations = incarnations
        self._brokers = brokers
        self._min_isr: int = first["minIsr"]
        self._record = self._filled(first)
        self._now: dict[int, tuple[int, int]] = dict.fromkeys(self._brokers, (0, 0))
        """Each replica's log end offset and high watermark, as it said last."""
        self._incarnation: dict[int, int] = {}
        """The incarnation of each replica that is in the trace."""
        self._started: dict[int, int] = {}
        """The newest incarnation."""
        self._taken_up: set[tuple[int, int]] = set()
        """Incarnations in which the log was taken up."""
        self._given_up: set[tuple[int, int]] = set()
        """Incarnations in which the log was given up."""

    def events(self, rows: Sequence[Row], begin: int) -> Iterator[Event]:
        """The trace, from the row that begins it."""
        for number, row in enumerate(rows[:begin]):
            if row["node"] in self._now:
                self._incarnation[row["node"]] = self._started[row["node"]] = self._incarnations.numbers[number]
        yield {
            "action": "Begin",
            "brokers": self._brokers,
            "minIsr": self._min_isr,
            "partition": self._record,
            "fenced": [broker for broker in self._first["fenced"] if broker in self._now],
            "unseen": [*self._unseen],
        }
        for number in range(begin + 1, len(rows)):
            row = rows[number]
            if self._ends(row, number):
                return
            yield from self._reported(row, number)

    def _ends(self, row: Row, number: int) -> bool:
        """Whether the specification does not know what becomes of the partition from here on."""
        if row["action"] in ("Begin", "End"):
            return self._name in row["partitions"]
        if row.get("partition") == self._name and row["action"] not in NAMES:
            return True
        if row["action"] != "Restart" or row.get("partition") != self._name or row["node"] not in self._now:
            return row.get("partition") == self._name and row["node"] not in self._now
        if self._is_new(row, number):
            return False
        found = self._incarnations.recovered(row["node"], self._incarnations.numbers[number], self._name)
        return self._is_second(row, number) or found != (row["leo"], row["hw"])

    def _is_second(self, row: Row, number: int) -> bool:
        """A log that is taken up again in one incarnation."""
        key = row["node"], self._incarnations.numbers[number]
        is_second = key in self._taken_up
        self._taken_up.add(key)
        return is_second

    def _is_new(self, row: Row, number: int) -> bool:
        """A log that is made again, after it was given up in this incarnation."""
        return (row["node"], self._incarnations.numbers[number]) in self._given_up and (row["leo"], row["hw"]) == (0, 0)

    def _reported(self, row: Row, number: int) -> Iterator[Event]:
        action, node = row["action"], row["node"]
        if begins_incarnation(row):
            self._started[node] = self._incarnations.numbers[number]
        elif action in CONTROLLERS:
            yield from self._decided(row)
        elif row.get("partition") == self._name and action not in ("Restart", "ShutDown"):
            self._now[node] = row["leo"], row["hw"]
            if action == "GiveUpReplica":
                self._given_up.add((node, self._incarnations.numbers[number]))
            yield {key: value for key, value in row.items() if key not in ("partition", "partitionEpoch")}

    def _decided(self, row: Row) -> Iterator[Event]:
        action, record = row["action"], row["partitions"].get(self._name)
        if record is None and (action not in OF_BROKERS or row["args"]["broker"] not in self._now):
            return
        if record is not None:
            self._min_isr = record.get("minIsr", self._min_isr)
            self._record = self._filled(record)
        if action == "RegisterBroker" and row["args"]["broker"] not in self._unseen:
            yield from self._new_incarnation(row["args"]["broker"])
        yield {"node": row["node"], "action": action, "args": row["args"], "partition": self._record}

    def _new_incarnation(self, broker: int) -> Iterator[Event]:
        """The end of the former incarnation, and the log that the new one recovers."""
        former, incarnation = self._incarnation.get(broker, 0), self._started.get(broker, 0)
        self._incarnation[broker] = incarnation
        before = self._now[broker]
        recovered = self._incarnations.recovered(broker, incarnation, self._name) if incarnation != former else before
        self._now[broker] = recovered or before
        is_clean = incarnation == former + 1 and self._incarnations.ended_cleanly(broker, former)
        yield self._event(broker, "ShutDown" if is_clean else "Crash", {"broker": broker}, before)
        end, high_watermark = self._now[broker]
        arguments = {"broker": broker, "end": end, "highWatermark": high_watermark}
        yield self._event(broker, "Restart", arguments, self._now[broker])

    def _event(self, broker: int, action: str, arguments: dict[str, int], now: tuple[int, int]) -> Event:
        """A step at which a replica has no role."""
        state = {"leo": now[0], "hw": now[1], "leaderEpoch": -1}
        return {"node": broker, "action": action, "args": arguments} | state

    def _filled(self, row: Row) -> Row:
        return {name: row[name] for name in RECORD} | {"minIsr": self._min_isr}
