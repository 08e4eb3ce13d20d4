"""`tidegauge spec list` and `tidegauge spec check`: the models and switches, and TLC's results."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linearizability.progress import Progress
from spec.options import Conf, EngineName, EngineOption, Json, Master, engine_of, one_line_where_spark_fails

if TYPE_CHECKING:
    from spec.models import Case
    from spec.results import Result

LIST_EXAMPLES = "Examples:  tidegauge spec list   ·   tidegauge spec list --json"
CHECK_EXAMPLES = (
    "Examples:  tidegauge spec check   ·   tidegauge spec check TruncateToHighWatermark   ·   "
    "tidegauge spec check MCIsr IgnoreMinIsr --record   ·   tidegauge spec check --all --resume --record --json   ·   "
    "tidegauge spec check --all --engine spark --master spark://HOST:7077"
)


def list_models(as_json: Json = False) -> None:
    """List the models, their switches (deliberate errors that must violate a property), and the last results."""
    from spec.catalogue import all_cases
    from spec.results import load

    stored = load()
    rows: list[dict[str, Any]] = []
    for name, case in all_cases().items():
        result = stored.get(name)
        current = bool(result and result.digest == case.digest())
        rows.append(
            {
                "name": name,
                "kind": "switch" if case.switch else "model",
                "model": case.model.name,
                "expected": str(case.expected),
                "property": case.expected_property,
                "about": case.switch.source if case.switch else case.model.purpose,
                "quick": case.quick,
                "last": result.actual if result and current else "",
            }
        )
    if as_json:
        for row in rows:
            print(json.dumps(row))
        switches = sum(row["kind"] == "switch" for row in rows)
        print(json.dumps({"models": len(rows) - switches, "switches": switches}))
        return
    for row in rows:
        indent = "  " if row["kind"] == "switch" else ""
        wanted = f"violates {row['property']}" if row["property"] else row["expected"]
        print(f"{indent + row['name']:<34} {wanted:<40} {row['last'] or '-':<10} {row['about']}")


def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Models or switches; default: the quick ones.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every model and every switch.")] = False,
    resume: Annotated[bool, typer.Option(help="Keep stored results of cases that have not changed since.")] = False,
    record: Annotated[bool, typer.Option(help="Store the results, and rewrite the tables of spec/MODELS.md.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="TLC's worker threads; default: the model's own, and one for a switch.")
    ] = None,
    memory_mb: Annotated[int, typer.Option(min=64, help="TLC's heap.")] = 3000,
    budget_s: Annotated[
        float | None, typer.Option(min=1, help="Time for each model or switch; default: its own.")
    ] = None,
    engine: EngineOption = EngineName.LOCAL,
    master: Master = "",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Check models with TLC: a model must hold, and a switch must violate the property that it names.

    With Spark each model or switch is a task. Results are printed, and stored, as they arrive.

    Exit codes: 0 all as expected, 1 one is not, 2 unknown or interrupted, 3 the checker failed.
    """
    from spec.engine import LOCAL
    from spec.results import exit_code, load
    from spec.running import Limits, run_cases

    chosen = _chosen(names, everything)
    if record and workers and workers > 1 and any(case.switch for case in chosen):
        raise typer.BadParameter(
            "a switch is recorded with one worker only: with several its trace need not be the shortest"
        )
    stored = load()
    costs = {case.name: stored[case.name].seconds if case.name in stored else 1.0 for case in chosen}
    results: list[Result] = []
    progress = Progress(sum(costs.values()))

    def said(text: str) -> None:
        progress.step(text, sum(costs[result.name] for result in results))

    def begins(case: Case) -> None:
        said(f"{case.name}, {len(results) + 1} of {len(chosen)}")

    with one_line_where_spark_fails(as_json):
        runs = engine_of(engine, master, conf)
        options: dict[str, Any] = {"resume": resume, "record": record, "begins": begins if runs is LOCAL else None}
        try:
            for result in run_cases(chosen, Limits(workers, memory_mb, budget_s), runs, **options):
                results.append(result)
                progress.clear()
                print(_row(result) if as_json else _line(result), flush=True)
                if runs is not LOCAL:
                    said(f"{len(results)} of {len(chosen)} are checked")
        except KeyboardInterrupt:
            progress.clear()
            print(f"interrupted: {len(results)} of {len(chosen)} are checked", file=sys.stderr)
    progress.clear()
    if record:
        from spec.tables import write_tables

        write_tables()
    places = {case.name: place for place, case in enumerate(chosen)}
    results.sort(key=lambda result: places[result.name])
    code = exit_code(results)
    if code == 0 and len(results) < len(chosen):
        code = 2  # all checked ones are as expected; the others are unknown
    if as_json:
        print(json.dumps(summary(results, code)))
    raise typer.Exit(code)


def _chosen(names: list[str] | None, everything: bool) -> list[Case]:
    from spec.catalogue import all_cases

    cases = all_cases()
    unknown = [name for name in names or () if name not in cases]
    if unknown:
        raise typer.BadParameter(f"no model or switch is called {', '.join(unknown)}; see `tidegauge spec list`")
    if names:
        return [cases[name] for name in names]
    return [case for case in cases.values() if everything or case.quick]


def _row(result: Result) -> str:
    return json.dumps(asdict(result) | {"as_expected": result.as_expected})


def _line(result: Result) -> str:
    mark = "as expected" if result.as_expected else "unknown" if result.unknown else "NOT AS EXPECTED"
    found = f"{result.actual} {result.violated}".strip()
    numbers = f"{result.distinct:,} states, depth {result.depth}, {result.seconds:.0f} s"
    reason = "" if result.as_expected else f"  {result.reason}"
    return f"{result.name:<34} {found:<40} {mark}{' (stored)' if result.stored else ''}: {numbers}{reason}"


def summary(results: list[Result], code: int) -> dict[str, object]:
    """The last line of `--json`: the verdict of exit code `code`, counts, and each case's result. Times are in seconds."""
    verdict = {0: "pass", 1: "fail", 2: "unknown", 3: "error"}[code]
    rows = [
        {
            "name": r.name,
            "expected": f"{r.expected} {r.expected_property}".strip(),
            "actual": f"{r.actual} {r.violated}".strip(),
            "distinct": r.distinct,
            "depth": r.depth,
            "seconds": r.seconds,
        }
        for r in results
    ]
    return {
        "verdict": verdict,
        "as_expected": sum(r.as_expected for r in results),
        "not_as_expected": sum(not r.as_expected and not r.unknown for r in results),
        "unknown": sum(r.unknown for r in results),
        "seconds": round(sum(r.seconds for r in results if not r.stored), 1),
        "models": rows,
    }
