"""`tidegauge strangers store | show | draw`: whole runs on other vendors' brokers, stored in `conformance/strangers`."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from conformance.results import Run

FOLDER = Path(__file__).parent / "strangers"
LONGEST_ROWS = 40
"""The most fields of a message that are shown, the first ones."""

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Folder = Annotated[Path, typer.Argument(help="Result folder of a whole run, as `results/latest`.")]


@app.callback()
def root() -> None:
    """What the suite says of brokers that others wrote."""


@app.command(epilog="Examples:  tidegauge run --target kfake:3  ·  tidegauge strangers store results/latest")
def store(paths: Annotated[list[Path], typer.Argument(help="Result folders of whole runs.")]) -> None:
    """Write the verdicts of whole runs into `conformance/strangers`, a file for each target."""
    from conformance import report
    from conformance.requirement import catalogue

    for path in paths:
        run = report.read(path)
        if len(run.judgements) < len(catalogue()):
            raise typer.BadParameter(f"{path} judges {len(run.judgements)} of {len(catalogue())} requirements")
        file = FOLDER / f"{run.target.spec.removesuffix(':1').replace(':', '-')}.json"
        file.write_text(json.dumps(summary(run), indent=1) + "\n")
        print(f"{file}: {len(run.judgements)} verdicts of {path}", file=sys.stderr)


def summary(run: Run) -> dict[str, Any]:
    """The stored summary of a run: counts, shares, why the rest was not judged, and the ids of each verdict."""
    from conformance.results import coverage

    ids: dict[str, list[str]] = {}
    for one in run.judgements:
        ids.setdefault(str(one.verdict), []).append(one.requirement.id)
    found = coverage(run.judgements)
    return {
        "target": run.target.spec,
        "name": run.target.name,
        "date": run.started_at,
        "judged as": run.target.kafka_version,
        "seconds": run.seconds,
        "verdict": str(run.verdict),
        "coverage": found.model_dump(mode="json"),
        "share equipped": round(found.share, 3),
        "share by APIs": round(found.share_by_apis, 3),
        "not judged": dict(Counter(str(one.lacks) for one in run.judgements if one.lacks).most_common()),
        "not judged although equipped": {
            one.requirement.id: one.reason for one in run.judgements if one.lacks == "other"
        },
        "counts": {verdict: len(found) for verdict, found in sorted(ids.items())},
        "verdicts": {verdict: " ".join(sorted(found)) for verdict, found in sorted(ids.items())},
    }


@app.command(epilog="Examples:  tidegauge strangers show  ·  tidegauge strangers show tansu --json")
def show(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="As kfake-3; default: all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a stranger.")] = False,
) -> None:
    """Show the stored runs: verdicts, how much was judged, and what the rest lacks."""
    from conformance.results import Coverage

    for name in names or sorted(path.stem for path in FOLDER.glob("*.json")):
        file = FOLDER / f"{name}.json"
        if not file.exists():
            raise typer.BadParameter(f"{name} is not stored")
        kept = json.loads(file.read_text())
        if as_json:
            print(json.dumps(kept))
            continue
        print(f"{name}, {kept['date']}: {', '.join(f'{count} {verdict}' for verdict, count in kept['counts'].items())}")
        found = Coverage(**kept["coverage"])
        print(f"    {found.line}")
        print(
            f"    the rest lacks {', '.join(f'{lack} ({count})' for lack, count in kept.get('not judged', {}).items())}"
        )


@app.command(
    epilog="Examples:  tidegauge strangers draw results/latest  ·  tidegauge strangers draw results/A --count 5 --seed 7"
)
def draw(
    path: Folder,
    count: Annotated[int, typer.Option(min=1, help="So many failures.")] = 40,
    seed: Annotated[int, typer.Option(help="The same seed draws the same of the same failures.")] = 22,
    exchanges: Annotated[int, typer.Option(min=0, help="So many of the last exchanges of each, taken apart.")] = 3,
) -> None:
    """Draw failures of a run at random, with what was sent and returned: to be confirmed by hand."""
    from conformance import report
    from conformance.results import Verdict

    failed = {one.requirement.id: one for one in report.read(path).judgements if one.verdict is Verdict.FAIL}
    drawn = random.Random(seed).sample(sorted(failed), min(count, len(failed)))
    for id in sorted(drawn):
        one = failed[id]
        print(f"{id} ({one.requirement.level}): {one.requirement.sentence}\n    accepted: {one.requirement.accepted}")
        print(f"    seen: {one.reason}")
        for exchange in one.exchanges[-exchanges:] if exchanges else ():
            print(
                f"    {exchange.case} {exchange.api} v{exchange.version}: {exchange.outcome}, {exchange.elapsed_ms:.0f} ms"
            )
            for arrow, rows in _messages(exchange):
                print(f"      {arrow} {rows}")


def _messages(exchange: Any) -> list[tuple[str, str]]:
    """The request and the response of an exchange, each in one line."""
    from conformance.report.anatomy import of_request, of_response

    sides = (("->", of_request(exchange)), ("<-", of_response(exchange) if exchange.response_hex else []))
    return [(arrow, ", ".join(f"{row.name} {row.value}" for row in rows[:LONGEST_ROWS])) for arrow, rows in sides]
