"""`tidegauge releases show | measure | store`: the matrix of Apache Kafka's releases.

Exit codes: 0 where no must fails but by Kafka's own bugs, 1 where one does, 64 wrong usage.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from linearizability.progress import Progress

FAIL = 1

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Versions = Annotated[
    list[str] | None,
    typer.Argument(metavar="[VERSION]...", help="Releases, as 2.8.2, or 3.9.2-zk with a ZooKeeper; default: all."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a release on standard output.")]


@app.callback()
def root() -> None:
    """What the suite says of Apache Kafka's releases, stored and measured again."""


@app.command(epilog="Examples:  tidegauge releases show   ·   tidegauge releases show 1.1.0 2.4.1 --json")
def show(versions: Versions = None, as_json: Json = False) -> None:
    """Show the stored matrix: whether a release is measured as a whole, its verdicts, and each failure with its reason."""
    from conformance import releases
    from conformance.levels import MUST
    from conformance.releases import NOT_MEASURED, OWN_BUG, RELEASES, Matrix, counts, failures

    matrix, failed = Matrix.read(), False
    for version in versions or sorted({*RELEASES, *matrix.versions()}, key=releases.order):
        found, musts = counts(matrix, version), counts(matrix, version, MUST)
        bad: list[dict[str, Any]] = []
        for entry, cell in failures(matrix, version):
            record = entry.requirement
            failed |= cell.verdict == "fail" and record.level == MUST
            bad.append({"id": record.id, "level": record.level, "verdict": cell.verdict, "reason": cell.reason})
        if as_json:
            print(json.dumps({"version": version, "verdicts": found, "musts": musts, "failures": bad}))
            continue
        lacking = found.get(NOT_MEASURED, 0)
        print(
            f"{releases.spec_of(version)}: {f'{lacking} requirements are not measured' if lacking else 'measured as a whole'}"
        )
        print(f"    musts: {_in_words(musts)}; all: {_in_words(found)}")
        for one in bad:
            what = one["reason"] if one["verdict"] == OWN_BUG else f"{one['verdict']}: {one['reason']}"
            print(f"    {one['id']} ({one['level']}) {what}")
    raise typer.Exit(FAIL if failed else 0)


@app.command(
    epilog="Examples:  tidegauge releases measure   ·   tidegauge releases measure 2.4.1 --only GRP --only TOP-20   ·   "
    "tidegauge releases measure 4.3.1 --nodes 3   ·   stopped by Ctrl-C it goes on with what it lacks when it is called again"
)
def measure(
    versions: Versions = None,
    only: Annotated[list[str] | None, typer.Option(help="An id, area or range; may be repeated.")] = None,
    nodes: Annotated[
        int, typer.Option(min=1, max=9, help="Brokers; with several, only what needs more than one is judged.")
    ] = 1,
    again: Annotated[bool, typer.Option("--again", help="Also what is stored and has not changed.")] = False,
    results: Annotated[Path | None, typer.Option(help="Where the runs' logs go; default: results/.")] = None,
) -> None:
    """Run the suite on releases, and store the verdicts of requirements that are new or have changed.

    Several nodes have a network of their own, where this machine can make one.

    A release takes from five to ten minutes with one node. Each verdict is stored as soon as it is there.
    """
    from conformance import releases
    from conformance.opening import needs_network
    from conformance.options import Backend
    from conformance.requirement import select
    from linearizability.faults.networked import open_networked
    from linearizability.results import new_run_folder

    try:
        entries = select(only or [])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    chosen = versions or releases.RELEASES
    networked = nodes > 1 and any(
        needs_network(Backend.AUTO, releases.spec_of(each, nodes), entries) for each in chosen
    )
    for version in chosen:
        folder = new_run_folder("releases", releases.spec_of(version), results)
        count = releases.measure(
            releases.Keeper(version, reported=_reported),
            entries,
            folder,
            nodes=nodes,
            again=again,
            open_target=open_networked if networked else None,
        )
        _reported(f"{releases.spec_of(version)}: {count} requirements were measured")


@app.command(
    epilog="Examples:  tidegauge releases store results/latest   ·   tidegauge releases store results/*kafka-2.8.2"
)
def store(
    paths: Annotated[list[Path], typer.Argument(help="Result folders of `tidegauge run --target kafka:VERSION`.")],
) -> None:
    """Take stored runs of this very revision of the suite into the matrix."""
    from conformance import releases, report
    from conformance.requirement import catalogue

    matrix = releases.Matrix.read()
    for path in paths:
        run = report.read(path)
        kind, _, rest = run.target.spec.partition(":")
        version = f"{rest}{releases.BY_ZOOKEEPER}" if kind == "kafka-zk" else rest
        if kind not in ("kafka", "kafka-zk") or ":" in rest:
            raise typer.BadParameter(f"{path} is a run on {run.target.spec}, not on one node kafka:VERSION")
        kept = [one for one in run.judgements if one.requirement.id in catalogue() and not one.requirement.untestable]
        for judgement in kept:
            matrix.keep(version, catalogue()[judgement.requirement.id], judgement)
        _reported(f"{run.target.spec}: {len(kept)} verdicts of {path}")
    matrix.write()


def _in_words(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(found.items()))


def _reported(text: str) -> None:
    Progress().keep(text)
