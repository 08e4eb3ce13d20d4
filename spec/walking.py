"""Drives simulated clusters along behaviours and along paths of a model's state graph (`fault_schedules.py`), and counts the
steps and edges that they take.

A path counts up to the step that the cluster's own rules do not allow. A step that the driver cannot cause (a high watermark
that advanced with the step before) is skipped and counts: the cluster is in the state to which the edge leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from linearizability.guided.schedule import GuidedSchedule
from linearizability.simulation.judging import run_schedule
from spec.behaviours import schedule
from spec.checker import TraceStep
from spec.covering import Graph, behaviour_of
from spec.fault_schedules import fault_schedule
from spec.models import Case

Edge = tuple[str, str]
Path = Sequence[str]


@dataclass(frozen=True)
class Walk:
    """The result of driving clusters along paths."""

    paths: int
    whole: int
    """Paths that were walked to their end."""
    edges: int
    """Different edges that were walked."""
    broken: tuple[str, ...]
    """Promises that were broken; there should be none."""


@dataclass(frozen=True)
class Steps:
    """The result of driving clusters along behaviours."""

    behaviours: int
    whole: int
    """Behaviours that were walked to their end."""
    steps: int
    walked: int
    broken: tuple[str, ...]
    """Promises that were broken; there should be none."""


def walk_behaviours(case: Case, kind: str, behaviours: Sequence[Sequence[TraceStep]], seed: int) -> Steps:
    """Drive a cluster along each behaviour."""
    whole = steps = walked = 0
    broken: list[str] = []
    for number, behaviour in enumerate(behaviours):
        taken, rule = _drive(case, kind, behaviour, seed + number)
        whole, steps, walked = whole + (taken == len(behaviour) - 1), steps + len(behaviour) - 1, walked + taken
        broken += [rule] if rule else []
    return Steps(len(behaviours), whole, steps, walked, tuple(broken))


def longest_first(paths: Sequence[Path], count: int) -> list[Path]:
    """The `count` paths with the most edges."""
    return sorted(paths, key=len, reverse=True)[:count]


def walk(case: Case, graph: Graph, paths: Sequence[Path]) -> Walk:
    """Drive a cluster along each path."""
    walked: set[Edge] = set()
    whole, broken = 0, list[str]()
    for number, path in enumerate(paths):
        edges = [*pairwise(path)]
        taken, rule = _drive(case, "covering", behaviour_of(path, graph), number)
        walked |= set(edges[:taken])
        whole += taken == len(edges)
        broken += [rule] if rule else []
    return Walk(len(paths), whole, len(walked), tuple(broken))


def _drive(case: Case, kind: str, behaviour: Sequence[TraceStep], seed: int) -> tuple[int, str]:
    """The number of steps that a cluster took, and the rule that it broke, or a verdict other than valid; "" if none."""
    plan = GuidedSchedule.model_validate(fault_schedule(schedule(case, kind, behaviour), seed))
    outcome, _ = run_schedule(plan)
    return outcome.counts["script_steps"], outcome.rule or ("" if outcome.verdict == "valid" else outcome.verdict)
