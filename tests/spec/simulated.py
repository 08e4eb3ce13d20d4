"""Traces of simulated lives with faults: what each process did to each partition, as the trace checker reads it.

One incarnation of one process is one trace of each of its partitions. A node alone takes its log up again without asking anybody:
what the specification says about coming back is the controller's matter, so a trace begins with the incarnation's first leader
epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import dropwhile
from pathlib import Path
from typing import Any

from linearizability.mutants.registry import planted
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.machine import Machine
from spec.actions import ACTIONS
from tests.simulation.short import short

NAMES = {action.name for action in ACTIONS}
Rows = list[dict[str, Any]]


@contextmanager
def listening() -> Iterator[dict[tuple[int, int, str], Rows]]:
    """Collect the rows of all machines, by node, incarnation and partition."""
    received: dict[tuple[int, int, str], Rows] = {}
    original = Machine._on_action

    def listen(machine: Machine, action: str, row: Any) -> None:
        if action in NAMES and "partition" in row and not row["partition"].startswith("__"):
            received.setdefault((machine.number, machine.incarnations, row["partition"]), []).append(dict(row))
        original(machine, action, row)

    Machine._on_action = listen
    try:
        yield received
    finally:
        Machine._on_action = original


def as_trace(rows: Rows) -> Rows:
    """A incarnation's rows with the line that begins them."""
    number, first = rows[0]["node"], rows[0]
    epoch = first["leaderEpoch"]
    begin = {
        "action": "Begin",
        "brokers": [number],
        "minIsr": 1,
        "partition": {
            "leader": number,
            "leaderEpoch": epoch,
            "partitionEpoch": first["partitionEpoch"],
            "isr": first["isr"],
            "elr": [],
        },
        "logs": {number: [[epoch - 1, first["leo"]]] if first["leo"] else []},
        "highWatermarks": {number: first["hw"]},
    }
    return [begin, *rows]


def simulated_traces(seeds: Iterable[int], mutant: str = "") -> dict[str, Rows]:
    """Name -> trace, of all lives of these seeds; with a bug planted, where one is named."""
    found: dict[str, Rows] = {}
    for seed in seeds:
        schedule = short(seed, mutant or None)
        if schedule.nodes != 1:
            continue
        with listening() as received:
            if mutant:
                with planted(mutant):
                    run_schedule(schedule)
            else:
                run_schedule(schedule)
        for (_, incarnation, name), rows in received.items():
            leadership = [*dropwhile(lambda row: row["action"] != "BecomeLeader", rows)]
            if leadership:
                found[f"{seed}-life{incarnation}-{name}"] = as_trace(leadership)
    return found


def write(traces: dict[str, Rows], folder: Path) -> None:
    """One file a trace."""
    for name, rows in traces.items():
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
