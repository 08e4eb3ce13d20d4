"""Judges many mutants in each run of TLC: model after model, the cheapest first, each with the mutants that have survived so far.
Before that, a mutant with a stale row runs in the model that settled it last time: most are settled there again.

A survivor's row names exactly the models that it was run against. Models of liveness and simulations run one mutant at a time
(`mutation.judge`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from spec.catalogue import MODELS
from spec.fused import Judged, Met, can_fuse, judge_together
from spec.models import Model
from spec.mutants import Mutant
from spec.mutation import (
    Limits,
    MutantOutcome,
    Row,
    fingerprint,
    is_fresh,
    load_results,
    merged,
    models_for,
    row_of,
    run,
    settled_by,
)

STATES_AT_ONCE = 150_000
"""The largest number of states of one run, if each mutant has as many states as the clean model."""
MOST_AT_ONCE = 100
GROWN = (3, 2_000)
"""(factor, constant): a mutant is unfinished when it reaches factor * states of the clean model + constant."""


def rows_together(
    mutants: list[Mutant], limits: Limits, known: dict[str, Row], for_s: float | None = None
) -> Iterator[list[Row]]:
    """The rows of each run of TLC, until all mutants are judged or `for_s` is over. Mutants with a current row are not run."""
    stored, begin, results = known, time.monotonic(), load_results()
    known = {it.name: known[it.name] for it in mutants if it.name in known and is_fresh(it, known[it.name])}
    fused = [model for model in MODELS if can_fuse(model) and model.name in results]
    fused.sort(key=lambda model: results[model.name].cpu_seconds)
    again = [
        (model, [it for it in mutants if it.name in stored and stored[it.name].model == model.name]) for model in fused
    ]
    for model, those in [*again, *((model, mutants) for model in fused)]:
        for some in _chunks(model, _waiting(model, those, known, limits.largest_s)):
            if for_s and time.monotonic() - begin > for_s:
                return
            most = min(results[model.name].distinct * GROWN[0] + GROWN[1], limits.states)
            judged = judge_together(model, some, limits.model_s, limits.memory_mb, most)
            rows = [*_rows(model, some, judged, known), *_refused_by_sany(model, some, judged, limits)]
            known |= {row.mutant: row for row in rows}
            yield rows


def _waiting(model: Model, mutants: list[Mutant], known: dict[str, Row], largest_s: float) -> list[Mutant]:
    def is_met(mutant: Mutant) -> bool:
        row = known.get(mutant.name)
        return bool(row and (not row.survived or model.name in (*row.models, *row.out_of_time)))

    return [mutant for mutant in mutants if not is_met(mutant) and model in models_for(mutant, largest_s)]


def _chunks(model: Model, mutants: list[Mutant]) -> Iterator[list[Mutant]]:
    size = min(MOST_AT_ONCE, max(1, STATES_AT_ONCE // load_results()[model.name].distinct))
    for at in range(0, len(mutants), size):
        yield mutants[at : at + size]


def _rows(model: Model, mutants: list[Mutant], judged: Judged, known: dict[str, Row]) -> Iterator[Row]:
    cpu_seconds = judged.cpu_seconds / len(mutants)
    for mutant in mutants:
        before = known.get(mutant.name)
        if not (row := _row(model, mutant, judged, before)):
            continue
        spent = round(cpu_seconds + (before.seconds if before else 0), 1)
        promise = row.by if row.outcome == MutantOutcome.KILLED else ""
        models = row.models + row.out_of_time or (row.model,) * bool(row.model)
        yield replace(row, seconds=spent, fingerprint=fingerprint(mutant, models, promise))


def _refused_by_sany(model: Model, mutants: list[Mutant], judged: Judged, limits: Limits) -> Iterator[Row]:
    """Rows of the mutants that SANY refused. Each runs again alone: the fused run only guesses the mutant by the line."""
    for mutant in mutants:
        if mutant.name in judged.unparsable:
            outcome = run(mutant, model, limits)
            if row := settled_by(mutant, model, outcome, outcome.cpu_seconds):
                yield row


def _row(model: Model, mutant: Mutant, judged: Judged, before: Row | None) -> Row | None:
    """A mutant's row after a run. None if the limit of states ended the clean model, so that survival proves nothing, or if SANY
    refused the mutant.
    """
    met = judged.met.get(mutant.name, Met())
    if mutant.name in judged.refused:
        return replace(row_of(mutant, MutantOutcome.REFUSED), model=model.name)
    if met.broken:
        killed = row_of(mutant, MutantOutcome.KILLED, met.broken)
        return replace(killed, model=model.name, distinct=met.distinct, depth=met.depth)
    row = before or row_of(mutant, MutantOutcome.UNFINISHED)
    if mutant.name in judged.unparsable or not judged.clean.is_whole:
        return None
    if not met.is_whole:
        return replace(row, out_of_time=(*row.out_of_time, model.name))
    if lost := sorted(judged.clean.steps - met.steps):
        unreached = row_of(mutant, MutantOutcome.UNREACHED, mutant.step if mutant.step in lost else lost[0])
        return replace(unreached, model=model.name, distinct=met.distinct)
    return replace(row, outcome=merged(row.outcome, _difference(judged.clean, met)), models=(*row.models, model.name))


def _difference(clean: Met, met: Met) -> MutantOutcome:
    counts, wanted = (met.distinct, met.generated), (clean.distinct, clean.generated)
    if counts == wanted:
        return MutantOutcome.SAME
    return MutantOutcome.WIDER if counts > wanted else MutantOutcome.NARROWER
