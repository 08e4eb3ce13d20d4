"""Simulated clusters of three nodes, with faults, traced as the specification's steps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from linearizability.mutants.registry import planted
from linearizability.simulation.judging import Outcome, run_schedule
from linearizability.simulation.schedule import Producer, Schedule
from spec import replication_trace
from spec.cluster_trace import partition_traces
from spec.replication_trace import Trace
from tests.simulation.short import short

NODES = 3
BATCHES = 8
PARTITIONS = 4

Row = dict[str, Any]


def small(seed: int) -> Schedule:
    """A short schedule with faults, for a cluster with one topic of several partitions and few records in each."""
    schedule = short(seed, None, NODES)
    clients = tuple(
        client.model_copy(update={"batches": min(client.batches, BATCHES)}) if isinstance(client, Producer) else client
        for client in schedule.clients
    )
    first = schedule.topics[0].model_copy(update={"partitions": PARTITIONS})
    return schedule.model_copy(update={"topics": (first, *schedule.topics[1:]), "clients": clients})


def rows_of(schedule: Schedule, mutant: str = "") -> tuple[Outcome, list[Row]]:
    """The outcome of a run, and the trace rows of all nodes in order."""
    rows: list[Row] = []
    with planted(mutant) if mutant else nullcontext():
        outcome, _ = run_schedule(schedule, by_history=True, rows=rows)
    return outcome, rows


def partition_traces_of(schedule: Schedule, mutant: str = "") -> dict[str, list[Row]]:
    """Each partition's events, by its name."""
    _, rows = rows_of(schedule, mutant)
    return partition_traces(as_read(rows))


def traces_of(schedule: Schedule, mutant: str = "") -> list[Trace]:
    """One trace of each partition."""
    reported = partition_traces_of(schedule, mutant)
    return [replication_trace.trace_of(events, f"{schedule.seed}-{name}") for name, events in reported.items()]


def small_traces(seeds: Iterable[int], mutant: str = "") -> list[Trace]:
    return [trace for seed in seeds for trace in traces_of(small(seed), mutant)]


def as_read(rows: Iterable[Row]) -> list[Row]:
    """The rows after they were encoded and decoded as JSON."""
    return [json.loads(json.dumps(row)) for row in rows]


def split(rows: list[Row], grain: int) -> list[list[Row]]:
    """Each node's rows, with equal times for `grain` rows in a row."""
    timed = [row | {"at": number // grain} for number, row in enumerate(rows)]
    return [[row for row in timed if row["node"] == node] for node in (3, 1, 2)]


def step(node: int, action: str, epoch: int, leo: int = 0, last: int = 0, mark: int = 0, **more: object) -> Row:
    """A voter's step, and its epoch, log end offset, last record's epoch and high watermark; `source` is `from`."""
    named = {name.replace("source", "from"): value for name, value in more.items()}
    state = {"epoch": epoch, "leo": leo, "lastEpoch": last, "highWatermark": mark}
    return {"node": node, "action": action} | state | named
