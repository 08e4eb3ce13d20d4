"""Runs mutants of the specification against the models, smallest first, and stores the results.

A mutant is killed if a promise breaks, if TLC cannot evaluate an expression, or, where it only removes behaviours, if a model
no longer takes a step that it takes without the mutant (the coverage in `results.json`). Every other mutant has survived: `same`
if each model has as many states and transitions as without it, otherwise `wider` or `narrower`. A simulation may kill a mutant;
a mutant that it does not kill has no result from it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from spec.catalogue import MODELS
from spec.checker import SHORT_RUN, Outcome, Verdict, check
from spec.models import SPEC, Case, Model, checked, modules_of, without_comments
from spec.mutants import MUTATED, Mutant, mutants_of
from spec.results import load as load_results
from spec.tla_text import Definition, definitions_of, reached

STORE = SPEC / "mutants.json"


class MutantOutcome(StrEnum):
    """The result of running a mutant."""

    KILLED = "killed"
    REFUSED = "refused"
    """TLC cannot evaluate it: a value of the wrong kind, a function outside its domain, a variable without a value."""
    UNREACHED = "unreached"
    """A model never takes a step that it takes without the mutant."""
    SAME = "same"
    WIDER = "wider"
    NARROWER = "narrower"
    UNFINISHED = "unfinished"
    """Not killed, and TLC finished no model in time."""
    UNPARSABLE = "unparsable"
    """SANY refuses the text, so it does not count as a mutant."""


LATE = (Verdict.OUT_OF_TIME, Verdict.OUT_OF_MEMORY)
SURVIVED = (MutantOutcome.SAME, MutantOutcome.WIDER, MutantOutcome.NARROWER, MutantOutcome.UNFINISHED)


@dataclass(frozen=True)
class Row:
    """The stored result of one mutant."""

    mutant: str
    kind: str
    outcome: str
    change: str = ""
    """The former and the new text; empty where a whole step is removed."""
    by: str = ""
    """The promise that broke, or the step that is no longer taken."""
    model: str = ""
    """The model that killed it."""
    distinct: int = 0
    depth: int = 0
    """The length of the shortest trace; `distinct` is the number of states that TLC had found by then."""
    models: tuple[str, ...] = ()
    """For a survivor, the models in which it ran to the end."""
    out_of_time: tuple[str, ...] = ()
    """For a survivor, the models that TLC did not finish."""
    seconds: float = 0.0
    fingerprint: str = ""

    @property
    def survived(self) -> bool:
        return self.outcome in SURVIVED


# ---- the definitions that a model uses


@cache
def definitions_for(model: Model) -> dict[str, Definition]:
    """The definitions of all modules of a model."""
    found: dict[str, Definition] = {}
    for path in modules_of(SPEC / model.folder, model.module):
        found |= definitions_of(path.stem, path.read_text())
    return found


@cache
def configured(model: Model) -> tuple[set[str], dict[str, str]]:
    """The names that a configuration uses apart from its promises, and its replacements: definition -> the one instead."""
    instead: dict[str, str] = {}
    names: set[str] = set()
    section = ""
    for line in without_comments(model.text).splitlines():
        words = line.split()
        if not line.startswith(" "):
            section = words.pop(0)
        if len(words) == 3 and words[1] == "<-":
            instead[words[0]] = words[2]
            names.add(words[2])
        elif section in ("SPECIFICATION", "SYMMETRY", "VIEW"):
            names |= set(words)
    return names, instead


@cache
def behaviour(model: Model) -> frozenset[str]:
    """The names of the definitions that a model's states and steps use."""
    names, instead = configured(model)
    return frozenset(reached(names, definitions_for(model), instead))


@cache
def actions_by(model: Model, definition: str) -> frozenset[str]:
    """The steps of a model that use a definition."""
    _, instead = configured(model)
    known = definitions_for(model)
    return frozenset(
        known[name].action
        for name in behaviour(model)
        if known[name].action and definition in reached({name}, known, instead)
    )


