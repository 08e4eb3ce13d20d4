"""Checks many mutants in one run of TLC: a small model spends most of its time on the start of the virtual machine.

The model gets a variable `mutant`, which never changes. Each mutated definition gets a copy for each of its mutants, and chooses
among them by the variable; 0 is the unchanged specification. So one breadth-first search visits the states of all mutants, level
by level. Promises are not invariants of this run, because the first to break would end it. Instead a register of TLC stores the
first broken promise of each mutant; from then on this mutant's states have no successors. Promises about steps, and the
refinement by `Messages.tla`, are checked at each step. Models of liveness cannot be checked so, and run one mutant at a time.

One more initial state, of mutant -1, has a successor on each level; when no other state is left, it prints the registers.

Model after model is run, the cheapest first, each with the mutants that have survived so far. Before that, a mutant with a stale
row runs in the model that settled it last time: most are settled there again. A survivor's row names exactly the models that it
was run against.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from spec.catalogue import MODELS
from spec.checker import Job, Outcome, Verdict, check
from spec.models import SPEC, Model, checked, modules_of, without_comments
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
from spec.tla_text import DEFINITION, Definition, definitions_of

CLEAN = 0
"""The number of the unchanged specification."""
STEP_NAMES = {"Step": "action", "MessageStep": "name"}
"""Definitions that record a step, each with its parameter that holds the step's name."""
JVM = ("-XX:+UseSerialGC",)
SPECIFICATION = re.compile(r"\s*(.*?)\s*/\\\s*\[\]\[\s*(.*?)\s*\]_(\w+|<<[^>]*>>)\s*", re.S)
STEP_PROMISE = re.compile(r"(?:\s*[\w\s/\\]*/\\)?\s*\[\](\[.*\]_\w+)\s*", re.S)
"""A promise about steps. Its condition on the initial state is skipped: `Init` is not mutated (`mutants.NO_RULES`)."""

CHOSEN = r"""---- MODULE Chosen ----
EXTENDS Integers, TLC
VARIABLE mutant
Register(kind) == 4 * mutant + kind
Mark(name) ==
    IF mutant < 0 THEN TRUE ELSE IF name \in TLCGet(Register(3)) THEN TRUE
    ELSE TLCSet(Register(3), TLCGet(Register(3)) \cup {name})
====
"""

FUSED = r"""
Mutants == {%(numbers)s}
ASSUME \A m \in Mutants :
    TLCSet(4 * m, "") /\ TLCSet(4 * m + 1, 0) /\ TLCSet(4 * m + 2, 0) /\ TLCSet(4 * m + 3, {})
FusedInit == mutant \in Mutants \cup {-1} /\ %(init)s
Finished == \A m \in Mutants : PrintT(<<"finished", m, TLCGet(4 * m + 1), TLCGet(4 * m + 2), TLCGet(4 * m + 3)>>)
FusedNext ==
    IF mutant < 0
    THEN IF TLCGet("queue") = 0 THEN Finished /\ FALSE /\ mutant' = mutant /\ UNCHANGED %(vars)s
         ELSE mutant' = mutant - 1 /\ UNCHANGED %(vars)s
    ELSE /\ TLCGet(Register(0)) = "" /\ TLCGet(Register(1)) < %(most)d
         /\ mutant' = mutant
         /\ %(next)s
FusedView == IF mutant < 0 THEN <<mutant>> ELSE <<mutant, %(view)s>>
Count(kind) == TLCSet(Register(kind), TLCGet(Register(kind)) + 1)
Note(broken) ==
    IF broken = "" THEN TRUE
    ELSE TLCSet(Register(0), broken) /\ PrintT(<<"broken", mutant, broken, TLCGet("level"), TLCGet(Register(1))>>)
BrokenInState == %(states)s
BrokenInStep == %(steps)s
JudgeState == IF mutant < 0 THEN TRUE ELSE Count(1) /\ IF TLCGet(Register(0)) # "" THEN TRUE ELSE Note(BrokenInState)
JudgeStep == IF mutant < 0 THEN TRUE ELSE Count(2) /\ IF TLCGet(Register(0)) # "" THEN TRUE ELSE Note(BrokenInStep)
"""
"""Text that is added at the end of the model's own module."""


@dataclass(frozen=True)
class Met:
    """The result of one mutant in a model."""

    broken: str = ""
    """The promise that broke first."""
    depth: int = 0
    distinct: int = 0
    generated: int = 0
    steps: frozenset[str] = frozenset()
    """The steps that were taken."""
    is_whole: bool = False
    """Whether all states were visited."""


@dataclass
class Judged:
    """The results of many mutants in one model, by name; a mutant without an entry was not judged."""

    clean: Met = field(default_factory=Met)
    met: dict[str, Met] = field(default_factory=dict[str, Met])
    refused: set[str] = field(default_factory=set[str])
    unparsable: set[str] = field(default_factory=set[str])
    seconds: float = 0
    cpu_seconds: float = 0


