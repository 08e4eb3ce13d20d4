"""The commands of the conformance suite: run, list, explain, report, compare, releases, doctor, adapter.

Exit codes: 0 pass, 1 fail, 2 unknown or nothing but skips, 3 engine or target error, 64 wrong usage.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

from conformance.adapter_commands import app as adapter
from conformance.opening import await_target, needs_network, opening_of
from conformance.options import (
    Backend,
    BackendOption,
    Baseline,
    Confirm,
    ExpectedFailures,
    Ids,
    Jobs,
    Json,
    KafkaVersion,
    LevelOption,
    ProfileOption,
    Repeat,
    RestartCommand,
    Results,
    Starts,
    Summary,
    Target,
    Topics,
    Verbose,
    Wait,
    WithDemonstrations,
)
from conformance.output import (
    BROKEN,
    FAIL,
    PASS,
    SEVERITY,
    console,
    exit_code,
    flakes_of,
    print_line,
    summary_of,
    verdicts_of,
)
from conformance.releases_commands import app as releases
from conformance.strangers_commands import app as strangers
from linearizability.options import ClientConfig, Mapped, SecuredBy, SecurityProtocol
from linearizability.progress import Progress, is_quiet, is_verbose

if TYPE_CHECKING:
    from conformance.expectations import Expectation
    from conformance.requirement import Entry
    from conformance.results import Judgement, Run
    from conformance.runner import Plan


Kinds = TypeVar("Kinds", bound=StrEnum)

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)
app.add_typer(adapter, name="adapter")
app.add_typer(releases, name="releases")
app.add_typer(strangers, name="strangers")


@app.command(
    epilog="Examples:  tidegauge run --target kafka:4.3.1   ·   tidegauge run FRM API --target reference:1 --json   ·   "
    "tidegauge run PRD-05 --target addr:127.0.0.1:9092 --repeat 10"
)
def run(
    ids: Ids = None,
    target: Target = "reference:1",
    level: LevelOption = None,
    profile: ProfileOption = None,
    version: KafkaVersion = "",
    mapped: Mapped = None,
    restart_command: RestartCommand = "",
    client_config: ClientConfig = None,
    security: SecuredBy = SecurityProtocol.PLAINTEXT,
    wait: Wait = 0.0,
    expected_failures: ExpectedFailures = None,
    baseline: Baseline = None,
    summary: Summary = None,
    backend: BackendOption = Backend.AUTO,
    jobs: Jobs = 6,
    starts: Starts = 3,
    topics: Topics = "",
    repeat: Repeat = 1,
    confirm: Confirm = False,
    with_demonstrations: WithDemonstrations = False,
    results: Results = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Judge a broker by the requirements.

    First the target is probed: what it can do is its profile, and what it cannot do leaves requirements not judged. Then each
    requirement is judged; with --json each is one line as soon as its verdict stands. A folder under results/ keeps
    report.json, report.html, junit.xml, a badge (SVG) for each profile and the stream of verdicts. Failed must-requirements
    make the verdict fail, and so does what is worse than the baseline.

    Exit codes: 0 pass, 1 fail, 2 unknown or interrupted without a failure, 3 the suite or the target broke, 64 wrong usage.
    """
    from conformance.runner import Plan
    from linearizability.faults.networked import open_networked
    from linearizability.results import new_run_folder

    entries = _select(ids, level, profile)
    expected = _expected(expected_failures)
    if confirm and not target.startswith("kafka:"):
        _wrong("--confirm needs a target kafka:VERSION: only a real Apache Kafka confirms a requirement")
    before = _read(baseline) if baseline else None
    opening = opening_of(target, mapped, restart_command, client_config, security)
    if wait:
        await_target(target, wait)
    networked = needs_network(backend, target, entries)
    runs: list[Run] = []
    for turn in range(repeat):
        plan = Plan(
            spec=target,
            entries=entries,
            folder=new_run_folder("run", target, results),
            selection=" ".join(ids or []),
            kafka_version=version,
            expected_failures=expected,
            baseline=before,
            open_target=partial(open_networked, protocol=security) if networked else opening,
            jobs=jobs,
            starts=starts,
            topics=[name for name in topics.split(",") if name],
        )
        runs.append(_carry_out(plan, with_demonstrations and turn == 0, as_json))
        if not as_json:
            _show(runs[-1], plan.folder, verbose or is_verbose())
        _summarize(runs[-1], summary)
        if runs[-1].verdict == "unknown" and runs[-1].reason != "nothing was judged":
            break
    if confirm:
        _confirm(runs)
    _conclude(runs, repeat, as_json)


