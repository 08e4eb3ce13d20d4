"""Histories to other forms: neutral JSON lines, and EDN as Jepsen's Kafka checker reads it.

The neutral form keeps the numbers that pair an operation's events. EDN pairs by process, one operation at a time: where a
process had several open at once (pipelined sends), the later ones get processes of their own, from EXTRA_PROCESSES on.

A history that a form cannot express is not written in it (`unsayable`): the copy would be judged better than the original.
"""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from linearizability.history.edn import write as edn
from linearizability.history.events import events_of, native_events
from linearizability.history.importers.jepsen import CLIENTS, operation
from linearizability.history.operations import INVOKE
from linearizability.history.paired import NEMESIS
from linearizability.history.streams import History

NO_OPERATION = -1
EXTRA_PROCESSES = 10_000
"""The first number of a process that stands in for another one's overlapping operations."""


def neutral_events(history: History) -> Iterator[dict[str, Any]]:
    """A history's events and marks in the order of time, with their index; `operation` pairs those of one operation."""
    marks = ((NO_OPERATION, mark | {"process": NEMESIS}) for mark in history.marks)
    for index, (number, event) in enumerate(heapq.merge(_by_time(history), marks, key=_time)):
        plain = {name: value for name, value in event.items() if name != "n"} | {"index": index}
        yield plain if number == NO_OPERATION else plain | {"operation": number & 0xFFFFFFFF}


def edn_events(history: History) -> Iterator[dict[str, Any]]:
    """The events that Jepsen's workload knows, one operation a process at a time."""
    processes: dict[int, int] = {}
    busy: set[int] = set()
    extra = EXTRA_PROCESSES
    for number, event in _by_time(history):
        if event["f"] not in CLIENTS:
            continue
        who = event["process"]
        if event["type"] == INVOKE:
            if who in busy:
                who, extra = extra, extra + 1
            busy.add(who)
            processes[number] = who
        else:
            who = processes.get(number, who)
            busy.discard(who)
        yield event | {"process": who}


def _by_time(history: History) -> Iterable[tuple[int, dict[str, Any]]]:
    """Native files are each in the order of time, so they are merged as streams; other histories are sorted in memory."""
    if history.events is None:
        return heapq.merge(*(native_events(Path(source)) for source in history.sources), key=_time)
    return sorted(events_of(history), key=_time)


def _time(item: tuple[int, dict[str, Any]]) -> int:
    return item[1].get("time") or 0


def write_neutral(path: Path, histories: Iterable[History]) -> int:
    """One JSON line a history; returns how many."""
    count = 0
    with _open(path) as stream:
        for history in histories:
            document: dict[str, Any] = {"id": history.id, "options": {"contract": history.contract.model_dump()}}
            if history.defects:
                document["defects"] = [vars(defect) for defect in history.defects]
            if history.labels is not None:
                document["anomalies"] = history.labels
            stream.write(_json(document)[:-1] + b',"history":[')
            for index, event in enumerate(neutral_events(history)):
                stream.write((b"," if index else b"") + _json(event))
            stream.write(b"]}\n")
            count += 1
    return count


def unsayable(history: History, form: str) -> str:
    """Why a history cannot be written in a form; empty where it can. EDN never includes the contract."""
    if form in ("neutral", "edn") and not history.same_contract:
        return f"{history.id} is not written: its files declare different contracts, and {form} can say but one"
    if form == "edn" and history.defects:
        return f"{history.id} is not written: EDN cannot say what is wrong with it"
    return ""


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


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
