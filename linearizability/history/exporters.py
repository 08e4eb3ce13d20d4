"""Histories to other forms: neutral JSON lines, and EDN as Jepsen's Kafka checker reads it.

The neutral form keeps the numbers that pair an operation's events. EDN pairs by process, one operation at a time: where a
process had several open at once (pipelined sends), the later ones are given to processes of their own, from LANES on.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from linearizability.history.edn import write as edn
from linearizability.history.events import events_of
from linearizability.history.importers.jepsen import CLIENTS, operation
from linearizability.history.operations import INVOKE
from linearizability.history.streams import History

LANES = 10_000
"""The first number of a process that stands in for another one's overlapping operations."""


def neutral_events(history: History) -> Iterator[dict[str, Any]]:
    """A history's events in the order of time, with their index; `operation` pairs those of one operation."""
    for index, (number, event) in enumerate(_by_time(history)):
        plain = {name: value for name, value in event.items() if name != "n"}
        yield plain | {"index": index, "operation": number & 0xFFFFFFFF}
    for mark in history.marks if history.events is None else ():
        yield mark | {"process": "nemesis"}


def edn_events(history: History) -> Iterator[dict[str, Any]]:
    """The events that Jepsen's workload knows, one operation a process at a time."""
    lanes: dict[int, int] = {}
    busy: set[int] = set()
    extra = LANES
    for number, event in _by_time(history):
        if event["f"] not in CLIENTS:
            continue
        who = event["process"]
        if event["type"] == INVOKE:
            if who in busy:
                who, extra = extra, extra + 1
            busy.add(who)
            lanes[number] = who
        else:
            who = lanes.get(number, who)
            busy.discard(who)
        yield event | {"process": who}


def _by_time(history: History) -> list[tuple[int, dict[str, Any]]]:
    return sorted(events_of(history), key=lambda item: item[1].get("time") or 0)


def write_neutral(path: Path, histories: Iterable[History]) -> int:
    """One JSON line a history; returns how many."""
    count = 0
    with _open(path) as stream:
        for history in histories:
            document: dict[str, Any] = {"id": history.id, "history": list(neutral_events(history))}
            document["options"] = {"contract": history.contract.model_dump()}
            if history.labels is not None:
                document["anomalies"] = history.labels
            stream.write((json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n").encode())
            count += 1
    return count


def write_edn(path: Path, histories: Iterable[History]) -> int:
    """One operation map a line. EDN holds one history a file: of several the ids stand in the names of the files."""
    count = 0
    for history in histories:
        target = path if count == 0 else path.with_stem(f"{path.stem}-{history.id}")
        with _open(target) as stream:
            for index, event in enumerate(edn_events(history)):
                stream.write((edn(operation(event, index)) + "\n").encode())
        count += 1
    return count


def _open(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb")  # type: ignore[return-value]