def _conclude(runs: list[Run], repeat: int, as_json: bool) -> NoReturn:
    """Sum up the runs of one command, and exit by the worst."""
    flakes = flakes_of(runs)
    if as_json:
        print_line(summary_of(runs, flakes))
    elif repeat > 1:
        console().print(f"{len(runs)} runs, flakes: {', '.join(flakes) or 'none'}")
    worst = max((exit_code(one) for one in runs), key=SEVERITY.index)
    if not all(one.folder for one in runs):
        raise typer.Exit(BROKEN)  # whatever the verdict: what is not stored is not proven
    raise typer.Exit(FAIL if flakes and worst == PASS else worst)


def _carry_out(plan: Plan, with_demonstrations: bool, as_json: bool) -> Run:
    """Judge the target once, and leave the reports in the plan's folder."""
    from rich.console import Console

    from conformance import report
    from conformance.demonstrations import demonstrate
    from conformance.report import terminal
    from conformance.runner import run as run_suite

    plan.listener = progress = terminal.Progress(
        Console(stderr=True, quiet=is_quiet()), len(plan.entries), _report if as_json else None
    )
    try:
        found = run_suite(plan)
    finally:
        progress.finish()
    found.folder = str(plan.folder)
    if with_demonstrations:
        broke = found.reason if found.broken else ""
        found.demonstrations = list(demonstrate(Progress().keep))
        found.sum_up(target_broke=broke)
    try:
        report.write(found, plan.folder)
    except OSError as error:  # a full disk: what was found is shown, and not stored
        print(f"the report could not be written: {error.strerror}", file=sys.stderr)
        found.folder = ""
    return found


def _summarize(found: Run, path: Path | None) -> None:
    """Write the run's Markdown summary to `path`, and append it to the file that GitHub shows with the job."""
    from conformance.report.markdown import summary

    try:
        if path:
            path.write_text(summary(found))
        if job := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(job).open("a") as file:
                file.write(summary(found))
    except OSError as error:
        print(f"the summary could not be written: {error.strerror}", file=sys.stderr)
        found.folder = ""


def _report(judgement: Judgement) -> None:
    """Print one JSON line for a requirement. Where an id comes twice, because the requirement ended the target, the last
    counts."""
    record = judgement.requirement
    print_line(
        {
            "id": record.id,
            "level": record.level,
            "profile": record.profile,
            "verdict": judgement.verdict,
            "reason": judgement.reason,
            "blocked_by": judgement.blocked_by,
            "died": judgement.died,
            "seconds": judgement.seconds,
        }
    )


def _show(found: Run, folder: Path, verbose: bool) -> None:
    """Print the run in the terminal, and the path of its HTML page."""
    from conformance import report
    from conformance.report.terminal import show, show_verdict

    if is_quiet():
        show_verdict(found, console())
        return
    show(found, console(), verbose=verbose)
    if found.folder:
        console().print(f"{folder / report.HTML_NAME}", soft_wrap=True, highlight=False)


def _confirm(runs: list[Run]) -> None:
    """Write into the catalogue which requirements passed in all runs."""
    from conformance.requirement import confirm

    judged = {j.requirement.id for one in runs for j in one.judgements if j.verdict in ("pass", "fail", "tolerated")}
    passed = {id for id in judged if all(verdicts_of(one).get(id) == "pass" for one in runs)}
    confirm(runs[-1].target.kafka_version, passed, judged)


