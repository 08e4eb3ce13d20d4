"""Paths that cover every edge of a small model's state graph, so that a simulation can walk all of it.

TLC writes the graph, without symmetry and view. The variable `step` is part of each state, so a path of states is also a path
of steps.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from spec.behaviours import NoBehaviours, without_properties
from spec.checker import TraceStep, Verdict, check
from spec.models import Case
from spec.values import parse_state

NODE = re.compile(r'^(-?\d+) \[(?:style = filled)?,?\s*label="((?:[^"\\]|\\.)*)"(,style = filled)?\]', re.M)
EDGE = re.compile(r"^(-?\d+) -> (-?\d+)", re.M)
LONGEST = 80
"""The largest number of steps in one path."""


@dataclass(frozen=True)
class Graph:
    """A model's states by their fingerprints, the initial ones, and the successors of each."""

    states: Mapping[str, str]
    first: tuple[str, ...]
    edges: Mapping[str, Sequence[str]]

    @property
    def size(self) -> int:
        return sum(len(following) for following in self.edges.values())


def graph_of(case: Case) -> Graph:
    """The state graph of a case's model. Errors: NoBehaviours where TLC does not finish it."""
    with tempfile.TemporaryDirectory(prefix="tidegauge-graph-") as name:
        target = Path(name) / "graph"
        text = re.sub(r"RecordSteps = FALSE", "RecordSteps = TRUE", without_properties(case.configuration()))
        job = replace(case.job(), options=("-dump", "dot", str(target)), coverage=False, configuration=text)
        outcome = check(job)
        if outcome.verdict != Verdict.HOLDS:
            raise NoBehaviours(f"{outcome.verdict}: {outcome.reason}")
        return read_graph(target.with_suffix(".dot").read_text())


def read_graph(text: str) -> Graph:
    """The graph in TLC's dump, without loops from a state to itself. Initial states are the filled ones."""
    states: dict[str, str] = {}
    first: list[str] = []
    for found in NODE.finditer(text):
        states[found[1]] = found[2].replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
        if "style = filled" in found[0]:
            first.append(found[1])
    edges: dict[str, list[str]] = {}
    for source, target in EDGE.findall(text):
        following = edges.setdefault(source, [])
        if target != source and target not in following:
            following.append(target)
    return Graph(states, tuple(first), edges)


def covering_paths(graph: Graph, longest: int = LONGEST) -> list[list[str]]:
    """Paths from initial states that together take each edge at least once that is within `longest` steps of one."""
    before = _shortest(graph)
    left = {source: list(following) for source, following in graph.edges.items()}
    paths: list[list[str]] = []
    for source in graph.edges:
        while left[source] and source in before:
            path = _way_to(source, before)
            if len(path) > longest:
                break
            _walk(path, left, longest)
            paths.append(path)
    return paths


def _shortest(graph: Graph) -> dict[str, str]:
    """Each reachable state, with its predecessor on a shortest path from an initial state; "" for initial states."""
    before = dict.fromkeys(graph.first, "")
    waiting = deque(graph.first)
    while waiting:
        state = waiting.popleft()
        for following in graph.edges.get(state, ()):
            if following not in before:
                before[following] = state
                waiting.append(following)
    return before


def _way_to(state: str, before: Mapping[str, str]) -> list[str]:
    way = [state]
    while before[way[-1]]:
        way.append(before[way[-1]])
    return way[::-1]


def _walk(path: list[str], left: dict[str, list[str]], longest: int) -> None:
    """Extend the path over edges that no path has taken, and remove all its edges from `left`."""
    for source, target in itertools.pairwise(path):
        if target in left[source]:
            left[source].remove(target)
    while len(path) <= longest and left.get(path[-1]):
        path.append(left[path[-1]].pop())


def edges_covered(paths: Sequence[Sequence[str]]) -> int:
    """The number of different edges that the paths take."""
    return len({edge for path in paths for edge in itertools.pairwise(path)})


def behaviour_of(path: Sequence[str], graph: Graph) -> tuple[TraceStep, ...]:
    """The states of a path, each with its step's name."""
    found: list[TraceStep] = []
    for number, name in enumerate(path, 1):
        state = parse_state(graph.states[name])
        step = state.get("step")
        action = cast("dict[str, object]", step).get("action", "") if isinstance(step, dict) else ""
        found.append(TraceStep(number, str(action), state))
    return tuple(found)
