"""Change the reference's code in one place at a time, and see whether unit tests and simulation detect it."""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from typing import Annotated

import typer

from linearizability.mutants.code.changes import PACKAGES, Change, all_changes
from linearizability.mutants.code.planting import UnknownChange, plant, plant_marks
from linearizability.mutants.code.reaching import Recorder

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Packages, modules or changes; default: all.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


def _chosen(names: list[str] | None) -> list[Change]:
    chosen = [
        change for name, change in all_changes().items() if not names or any(_is_within(name, each) for each in names)
    ]
    if not chosen:
        raise typer.BadParameter(
            f"no change of the code is in {', '.join(names or ())}; the packages are {', '.join(PACKAGES)}"
        )
    return chosen


def _is_within(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith((f"{wanted}.", f"{wanted}:"))


@app.command("list")
def list_changes(names: Names = None, as_json: Json = False) -> None:
    """List all changes, in the order in which they are drawn."""
    for change in _chosen(names):
        fields = {"change": change.name, "line": change.line, "was": change.was, "becomes": change.becomes}
        print(json.dumps(fields) if as_json else f"{change.name:<60} {change.was[:60]!r} -> {change.becomes[:60]!r}")


@app.command(
    epilog="Examples:  … run --sample 50 --for-s 3600   ·   … run replication.leader   ·   "
    "… run storage.log:Log.append_as_leader:bound1 --again   ·   ended by Ctrl-C, it goes on with what it lacks"
)
def run(
    names: Names = None,
    sample: Annotated[int, typer.Option(min=1, help="Of each package the first so many in the order drawn.")] = 10_000,
    for_s: Annotated[float | None, typer.Option(min=1, help="Begin no other change after so many seconds.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also what has a stored row.")] = False,
    further: Annotated[
        bool,
        typer.Option("--further", help="Also the simulation's missing runs of what it does not detect."),
    ] = False,
    renew: Annotated[
        bool,
        typer.Option("--renew", help="Also all runs of what a simulation with other checks did not detect."),
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs of the simulation for one change.")] = 500,
    simulation_s: Annotated[float, typer.Option(min=1, help="CPU time for these runs.")] = 240,
    unit_s: Annotated[float, typer.Option(min=1, help="Unit tests hang after twice their time and so much more.")] = 60,
    as_json: Json = False,
) -> None:
    """Run the unit tests and the simulation on changes; each row is stored in results.json as soon as it is found."""
    from linearizability.mutants.code.judging import Limits, checks_of_today, is_current, judge, load, store

    stored, begin, checks = load(), time.monotonic(), checks_of_today()
    for change in _in_turn(_chosen(names), sample):
        before = stored.get(change.name)
        before = before if is_current(change, before) and not again else None
        if before and renew and not before.simulation and before.checks != checks:
            before = replace(before, runs=0, simulation_s=0)
        elif before and (not further or before.simulation or before.runs >= runs):
            continue
        if for_s and time.monotonic() - begin > for_s:
            break
        row = judge(change, Limits(runs, simulation_s, unit_s), before)
        store([row])
        print(json.dumps(asdict(row)) if as_json else _line(row), flush=True)
    show()


def _in_turn(changes: list[Change], sample: int) -> list[Change]:
    """The first change of each package, then the second of each, and so on, so that an interrupted run is a fair sample."""
    counts = Counter[str]()
    ranks: dict[str, int] = {}
    for change in changes:
        ranks[change.name] = counts[change.package]
        counts[change.package] += 1
    return sorted(
        (each for each in changes if ranks[each.name] < sample),
        key=lambda each: (ranks[each.name], PACKAGES.index(each.package)),
    )


def _line(row) -> str:
    unit = row.unit.rpartition("/")[2][:60] or "not detected"
    simulation = f"{row.simulation or 'not detected'} in {row.runs} runs ({row.simulation_s:.0f} s)"
    return f"{row.change:<60} unit tests: {unit} ({row.unit_s:.0f} s); simulation: {simulation}"


@app.command()
def show(as_json: Json = False) -> None:
    """Print a table of the stored rows: how many changes each judge detects, and the share of the unit tests' that both do."""
    from linearizability.mutants.code.judging import load

    rows = list(load().values())
    table = {package: [row for row in rows if row.change.startswith(f"{package}.")] for package in PACKAGES}
    if as_json:
        print(json.dumps({package: _counts(rows) for package, rows in {**table, "all": rows}.items()}))
        return
    columns = ("changes", "unit", "simulation", "both", "both of unit", "95 %", "neither")
    print(f"{'package':<14}" + "".join(f"{name:>14}" for name in columns))
    for package, some in {**table, "all": rows}.items():
        print(f"{package:<14}" + "".join(f"{value:>14}" for value in _counts(some).values()))


def _counts(rows: list) -> dict[str, int | str]:
    rows = [row for row in rows if not row.simulation.startswith("cannot run")]  # not importable: not a realistic bug
    unit = sum(bool(row.unit) for row in rows)
    both = sum(bool(row.unit and row.simulation) for row in rows)
    low, high = wilson(both, unit) if unit else (0, 1)
    return {
        "changes": len(rows), "unit": unit, "simulation": sum(bool(row.simulation) for row in rows), "both": both,
        "share": f"{100 * both / unit:.0f} %" if unit else "-", "interval": f"{100 * low:.0f} to {100 * high:.0f} %",
        "neither": sum(not row.unit and not row.simulation for row in rows),
    }  # fmt: skip


def wilson(found: int, of: int) -> tuple[float, float]:
    """The limits of Wilson's 95 % interval for the share `found` / `of`."""
    z2 = 1.96**2
    middle, half = found + z2 / 2, (z2 * (found * (of - found) / of + z2 / 4)) ** 0.5
    return (middle - half) / (of + z2), (middle + half) / (of + z2)


@app.command()
def read(change: str, text: str) -> None:
    """Store a reader's explanation of a change that no judge detected."""
    from linearizability.mutants.code.judging import load, store

    row = load().get(change)
    if row is None:
        raise typer.BadParameter(f"{change} has no stored row")
    store([replace(row, read=text)])


@app.command("with", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def with_change(context: typer.Context, change: str, module: str) -> None:
    """Run a Python module with the change planted: `with storage.log:Log.append_as_leader:bound1 pytest tests/storage`."""
    _plant(change)
    sys.argv = [module, *context.args]
    runpy.run_module(module, run_name="__main__")


@app.command(hidden=True)
def simulate(change: str, seeds: list[int]) -> None:
    """Print the broken promise of each run of the simulation with the change, or `-`."""
    _plant(change)
    from linearizability.mutants.code.judging import simulate as runs_of

    for rule in runs_of(seeds):
        print(rule, f"{time.process_time():.2f}", flush=True)


@app.command(hidden=True)
def reach_runs(first: int, end: int, digest: str) -> None:
    """Record the blocks of code that each run of the simulation reaches."""
    recorder = Recorder()
    modules = plant_marks(recorder.now)
    from linearizability.mutants.code.judging import simulate

    outcomes = simulate(range(first, end))
    for seed in range(first, end):
        if seed == first:
            import linearizability.simulation.judging  # noqa: F401

            recorder.before()
        recorder.begin()
        if (rule := next(outcomes)) != "-":
            raise SystemExit(f"the unchanged code breaks {rule} in run {seed}")
        recorder.end(str(seed))
    recorder.store(f"simulation-{first}", digest, modules)


@app.command(hidden=True)
def reach_tests(package: str, digest: str) -> None:
    """Record the blocks of code that each unit test of a package reaches."""
    recorder = Recorder()
    modules = plant_marks(recorder.now)
    import pytest

    from linearizability.mutants.code.judging import PYTEST, UNIT_TESTS

    arguments = [each for each in PYTEST if each != "-x"]
    if pytest.main([*arguments, UNIT_TESTS[package]], plugins=[recorder]) != 0:
        raise SystemExit(f"tests of {package} fail on the unchanged code")
    recorder.store(package, digest, modules)


def _plant(change: str) -> None:
    try:
        plant(change)
    except UnknownChange as error:
        raise typer.BadParameter(str(error)) from None


if __name__ == "__main__":
    app()