@app.command(
    name="list",
    epilog="Examples:  tidegauge list   ·   tidegauge list PRD --level must   ·   tidegauge list --version 3.9 --json",
)
def list_(
    ids: Ids = None,
    level: LevelOption = None,
    profile: ProfileOption = None,
    version: KafkaVersion = "",
    as_json: Json = False,
) -> None:
    """List the requirements."""
    from rich.table import Table

    from conformance.requirement import record_as_json

    entries = _select(ids, level, profile, version)
    if as_json:
        for entry in entries:
            print_line(record_as_json(entry.requirement))
        records = [entry.requirement for entry in entries]
        print_line(
            {
                "requirements": len(entries),
                "untestable": sum(entry.test is None for entry in entries),
                "levels": Counter(str(record.level) for record in records),
                "profiles": Counter(str(record.profile) for record in records),
                "areas": Counter(record.area for record in records),
            }
        )
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("id", "level", "confirmed", "sentence"):
        table.add_column(title, overflow="fold")
    for entry in entries:
        record = entry.requirement
        mark = "untestable" if record.untestable else ", ".join(record.confirmed) or "-"
        table.add_row(record.id, str(record.level), mark, record.sentence)
    console().print(table)
    console().print(f"{len(entries)} requirements")


@app.command(epilog="Examples:  tidegauge explain FRM-04   ·   tidegauge explain PRD --json")
def explain(
    ids: Annotated[list[str], typer.Argument(metavar="ID|AREA...", help="What to explain.")], as_json: Json = False
) -> None:
    """Show all that is known of requirements: sentence, source, what is accepted, where it was confirmed."""
    import inspect

    from conformance.report.terminal import show_requirement
    from conformance.requirement import record_as_json

    for entry in _select(ids, None):
        if as_json:
            print_line(record_as_json(entry.requirement))
            continue
        show_requirement(entry.requirement, console())
        if entry.test:
            source = inspect.getsourcefile(entry.test) or ""
            place = f"{Path(source).name}:{inspect.getsourcelines(entry.test)[1]}"
            console().print(f"  test        conformance/requirements/{place}\n", style="dim", highlight=False)


@app.command(epilog="Examples:  tidegauge report   ·   tidegauge report results/latest --verbose")
def report(
    path: Annotated[
        Path | None, typer.Argument(help="A result folder or its report.json; default: the newest in results/.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every requirement, also those that pass.")] = False,
    as_json: Json = False,
) -> None:
    """Show a stored run again, and write its HTML and JUnit files again."""
    from conformance import report as writer
    from linearizability.results import latest_with

    path = path or latest_with(writer.JSON_NAME)
    if path is None:
        raise typer.BadParameter("no folder of results/ holds a report: `tidegauge run` leaves one")
    found = _read(path)
    folder = path if path.is_dir() else path.parent
    writer.write(found, folder)
    if as_json:
        print_line(summary_of([found], []))
    else:
        _show(found, folder, verbose or is_verbose())
    raise typer.Exit(exit_code(found))