def can_fuse(model: Model) -> bool:
    """Whether all promises of a model can be judged state by state and step by step."""
    known = _definitions(model)
    kinds = checked(model.text)
    return bool(
        not model.behaviours
        and "View" in _word_after(model, "VIEW")
        and all(STEP_PROMISE.fullmatch(_body(known[name])) for name, kind in kinds.items() if kind == "PROPERTY")
    )


def judge_together(model: Model, mutants: list[Mutant], budget_s: float, memory_mb: int, most: int) -> Judged:
    """Run TLC until each mutant is judged or refused, or the time is over. A mutant that reaches `most` states is unfinished."""
    waiting, found = dict(enumerate(mutants, 1)), Judged()
    while waiting:
        job = _job(model, waiting, budget_s - found.seconds, memory_mb, most)
        outcome = check(job)
        found.seconds += outcome.seconds
        found.cpu_seconds += outcome.cpu_seconds
        if outcome.verdict == Verdict.WRONG_MODEL:
            culprit, refused = _culprit(job, outcome)
            if culprit not in waiting:
                raise RuntimeError(f"{model.name}: {outcome.reason}: {outcome.output[-2000:]}")
            (found.refused if refused else found.unparsable).add(waiting.pop(culprit).name)
            if found.seconds < budget_s:
                continue
        elif outcome.verdict not in (Verdict.HOLDS, Verdict.OUT_OF_TIME, Verdict.OUT_OF_MEMORY):
            raise RuntimeError(f"{model.name}: {outcome.verdict}: {outcome.reason}")
        met = _met(outcome.output, most)
        found.clean = met.get(CLEAN, Met())
        found.met = {waiting[number].name: each for number, each in met.items() if number in waiting}
        break
    return found


# ---- the module


def _job(model: Model, mutants: dict[int, Mutant], budget_s: float, memory_mb: int, most: int) -> Job:
    modules = _modules(model, mutants) | {"Chosen": CHOSEN}
    root = modules.get(model.module) or (SPEC / model.folder / f"{model.module}.tla").read_text()
    at = re.search(r"^====", root, re.M)
    assert at, f"{model.module} does not end"
    modules[model.module] = root[: at.start()] + _fused(model, mutants, most) + root[at.start() :]
    return Job(
        SPEC / model.folder, model.module, _configuration(model), max(budget_s, 1), memory_mb, jvm=JVM, modules=modules
    )


def _fused(model: Model, mutants: dict[int, Mutant], most: int) -> str:
    known, kinds = _definitions(model), checked(model.text)
    spec = SPECIFICATION.fullmatch(_body(known[_word_after(model, "SPECIFICATION")]))
    assert spec, f"{model.name} has no specification of the form Init and always Next"
    states = {name: name for name, kind in kinds.items() if kind == "INVARIANT"}
    steps = {name: _step_promise(known[name]) for name, kind in kinds.items() if kind == "PROPERTY"}
    return FUSED % {
        "numbers": ", ".join(map(str, [CLEAN, *mutants])),
        "most": most,
        "init": spec[1],
        "next": spec[2],
        "vars": spec[3],
        "view": _word_after(model, "VIEW"),
        "states": _first_broken(states),
        "steps": _first_broken(steps),
    }


def _first_broken(promises: dict[str, str]) -> str:
    tests = "".join(f'IF ~({text})\n    THEN "{name}" ELSE ' for name, text in promises.items())
    return f'{tests}""'


def _step_promise(promise: Definition) -> str:
    """The promise's formula about one step, kept in its column: TLA+ reads lists by their columns."""
    found = STEP_PROMISE.fullmatch(_body(promise))
    assert found, f"{promise.name} is no promise about steps"
    begin = promise.body.begin + found.start(1)
    column = begin - promise.text.rfind("\n", 0, begin) - 1
    return "\n" + " " * column + found[1]


def _configuration(model: Model) -> str:
    kept: list[str] = []
    section = ""
    for line in without_comments(model.text).splitlines():
        section = line.split()[0] if not line.startswith(" ") else section
        if section in ("CONSTANTS", "CONSTANT", "SYMMETRY", "CONSTRAINT", "CONSTRAINTS"):
            kept.append(line)
    kept += ["INIT FusedInit", "NEXT FusedNext", "VIEW FusedView", "CHECK_DEADLOCK FALSE"]
    text = "\n".join([*kept, "INVARIANT JudgeState", "ACTION_CONSTRAINT JudgeStep", ""])
    # `Mark` records the steps that were taken. A variable `step` could change which of several symmetric states TLC keeps.
    return text.replace("RecordSteps = TRUE", "RecordSteps = FALSE")


