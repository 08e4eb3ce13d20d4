"""Runs one case; with a switch on, also against all promises of its model, for another may break earlier than the one that
the switch is about.
"""

from __future__ import annotations

from dataclasses import replace

from spec.checker import Verdict, check
from spec.models import Case
from spec.results import Result, result_of, violated_promise


def run_case(
    case: Case,
    workers: int | None = None,
    memory_mb: int = 3000,
    budget_s: float | None = None,
    thoroughly: bool = False,
) -> Result:
    """The record of one run; thoroughly: of a switch also which promise breaks first."""
    job = case.job(workers, memory_mb)
    job = replace(job, budget_s=budget_s) if budget_s else job
    result = result_of(case, check(job))
    if not thoroughly or not case.switch or case.is_live or result.actual != Verdict.VIOLATED:
        return result
    first = check(replace(job, configuration=case.with_all_promises()))
    if first.verdict != Verdict.VIOLATED:
        return result
    return replace(result, first_violated=violated_promise(case, first), first_depth=len(first.trace))