@app.command(
    epilog="Examples:  tidegauge compare results/A results/B   ·   tidegauge compare results/*-run-* --html matrix.html"
)
def compare(
    paths: Annotated[list[Path], typer.Argument(help="Result folders, or report.json files.")],
    html: Annotated[Path | None, typer.Option(help="Write the matrix as one HTML file.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show all requirements, not only those that differ.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Set several stored runs side by side in one matrix."""
    from conformance.report.html import matrix_page
    from conformance.report.matrix import matrix, show

    found = matrix([_read(path) for path in paths])
    if html:
        html.write_text(matrix_page(found))
    if as_json:
        for row in found.rows:
            cells = {label: cell.verdict if cell else None for label, cell in zip(found.labels, row.cells, strict=True)}
            print_line({"id": row.requirement.id, "differs": row.differs, "verdicts": cells})
        verdicts = {label: run.verdict for label, run in zip(found.labels, found.runs, strict=True)}
        print_line(
            {"verdicts": verdicts, "requirements": len(found.rows), "differ": sum(row.differs for row in found.rows)}
        )
    else:
        show(found, console(), everything=everything)
        if html:
            console().print(str(html), soft_wrap=True, highlight=False)


@app.command(epilog="Examples:  tidegauge doctor   ·   tidegauge doctor --target kafka:4.3.1 --json")
def doctor(
    target: Annotated[
        str,
        typer.Option(
            help="Also open this target and say what it can do; an adapter (exec:) is tested by itself before."
        ),
    ] = "",
    mapped: Mapped = None,
    restart_command: RestartCommand = "",
    client_config: ClientConfig = None,
    as_json: Json = False,
) -> None:
    """Say what this machine has, and what it can be used for."""
    from rich.text import Text

    from conformance.doctor import USES, examine, uses

    reported = {name for needed in USES.values() for name in needed}
    checks, profile = examine(target, opening_of(target, mapped, restart_command, client_config))
    for check in checks:
        if as_json:
            print_line(check.model_dump(mode="json"))
        else:
            colour = {"ok": "green", "missing": "yellow", "broken": "bold red"}[check.state]
            console().print(Text.assemble((f"{check.state:<8}", colour), f"{check.name:<21} ", (check.found, "dim")))
            if check.advice and check.name not in reported:
                console().print(Text(f"        {check.advice}"))
    if not as_json:
        console().print("\nWhat this is enough for:")
    for use in uses(checks) if not as_json else ():
        state, colour = ("no", "yellow") if use.obstacles else ("yes", "green")
        console().print(Text.assemble((f"{state:<8}", colour), use.name))
        for obstacle in use.obstacles:
            console().print(Text(f"        {obstacle}"), soft_wrap=True)
    for label, text in profile.lines() if profile and not as_json else ():
        console().print(Text.assemble((f"  {label:<24}", "dim"), text), soft_wrap=True)
    broken = [check.name for check in checks if check.state == "broken"]
    if as_json:
        if profile:
            print_line({"profile": profile.model_dump(mode="json")})
        missing = [check.name for check in checks if check.state == "missing"]
        print_line({"verdict": "fail" if broken else "pass", "broken": broken, "missing": missing})
    raise typer.Exit(BROKEN if broken else PASS)


# ---- shared by the commands


def _wrong(sentence: str) -> None:
    raise typer.BadParameter(sentence)


def _select(
    ids: list[str] | None, level: list[str] | None, profile: list[str] | None = None, version: str = ""
) -> list[Entry]:
    from conformance.levels import Level
    from conformance.profiles import ConformanceProfile
    from conformance.requirement import select

    levels = [_named(Level, name, "--level") for name in level or []]
    profiles = [_named(ConformanceProfile, name, "--profile") for name in profile or []]
    try:
        chosen = select(ids or [], levels=levels, profiles=profiles, version=version)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not chosen:
        _wrong("this selection leaves no requirement")
    return chosen


def _named(kinds: type[Kinds], name: str, option: str) -> Kinds:
    if name not in list(kinds):
        _wrong(f"{option} {name}: there are {', '.join(kinds)}")
    return kinds(name)


def _expected(path: Path | None) -> list[Expectation]:
    """The entries of a file of expected failures. Prints those that have expired, which excuse nothing."""
    from conformance.expectations import read
    from conformance.requirement import catalogue

    try:
        found = read(path, catalogue()) if path else []
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--expected-failures") from None
    for one in found:
        if one.expired():
            print(f"{path}: {one.id} was {one}", file=sys.stderr)
    return found


def _read(path: Path) -> Run:
    from pydantic import ValidationError

    from conformance import report as writer

    try:
        return writer.read(path)
    except FileNotFoundError as error:
        what = f"holds no {writer.JSON_NAME}" if path.is_dir() else "does not exist"
        raise typer.BadParameter(f"{path} {what}") from error
    except ValidationError as error:
        raise typer.BadParameter(f"{path} is no report of this suite: {error.errors()[0]['msg']}") from error
    except writer.UnknownFormat as error:
        raise typer.BadParameter(f"{path}: {error}") from error
