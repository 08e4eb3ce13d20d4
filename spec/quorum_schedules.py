"""Behaviours of the metadata quorum as schedules with scripts for three simulated voters.

As in `fault_schedules.py`, the reference stops in a counterexample at the latest at the step that the switch allows. One
difference from the specification: a leader of the reference, as of Apache Kafka, begins its epoch with a record of its own.
So the first AppendRecord of an epoch comes with BecomeLeader, and an epoch without one has a record that the specification's
does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spec.checker import TraceStep

LONGEST_MS = 60_000
"""More than any behaviour takes; a run continues as soon as its script is over."""

PROPERTIES = {
    "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.request.timeout.ms": "60000",
    "controller.quorum.fetch.max.bytes": "1",
    "metadata.max.idle.interval.ms": "0",
    "broker.session.timeout.ms": "5000",
}
"""Timers are longer than a script, a response carries one record, and no record is written that the script does not have."""

MUTANT_OF: dict[str, str] = {
    "CommitEarlierEpoch": "old-epoch-committed",
    "FetchAcrossEpochs": "fetch-across-epochs",
    "ForgetVote": "vote-forgotten",
    "VoteForShorterLog": "shorter-log-elected",
}
"""Switch -> the mutant with the same bug (linearizability/mutants)."""

ACTED_ON = frozenset({"GrantPreVote", "GrantVote"})
"""Steps of the voter that the specification calls `from`, with another one; of the others it is `to`, if one is named."""

Event = Mapping[str, Any]


def quorum_events(behaviour: Sequence[TraceStep]) -> list[dict[str, Any]]:
    """The steps, with voters by number; the first names them all."""
    initial: Any = behaviour[0].state
    numbers = {name: number for number, name in enumerate(sorted(initial["log"]), 1)}
    steps: list[Any] = [step.state["step"] for step in behaviour[1:]]
    events = [
        {name: numbers[value] if name in ("from", "to") else value for name, value in step.items()} for step in steps
    ]
    return [{"action": "Begin", "voters": [*numbers.values()]}, *events]


def quorum_schedule(behaviour: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The schedule of one line of `tidegauge spec behaviours`."""
    begin, *steps = behaviour["events"]
    voters = begin["voters"]
    return {
        "format": "tidegauge-schedule/1",
        "seed": seed,
        "nodes": len(voters),
        "duration_ms": LONGEST_MS,
        "properties": PROPERTIES,
        "clients": [{"kind": "consumer", "start": "earliest"}],
        "script": {"voters": voters, "steps": [_scripted(step) for step in steps]},
    }


def _scripted(step: Event) -> dict[str, Any]:
    pair = step["from"], step.get("to")
    broker, other = pair if step["action"] in ACTED_ON or pair[1] is None else pair[::-1]
    scripted = {
        "action": step["action"],
        "broker": broker,
        "leader_epoch": step.get("epoch", -1),
        "end": step.get("end", -1),
    }
    return scripted if other is None else scripted | {"other": other}