@cache
def foundation(model: Model, promise: str) -> str:
    """A digest of the text that decides a verdict: behaviour, configuration, and this promise, or all if it is no definition."""
    names, instead = configured(model)
    promises = {promise} if promise in definitions_for(model) else set(checked(model.text))
    known = definitions_for(model)
    used = sorted(reached(names | promises, known, instead))
    texts = [name + without_comments(known[name].body.of(known[name].text)) for name in used]
    constants = [line for line in without_comments(model.text).splitlines() if "=" in line or "<-" in line]
    return hashlib.sha256("\n".join(texts + constants).encode()).hexdigest()


def fingerprint(mutant: Mutant, models: tuple[str, ...], promise: str) -> str:
    """A digest of the mutant and of the text that decides its verdict in these models: a row with another one is stale."""
    known = {model.name: model for model in MODELS}
    foundations = [foundation(known[name], promise) for name in models if name in known]
    place = f"{mutant.name} {mutant.change}"
    return hashlib.sha256("\n".join([place, *foundations]).encode()).hexdigest()[:12]


# ---- which mutants, which models


@cache
def all_mutants() -> dict[str, Mutant]:
    """Every mutant by its name, folder by folder."""
    found: dict[str, Mutant] = {}
    for folder in MUTATED:
        used: set[str] = set()
        for model in MODELS:
            if model.folder == folder and not model.behaviours:
                used |= behaviour(model)
        found |= {mutant.name: mutant for mutant in mutants_of(folder, used)}
    return found


def models_for(mutant: Mutant, largest_s: float) -> list[Model]:
    """The models that take a step which uses the mutated definition, the cheapest first."""
    results = load_results()
    found: list[tuple[float, Model]] = []
    for model in MODELS:
        result = results.get(model.name)
        if model.folder != mutant.folder or not result or result.cpu_seconds > largest_s:
            continue
        if mutant.module not in {path.stem for path in modules_of(SPEC / model.folder, model.module)}:
            continue
        actions = actions_by(model, mutant.definition)
        taken = {name for name, count in result.coverage.items() if count} if result.coverage else actions
        # A definition that chooses between steps, such as `ProposalStep` of `Messages.tla`, is in no step.
        if mutant.definition in behaviour(model) and (actions & taken or not actions):
            found.append((result.cpu_seconds, model))
    return [model for _, model in sorted(found, key=lambda pair: pair[0])]


# ---- one mutant


@dataclass(frozen=True)
class Limits:
    """Limits of a mutant's time, of one run of TLC, and of a model's CPU time without mutants (`largest_s`)."""

    mutant_s: float = 240.0
    model_s: float = 90.0
    largest_s: float = 40.0
    memory_mb: int = 2000
    states: int = 1_000_000
    """The largest number of states of one mutant in one model, where one run judges many mutants."""


def judge(mutant: Mutant, limits: Limits, before: Row | None = None) -> Row:
    """Run one mutant until a model kills it: first in the model that killed it before, and not in models that it has survived."""
    models = models_for(mutant, limits.largest_s)
    if mutant.kind == "action":
        taken = [model for model in models if load_results()[model.name].coverage.get(mutant.step)]
        return _judge_coverage(mutant, taken[:1], limits, 0.0) or row_of(mutant, MutantOutcome.UNFINISHED)
    kept = (
        before if before and before.survived and is_fresh(mutant, before) else row_of(mutant, MutantOutcome.UNFINISHED)
    )
    spent, finished, late = 0.0, list(kept.models), list(kept.out_of_time)
    outcome_so_far = merged(kept.outcome)
    for model in sorted(models, key=lambda model: not before or model.name != before.model):
        if model.name in finished or model.name in late:
            continue
        if spent > limits.mutant_s:
            break
        outcome = run(mutant, model, limits)
        spent += outcome.seconds
        if row := settled_by(mutant, model, outcome, kept.seconds + spent):
            return row
        (late if outcome.verdict in LATE else finished).append(model.name)
        if outcome.verdict == Verdict.SEARCHED:
            continue
        difference = _difference(model, outcome) if outcome.verdict == Verdict.HOLDS else MutantOutcome.WIDER
        outcome_so_far = merged(outcome_so_far, difference)
        if difference == MutantOutcome.NARROWER and (
            row := _judge_coverage(mutant, [model], limits, kept.seconds + spent)
        ):
            return row
    row = replace(row_of(mutant, outcome_so_far, models=tuple(finished)), out_of_time=tuple(late))
    seconds = round(kept.seconds + spent, 1)
    return replace(row, seconds=seconds, fingerprint=fingerprint(mutant, row.models + row.out_of_time, ""))


