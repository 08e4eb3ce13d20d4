"""Runs cases. A recorded switch runs a second time with all promises of its model, because another promise may break earlier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from spec.checker import Verdict
from spec.engine import LOCAL, Engine
from spec.models import Case
from spec.results import Result, load, result_of, save, violated_promise


@dataclass(frozen=True)
class Limits:
    """Limits of each run of TLC; None: the case's own."""

    workers: int | None = None
    memory_mb: int = 3000
    budget_s: float | None = None


def run_cases(
    cases: Sequence[Case],
    limits: Limits,
    engine: Engine,
    *,
    resume: bool = False,
    record: bool = False,
    begins: Callable[[Case], None] | None = None,
) -> Iterator[Result]:
    """The result of each case, as soon as it is there. Ends after the first that reports a missing checker.

    With `resume` a stored result that is current and as expected is used again, with `record` new ones are stored. `begins` is
    called before each run. Errors: those of the engine.
    """
    stored = load()

    def run(case: Case) -> Result:
        kept = stored.get(case.name)
        if resume and kept and kept.digest == case.digest() and kept.as_expected:
            return replace(kept, stored=True)
        if begins:
            begins(case)
        return run_case(case, limits.workers, limits.memory_mb, limits.budget_s, thoroughly=record, engine=engine)

    with closing(engine.each(run, cases)) as done:
        for case, result in done:
            if record and not result.stored and not result.engine_error:
                save(load() | {case.name: result})
            yield result
            if result.actual == Verdict.NO_CHECKER:
                break


def run_case(
    case: Case,
    workers: int | None = None,
    memory_mb: int = 3000,
    budget_s: float | None = None,
    thoroughly: bool = False,
    engine: Engine = LOCAL,
) -> Result:
    """The result of one run; with `thoroughly`, a switch runs again to find the promise that breaks first."""
    job = case.job(workers, memory_mb)
    job = replace(job, budget_s=budget_s) if budget_s else job
    result = result_of(case, engine.check(job))
    if not thoroughly or not case.switch or case.is_live or result.actual != Verdict.VIOLATED:
        return result
    first = engine.check(replace(job, configuration=case.with_all_promises()))
    if first.verdict != Verdict.VIOLATED:
        return result
    return replace(result, first_violated=violated_promise(case, first), first_depth=len(first.trace))
