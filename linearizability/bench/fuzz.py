"""`tidegauge bench fuzz`: how long the simulation takes to find each planted bug, over several first seeds.

A *trial* is one mutant and one first seed: runs are drawn from that seed on until the bug is found, or MOST_SCHEDULES have
passed. Mutants that lose or change committed records have a second row of trials, without invariants of the nodes: the
clients' histories alone must show the bug. Each trial is stored as soon as it is over, with the fingerprint of what decides it
(schedules and mutant); `--resume` runs only what is not stored, was stored of something else (is *stale*), or was not found in
fewer runs. Stale trials of mutants that are not chosen are kept, and the table says how many they are.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from linearizability.interrupting import announce, leave, until_interrupted
from linearizability.pages import write_part
from linearizability.progress import Progress
from linearizability.stored import make_folder_of, replace_file

if TYPE_CHECKING:
    from linearizability.simulation.judging import Outcome
    from linearizability.simulation.remote_interpreter import RemoteInterpreter

MOST_SCHEDULES = 5_000
SEEDS = 10
SEEDS_APART = 100_000
"""Distance of the trials' first seeds, so that their runs never overlap."""
HISTORY = "history"
EVERYTHING = "everything"
FOLDER = Path(__file__).parent
STORE = FOLDER / "fuzz.json"
PAGE = FOLDER.parent / "mutants" / "TIMES.md"
PART = "times to find"


class Task(NamedTuple):
    """The mutant, first seed and kind of checks of a trial."""

    mutant: str
    by: str
    """EVERYTHING, or HISTORY where the clients' histories alone decide."""
    trial: int

    @property
    def first_seed(self) -> int:
        return self.trial * SEEDS_APART

    @property
    def name(self) -> str:
        return f"{self.mutant}/{self.by}/{self.trial}"


@dataclass(frozen=True)
class Trial:
    """The result of a trial."""

    schedules: int | None
    """Number of runs until the bug was found; None if it was not."""
    seconds: float
    """CPU seconds of all its runs."""
    runs: int
    """Number of runs that were made."""
    rule: str
    fingerprint: str
    python: str = ""
    """The other interpreter that executed the runs, if any (`remote_interpreter`)."""


def fingerprint(mutant: str) -> str:
    """Return a checksum of what decides a mutant's trials: the first schedules drawn for it, and the planted function.

    Checks that were added to the world since do not make a stored trial stale: they find no later.
    """
    from linearizability.mutants.registry import MUTANTS
    from linearizability.simulation.drawing import draw

    found = MUTANTS[mutant]
    digest = hashlib.sha256(f"{found.function} {found.breaks} {found.nodes}".encode())
    digest.update(_body(found.replacement).encode())
    for seed in range(FINGERPRINTED):
        digest.update(
            draw(seed, mutant, found.nodes, found.workload, found.coordination)
            .model_dump_json(exclude_defaults=True)
            .encode()
        )
    return digest.hexdigest()[:12]


def _body(function: Callable[..., Any]) -> str:
    """The source of a planted function without its decorator: who has to find it does not change what it does."""
    source = inspect.getsource(function)
    return source[source.index("def ") :]


FINGERPRINTED = 3
"""Number of schedules that represent all that a recipe draws."""


def tasks(mutants: Iterable[str], seeds: int) -> Iterator[Task]:
    """Yield all trials, first one of each mutant, then the second of each, so that a short run covers all mutants."""
    from linearizability.mutants.registry import MUTANTS

    named = [(name, MUTANTS[name]) for name in mutants]
    for trial in range(seeds):
        for name, mutant in named:
            if not mutant.only_in_history:
                yield Task(name, EVERYTHING, trial)
        for name, mutant in named:
            if mutant.in_history:
                yield Task(name, HISTORY, trial)


def run_trial(task: Task, most: int, interpreter: RemoteInterpreter | None = None) -> Trial:
    """Run schedules from the trial's first seed on until the bug is found. Errors: InterpreterError of another interpreter."""
    from linearizability.mutants.registry import MUTANTS, planted

    mutant = MUTANTS[task.mutant]
    spent = 0.0
    python = interpreter.name if interpreter is not None else ""
    with planted(task.mutant) if interpreter is None else nullcontext():
        for count, (outcome, seconds) in enumerate(_runs(task, most, interpreter), 1):
            spent += seconds
            is_from_history = outcome.judgement is not None
            if outcome.verdict != "invalid" or not (is_from_history or task.by == EVERYTHING):
                continue
            if mutant.is_found_by(outcome.rule):
                return Trial(count, round(spent, 2), count, outcome.rule, fingerprint(task.mutant), python)
    return Trial(None, round(spent, 2), most, "", fingerprint(task.mutant), python)


