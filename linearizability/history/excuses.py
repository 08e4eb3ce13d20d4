"""Excuses: what may explain a loss that the contract does not permit, and no more than that.

Kafka's promise rests on replication: once as many replicas of a partition are in doubt at once as min.insync.replicas, with
unflushed data lost on some, acknowledged records may be lost there (KIP-966). The fault injector knows the partitions, the nodes
and the times, and records them as marks:

    {"type": "mark", "f": "excuse", "number": 1, "time": …, "cause": "power-loss", "keys": ["orders-0"], "nodes": [1, 2]}
    {"type": "mark", "f": "excuse-over", "number": 1, "time": …}

A key is a partition, or a topic for all of its partitions. A second mark of one number widens the excuse. One that began before
its mark says when (`begins`). An excuse explains
only the loss of records and offsets from before its end, and only where the loss shows after its begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from linearizability.history.contract import EXCUSED
from linearizability.history.keys import NEVER, join_key, split_key

EXCUSE, OVER = "excuse", "excuse-over"


@dataclass(frozen=True)
class Excuse:
    """One excuse; times in nanoseconds of the history's clock."""

    number: int
    cause: str
    keys: frozenset[str]
    nodes: tuple[int, ...]
    begins: int
    ends: int = NEVER

    def covers(self, topic: str, partition: int) -> bool:
        return join_key(topic, partition) in self.keys or topic in self.keys

    def touches(self, topic: str) -> bool:
        """Whether any partition of the topic is covered."""
        return any(topic in (key, split_key(key)[0]) for key in self.keys)

    @property
    def reason(self) -> str:
        lasted = "to the end" if self.ends == NEVER else f"for {(self.ends - self.begins) / 1e9:.3f} s"
        nodes = f"node{'s' if len(self.nodes) > 1 else ''} {', '.join(map(str, self.nodes))}"
        return f"{EXCUSED}{self.cause} on {nodes} {lasted} (excuse {self.number})"


def excuse_of(mark: Mapping[str, Any]) -> Excuse:
    """Read an excuse mark. Errors: ValueError for one that names no partitions, nodes or cause."""
    number, cause, keys, nodes = (mark.get(name) for name in ("number", "cause", "keys", "nodes"))
    lists = all(isinstance(each, list) and each for each in (keys, nodes))
    if not lists or type(number) is not int or not isinstance(cause, str):
        raise ValueError(f"excuse {number!r} does not name its cause, keys and nodes")
    if not all(isinstance(key, str) and key for key in keys) or not all(type(node) is int for node in nodes):  # type: ignore[union-attr]
        raise ValueError(f"excuse {number!r} names no partition or no node")
    begins = mark.get("begins", mark["time"])
    if type(begins) is not int or begins > mark["time"]:
        raise ValueError(f"excuse {number} begins at {begins!r}")
    return Excuse(number, cause, frozenset(keys), tuple(sorted(set(nodes))), begins)  # type: ignore[arg-type]


def excuses_of(marks: Iterable[Mapping[str, Any]]) -> tuple[Excuse, ...]:
    """The excuses of a run's marks, which come in the order of time. Errors: as excuse_of."""
    known: dict[int, Excuse] = {}
    for mark in marks:
        if mark.get("f") == EXCUSE:
            new = excuse_of(mark)
            old = known.get(new.number, new)
            nodes = tuple(sorted({*old.nodes, *new.nodes}))
            begins = min(old.begins, new.begins)
            known[new.number] = replace(old, keys=old.keys | new.keys, nodes=nodes, begins=begins)
        elif mark.get("f") == OVER and mark.get("number") in known:
            known[mark["number"]] = replace(known[mark["number"]], ends=mark["time"])
    return tuple(known.values())
