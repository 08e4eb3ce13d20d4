"""Random small histories, from good ones to nonsense: a log that sometimes lies, clients that overlap."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple


def random_history(rng: Random, lies: float = 0.15) -> list[dict[str, Any]]:
    """Events of a neutral history of up to 14 operations by 3 processes on 2 partitions."""
    events: list[dict[str, Any]] = []
    log: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    position: dict[tuple[int, int], int] = {}
    open_by_process: dict[int, tuple[str, list[dict[str, Any]], list[int]]] = {}
    value = 0
    for _ in range(rng.randint(0, 28)):
        process = rng.randrange(3)
        if process not in open_by_process:
            f = rng.choice(["send", "send", "poll", "poll", "txn", "assign"])
            keys = [key for key in (0, 1) if rng.random() < 0.7]
            mops: list[dict[str, Any]] = []
            for _ in range(rng.randint(1, 3) if f != "assign" else 0):
                if f == "poll" or (f == "txn" and rng.random() < 0.5):
                    mops.append({"op": "poll", "records": None})
                else:
                    value += 1
                    mops.append({"op": "send", "key": rng.randrange(2), "value": value, "offset": None})
            open_by_process[process] = (f, mops, keys)
            _add(events, "invoke", process, f, mops, keys)
            continue
        f, mops, keys = open_by_process.pop(process)
        outcome = rng.choices(["ok", "info", "fail"], [8, 1, 1])[0]
        done = [_complete(mop, process, outcome, Partitions(log, position), rng, lies, value) for mop in mops]
        _add(events, outcome, process, f, done, keys)
    return events


class Partitions(NamedTuple):
    """The partitions' logs, and where each process reads on."""

    log: dict[int, list[tuple[int, int]]]
    position: dict[tuple[int, int], int]


def _complete(
    mop: dict[str, Any],
    process: int,
    outcome: str,
    partitions: Partitions,
    rng: Random,
    lies: float,
    newest: int,
) -> dict[str, Any]:
    log, position = partitions
    if mop["op"] == "send":
        records = log[mop["key"]]
        offset = records[-1][0] + rng.choice([1, 1, 1, 2]) if records else 0
        if rng.random() < lies:
            offset = max(0, offset + rng.randint(-3, 2))
        if (outcome == "ok" or rng.random() < 0.4) and rng.random() > lies / 2:
            records.append((offset, mop["value"]))
            records.sort()
        return mop | {"offset": offset if outcome == "ok" or rng.random() < 0.2 else None}
    polled = []
    for key in (0, 1):
        start = position.get((process, key), 0)
        if rng.random() < lies:
            start = max(0, start + rng.randint(-2, 2))
        chosen = [record for record in log[key] if record[0] >= start][: rng.randint(0, 3)]
        if rng.random() < lies:
            rng.shuffle(chosen)
        for offset, value in chosen:
            if rng.random() < lies / 3:
                value = rng.randint(1, newest + 3)
            polled.append({"key": str(key), "offset": offset, "value": value})
            position[process, key] = offset + 1
    return mop | {"records": polled}


def _add(
    events: list[dict[str, Any]], kind: str, process: int, f: str, mops: list[dict[str, Any]], keys: list[int]
) -> None:
    event: dict[str, Any] = {"index": len(events), "time": len(events) * 10, "process": process, "type": kind, "f": f}
    if f == "assign":
        event["keys"] = keys
    else:
        event["mops"] = mops
    events.append(event)
