"""Behaviours of the specification, led through simulated clusters."""

from __future__ import annotations

from typing import Any

from linearizability.simulation.judging import live
from linearizability.simulation.schedule import Schedule
from spec.behaviours import schedule, simulate
from spec.catalogue import all_cases
from spec.fault_schedules import fault_schedule


def led(behaviour: dict[str, Any], seed: int = 0) -> Schedule:
    """The schedule of a cluster that is to take a behaviour's steps."""
    return Schedule.model_validate(fault_schedule(behaviour, seed))


def share_taken(model: str, count: int, depth: int) -> float:
    """What the reference takes of the steps of random behaviours before the score is left; every promise is to hold."""
    case = all_cases()[model]
    cues = taken = 0
    for number, behaviour in enumerate(simulate(case, count, depth)):
        plan = led(schedule(case, "random", behaviour), number)
        outcome, _ = live(plan)
        assert (outcome.verdict, outcome.rule) == ("valid", ""), outcome.text
        assert plan.score is not None
        cues, taken = cues + len(plan.score.cues), taken + outcome.counts["cues"]
    return taken / cues
