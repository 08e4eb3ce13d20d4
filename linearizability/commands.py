"""`tidegauge hunt | replay | history | fuzz | bench | targets | findings | cluster`."""

import importlib
import json
import secrets
import sys
import traceback
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer._click import Command as ClickCommand
from typer._click import Context as ClickContext
from typer.core import TyperGroup

from linearizability.options import ClientConfig, Mapped
from linearizability.progress import Progress

ENGINE_ERROR = 3
EXIT_CODES = {"valid": 0, "invalid": 1, "unknown": 2}
HUNTED_NODES = 3
"""Of a target that we start, where its text does not say how many: a single node has no other to lose records to."""
MINUTES = 1.0
SEARCH_MINUTES = 60.0
"""How long a hunt lasts that is to find something: known bugs took up to a quarter of an hour."""
REDUCE_MINUTES = 10.0
"""How long the schedule of what such a hunt found is made smaller."""

FAULT_NAMES = (
    "kill, stop, pause, storm, kill-all, isolate, halves, pair, deaf, mute, leader-controller, leader-followers, ring, "
    "clients, flaky, slow, lossy, power-loss, power-loss-journal, "
    "blackout, disk-full, disk-broken, clock-skew, reassign, elect, reconfigure, bystander, deletion, voters, "
    "zookeeper-kill, zookeeper-pause, zookeeper-cut, zookeeper-isolate, zookeeper-slow"
)
"""Said in the help, which imports no fault."""

MOUNTED = {
    "history": "linearizability.history.rule_commands",
    "fuzz": "linearizability.campaign.commands",
    "bench": "linearizability.bench.commands",
    "targets": "linearizability.targets.commands",
    "findings": "linearizability.findings.commands",
    "cluster": "linearizability.local_cluster",
}
"""Commands that other packages hold, imported when they are called."""


class Mounted(dict[str, ClickCommand]):
    """The commands of this module, and those of MOUNTED as soon as they are asked for."""

    def __missing__(self, name: str) -> ClickCommand:
        if name not in MOUNTED:
            raise KeyError(name)
        command = typer.main.get_command(importlib.import_module(MOUNTED[name]).app)
        return getattr(command, "commands", {}).get(name, command)


