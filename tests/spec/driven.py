"""Behaviours of the specification, driven through simulated clusters."""

from __future__ import annotations

from typing import Any

from linearizability.guided.schedule import GuidedSchedule
from linearizability.simulation.judging import run_schedule
from spec.behaviours import schedule, simulate
from spec.catalogue import all_cases
from spec.fault_schedules import fault_schedule


def driven(behaviour: dict[str, Any], seed: int = 0) -> GuidedSchedule:
    """The schedule that drives a cluster through a behaviour's steps."""
    return GuidedSchedule.model_validate(fault_schedule(behaviour, seed))


def share_taken(model: str, count: int, depth: int) -> float:
    """The share of the steps of random behaviours that the reference takes; every promise must hold."""
    case = all_cases()[model]
    steps = taken = 0
    for number, behaviour in enumerate(simulate(case, count, depth)):
        plan = driven(schedule(case, "random", behaviour), number)
        outcome, _ = run_schedule(plan)
        assert (outcome.verdict, outcome.rule) == ("valid", ""), outcome.text
        steps, taken = steps + len(plan.script.steps), taken + outcome.counts["script_steps"]
    return taken / steps