def merged(*outcomes: str) -> MutantOutcome:
    """The outcome of a survivor from its outcomes in several models."""
    ranks = (MutantOutcome.WIDER, MutantOutcome.NARROWER, MutantOutcome.SAME, MutantOutcome.UNFINISHED)
    return next(rank for rank in ranks if rank in outcomes)


def run(mutant: Mutant, model: Model, limits: Limits, coverage: bool = False) -> Outcome:
    """One run of TLC on a model with the mutated module."""
    job = Case(model).job(workers=1, memory_mb=limits.memory_mb)
    job = replace(job, budget_s=limits.model_s, coverage=coverage, jvm=SHORT_RUN)
    return check(replace(job, modules={mutant.module: mutant.text()}))


def row_of(mutant: Mutant, result: MutantOutcome, by: str = "", models: tuple[str, ...] = ()) -> Row:
    """A row with this outcome, without model, numbers and fingerprint."""
    return Row(
        mutant.name, mutant.kind, str(result), mutant.change if mutant.kind != "action" else "", by, models=models
    )


def settled_by(mutant: Mutant, model: Model, outcome: Outcome, spent: float) -> Row | None:
    """The mutant's row, or None if it survived this run. Errors: RuntimeError if TLC did not judge."""
    if outcome.verdict == Verdict.VIOLATED:
        row = row_of(mutant, MutantOutcome.KILLED, _promise(model, outcome))
        row = replace(row, model=model.name, distinct=outcome.distinct, depth=len(outcome.trace))
    elif outcome.verdict == Verdict.WRONG_MODEL and "Parsing or semantic analysis failed" in outcome.output:
        row = row_of(mutant, MutantOutcome.UNPARSABLE)
    elif outcome.verdict == Verdict.WRONG_MODEL:
        row = replace(row_of(mutant, MutantOutcome.REFUSED), model=model.name, distinct=outcome.distinct)
    elif outcome.verdict in (Verdict.HOLDS, Verdict.SEARCHED, *LATE):
        return None
    else:
        raise RuntimeError(f"{mutant.name} in {model.name}: {outcome.verdict}: {outcome.reason}")
    return replace(row, seconds=round(spent, 1), fingerprint=fingerprint(mutant, (model.name,), row.by))


def _promise(model: Model, outcome: Outcome) -> str:
    """The broken promise's name. TLC does not name temporal properties, and names action properties by their place."""
    if outcome.violated in checked(model.text):
        return outcome.violated
    properties = [name for name, kind in checked(model.text).items() if kind == "PROPERTY"]
    place = outcome.violated.partition("line ")[2].partition(",")[0]
    module = outcome.violated.rpartition("module ")[2].split(" ")[0]
    for name in properties:
        definition = definitions_for(model).get(name)
        if place and definition and module == definition.module:
            lines = (definition.body.begin, definition.body.end)
            first, last = (definition.text.count("\n", 0, at) + 1 for at in lines)
            if first <= int(place) <= last:
                return name
    return properties[0] if len(properties) == 1 else "liveness"


