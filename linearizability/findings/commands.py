"""`tidegauge findings list | show | reproduce`: what was found in releases of Apache Kafka."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

EXIT_CODES = {"shown": 0, "not shown": 1, "could not run": 3}

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="The finding, as `tidegauge findings list` names it.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.callback()
def root() -> None:
    """What was found in releases of Apache Kafka."""


@app.command(name="list", epilog="Examples:  tidegauge findings list   ·   tidegauge findings list --json")
def list_(as_json: Json = False) -> None:
    """List the findings: releases, what happens, how long the reproduction takes."""
    from linearizability.findings.finding import load, names

    findings = {name: load(name) for name in names()}
    if as_json:
        print(json.dumps({"findings": [{"name": name} | each.model_dump() for name, each in findings.items()]}))
        return
    for name, each in findings.items():
        print(f"{name}: {each.title} ({', '.join(each.releases)}; {each.status}; {each.minutes:g} min)")


@app.command(
    epilog="Examples:  tidegauge findings show fenced_producer   ·   tidegauge findings show fenced_producer | less"
)
def show(name: Name) -> None:
    """Print a finding's page."""
    from linearizability.findings.finding import page

    print(_known(page, name))


@app.command(
    epilog="Examples:  tidegauge findings reproduce fenced_producer   ·   "
    "tidegauge findings reproduce fenced_producer --target reference:1   ·   "
    "tidegauge findings reproduce unwritten_marker --target kafka:3.9.2 --json"
)
def reproduce(
    name: Name,
    target: Annotated[str, typer.Option(help="kafka:VERSION; default: the first release where it was shown.")] = "",
    as_json: Json = False,
) -> int:
    """Carry out what shows a finding: shown (exit 0), not shown (1), could not run (3)."""
    from linearizability.findings.reproducing import reproduce as carry_out

    outcome = _known(lambda known: carry_out(known, target), name)
    if as_json:
        print(outcome.model_dump_json())
    else:
        print(f"{outcome.verdict}: {name} on {outcome.target}, {outcome.seconds} s")
        for line in outcome.seen:
            print(f"  {line}")
    return EXIT_CODES[outcome.verdict]


def _known(function: Any, name: str) -> Any:
    from linearizability.findings.finding import UnknownFinding

    try:
        return function(name)
    except UnknownFinding as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from None