def _modules(model: Model, mutants: dict[int, Mutant]) -> dict[str, str]:
    """The changed modules of the model, with a copy of each mutated definition for each of its mutants."""
    found: dict[str, str] = {}
    for path in modules_of(SPEC / model.folder, model.module):
        source = path.read_text()
        numbered: defaultdict[str, dict[int, Mutant]] = defaultdict(dict)
        for number, mutant in mutants.items():
            if mutant.module == path.stem:
                numbered[mutant.definition][number] = mutant
        text, known = source, definitions_of(path.stem, source)
        for name in sorted({*numbered, *STEP_NAMES} & {*known}, key=lambda name: -known[name].body.begin):
            copies = _copies(source, known[name], numbered[name]) if name in numbered else _marked(known[name])
            text = text[: _begin(known[name])] + copies + text[known[name].body.end :]
        if text != source:
            found[path.stem] = re.sub(r"^EXTENDS ", "EXTENDS Chosen, ", text, count=1, flags=re.M)
    return found


def _begin(definition: Definition) -> int:
    return definition.text.rfind("\n", 0, definition.body.begin) + 1


def _copies(source: str, definition: Definition, mutants: dict[int, Mutant]) -> str:
    """A copy for each mutant, and a definition that chooses among them. Text keeps its column: TLA+ reads lists by columns."""
    head = definition.text[_begin(definition) : definition.body.begin]
    parts = DEFINITION.fullmatch(head)
    assert parts, f"{definition.name} does not begin its line"
    indent = f"\n{' ' * len(head)}"
    bodies = {CLEAN: source[definition.body.begin : definition.body.end]}
    for number, mutant in mutants.items():
        grown = len(mutant.becomes) - (mutant.span.end - mutant.span.begin)
        bodies[number] = mutant.text()[definition.body.begin : definition.body.end + grown]
    names = {number: f"{definition.name}OfMutant{number}" for number in bodies}
    copies = [head.replace(definition.name, names[number], 1) + indent + body for number, body in bodies.items()]
    arguments = f"({re.sub(r'[(][_, ]*[)]', '', parts[2])})" if parts[2] else ""
    choice = "".join(f"IF mutant = {number} THEN {names[number]}{arguments} ELSE " for number in mutants)
    return "\n".join([*copies, f"{head} {choice}{names[CLEAN]}{arguments}"])


def _marked(definition: Definition) -> str:
    head = definition.text[_begin(definition) : definition.body.begin]
    return f"{head} Mark({STEP_NAMES[definition.name]}) /\\ ({_body(definition)})"


def _definitions(model: Model) -> dict[str, Definition]:
    return {
        name: definition
        for path in modules_of(SPEC / model.folder, model.module)
        for name, definition in definitions_of(path.stem, path.read_text()).items()
    }


def _body(definition: Definition) -> str:
    return definition.body.of(definition.text)


def _word_after(model: Model, keyword: str) -> str:
    found = re.search(rf"^{keyword} (\w+)$", without_comments(model.text), re.M)
    return found[1] if found else ""


# ---- what TLC printed


BROKEN = re.compile(r'<<\s*"broken",\s*(\d+),\s*"(\w+)",\s*(\d+),\s*(\d+)\s*>>')
FINISHED = re.compile(r'<<\s*"finished",\s*(\d+),\s*(\d+),\s*(\d+),\s*\{([^}]*)\}\s*>>')
INITIAL = re.compile(r"While working on the initial state:.*?/\\ mutant = (?P<mutant>-?\d+)", re.S)
"""TLC's report of an error in an initial state, which has no trace."""
PLACES = (
    re.compile(r"line (?P<line>\d+), col[^\n]*?(?:of|in) module (?P<module>\w+)"),
    re.compile(r"at line (?P<line>\d+), column.*?Could not parse module (?P<module>\w+) from", re.S),
)


def _met(output: str, most: int) -> dict[int, Met]:
    found = {
        int(number): Met(distinct=int(distinct), generated=int(generated), steps=frozenset(re.findall(r"\w+", steps)))
        for number, distinct, generated, steps in FINISHED.findall(output)
    }
    found = {number: replace(met, is_whole=met.distinct < most) for number, met in found.items()}
    for number, promise, level, distinct in BROKEN.findall(output):
        met = found.get(int(number), Met())
        found[int(number)] = replace(met, broken=promise, depth=int(level) + 1, distinct=int(distinct), is_whole=False)
    return found


def _culprit(job: Job, outcome: Outcome) -> tuple[int, bool]:
    """The mutant at which TLC stopped, -1 if unknown; and True if TLC could not evaluate it, False if SANY did not parse it."""
    if "Parsing or semantic analysis failed" not in outcome.output:
        if outcome.trace:
            return int(str(outcome.trace[-1].state.get("mutant", -1))), True
        first = INITIAL.search(outcome.output)
        return int(first["mutant"]) if first else -1, True
    for found in (found for place in PLACES for found in place.finditer(outcome.output)):
        above = "\n".join(job.modules.get(found["module"], "").splitlines()[: int(found["line"])])
        if copies := re.findall(r"^\w+OfMutant(\d+)\b", above, re.M):
            return int(copies[-1]), False
    return -1, False


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