def _difference(model: Model, outcome: Outcome) -> MutantOutcome:
    clean = load_results()[model.name]
    if (outcome.distinct, outcome.generated) == (clean.distinct, clean.generated):
        return MutantOutcome.SAME
    return (
        MutantOutcome.WIDER
        if (outcome.distinct, outcome.generated) > (clean.distinct, clean.generated)
        else MutantOutcome.NARROWER
    )


def _judge_coverage(mutant: Mutant, models: list[Model], limits: Limits, spent: float) -> Row | None:
    """The row of a mutant with which one of the models no longer takes a step; None if there is none."""
    results = load_results()
    for model in models:
        if not results[model.name].coverage:
            continue
        outcome = run(mutant, model, limits, coverage=True)
        spent += outcome.seconds
        if row := settled_by(mutant, model, outcome, spent):
            return row
        taken = {name for name, count in outcome.coverage.items() if count}
        wanted = {name for name, count in results[model.name].coverage.items() if count}
        lost = sorted((wanted - taken) & actions_by(model, mutant.definition))
        if outcome.verdict == Verdict.HOLDS and lost:
            row = row_of(mutant, MutantOutcome.UNREACHED, mutant.step if mutant.step in lost else lost[0])
            row = replace(row, model=model.name, distinct=outcome.distinct, seconds=round(spent, 1))
            return replace(row, fingerprint=fingerprint(mutant, (model.name,), ""))
    return None


# ---- stored rows


def load(path: Path = STORE) -> dict[str, Row]:
    """The stored rows by mutant."""
    if not path.exists():
        return {}
    return {row["mutant"]: _read(row) for row in json.loads(path.read_text())}


def _read(row: dict[str, Any]) -> Row:
    row |= {key: tuple(row.get(key, ())) for key in ("models", "out_of_time")}
    return Row(**row)


def store(*new: Row, path: Path = STORE) -> None:
    """Add or replace rows; several processes may write the file at a time."""
    with (path.parent / ".mutants.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = load(path) | {row.mutant: row for row in new}
        order = list(all_mutants())
        kept = sorted((rows[name] for name in rows if name in order), key=lambda kept: order.index(kept.mutant))
        written = [{key: value for key, value in asdict(each).items() if value} for each in kept]
        partial = path.with_suffix(".partial")
        partial.write_text("[\n" + ",\n".join(json.dumps(each) for each in written) + "\n]\n")
        partial.replace(path)


def is_fresh(mutant: Mutant, row: Row) -> bool:
    """Whether a stored row was measured with the present text."""
    models = row.models + row.out_of_time or ((row.model,) if row.model else ())
    promise = row.by if row.outcome == MutantOutcome.KILLED else ""
    return row.outcome == MutantOutcome.UNPARSABLE or row.fingerprint == fingerprint(mutant, models, promise)


def is_current(mutant: Mutant, row: Row | None, largest_s: float) -> bool:
    """Whether a run with this limit would add nothing to the row. A model that reached the limit of states counts as run."""
    is_begun = row and (row.outcome != MutantOutcome.UNFINISHED or row.out_of_time)
    if not row or not is_begun or not is_fresh(mutant, row):
        return False
    return not row.survived or {it.name for it in models_for(mutant, largest_s)} <= {*row.models, *row.out_of_time}


SETTLED_S = 9.0
"""A survivor needs a reason (`survivors.py`) once all models of up to so many CPU seconds have run, or reached a limit of states.
Until then it is open."""


def is_open(mutant: Mutant, row: Row) -> bool:
    """Whether a mutant has survived so far, and some model of up to SETTLED_S is still to be run."""
    return row.survived and not is_current(mutant, row, SETTLED_S)


def waiting(names: list[str] | None, again: bool, largest_s: float) -> Iterator[Mutant]:
    """The mutants to run, of these modules or names, or of all; with `again` also those with a current row."""
    stored = load()
    for name, mutant in all_mutants().items():
        chosen = not names or any(name == wanted or name.startswith(f"{wanted}.") for wanted in names)
        if chosen and (again or not is_current(mutant, stored.get(name), largest_s)):
            yield mutant
