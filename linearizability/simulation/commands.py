"""`tidegauge fuzz`, and the replay of a schedule. Exit codes: 0 valid, 1 invalid, 2 unknown, 3 engine error, 64 wrong usage."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linearizability.explorer.page import EXPLORER_FILE
from linearizability.progress import Progress

if TYPE_CHECKING:
    from linearizability.simulation.fuzzing_summary import Plan, Summary
    from linearizability.simulation.schedule import Schedule

ENGINE_ERROR = 3
DEFAULT_SCHEDULES = 200
SCHEDULE_FILE = "schedule.json"
EXPLANATION_FILE = "explanation.txt"

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


class CoordinationKind(StrEnum):
    KRAFT = "kraft"
    ZOOKEEPER = "zookeeper"
    CHANGING_VOTERS = "changing-voters"


class Engine(StrEnum):
    PROCESSES = "processes"
    SPARK = "spark"


@app.callback()
def root() -> None:
    """Hurt simulated brokers, in virtual time."""


Schedules = Annotated[
    int | None, typer.Option(min=1, help=f"How many; default {DEFAULT_SCHEDULES} where no time is given.")
]
Minutes = Annotated[float | None, typer.Option(min=0.01, help="For how long.")]
Nodes = Annotated[
    int,
    typer.Option(min=0, max=9, help="Nodes of each cluster; best 1, 3 or 5. 0: as many as the mutant needs, else 1."),
]
Seed = Annotated[int | None, typer.Option(min=0, help="The first schedule's seed; the others follow it. Default 0.")]
Jobs = Annotated[int, typer.Option(min=0, max=256, help="Processes; 0 for one a core.")]
Mutant = Annotated[str, typer.Option(help="Plant this bug in the nodes (see linearizability/mutants).")]
Coordination = Annotated[
    CoordinationKind | None,
    typer.Option(
        help="What coordinates the nodes: their metadata quorum, one whose voters change (KIP-853), or a simulated ZooKeeper. "
        "By default what the mutant needs."
    ),
]
UntilFound = Annotated[bool, typer.Option("--until-found", help="Stop at the first violation.")]
Workload = Annotated[
    str,
    typer.Option(
        help="What clients do besides: records, transactions, groups or copy. By default what the mutant needs."
    ),
]
ByHistory = Annotated[bool, typer.Option("--by-history", help="Look into no node: clients' histories alone decide.")]
Traces = Annotated[
    bool,
    typer.Option(
        "--traces",
        help="Keep each run's steps in traces/, for `tidegauge spec trace`; without runs that kill a process within a step.",
    ),
]
Python = Annotated[
    str,
    typer.Option(
        help="Another interpreter that executes the runs: pypy (found, or fetched) is twice as fast; or a path. They are judged "
        "here."
    ),
]
EngineOption = Annotated[
    Engine, typer.Option(help="Where runs are executed: in processes of this machine, or as tasks of Spark.")
]
Master = Annotated[str, typer.Option(help="The Spark master; default: as Spark is configured, else local[*].")]
Conf = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may repeat.")]
Record = Annotated[bool, typer.Option("--record", help="Go on where recorded runs ended, and add this one to them.")]
Store = Annotated[Path | None, typer.Option(help="Where runs are recorded; default: in the repository.")]
Results = Annotated[Path | None, typer.Option(help="Where result folders go; default: results/.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object that sums up, as the last line.")]


fuzzing = typer.Typer(add_completion=False, rich_markup_mode=None)
app.add_typer(fuzzing, name="fuzz")


@fuzzing.callback(
    invoke_without_command=True,
    epilog="Examples:  tidegauge fuzz --schedules 500   ·   tidegauge fuzz --minutes 10 --jobs 2 --seed 100000   ·   "
    "tidegauge fuzz --nodes 3 --workload transactions   ·   tidegauge fuzz --nodes 3 --schedules 5000 --record   ·   "
    "tidegauge fuzz --coordination zookeeper --nodes 3 --schedules 500   ·   "
    "tidegauge fuzz --mutant torn-tail-kept --until-found --json   ·   tidegauge fuzz --nodes 3 --python pypy   ·   "
    "tidegauge fuzz --nodes 3 --schedules 2000 --engine spark --master 'local[2]' --json   ·   "
    "tidegauge fuzz campaign night.toml",
)
def fuzz(
    context: typer.Context,
    schedules: Schedules = None,
    minutes: Minutes = None,
    nodes: Nodes = 0,
    seed: Seed = None,
    jobs: Jobs = 0,
    mutant: Mutant = "",
    coordination: Coordination = None,
    until_found: UntilFound = False,
    workload: Workload = "",
    by_history: ByHistory = False,
    traces: Traces = False,
    python: Python = "",
    engine: EngineOption = Engine.PROCESSES,
    master: Master = "",
    conf: Conf = None,
    record: Record = False,
    store: Store = None,
    results: Results = None,
    as_json: AsJson = False,
) -> int:
    """Run the nodes in a simulated world under crashes, power loss, full disks, bad networks and clocks.

    Each seed is one schedule. A failing one is shrunk, kept with its explanation, and repeated by `tidegauge replay FILE`.
    """
    if context.invoked_subcommand is not None:
        return 0
    from linearizability.mutants.registry import MUTANTS
    from linearizability.pipeline.verdict import EXIT_CODES
    from linearizability.results import new_run_folder
    from linearizability.simulation.accumulating import STORE, add, next_seed, read_runs
    from linearizability.simulation.fuzzing_summary import Plan

    if mutant and mutant not in MUTANTS:
        raise typer.BadParameter(f"{mutant!r} is none of {', '.join(MUTANTS)}", param_hint="--mutant")
    workload = _known_workload(workload or (MUTANTS[mutant].workload if mutant else ""))
    if record and (mutant or by_history or seed is not None):
        raise typer.BadParameter("recorded runs choose their seeds, and have no mutant", param_hint="--record")
    _check_interpreter(python)
    settings = _spark_settings(engine, master, conf or [], traces)
    if schedules is None and minutes is None and not until_found:
        schedules = DEFAULT_SCHEDULES
    nodes = nodes or (MUTANTS[mutant].nodes if mutant else 1)
    kind = coordination.value if coordination is not None else MUTANTS[mutant].coordination if mutant else "kraft"
    if kind != "kraft" and nodes == 1:
        raise typer.BadParameter(f"{kind} coordinates several nodes: --nodes 3", param_hint="--coordination")
    kept_in = store or STORE
    seed = next_seed(kind, nodes, workload, read_runs(kept_in)) if record else seed or 0
    plan = Plan(
        folder=new_run_folder("fuzz", mutant or f"seed-{seed}", results),
        nodes=nodes,
        coordination=kind,
        schedules=schedules,
        seconds=minutes * 60 if minutes is not None else None,
        first_seed=seed,
        jobs=jobs or os.cpu_count() or 1,
        mutant=mutant or None,
        until_found=until_found,
        by_history=by_history or bool(mutant and MUTANTS[mutant].only_in_history),
        workload=workload,
        traces=traces,
        python=python,
        engine=engine.value,
        master=master,
        spark=settings,
    )
    summary = _carry_out(plan, as_json)
    if summary is None:
        return ENGINE_ERROR
    if record and summary.runs:
        add(summary, kept_in)
    if as_json:
        print(json.dumps(summary.to_json()))
    else:
        _print(summary)
    if summary.not_kept:
        print(f"{plan.folder} is not whole: {summary.not_kept}", file=sys.stderr)
        return ENGINE_ERROR
    return EXIT_CODES[summary.verdict]


def _known_workload(name: str) -> str:
    """The workload of this name, or the usual one. Errors: typer.BadParameter."""
    from linearizability.simulation.workloads import WORKLOADS

    if name and name not in WORKLOADS:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(WORKLOADS)}", param_hint="--workload")
    return name or WORKLOADS[0]


def _check_interpreter(python: str) -> None:
    """Errors: typer.BadParameter."""
    from linearizability.simulation.remote_interpreter import InterpreterError, check

    if python:
        try:
            check(python)
        except InterpreterError as error:
            raise typer.BadParameter(str(error), param_hint="--python") from error


def _spark_settings(engine: Engine, master: str, terms: list[str], traces: bool) -> dict[str, str]:
    """The settings of Spark. Errors: typer.BadParameter, also where Spark does not fit the other options."""
    from linearizability.pipeline.spark_session import settings_of_terms

    if engine is Engine.PROCESSES and (master or terms):
        raise typer.BadParameter("--master and --conf are Spark's: --engine spark", param_hint="--engine")
    if engine is Engine.SPARK and traces:
        raise typer.BadParameter(
            "steps are written on this machine, and Spark's tasks run anywhere", param_hint="--traces"
        )
    try:
        return settings_of_terms(terms)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--conf") from None


def _carry_out(plan: Plan, as_json: bool) -> Summary | None:
    """Run the schedules; None where Spark failed, which is reported."""
    from linearizability.pipeline.spark_session import SparkFailure
    from linearizability.simulation.fuzzing import fuzz as run

    try:
        with Progress(1.0) as progress:
            return run(plan, lambda summary: progress.often(_said_of(summary), summary.share))
    except SparkFailure as error:
        print(json.dumps({"verdict": "error", "error": str(error)}) if as_json else f"error: {error}")
        print(error, file=sys.stderr)
        return None


def _said_of(summary: Summary) -> str:
    """How far a fuzz run is, in one line."""
    count = len(summary.runs)
    messages = sum(run.messages for run in summary.runs)
    wall = summary.seconds or 1e-9
    steps = f"{len(summary.actions)} steps and {len(summary.pairs)} pairs of them seen, " if summary.pairs else ""
    return (
        f"{count} schedules, {count / wall:.1f}/s, {messages / wall:.0f} messages/s, {steps}"
        f"{len(summary.found)} violations, {summary.seconds:.0f} s"
    )


def _print(summary: Summary) -> None:
    said = summary.to_json()
    print(f"verdict: {said['verdict']}" + (f": {said['reason']}" if said["reason"] else ""))
    print(
        f"{said['schedules']} schedules in {said['seconds']} s ({said['schedules_per_second']}/s), "
        f"{said['messages']} messages delivered ({said['messages_per_second']}/s, "
        f"{said['messages_per_second_and_core']}/s a core); median run: {said['median_messages']} messages, "
        f"{said['median_acknowledged']} acknowledged records, {said['median_acknowledged_by_all']} of them with acks=all, "
        f"{said['median_leader_changes']} leader changes"
    )
    steps = ", ".join(f"{name} × {count}" for name, count in said["actions"].items())
    print(f"steps of the specification: {steps or 'none'}; {said['pairs_of_actions']} pairs")
    if said["actions_not_seen"]:
        print(f"steps that were not seen: {', '.join(said['actions_not_seen'])}")
    for rule, count in said["permitted"].items():
        print(f"permitted: {rule} × {count}, {said['excused']['anomalies'].get(rule, 0)} of them by excuses")
    excused = said["excused"]
    if excused["runs_with_an_excuse"]:
        print(f"{excused['runs_with_an_excuse']} runs with an excuse; {excused['runs']} verdicts rest on one")
    for run in summary.unknown[:20]:
        print(f"unknown at seed {run.seed}: {run.text}")
    for found in summary.found[:20]:
        print(f"violation at seed {found.seed}: {found.rule}: {found.text}")
        if found.folder:
            print(f"  tidegauge replay {found.folder}/{SCHEDULE_FILE}")
    print(summary.plan.folder)


def schedule_file(path: Path) -> Path | None:
    """The schedule that a path means: a file, or the one in a failure's or a whole run's folder; None where there is none."""
    if path.is_file():
        return path
    for candidate in (path / SCHEDULE_FILE, path / "failure-1" / SCHEDULE_FILE):
        if candidate.is_file():
            return candidate
    return None


def replay_schedule(path: Path, with_script: type[Schedule], json: bool = False, open_page: bool = False) -> int:
    """Run a stored schedule again, explain the run, and write a new result folder; gives the exit code."""
    import json as json_module

    from linearizability.pipeline.verdict import EXIT_CODES
    from linearizability.results import new_run_folder
    from linearizability.simulation.fuzzing import keep_run
    from linearizability.simulation.schedule import BadSchedule, read_schedule

    try:
        schedule = read_schedule(schedule_file(path) or path, with_script)
    except BadSchedule as error:
        typer.echo(str(error), err=True)
        return ENGINE_ERROR
    folder = new_run_folder("replay", schedule.mutant or f"seed-{schedule.seed}")
    with Progress() as progress:
        progress.step(f"running {path} and drawing its picture and its page", 0)
        outcome = keep_run(schedule, folder)
    if json:
        print(json_module.dumps(outcome.to_json() | {"folder": str(folder)}))
    else:
        print((folder / EXPLANATION_FILE).read_text(), end="")
        print(folder / EXPLORER_FILE)
    if open_page:
        webbrowser.open((folder / EXPLORER_FILE).absolute().as_uri())
    return EXIT_CODES[outcome.verdict]
