"""`tidegauge fuzz campaign PLAN`. Exit codes: 0 valid, 1 invalid, 2 unknown, 3 engine error, 64 wrong usage."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linearizability.progress import Progress
from linearizability.simulation.commands import ENGINE_ERROR, app, fuzzing

if TYPE_CHECKING:
    from linearizability.campaign.night import Night
    from linearizability.campaign.plan import NightPlan, Series
    from linearizability.simulation.fuzzing_summary import Summary

__all__ = ["app"]

NIGHT = re.compile(r"[\w.-]+")


@fuzzing.command(
    epilog="Examples:  tidegauge fuzz campaign night.toml   ·   tidegauge fuzz campaign night.toml --night 2026-12-01 --json"
)
def campaign(
    plan: Annotated[
        Path, typer.Argument(help="A TOML file of [[series]]: nodes, workload, coordination, mutant, minutes.")
    ],
    night: Annotated[
        str, typer.Option(help="The night's name; default: today's date. One that was interrupted goes on by its name.")
    ] = "",
    store: Annotated[
        Path | None, typer.Option(help="The folder of table, report and finds; default: results/campaign-PLAN.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object that sums up, as the last line.")] = False,
) -> int:
    """Fuzz by a plan: each series for its time, at seeds that no night before had.

    Results are rows of a table (nights.jsonl) that the next night continues; report.html shows all nights: runs, violations, the
    share of verdicts that rest on excuses, pairs of steps seen, and how many runs it takes to find planted bugs.
    """
    from linearizability.campaign.nights import BadTable, read_rows
    from linearizability.campaign.plan import BadPlan, read_plan
    from linearizability.campaign.report import PAGE, write
    from linearizability.pipeline.spark_session import SparkFailure
    from linearizability.pipeline.verdict import EXIT_CODES
    from linearizability.results import RESULTS

    night = night or datetime.now(UTC).date().isoformat()
    if not NIGHT.fullmatch(night):
        raise typer.BadParameter(
            f"{night!r} has other characters than letters, digits, '.', '_' and '-'", param_hint="--night"
        )
    folder = store or RESULTS / f"campaign-{plan.stem}"
    try:
        given = read_plan(plan)
    except BadPlan as error:
        raise typer.BadParameter(str(error), param_hint="PLAN") from None
    try:
        done = _run(given, night, folder)
        write(read_rows(folder), folder)
    except (BadTable, SparkFailure, OSError) as error:
        print(json.dumps({"verdict": "error", "error": str(error)}) if as_json else f"error: {error}")
        print(error, file=sys.stderr)
        return ENGINE_ERROR
    print(json.dumps(_summed(done, folder)) if as_json else _said(done, folder / PAGE))
    if done.not_kept:
        print(f"{folder} is not whole: {done.not_kept}", file=sys.stderr)
        return ENGINE_ERROR
    return EXIT_CODES[done.verdict]


def _run(plan: NightPlan, night: str, folder: Path) -> Night:
    from linearizability.campaign.night import carry_out

    minutes, before = sum(series.minutes for series in plan.series), dict[tuple[object, ...], float]()
    with Progress(1.0) as progress:

        def said(series: Series, summary: Summary) -> None:
            before[series.kind] = summary.seconds / 60
            text = " ".join(str(part) for part in series.kind if part)
            progress.often(
                f"{text}: {len(summary.runs)} schedules, {len(summary.found)} violations",
                min(1.0, sum(before.values()) / minutes),
            )

        return carry_out(plan, night, folder, said)


def _summed(night: Night, folder: Path) -> dict[str, object]:
    from linearizability.campaign.report import PAGE, name_of, sums

    return {
        "verdict": night.verdict,
        "night": night.name,
        "interrupted": night.interrupted,
        "series": [
            {
                "series": name_of(each.kind),
                "schedules": each.schedules,
                "invalid": each.invalid,
                "unknown": each.unknown,
                "excused": each.excused,
                "found_after": each.found_after,
            }
            for each in sums(night.rows)
        ],
        "report": str(folder / PAGE),
    }


def _said(night: Night, page: Path) -> str:
    from linearizability.campaign.report import name_of, sums

    undecided = [f"{name_of(row.kind)}: seed {seed}" for row in night.rows if not row.mutant for seed in row.undecided]
    if night.interrupted:
        why = "interrupted; the same command goes on"
    elif undecided:
        why = f"{len(undecided)} runs are undecided, as {undecided[0]}"
    else:
        why = "a series of the current code showed nothing, or none is planned"
    lines = [f"verdict: {night.verdict}" + (f": {why}" if night.verdict == "unknown" else "")]
    for each in sums(night.rows):
        text = f"{name_of(each.kind)}: {each.schedules:,} schedules, "
        if each.kind[3]:
            found = ", ".join(map(str, each.found_after))
            lines.append(text + (f"found after {found} runs" if found else "not found"))
        else:
            lines.append(
                text + f"{each.invalid} invalid, {each.unknown} unknown, {each.excused_share:.1%} rest on an excuse"
            )
    return "\n".join([*lines, str(page)])
