# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# A value of TLC nests mappings, sequences and sets as it likes.
"""A counterexample of TLC for the explorer's page: each step is an event, and the state after it gives the replicas' samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from linearizability.explorer.page import DOWN, NODE, Event, Run, Sample
from spec.checker import TraceStep
from spec.rendering import arrows, title

STEP_US = 1000
PARTITION = "log"
REPLICATED = {"log", "metadata", "highWatermark", "status"}
"""Variables of the models of replication; for other models the page shows steps without states."""


def run_of(trace: Sequence[TraceStep], heading: str, violated: str, story: str) -> Run:
    """The run of a counterexample."""
    events = [
        Event(number * STEP_US, arrow.source, arrow.target, title(step))
        for number, (step, arrow) in enumerate(zip(trace[1:], arrows(trace)[1], strict=True), 1)
    ]
    samples = list(_samples(trace))
    record = (PARTITION, 0) if samples else None
    return Run(heading, events, samples, (), violated, story, record, unit="step")


def _samples(trace: Sequence[TraceStep]) -> Iterator[Sample]:
    last: dict[str, tuple[Sample, Sample]] = {}
    for number, step in enumerate(trace):
        state: dict[str, Any] = step.state
        if not state.keys() >= REPLICATED or not isinstance(state.get("log"), dict):
            return
        for broker in state["log"]:
            both = _node(0, broker, state), _replica(0, broker, state)
            if last.get(broker) != both:
                last[broker] = both
                yield from (sample._replace(event=number) for sample in both)


def _node(event: int, broker: str, state: dict[str, Any]) -> Sample:
    return Sample(event, broker, NODE, "up" if state["status"][broker] == "running" else DOWN)


def _replica(event: int, broker: str, state: dict[str, Any]) -> Sample:
    known, log = state["metadata"][broker], state["log"][broker]
    epochs = [(record["epoch"], offset) for offset, record in enumerate(log)]
    starts = [each for place, each in enumerate(epochs) if not place or epochs[place - 1][0] != each[0]]
    role = "leader" if known["leader"] == broker else "follower"
    return Sample(
        event,
        broker,
        PARTITION,
        role,
        known["leaderEpoch"],
        len(log),
        state["highWatermark"][broker],
        tuple(known["isr"]),
        tuple(starts),
    )