def _runs(task: Task, most: int, interpreter: RemoteInterpreter | None) -> Iterator[tuple[Outcome, float]]:
    """Yield outcome and CPU seconds of each run of a trial."""
    from linearizability.mutants.registry import MUTANTS
    from linearizability.simulation.fuzzing import runs
    from linearizability.simulation.remote_interpreter import Task as Few

    mutant = MUTANTS[task.mutant]
    for done in range(0, most, RUNS_AT_ONCE):
        first, count = task.first_seed + done, min(RUNS_AT_ONCE, most - done)
        few = Few(
            first, count, task.mutant, mutant.nodes, mutant.workload, mutant.coordination, task.by == HISTORY, False
        )
        for outcome, _, seconds in runs(few, interpreter):
            yield outcome, seconds


RUNS_AT_ONCE = 10
"""Runs that another interpreter is asked for at once. Those after a trial's last one are wasted."""


# ---- the store


def read_store(path: Path) -> dict[str, Trial]:
    """Return the stored trials by task; none if there is no file."""
    if not path.exists():
        return {}
    return {name: Trial(**value) for name, value in json.loads(path.read_text()).items()}


def write_store(path: Path, trials: dict[str, Trial]) -> None:
    """Store the trials."""
    lines = [f" {json.dumps(name)}: {json.dumps(_reported(trials[name]))}" for name in sorted(trials)]
    replace_file(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _reported(trial: Trial) -> dict[str, Any]:
    return {name: value for name, value in asdict(trial).items() if name != "python" or value}


# ---- the table


@dataclass(frozen=True)
class Row:
    """All trials of one mutant."""

    mutant: str
    by: str
    trials: Sequence[Trial]
    stale: int = 0
    """Number of trials of other schedules, or of another mutant of this name."""

    @property
    def found(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.schedules is not None]

    def to_json(self) -> dict[str, Any]:
        schedules = sorted(each.schedules for each in self.found if each.schedules is not None)
        return {
            "mutant": self.mutant,
            "by": self.by,
            "trials": len(self.trials),
            "stale": self.stale,
            "found": len(self.found),
            "median_schedules": statistics.median(schedules) if schedules else None,
            "most_schedules": schedules[-1] if schedules else None,
            "median_seconds": round(statistics.median(each.seconds for each in self.found), 1) if schedules else None,
            "led_by": dict(sorted(Counter(each.python for each in self.trials if each.python).items())),
            "rules": sorted({rule for each in self.found for rule in each.rule.split(", ")}),
        }


def rows(mutants: Iterable[str], trials: dict[str, Trial], stale: Collection[str] = ()) -> list[Row]:
    """Return the rows of these mutants in their order. `stale` names trials."""
    by_row: dict[tuple[str, str], list[Trial]] = {}
    for name, trial in trials.items():
        mutant, by, _ = name.split("/")
        by_row.setdefault((mutant, by), []).append(trial)
    counts = Counter(name.rpartition("/")[0] for name in stale)
    return [
        Row(name, by, by_row[name, by], counts[f"{name}/{by}"])
        for name in mutants
        for by in (EVERYTHING, HISTORY)
        if (name, by) in by_row
    ]


def table(found: Iterable[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| mutant | clients | found by | trials | found | schedules: median | most | CPU seconds: median | broken promises |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in found:
        said = row.to_json()
        numbers = [said[name] for name in ("trials", "found", "median_schedules", "most_schedules", "median_seconds")]
        cells = " | ".join("–" if number is None else f"{number:g}" for number in numbers)
        remarks = [f"{count} by {python}" for python, count in said["led_by"].items()]
        remarks += [f"{row.stale} stale"] if row.stale else []
        by = f"{row.by} ({', '.join(remarks)})" if remarks else row.by
        lines.append(f"| `{row.mutant}` | {_runs_of(row.mutant)} | {by} | {cells} | {', '.join(said['rules'])} |")
    return "\n".join(lines)


def _runs_of(name: str) -> str:
    from linearizability.mutants.registry import MUTANTS

    mutant = MUTANTS[name]
    return f"{mutant.workload}, {mutant.nodes} node{'s' if mutant.nodes > 1 else ''}"


def write_table(text: str) -> None:
    """Write the table into mutants/TIMES.md."""
    write_part(PAGE, PART, text)


# ---- the command


def fuzz(
    mutant: Annotated[
        list[str] | None, typer.Option(help="One mutant; may repeat. All that fuzz must find by default.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="How many first seeds.")] = SEEDS,
    schedules: Annotated[int, typer.Option(min=1, help="The most runs of one trial.")] = MOST_SCHEDULES,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Begin no trial after this time.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is stored, and run what is missing.")] = False,
    clusters: Annotated[bool, typer.Option("--clusters", help="Only mutants that need several nodes.")] = False,
    workload: Annotated[
        list[str] | None,
        typer.Option(help="Only mutants that this workload finds; may repeat (groups, transactions, copy)."),
    ] = None,
    python: Annotated[
        str,
        typer.Option(
            help="Another interpreter that executes the runs: PyPy 3.11 is twice as fast. They are judged here."
        ),
    ] = "",
    store: Annotated[Path, typer.Option(help="Where trials are kept.")] = STORE,
    record: Annotated[
        bool, typer.Option("--record", help="Write the table into linearizability/mutants/TIMES.md.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="The last line of standard output is one JSON object.")] = False,
) -> None:
    """How many schedules and seconds the simulation needs to find each planted bug, over several seeds; resumable."""
    from linearizability.mutants.registry import MUTANTS
    from linearizability.simulation.remote_interpreter import InterpreterError, RemoteInterpreter, check

    unknown = [name for name in mutant or () if name not in MUTANTS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(MUTANTS)}", param_hint="--mutant")
    chosen = mutant or [
        name
        for name, each in MUTANTS.items()
        if each.fuzz and (each.nodes > 1 or not clusters) and (not workload or each.workload in workload)
    ]
    make_folder_of(store)
    kept = read_store(store) if resume else {}
    trials = {name: trial for name, trial in kept.items() if _is_asked(name)}
    stale = _stale(trials)
    said: dict[str, Any] = {"store": str(store)}
    try:
        interpreter = RemoteInterpreter(python, check(python)) if python else None
    except InterpreterError as error:
        raise typer.BadParameter(str(error), param_hint="--python") from error
    try:
        with until_interrupted(said):
            _run_all(chosen, seeds, schedules, minutes, trials, stale, store, interpreter)
    finally:
        if interpreter is not None:
            interpreter.close()
    text = table(rows(chosen, trials, stale))
    if record:
        write_table(table(rows(MUTANTS, trials, stale)))
    announce(said)
    print(text)
    if json_:
        print(json.dumps(said | {"rows": [row.to_json() for row in rows(chosen, trials, stale)]}))
    leave(said)


def _is_asked(task: str) -> bool:
    """Return whether such a trial exists today."""
    from linearizability.mutants.registry import MUTANTS

    name, by, _ = task.split("/")
    mutant = MUTANTS.get(name)
    return mutant is not None and (mutant.in_history if by == HISTORY else not mutant.only_in_history)


def _stale(trials: dict[str, Trial]) -> set[str]:
    """Return the trials of other schedules, or of another mutant of that name."""
    mutant_of = {name: name.split("/")[0] for name in trials}
    present = {mutant: fingerprint(mutant) for mutant in {*mutant_of.values()}}
    return {name for name, trial in trials.items() if trial.fingerprint != present[mutant_of[name]]}


def _run_all(
    chosen: Sequence[str],
    seeds: int,
    schedules: int,
    minutes: float | None,
    trials: dict[str, Trial],
    stale: set[str],
    store: Path,
    interpreter: RemoteInterpreter | None,
) -> None:
    """Run missing and stale trials, and store each at its end."""
    until = time.monotonic() + minutes * 60 if minutes is not None else float("inf")

    def is_missing(task: Task) -> bool:
        known = trials.get(task.name)
        return known is None or task.name in stale or (known.schedules is None and known.runs < schedules)

    missing = [*filter(is_missing, tasks(chosen, seeds))]
    with Progress(len(missing)) as progress:
        for number, task in enumerate(missing, 1):
            if time.monotonic() >= until:
                return
            progress(f"{task.name}, trial {number} of {len(missing)}")
            trial = trials[task.name] = run_trial(task, schedules, interpreter)
            stale.discard(task.name)
            write_store(store, trials)
            outcome = f"{trial.schedules} schedules" if trial.schedules else f"not in {trial.runs}"
            progress.keep(f"{task.name}: {outcome}, {trial.seconds} s {trial.rule}")
