"""`tidegauge bench …`: measurements, each a ratio within one run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from linearizability.bench.compaction import compaction
from linearizability.bench.comparisons import Recorded, keep
from linearizability.bench.endurance import endurance
from linearizability.bench.fuzz import fuzz
from linearizability.bench.history import history
from linearizability.bench.scale import scale
from linearizability.bench.suite import suite
from linearizability.damage.campaign import damage
from linearizability.interrupting import announce, leave
from linearizability.options import SecuredBy, SecurityProtocol
from linearizability.progress import Progress

if TYPE_CHECKING:
    from linearizability.bench.broker import Plan

app = typer.Typer(
    name="bench",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Measure brokers and checkers side by side. Interrupted, a command shows what it measured until then, and exits 130.",
)

ENGINE_ERROR = 3
STEADY_AT_LAST = 30
"""The most rounds with --until-steady, after which the results count also where they are not steady."""

app.command(
    "history",
    epilog="Examples:  tidegauge bench history  |  tidegauge bench history --facts 1000000 --facts 10000000 --json",
)(history)

app.command(
    "fuzz",
    epilog="Examples:  tidegauge bench fuzz --resume  |  tidegauge bench fuzz --mutant kip-279 --seeds 3 --json",
)(fuzz)

app.command(
    "suite",
    epilog="Examples:  tidegauge bench suite --resume --json  |  tidegauge bench suite --lie heartbeats-always-fine  |  "
    "tidegauge bench suite --count 5 --jobs 2",
)(suite)

app.command(
    "compaction",
    epilog="Examples:  tidegauge bench compaction  |  tidegauge bench compaction --case '1 KB, lz4' --megabytes 100 --json",
)(compaction)

app.command(
    "scale",
    epilog="Examples:  tidegauge bench scale --json  |  tidegauge bench scale --kind partitions --partitions 100,1000 --resume"
    "  |  tidegauge bench scale --kind log --log 10000 --against ''",
)(scale)

app.command(
    "endurance",
    epilog="Examples:  tidegauge bench endurance --resume  |  tidegauge bench endurance --hours 0.05 --leg-minutes 3 --json",
)(endurance)

app.command(
    "damage",
    epilog="Examples:  tidegauge bench damage --trials 100  |  tidegauge bench damage --resume --json  |  "
    "tidegauge bench damage --target kafka:4.3.1:1 --trials 20 --resume",
)(damage)


Measured = Annotated[str, typer.Option("--target", help="The broker that is measured.")]
Against = Annotated[str, typer.Option(help="The broker that it is compared with.")]
Cases = Annotated[list[str] | None, typer.Option("--case", help="A row of the comparison; may repeat. All by default.")]
Rounds = Annotated[int, typer.Option(min=1, max=50, help="How often each case is measured on each broker.")]
Seconds = Annotated[float, typer.Option(min=0.2, max=120, help="How long each measurement lasts.")]
Warmup = Annotated[float, typer.Option(min=0, max=120, help="Seconds of load before each measurement.")]
Json = Annotated[bool, typer.Option("--json", help="The last line of standard output is one JSON object.")]


@app.command(
    epilog="Examples:  tidegauge bench broker --against kafka:4.3.1  |  tidegauge bench broker --case 'fetch 1 MiB' --rounds 5"
    "  |  tidegauge bench broker --nodes 3 --until-steady --json"
)
def broker(
    target: Measured = "reference",
    against: Against = "kafka:4.3.1",
    nodes: Annotated[int, typer.Option(min=1, max=9, help="Of each side, where its name does not say it.")] = 1,
    case: Cases = None,
    rounds: Rounds = 3,
    seconds: Seconds = 3.0,
    warmup: Warmup = 3.0,
    until_steady: Annotated[
        bool,
        typer.Option("--until-steady", help="Go on, up to 30 rounds, until the rates of neither side move any more."),
    ] = False,
    security: SecuredBy = SecurityProtocol.PLAINTEXT,
    record: Recorded = False,
    json_: Json = False,
) -> None:
    """Load two brokers, or two clusters, in turn: rates, latencies, CPU of all nodes a request; saved as JSON with a picture.

    On several nodes a topic has three replicas, and requests ask for acks=all.
    """
    from linearizability.bench.broker import Plan
    from linearizability.bench.load import CASES

    most = max(rounds, STEADY_AT_LAST) if until_steady else rounds
    plan = Plan(tuple(_chosen(case, [*CASES])), most, seconds, warmup, until_steady, nodes, security)
    _compare("bench", target, against, plan, record, json_)


@app.command(
    epilog="Examples:  tidegauge bench groups --against kafka:4.3.1  |  tidegauge bench groups --case 'rebalance 200 members'"
)
def groups(
    target: Measured = "reference:1",
    against: Against = "kafka:4.3.1",
    case: Cases = None,
    rounds: Rounds = 3,
    seconds: Seconds = 3.0,
    warmup: Warmup = 3.0,
    record: Recorded = False,
    json_: Json = False,
) -> None:
    """Commits of offsets, and rebalances of 2, 20 and 200 members (a request is one rebalance), on two brokers in turn."""
    from linearizability.bench.broker import Plan
    from linearizability.bench.load import GROUP_CASES

    plan = Plan(tuple(_chosen(case, [*GROUP_CASES])), rounds, seconds, warmup)
    _compare("bench-groups", target, against, plan, record, json_)


@app.command(
    epilog="Examples:  tidegauge bench transactions --against kafka:4.3.1  |  tidegauge bench transactions --rounds 5 --json"
)
def transactions(
    target: Measured = "reference:1",
    against: Against = "kafka:4.3.1",
    case: Cases = None,
    rounds: Rounds = 3,
    seconds: Seconds = 3.0,
    warmup: Warmup = 3.0,
    record: Recorded = False,
    json_: Json = False,
) -> None:
    """Transactions of librdkafka one after the other (a request is one transaction), on two brokers in turn."""
    from linearizability.bench.broker import Plan
    from linearizability.bench.load import TRANSACTION_CASES

    plan = Plan(tuple(_chosen(case, [*TRANSACTION_CASES])), rounds, seconds, warmup)
    _compare("bench-transactions", target, against, plan, record, json_)


def _chosen(wanted: list[str] | None, known: list[str], kind: str = "case") -> list[str]:
    """The wanted names without duplicates, or all known ones. Errors: BadParameter."""
    unknown = [name for name in wanted or () if name not in known]
    if unknown:
        raise typer.BadParameter(f"there is no {kind} '{unknown[0]}'; there are: {', '.join(known)}")
    return [*dict.fromkeys(wanted or known)]


def _compare(kind: str, target: str, against: str, plan: Plan, record: bool, json_: bool) -> None:
    from linearizability.bench import broker as bench
    from linearizability.results import new_run_folder
    from linearizability.targets import TargetError

    folder = new_run_folder(kind, f"{target}-against-{against}".replace(":", "-"))
    try:
        with Progress(2 * len(plan.cases) * plan.rounds) as progress:
            table = bench.compare(target, against, plan, folder, progress)
    except (TargetError, RuntimeError) as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(ENGINE_ERROR) from None
    (folder / "bench.json").write_text(json.dumps(table, indent=1))
    if table["rows"]:
        bench.draw(table, folder / "bench.svg")
    announce(table)
    show(table)
    typer.echo(f"results: {folder}")
    if record:
        keep(table)
    if json_:
        summary = {"folder": str(folder), "subject": target, "against": against}
        summary |= {name: table[name] for name in ("idle", "security", "interrupted")}
        rows = [{key: value for key, value in row.items() if key != "medians"} for row in table["rows"]]
        typer.echo(json.dumps(summary | {"rows": rows}))
    leave(table)


def show(table: dict[str, object]) -> None:
    """Print the comparison as a table."""
    from rich.console import Console
    from rich.table import Table

    rows = table["rows"]
    assert isinstance(rows, list)
    subject, against = str(table["subject"]), str(table["against"])
    view = Table(title=f"{subject} against {against} (medians; ratio of the first to the second)")
    for name in (
        "case",
        "requests/s",
        "",
        "ratio",
        "steady",
        "MB/s",
        "",
        "CPU µs",
        "",
        "ratio",
        "p50 µs",
        "",
        "p99 µs",
        "",
    ):
        view.add_column(name, justify="left" if name == "case" else "right")
    for row in rows:
        a, b = row["medians"][subject], row["medians"][against]
        view.add_row(
            row["case"],
            f"{a['requests_per_s']:,.0f}",
            f"{b['requests_per_s']:,.0f}",
            f"{row['rate_ratio']:.2f}",
            "yes" if row["steady"] else "no",
            f"{a['mb_per_s']:,.0f}",
            f"{b['mb_per_s']:,.0f}",
            f"{a['broker_cpu_us']:,.0f}",
            f"{b['broker_cpu_us']:,.0f}",
            f"{row['cpu_ratio']:.2f}",
            f"{a['p50_us']:,.0f}",
            f"{b['p50_us']:,.0f}",
            f"{a['p99_us']:,.0f}",
            f"{b['p99_us']:,.0f}",
        )
    console = Console(width=170)
    console.print(view)
    idle = table["idle"]
    assert isinstance(idle, dict)
    for spec, facts in idle.items():
        after = f", {facts['resident_mb_after']:.0f} MB after the load" if "resident_mb_after" in facts else ""
        console.print(
            f"{spec}, nodes: {facts['nodes']}; first answer after {facts['seconds_to_first_answer']:.2f} s, "
            f"{facts['resident_mb']:.0f} MB idle{after}"
        )


@app.command(
    epilog="Examples:  tidegauge bench failover --against kafka:4.3.1:3  |  tidegauge bench failover --fault kill --json  |  "
    "tidegauge bench failover --client confluent-kafka --client java --rounds 5"
)
def failover(
    target: Annotated[str, typer.Option(help="The cluster that is measured.")] = "reference:3",
    against: Annotated[str, typer.Option(help="The cluster that it is compared with.")] = "kafka:4.3.1:3",
    fault: Annotated[list[str] | None, typer.Option(help="kill, stop or freeze; may repeat. All by default.")] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(help="confluent-kafka, kafka-python, aiokafka or java; may repeat. All by default, side by side."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each fault is injected into each cluster.")] = 3,
    json_: Annotated[bool, typer.Option("--json", help="The last line of standard output is one JSON object.")] = False,
) -> None:
    """Take the leaders of two clusters away: time to a new leader, each client's longest gap in acknowledgements and
    records lost or doubled (exit 1)."""
    from linearizability.bench import failover as bench
    from linearizability.bench.streams import CLIENTS
    from linearizability.results import new_run_folder
    from linearizability.targets import TargetError

    faults = _chosen(fault, [*bench.FAULTS], "fault")
    clients = _chosen(client, [*CLIENTS], "client")
    folder = new_run_folder("bench", f"failover-{target}-against-{against}".replace(":", "-"))
    plan = bench.Plan(target, against, clients, faults, rounds)
    try:
        with Progress(2 * len(faults) * rounds) as progress:
            table = bench.compare(plan, folder, progress)
    except TargetError as error:
        typer.echo(f"bench: {error}", err=True)
        raise typer.Exit(ENGINE_ERROR) from None
    (folder / "bench.json").write_text(json.dumps(table, indent=1))
    announce(table)
    bench.show(table)
    typer.echo(f"results: {folder}")
    if json_:
        rows = [{key: value for key, value in row.items() if key != "rounds"} for row in table["rows"]]
        typer.echo(json.dumps({"folder": str(folder), **table, "rows": rows}))
    leave(table, 1 if bench.unsound(table) else 0)
