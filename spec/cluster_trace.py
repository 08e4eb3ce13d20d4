"""Makes one trace for each partition from the rows that a cluster's nodes traced.

Nodes trace the steps of all their partitions, of the metadata quorum, and decisions about brokers, one row each. The rows come
in an order in which each follows its causes: the order of a simulation, or the one that `merging` finds. A trace (`trace.py`)
has the rows of one partition, in the specification's form. The rules:

- A decision of the controller that was never committed is left out. It was lost if a later leader of the quorum began with a
  log that lacks it: the quorum's rows `BecomeLeader` carry the log's end and its last epoch.
- A decision about a broker is in the trace of each of the broker's partitions, with the partition's record after it.
- A controller cannot distinguish a dead broker from a silent one, and a new incarnation matters from its registration on. So the
  end of an incarnation (`Crash`, `ShutDown`) and the recovery of the log by the next one (`Restart`) come directly before the
  registration of the next one, whenever they happened. Decisions for the former incarnation thus precede its end.
- A trace ends where the partition is deleted or changed in a way outside the specification (`End`), and where one incarnation
  opens a log twice without giving up the replica in between, which only a disk failure causes.
- Its brokers are all that ever have a replica. Those that traced no row are unseen (nodes of Apache Kafka in a mixed cluster).
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
"""Decisions about a broker: they are in the traces of all its partitions."""

RECORD = ("leader", "leaderEpoch", "partitionEpoch", "isr", "elr", "replicas", "adding", "removing")


def partition_traces(rows: Sequence[Row]) -> dict[str, list[Event]]:
    """The traces of all partitions that began, by name; for a later topic of the same name with `~` and a number.

    Rows of coordinators are left out (`shard_trace` has them).
    """
    happened = [row for row in without_lost_decisions(rows) if "shard" not in row]
    incarnations = Incarnations(happened)
    nodes = {row["node"] for row in happened}
    found: dict[str, list[Event]] = {}
    for place, row in enumerate(happened):
        if row["action"] == "Begin":
            for name, first in row["partitions"].items():
                title, number = name, 1
                while title in found:
                    title, number = f"{name}~{number}", number + 1
                brokers = replicas_ever(name, happened[place:])
                unseen = [broker for broker in brokers if broker not in nodes]
                found[title] = [*Share(name, first, brokers, incarnations, unseen).events(happened, place)]
    return found


def replicas_ever(name: str, rows: Iterable[Row]) -> list[int]:
    """All brokers that ever have a replica of a partition, in `rows`."""
    records = (row["partitions"].get(name) for row in rows if "partitions" in row)
    return sorted({broker for record in records if record is not None for broker in record["replicas"]})


# ---- what was committed


def without_lost_decisions(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows without the decisions that a later leader of the quorum lacked."""
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
    """One process of a node: the state to which it recovered each partition's log, and whether it was shut down."""

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

    def have_opened_none(self, node: int, numbers: Iterable[int]) -> bool:
        """Whether none of these incarnations opened a replica: each died, or was stopped, before it was registered."""
        return not any(self._incarnations[node][number - 1].recovered for number in numbers)

    def recovered(self, node: int, number: int, partition: str) -> tuple[int, int] | None:
        """The log end offset and high watermark to which this incarnation, or else the first later one, recovered the log."""
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
    """The rows of one partition among all rows, as a trace."""

    def __init__(
        self, name: str, first: Row, brokers: Sequence[int], incarnations: Incarnations, unseen: Sequence[int] = ()
    ) -> None:
        """`unseen` are brokers that trace nothing: the ends of their incarnations are not in the trace either."""
        self._unseen = unseen
        self._name = name
        self._first = first
        self._incarnations = incarnations
        self._brokers = brokers
        self._min_isr: int = first["minIsr"]
        self._record = self._filled(first)
        self._now: dict[int, tuple[int, int]] = dict.fromkeys(self._brokers, (0, 0))
        """Each replica's log end offset and high watermark, as it traced them last."""
        self._incarnation: dict[int, int] = {}
        """Broker -> the number of its incarnation that the trace is in."""
        self._started: dict[int, int] = {}
        """Broker -> the number of its newest incarnation in the rows; it enters the trace when it is registered."""
        self._taken_up: set[tuple[int, int]] = set()
        """Incarnations (broker, number) that have opened the log."""
        self._given_up: set[tuple[int, int]] = set()
        """Incarnations (broker, number) that have given the replica up."""

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
        """Whether the trace ends here, because the specification cannot express the row."""
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
        """Whether one incarnation opens the log a second time; notes the first time."""
        key = row["node"], self._incarnations.numbers[number]
        is_second = key in self._taken_up
        self._taken_up.add(key)
        return is_second

    def _is_new(self, row: Row, number: int) -> bool:
        """Whether the log was created again, empty, after this incarnation gave the replica up."""
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
        """The end of the former incarnation, and the recovery of the log by the new one."""
        former, incarnation = self._incarnation.get(broker, 0), self._started.get(broker, 0)
        self._incarnation[broker] = incarnation
        before = self._now[broker]
        recovered = self._incarnations.recovered(broker, incarnation, self._name) if incarnation != former else before
        self._now[broker] = recovered or before
        is_clean = incarnation > former and self._incarnations.ended_cleanly(broker, former)
        if is_clean and incarnation > former + 1:
            # No row has the ends of incarnations between. If they opened no log, it is as the clean end left it, and the new
            # incarnation may have registered either way: the record has which.
            has_kept = broker in (*self._record["isr"], *self._record["elr"])
            is_clean = has_kept and self._incarnations.have_opened_none(broker, range(former + 1, incarnation))
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