class MountedCommands(TyperGroup):
    """A group whose further commands are imported when they are called."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.commands = Mounted(self.commands)

    def list_commands(self, ctx: ClickContext) -> list[str]:
        return sorted({*self.commands, *MOUNTED})

    def get_command(self, ctx: ClickContext, cmd_name: str) -> ClickCommand | None:
        return self.commands[cmd_name] if cmd_name in {*self.commands, *MOUNTED} else None


app = typer.Typer(cls=MountedCommands, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def root() -> None:
    """Histories: made under faults, judged, replayed; brokers measured."""


class Engine(StrEnum):
    AUTO = "auto"
    BOTH = "both"
    LOCAL = "local"
    SPARK = "spark"


class Backend(StrEnum):
    AUTO = "auto"
    PLAIN = "plain"
    NETNS = "netns"
    DOCKER = "docker"


class GroupProtocol(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


Json = Annotated[
    bool, typer.Option("--json", help="One JSON object that sums up, on the last line of standard output.")
]


Target = Annotated[
    str,
    typer.Option(
        help="addr:…, reference[:NODES], kafka:VERSION[:NODES] (3 nodes unless said), mixed:KIND,KIND,…, exec:PATH."
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        help=f"How long clients work under faults. Default: {MINUTES:g}; with --until-found {SEARCH_MINUTES:g}, "
        "at most.",
    ),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Draws the schedule; a new one unless given.")]
Faults = Annotated[
    str,
    typer.Option(
        help=f"Names by comma, of {FAULT_NAMES}; default: all there are but blackout, power-loss-journal and voters. none: none."
    ),
]
UntilFound = Annotated[bool, typer.Option(help="Short rounds, until one is invalid or the minutes are over.")]
ReduceMinutes = Annotated[
    float | None,
    typer.Option(
        "--reduce",
        min=0,
        help="Minutes to make a found schedule smaller; replay FOLDER/reduced. Default: 0; with --until-found "
        f"{REDUCE_MINUTES:g}.",
    ),
]
Rate = Annotated[float, typer.Option(min=1, help="Sends a second, of all producers together.")]
AcksOption = Annotated[Acks, typer.Option(help="What the producers ask for; below all, losses are permitted.")]
Transactions = Annotated[
    bool, typer.Option("--transactions", help="A fourth producer commits transactions, and aborts some.")
]
UncleanElection = Annotated[bool, typer.Option(help="Let replicas lead that are out of sync; losses are permitted.")]
GroupProtocolOption = Annotated[
    GroupProtocol, typer.Option(help="How members join: classic, or as of KIP-848, which needs Kafka 4.")
]
Config = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A broker property; may repeat.")]
EngineOption = Annotated[
    Engine, typer.Option(help="Which engine judges; both must agree. auto: both where Spark and Java are installed.")
]
BackendOption = Annotated[
    Backend,
    typer.Option(
        help="plain processes, or each node in a network namespace or in a container; auto: namespaces for "
        "clusters on Linux."
    ),
]
Image = Annotated[str, typer.Option(help="What containers are made of; without it, of this machine's own programs.")]
Results = Annotated[Path | None, typer.Option(help="Where result folders go; default: results/.")]


@app.command(
    epilog="Examples:  tidegauge hunt --target reference:1 --minutes 1   ·   tidegauge hunt --target kafka:4.3.1:3 "
    "--minutes 10 --faults kill,pause   ·   tidegauge hunt --target kafka:4.3.1 --until-found --json"
)
def hunt(
    target: Target,
    minutes: Minutes = None,
    seed: Seed = None,
    faults: Faults = "",
    until_found: UntilFound = False,
    reduce_minutes: ReduceMinutes = None,
    rate: Rate = 400,
    acks: AcksOption = Acks.ALL,
    transactions: Transactions = False,
    unclean_election: UncleanElection = False,
    group_protocol: GroupProtocolOption = GroupProtocol.CLASSIC,
    config: Config = None,
    engine: EngineOption = Engine.AUTO,
    backend: BackendOption = Backend.AUTO,
    image: Image = "",
    mapped: Mapped = None,
    client_config: ClientConfig = None,
    results: Results = None,
    as_json: Json = False,
) -> int:
    """Hurt a real broker while clients work on it, and judge what they saw: valid (exit 0), invalid (1), unknown (2)."""
    from linearizability.faults.plan import Plan
    from linearizability.results import new_run_folder

    plan = Plan(
        target=target,
        minutes=minutes if minutes is not None else SEARCH_MINUTES if until_found else MINUTES,
        seed=secrets.randbits(32) if seed is None else seed,
        faults=_fault_names(faults),
        until_found=until_found,
        nodes=HUNTED_NODES if target.startswith(("kafka", "reference")) else None,
        reduce_minutes=reduce_minutes if reduce_minutes is not None else REDUCE_MINUTES if until_found else 0,
        rate_per_s=rate,
        acks=acks.value,
        transactions=transactions,
        unclean_election=unclean_election,
        group_protocol=group_protocol.value,
        config=_properties(config or []),
        mapped=mapped or [],
        client_config=str(client_config.resolve()) if client_config else "",
        engine=_engine(engine),
        image=image,
    )
    plan = _on_backend(plan, backend)
    return _carry_out(plan, new_run_folder("hunt", target, results), (), as_json)


@app.command(
    epilog="Examples:  tidegauge replay results/latest   ·   tidegauge replay results/20261121T081500Z-hunt-kafka/round-3 "
    "·   tidegauge replay --judge results/latest --json   ·   tidegauge replay failing-schedule.json --open"
)
def replay(
    path: Annotated[
        Path, typer.Argument(help="A hunt's result folder, one of its rounds, or a schedule of the simulation.")
    ],
    judge: Annotated[bool, typer.Option("--judge", help="Only judge the stored history again.")] = False,
    target: Annotated[str, typer.Option(help="Carry a hunt's schedule out on another target.")] = "",
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Carry a hunt out although its plan names a command (exec:), an address, an image, a file or properties: "
            "you know who wrote it.",
        ),
    ] = False,
    engine: EngineOption = Engine.AUTO,
    open_page: Annotated[
        bool, typer.Option("--open", help="Show the run in the browser; with --judge what clients did in a hunt.")
    ] = False,
    results: Annotated[Path | None, typer.Option(help="Where result folders go; default: results/.")] = None,
    as_json: Json = False,
) -> int:
    """Run a stored schedule again, or judge its history again.

    A schedule of the simulation leaves explorer.html in its new folder, a page that plays the run.
    """
    from linearizability.faults.replay import StoredHunt, hunt_home

    if not path.exists():
        raise typer.BadParameter(f"{path} does not exist", param_hint="PATH")
    if hunt_home(path) is None:
        from linearizability.guided.schedule import GuidedSchedule
        from linearizability.simulation.commands import replay_schedule, schedule_file

        if schedule_file(path) is None:
            raise typer.BadParameter(f"{path} is neither a hunt's folder nor a schedule", param_hint="PATH")
        return replay_schedule(path, GuidedSchedule, json=as_json, open_page=open_page)
    try:
        stored = StoredHunt.load(path)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="PATH") from None
    if open_page and not judge:
        raise typer.BadParameter("a hunt is shown with --judge", param_hint="--open")
    if open_page:
        _open(stored)
    if judge:
        return _judge_again(stored, _engine(engine), as_json)
    risks = stored.plan.model_copy(update={"target": ""} if target else {}).risks
    if risks and not trust:
        raise typer.BadParameter(
            f"its plan names {', '.join(risks)}: --trust, if you know who wrote it", param_hint="PATH"
        )
    from linearizability.results import new_run_folder

    changed = {"target": target or stored.plan.target, "engine": _engine(engine), "reduce_minutes": 0.0}
    plan = stored.plan.model_copy(update=changed)
    return _carry_out(plan, new_run_folder("replay", plan.target, results), stored.schedules, as_json)


def _open(stored: Any) -> None:
    import webbrowser

    from linearizability.faults.replay import show_again

    page = show_again(stored)
    print(page, file=sys.stderr)
    webbrowser.open(page.absolute().as_uri())


def _judge_again(stored: Any, engine: str, as_json: bool) -> int:
    from linearizability.faults.replay import judge_again
    from linearizability.faults.summary import EnginesDisagree

    engines = 2 if engine == Engine.BOTH else 1
    try:
        with Progress(engines * len(stored.folders)) as progress:
            summary = judge_again(stored, engine, progress)
    except EnginesDisagree as error:
        print(json.dumps({"verdict": "error", "error": str(error)}) if as_json else f"error: {error}")
        return ENGINE_ERROR
    if as_json:
        print(json.dumps(summary))
    else:
        print(f"{summary['verdict']}: {len(stored.folders)} stored rounds of {stored.plan.target}")
        for name, count in summary["anomalies"].items():
            print(f"  {name} × {count}")
        for reason in summary["reasons"]:
            print(f"  {reason}")
    return EXIT_CODES[summary["verdict"]]


def _on_backend(plan: Any, backend: Backend) -> Any:
    """The plan with a backend chosen. Errors: typer.BadParameter where the wanted one cannot be had."""
    from linearizability.faults.backend import planned_target
    from linearizability.faults.sandbox import obstacle
    from linearizability.targets import WrongTarget, docker
    from linearizability.targets.cluster import ClusterTarget

    try:
        sketch = planned_target(plan, Path())
    except WrongTarget as error:
        raise typer.BadParameter(str(error), param_hint="--target") from None
    cluster = isinstance(sketch, ClusterTarget) and sketch.size > 1
    if backend is Backend.PLAIN or (backend is Backend.AUTO and not cluster):
        return plan
    if backend is Backend.DOCKER:
        reason = docker.obstacle() if isinstance(sketch, ClusterTarget) else "the target brings its own processes"
        if reason:
            raise typer.BadParameter(f"no containers: {reason}", param_hint="--backend")
        return plan.model_copy(update={"backend": "docker"})
    reason = obstacle() if isinstance(sketch, ClusterTarget) else "the target brings its own processes"
    if reason and backend is Backend.NETNS:
        raise typer.BadParameter(f"no network namespaces: {reason}", param_hint="--backend")
    if reason:
        Progress().keep(f"without network faults: {reason}")
        return plan
    return plan.model_copy(update={"backend": "netns"})


def _carry_out(plan: Any, folder: Path, schedules: Any, as_json: bool) -> int:
    from linearizability.faults.hunt import hunt as carry_out
    from linearizability.faults.summary import EnginesDisagree
    from linearizability.targets import TargetError, WrongTarget

    try:
        if plan.backend == "netns":
            summary = _carry_out_in_sandbox(plan, folder, schedules)
        else:
            summary = carry_out(plan, folder, Progress().keep, schedules)
    except WrongTarget as error:
        raise typer.BadParameter(str(error), param_hint="--target") from None
    except Exception as error:
        if not isinstance(error, TargetError | EnginesDisagree):
            traceback.print_exc()  # a bug of ours: the folder is kept, and can be judged later
        summary = {"verdict": "error", "error": str(error), "target": plan.target, "folder": str(folder)}
        (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        print(json.dumps(summary) if as_json else f"error: {error}\nfolder: {folder}")
        return ENGINE_ERROR
    if as_json:
        print(json.dumps(summary))
    else:
        _print_summary(summary)
    return EXIT_CODES[summary["verdict"]]


def _carry_out_in_sandbox(plan: Any, folder: Path, schedules: Any) -> Any:
    """Fetch what the sandbox cannot, then run the plan in it. Errors: TargetError."""
    from linearizability.faults.backend import planned_target
    from linearizability.faults.sandbox import keep_given_schedules, run_in_sandbox
    from linearizability.targets import TargetError

    Progress().keep(f"preparing {plan.target}")
    planned_target(plan, folder).prepare()  # type: ignore[attr-defined]  # only clusters come here
    (folder / "plan.json").write_text(plan.model_dump_json(indent=1) + "\n")
    keep_given_schedules(folder, schedules)
    code = run_in_sandbox(folder)
    try:
        summary = json.loads((folder / "summary.json").read_text())
    except (OSError, ValueError) as error:
        raise TargetError(f"the sandbox ended with exit code {code} and without a verdict: {error}") from error
    if summary["verdict"] == "error":
        raise TargetError(summary["error"])
    return summary


def _engine(wanted: Engine) -> str:
    """The engines that judge. Errors: before a broker is started, where Spark is wanted and it or Java is missing."""
    from importlib import import_module

    from linearizability.targets.java import JavaMissing, java

    if wanted is Engine.LOCAL:
        return wanted.value
    try:
        import_module("pyspark")
        java()
    except (ModuleNotFoundError, JavaMissing) as error:
        if wanted is Engine.AUTO:
            return Engine.LOCAL.value
        if isinstance(error, JavaMissing):
            raise typer.BadParameter(str(error), param_hint="--engine") from None
        raise
    return Engine.BOTH.value if wanted is Engine.AUTO else wanted.value


def _fault_names(text: str) -> list[str]:
    """Errors: typer.BadParameter for a fault that there is not."""
    from linearizability.faults import all_faults

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in all_faults() and name != "none":
            raise typer.BadParameter(f"{name!r} is none of {', '.join(all_faults())}", param_hint="--faults")
    return names


def _properties(pairs: list[str]) -> dict[str, str]:
    """Errors: typer.BadParameter for what is not NAME=VALUE."""
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--config")
    return {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in pairs)}


def _print_summary(summary: dict[str, Any]) -> None:
    faults = ", ".join(f"{count} {name}" for name, count in summary["faults"].items()) or "none"
    print(
        f"{summary['verdict']}: {summary['target']}, {summary['rounds']} rounds, {summary['acknowledged']} acknowledged, "
        f"{summary['unknown']} unknown, {summary['read']} read, {summary['leader_changes']} leader changes"
    )
    print(f"  faults: {faults}")
    for name, count in summary["effects"].items():
        print(f"  {name}: {count}")
    for name, count in summary["anomalies"].items():
        reasons = summary["permitted_because"].get(name, {})
        print(f"  {name} × {count}" + "".join(f"; {each} permitted: {reason}" for reason, each in reasons.items()))
    for reason in summary["reasons"]:
        print(f"  {reason}")
    print(f"  seed {summary['seed']}, judged by {' and '.join(summary['engines'])}")
    print(f"  {summary['folder']}")
