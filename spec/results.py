"""Results of runs: one record for each case in `results.json`, to generate the tables and to resume a long run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import cast

from spec.checker import Outcome, TraceStep, Verdict
from spec.models import SPEC, Case, checked

STORE = SPEC / "results.json"


@dataclass(frozen=True)
class Result:
    """A case's expected and actual verdict, and the cost of the run."""

    name: str
    model: str
    switch: str
    expected: str
    expected_property: str
    actual: str
    violated: str
    distinct: int
    generated: int
    depth: int
    """Diameter of the state graph; for a violation the number of states of the shortest trace."""
    seconds: float
    cpu_seconds: float
    reason: str = ""
    digest: str = ""
    stored: bool = False
    coverage: dict[str, int] = field(default_factory=dict[str, int])
    steps: list[str] = field(default_factory=list[str])
    """The names of the steps of a violation's trace, after the first state."""
    first_violated: str = ""
    """For a switch: the promise that breaks first if all promises of the model are checked."""
    first_depth: int = 0
    """The number of states of the shortest trace to that violation."""

    @property
    def as_expected(self) -> bool:
        same = not self.expected_property or self.violated in ("", self.expected_property)
        return self.actual == self.expected and same

    @property
    def unknown(self) -> bool:
        """Whether TLC did not finish a clean model. A switch that is not caught in time has failed instead."""
        return not self.switch and self.actual in (Verdict.OUT_OF_TIME, Verdict.OUT_OF_MEMORY)

    @property
    def engine_error(self) -> bool:
        return self.actual in (Verdict.WRONG_MODEL, Verdict.NO_CHECKER, Verdict.BROKEN, Verdict.DEADLOCK)


def result_of(case: Case, outcome: Outcome) -> Result:
    """The record of one run."""
    return Result(
        name=case.name,
        model=case.model.name,
        switch=case.switch.name if case.switch else "",
        expected=str(case.expected),
        expected_property=case.expected_property,
        actual=str(outcome.verdict),
        violated=violated_promise(case, outcome),
        distinct=outcome.distinct,
        generated=outcome.generated,
        depth=len(outcome.trace) or outcome.depth,
        seconds=outcome.seconds,
        cpu_seconds=outcome.cpu_seconds,
        reason=outcome.reason,
        digest=case.digest(),
        coverage=outcome.coverage,
        steps=[named(step) for step in outcome.trace[1:]],
    )


def violated_promise(case: Case, outcome: Outcome) -> str:
    """The promise that broke. TLC does not name temporal properties, and names some action properties only by their place."""
    if outcome.verdict != Verdict.VIOLATED or outcome.violated in checked(case.model.text):
        return outcome.violated
    properties = [name for name, kind in checked(case.model.text).items() if kind == "PROPERTY"]
    return properties[0] if len(properties) == 1 else outcome.violated or case.expected_property


def named(step: TraceStep) -> str:
    """A step's name: the one in the variable `step`, or TLC's name of the action where steps are not recorded."""
    recorded = step.state.get("step")
    action = cast("dict[str, object]", recorded).get("action") if isinstance(recorded, dict) else None
    return str(action) if action and (action != "Init" or step.number == 1) else step.action


def load(path: Path = STORE) -> dict[str, Result]:
    """The stored results by case name."""
    if not path.exists():
        return {}
    return {result.name: result for result in _results_in(path.read_text())}


@lru_cache(maxsize=1)
def _results_in(text: str) -> tuple[Result, ...]:
    return tuple(Result(**row) for row in json.loads(text))


def save(results: dict[str, Result], path: Path = STORE) -> None:
    """Write a new file and rename it, so that an interrupted run leaves the old or the new file whole."""
    rows = [{name: value for name, value in asdict(result).items() if name != "stored"} for result in results.values()]
    partial = path.with_suffix(".partial")
    partial.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    partial.replace(path)


def exit_code(results: list[Result]) -> int:
    """0: all as expected; 1: a promise broke or a switch was missed; 2: unknown or no results; 3: TLC failed or a wrong model."""
    if not results:
        return 2
    if any(result.engine_error for result in results):
        return 3
    if any(not result.as_expected and not result.unknown for result in results):
        return 1
    return 2 if any(result.unknown for result in results) else 0
