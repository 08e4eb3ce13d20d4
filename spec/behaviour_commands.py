"""`tidegauge spec behaviours`: behaviours from TLC, as schedules, as fault schedules, and as runs of simulated clusters."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from spec.options import Json, case_named

if TYPE_CHECKING:
    from spec.checker import TraceStep
    from spec.covering import Graph
    from spec.models import Case

EXAMPLES = (
    "Examples:  tidegauge spec behaviours MCRecovery --count 200 --out schedules.jsonl   ·   "
    "tidegauge spec behaviours MCFailover --cover --walk 100   ·   "
    "tidegauge spec behaviours MCTransactions --walk 20   ·   tidegauge spec behaviours IgnoreMinIsr"
)


def behaviours(
    name: Annotated[str, typer.Argument(help="A model, or a switch for its counterexample.")],
    count: Annotated[int, typer.Option(min=1, help="Random behaviours of a model.")] = 20,
    length: Annotated[int, typer.Option(min=2, help="States in a random behaviour.")] = 60,
    seed: Annotated[int, typer.Option(help="Random seed of the behaviours.")] = 1,
    cover: Annotated[
        bool,
        typer.Option("--cover", help="Cover all edges of a small model's state graph, instead of random behaviours."),
    ] = False,
    walk: Annotated[
        int,
        typer.Option(
            min=0, help="Drive a simulated cluster through so many of them, and count its steps (--cover: edges)."
        ),
    ] = 0,
    out: Annotated[str, typer.Option(help="Write the schedules to this file; default: standard output.")] = "",
    faults: Annotated[
        str, typer.Option(help="Also write fault schedules to this folder: `tidegauge replay FILE` runs one.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Write behaviours of a model as schedules, one JSON line of steps each; with --faults also as fault schedules.

    Exit codes: 0 written, 1 a switch has no counterexample or a cluster broke a promise, 3 TLC produced none, 64 a model without
    schedules.
    """
    from spec.behaviours import DRIVEN, NOT_DRIVEN, NoBehaviours

    case = case_named(name)
    if case.model.module not in DRIVEN:
        raise typer.BadParameter(f"{name} {NOT_DRIVEN}")
    summary: dict[str, object] = {"model": case.model.name, "switch": case.switch.name if case.switch else ""}
    try:
        kind, drawn, more = _drawn(case, count, length, seed, cover, walk)
    except NoBehaviours as error:
        print(str(error), file=sys.stderr)
        raise typer.Exit(3) from error
    made, steps = _write_behaviours(case, kind, drawn, out, faults, seed)
    summary |= more | {"behaviours": made, "steps": steps}
    if as_json or not out:
        print(json.dumps(summary), file=sys.stdout if as_json else sys.stderr)
    else:
        print(", ".join(f"{key} {value}" for key, value in summary.items() if value != ""))
    raise typer.Exit(1 if summary.get("broken") else 0)


def _drawn(
    case: Case, count: int, length: int, seed: int, cover: bool, walk: int
) -> tuple[str, Iterable[Sequence[TraceStep]], dict[str, object]]:
    """The kind of behaviours, the behaviours, and further fields of the summary. Errors: NoBehaviours; Exit."""
    from spec.behaviours import simulate
    from spec.covering import behaviour_of, covering_paths, edges_covered, graph_of

    if case.switch or not cover:
        kind = "counterexample" if case.switch else "random"
        drawn = [_counterexample_of(case)] if case.switch else simulate(case, count, length, seed)
        return kind, drawn, _walked_steps(case, kind, drawn[:walk], seed) if walk else {}
    graph = graph_of(case)
    paths = covering_paths(graph)
    about: dict[str, object] = {"states": len(graph.states), "edges": graph.size, "edges covered": edges_covered(paths)}
    if walk:
        about |= _walked(case, graph, paths, walk)
    return "covering", (behaviour_of(path, graph) for path in paths), about  # one at a time: a state is large


def _walked_steps(case: Case, kind: str, behaviours: Sequence[Sequence[TraceStep]], seed: int) -> dict[str, object]:
    """Drive a simulated cluster through behaviours; fields of the summary: how many steps it took."""
    from spec.walking import walk_behaviours

    done = walk_behaviours(case, kind, behaviours, seed)
    found: dict[str, object] = {"behaviours driven": done.behaviours, "behaviours walked whole": done.whole}
    return found | {"steps driven": done.steps, "steps walked": done.walked, "broken": list(done.broken)}


def _walked(case: Case, graph: Graph, paths: list[list[str]], count: int) -> dict[str, object]:
    """Drive a simulated cluster along the `count` longest paths; fields of the summary: how many edges it took."""
    from spec.walking import longest_first, walk

    done = walk(case, graph, longest_first(paths, count))
    found: dict[str, object] = {"paths driven": done.paths, "paths walked whole": done.whole}
    return found | {"edges walked": done.edges, "broken": list(done.broken)}


def _counterexample_of(case: Case) -> Sequence[TraceStep]:
    """The counterexample of a switch. Errors: Exit 1 where TLC finds none, 3 where TLC does not finish."""
    from spec.checker import Verdict
    from spec.checker import check as run_checker

    outcome = run_checker(case.job())
    if outcome.verdict != Verdict.VIOLATED:
        print(f"{case.name}: {outcome.verdict} {outcome.reason}", file=sys.stderr)
        raise typer.Exit(1 if outcome.verdict == Verdict.HOLDS else 3)
    return outcome.trace


def _write_behaviours(
    case: Case, kind: str, drawn: Iterable[Sequence[TraceStep]], out: str, faults: str, seed: int
) -> tuple[int, int]:
    """Write a schedule for each behaviour and, with a folder `faults`, a fault schedule. Returns the numbers of both behaviours
    and steps."""
    from contextlib import nullcontext
    from pathlib import Path

    from spec.behaviours import schedule
    from spec.fault_schedules import fault_schedule

    made = steps = 0
    with Path(out).open("w") if out else nullcontext(sys.stdout) as file:
        for number, behaviour in enumerate(drawn):
            made, steps = made + 1, steps + len(behaviour) - 1
            row = schedule(case, kind, behaviour)
            print(json.dumps(row), file=file)
            if faults:
                target = Path(faults) / f"{case.name}-{kind}-{number}.json"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(json.dumps(fault_schedule(row, seed + number), indent=1))
    return made, steps
