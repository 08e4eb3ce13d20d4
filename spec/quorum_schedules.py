"""Behaviours of the metadata quorum as schedules with scripts for three simulated voters.

As in `fault_schedules.py`, the reference stops in a counterexample, at the latest, at the step that only the switch allows. It
differs from the specification in one point: a leader of the reference, like Apache Kafka's, begins its epoch with a record. So
the first AppendRecord of an epoch happens together with BecomeLeader. If the behaviour has none in that epoch, the reference's
log has one record more.
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
"""Settings under which no timer expires during a script, a response carries one record, and only the script writes records."""

MUTANT_OF: dict[str, str] = {
    "CommitEarlierEpoch": "old-epoch-committed",
    "FetchAcrossEpochs": "fetch-across-epochs",
    "ForgetVote": "vote-forgotten",
    "VoteForShorterLog": "shorter-log-elected",
}
"""Switch -> the mutant with the same bug (linearizability/mutants)."""

ACTED_ON = frozenset({"GrantPreVote", "GrantVote"})
"""Steps that the voter `from` takes, concerning `to`. All other steps with a `to` are taken by `to`."""

Event = Mapping[str, Any]


def quorum_events(behaviour: Sequence[TraceStep]) -> list[dict[str, Any]]:
    """The steps of a behaviour, with voters by number; the first event lists the voters."""
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
