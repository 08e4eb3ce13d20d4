"""`tidegauge bench endurance`: a cluster under a steady load for hours; its history is judged, and its resources must not grow.

The hours are made of legs. Each leg starts a fresh cluster and is a round of a hunt with a schedule that is not drawn:

| share of the leg | what happens |
| --- | --- |
| all of it | producers and consumers of a hunt, one consumer that falls behind, two topics beside (`side_topics`) |
| first and last quarter | all nodes are restarted one after the other, again and again |
| second and third quarter | a follower is dead, and comes back with an hour's worth to catch up with (at 120 minutes a leg) |

The history is judged by the rules, the compacted topic by its last values. Memory, descriptors, files and latency are sampled all
the time; a quantity has *grown* when its median in the last fifth of the longest stretch without a start or an end of a node
(that of the dead follower) exceeds that of the first fifth by more than a tolerance. Every leg is stored as soon as it is over,
and `--resume` adds legs until the hours are full. A leg that is interrupted is judged and shown, and not stored.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from linearizability.bench.brokers import cpu_seconds, descriptors, open_for_bench, resident_mb
from linearizability.bench.side_topics import BROKER_CONFIG, SideLoad, read_compacted
from linearizability.faults import all_faults
from linearizability.faults.injection import Injection
from linearizability.faults.plan import FAST_FAILOVER, Plan
from linearizability.faults.round import Round, RoundResult
from linearizability.faults.schedule import Schedule, Wave
from linearizability.interrupting import announce, leave, until_interrupted
from linearizability.progress import Progress
from linearizability.results import new_run_folder
from linearizability.stored import make_folder_of, replace_file
from linearizability.targets import TargetError
from linearizability.targets.cluster import ClusterTarget
from linearizability.workload.profile import Consuming

STORE = Path(__file__).parent / "endurance.json"
ENGINE_ERROR = 3

RESTART_EVERY_S = 600.0
RESTARTS_A_QUARTER = 2
"""The least number, where a leg is too short for the interval."""
DOWN_S = 3.0
BETWEEN_NODES_S = 20.0
SLOW_REST_S = 10.0
SAMPLES_A_LEG = 120
SHORTEST_SAMPLE_S = 1.0
SIDE_RATE_PER_S = 100.0
LEAST_MINUTES = 0.01
"""A remainder of the hours that is too short for a leg."""
SHORT_LEG_MINUTES = 20.0
"""In a shorter leg caches still fill, so growth proves nothing."""
PART_OF_STRETCH = 5
"""The first and the last fifth of the stretch are compared."""


@dataclass(frozen=True)
class Quantity:
    """A sampled quantity, and the allowed growth of its median over a leg: a share, or an absolute minimum."""

    title: str
    share: float
    least: float


QUANTITIES = {
    "memory_mb": Quantity("memory of all nodes, MB", 0.15, 20),
    "descriptors": Quantity("descriptors of all nodes", 0.10, 20),
    "side_mb": Quantity("files of topics with retention or compaction, MB", 0.25, 16),
    "cpu_ms_per_s": Quantity("CPU of all nodes, ms/s", 0.25, 30),
    "p50_ms": Quantity("latency, median, ms", 0.5, 5),
    "p99_ms": Quantity("latency, 99th percentile, ms", 1.0, 100),
}


def schedule_of(seconds: float, nodes: int, seed: int) -> Schedule:
    """A leg's injections: rolling restarts, a dead follower, rolling restarts. One node has restarts only."""
    quarter = seconds / 4
    interval = min(RESTART_EVERY_S, quarter / RESTARTS_A_QUARTER)
    apart = min(BETWEEN_NODES_S, interval / (nodes + 1))
    restart = Wave(
        injections=[
            Injection(
                at_s=round(number * apart, 3),
                fault="stop",
                pick=round((number + 0.5) / nodes, 3),
                seconds=min(DOWN_S, apart / 2),
            )
            for number in range(nodes)
        ],
        quiet_s=round(interval - nodes * apart, 3),
    )
    rolling = [restart] * max(1, round(quarter / interval))
    if nodes == 1:
        return Schedule(seed=seed, seconds=seconds, waves=rolling * 4)
    dead = Wave(injections=[Injection(at_s=0, fault="kill", who="follower", pick=0.5, seconds=2 * quarter)], quiet_s=0)
    return Schedule(seed=seed, seconds=seconds, waves=[*rolling, dead, *rolling])


@dataclass
class Sampler:
    """Samples the nodes at fixed intervals in a separate thread, while it is open."""

    target: ClusterTarget
    side: SideLoad
    topic: str
    every_s: float
    samples: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    def __enter__(self) -> Sampler:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        before: dict[int, float] = {}
        while not self._stopping.wait(self.every_s):
            sample, before = self._look(before)
            sample["at_s"] = round(time.monotonic() - began, 1)
            self.samples.append(sample)

    def _look(self, cpu_before: Mapping[int, float]) -> tuple[dict[str, float], dict[int, float]]:
        pids = [pid for member in self.target.members if (pid := member.process.pid) is not None]
        starts = sum(member.process.starts for member in self.target.members)
        sample: dict[str, float] = {"nodes": len(pids), "starts": starts}
        cpu: dict[int, float] = {}
        try:
            cpu = {pid: cpu_seconds(pid) for pid in pids}
            sample["memory_mb"] = round(sum(map(resident_mb, pids)), 1)
            sample["descriptors"] = sum(map(descriptors, pids))
        except (FileNotFoundError, ProcessLookupError):
            sample["nodes"] = 0  # a node ended during the sampling: this is no sample of a whole cluster
        used = sum(seconds - cpu_before[pid] for pid, seconds in cpu.items() if pid in cpu_before)
        sample["cpu_ms_per_s"] = round(used / self.every_s * 1000, 1)
        sample["side_mb"] = round(sum(self._files_mb(member.data) for member in self.target.members), 1)
        latencies = self.side.take_latencies()
        if latencies:
            sample["p50_ms"] = round(latencies[len(latencies) // 2], 2)
            sample["p99_ms"] = round(latencies[len(latencies) * 99 // 100], 2)
        return sample, cpu

    def _files_mb(self, data: Path) -> float:
        """Megabytes of a node's log files in the side topics. The judged topic is left out, as it keeps everything."""
        total = 0
        for folder in [*data.glob("endurance-retained-*"), *data.glob("endurance-compacted-*")]:
            for file in folder.glob("*.log"):
                try:
                    total += file.stat().st_size
                except FileNotFoundError:
                    continue
        return total / 1e6


def growth(samples: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """For each quantity its median in the first and in the last part of the leg's longest stretch without a start or an end.

    A start empties caches and opens new connections, so that a difference between two starts is no growth.
    """
    steady = max(
        (list(each) for _, each in groupby(samples, key=lambda each: (each["nodes"], each["starts"]))),
        key=len,
        default=[],
    )
    size = len(steady) // PART_OF_STRETCH
    parts = (steady[:size], steady[-size:]) if size else ([], [])
    found: dict[str, dict[str, float]] = {}
    for name in QUANTITIES:
        early, late = ([each[name] for each in part if name in each] for part in parts)
        if early and late:
            found[name] = {"first": statistics.median(early), "last": statistics.median(late)}
    return found


def grown(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The quantities that grew by more than their tolerance."""
    return [
        name
        for name, each in found.items()
        if each["last"] - each["first"] > max(QUANTITIES[name].least, QUANTITIES[name].share * each["first"])
    ]


def run_leg(
    spec: str, minutes: float, rate_per_s: float, seed: int, folder: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run one leg, and return its row. A leg that Ctrl-C ended is judged too, with the minutes that it lasted.

    Errors: TargetError.
    """
    all_faults()
    plan = Plan(target=spec, minutes=minutes, seed=seed, rate_per_s=rate_per_s, engine="local")
    (folder / "plan.json").write_text(plan.model_dump_json(indent=1) + "\n")
    with open_for_bench(spec, folder / "target", FAST_FAILOVER | BROKER_CONFIG, nodes=3) as target:
        seconds = minutes * 60
        schedule = schedule_of(seconds, len(target.nodes), seed)
        leg = Round(plan, target, None, folder, f"endurance-{seed}", schedule)
        slow = Consuming(rest_s=min(SLOW_REST_S, seconds / 20))
        leg.profile = leg.profile.model_copy(update={"consumers": [*leg.profile.consumers, slow]})
        side = SideLoad(target.bootstrap, target.nodes, SIDE_RATE_PER_S)
        every_s = max(SHORTEST_SAMPLE_S, seconds / SAMPLES_A_LEG)
        with Sampler(target, side, leg.topic, every_s) as sampler:
            result = leg.run(say)
        side.end()
        say("reading the compacted topic")
        lost = side.written.lost(read_compacted(target.bootstrap))
        if leg.interrupted:
            plan = plan.model_copy(update={"minutes": round(leg.attacked_s / 60, 3)})
        row = row_of(plan, result, side, lost, sampler.samples)
        return row | {"interrupted": True} if leg.interrupted else row


def row_of(
    plan: Plan, result: RoundResult, side: SideLoad, lost: list[str], samples: list[dict[str, float]]
) -> dict[str, Any]:
    """The stored row of a leg."""
    found = growth(samples)
    return {
        "target": plan.target,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "minutes": plan.minutes,
        "rate_per_s": plan.rate_per_s,
        "seed": plan.seed,
        "verdict": "invalid" if lost else result.verdict,
        "lost": lost[:20],
        "anomalies": result.anomalies,
        "reasons": result.reasons,
        "acknowledged": result.acknowledged,
        "read": result.read,
        "facts": result.facts,
        "faults": result.faults,
        "beside": {"sent": side.sent, "refused": side.refused},
        "growth": found,
        "grew": grown(found) if plan.minutes >= SHORT_LEG_MINUTES else None,
        "samples": samples,
    }


# ---- the store, the picture, the table


def read_store(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text()) if path.exists() else []


def write_store(path: Path, legs: Sequence[Mapping[str, Any]]) -> None:
    """Store the legs."""
    replace_file(path, "[\n" + ",\n".join(f" {json.dumps(leg)}" for leg in legs) + "\n]\n")


def hours(legs: Iterable[Mapping[str, Any]], spec: str) -> float:
    """The hours of all stored legs of a target."""
    return sum(leg["minutes"] for leg in legs if leg["target"] == spec) / 60


def draw(legs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a panel for each quantity: its samples over the hours of all legs, with one line for each target."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 3, figsize=(15, 7))
    for axes, (name, quantity) in zip(grid.flat, QUANTITIES.items(), strict=True):
        for spec in dict.fromkeys(leg["target"] for leg in legs):
            at, values, passed = [], [], 0.0
            for leg in (leg for leg in legs if leg["target"] == spec):
                for sample in leg["samples"]:
                    at.append(passed + sample["at_s"] / 3600)
                    values.append(sample.get(name, float("nan")))
                passed += leg["minutes"] / 60
                at.append(passed)
                values.append(float("nan"))
            axes.plot(at, values, linewidth=1, label=spec)
        axes.set(title=quantity.title, xlabel="hours")
        axes.set_ylim(bottom=0)
        axes.grid(True, alpha=0.3)
    if legs:
        grid.flat[0].legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def show(legs: Sequence[Mapping[str, Any]]) -> None:
    """Print a row for each leg: verdict, records, and each quantity's first and last median."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="legs (medians of the first and of the last fifth of its steady stretch)")
    for name in ("target", "minutes", "verdict", "acknowledged", *(each.title for each in QUANTITIES.values()), "grew"):
        table.add_column(name, justify="left" if name in ("target", "verdict", "grew") else "right")
    for leg in legs:
        cells = [leg["target"], f"{leg['minutes']:g}", leg["verdict"], f"{leg['acknowledged']:,}"]
        for name in QUANTITIES:
            each = leg["growth"].get(name)
            cells.append(f"{each['first']:g} {each['last']:g}" if each else "–")
        grew = leg["grew"]
        cells.append("too short to say" if grew is None else ", ".join(grew) or "nothing")
        table.add_row(*cells)
    Console(width=170).print(table)


# ---- the command


def endurance(
    target: Annotated[str, typer.Option(help="The cluster; three nodes unless its name says otherwise.")] = "reference",
    hours_: Annotated[float, typer.Option("--hours", min=0.001, help="Of all legs together.")] = 24.0,
    leg_minutes: Annotated[float, typer.Option(min=0.5, help="How long one leg lasts.")] = 120.0,
    rate: Annotated[float, typer.Option(min=1, help="Records a second that are judged.")] = 200.0,
    minutes: Annotated[float, typer.Option(min=0.01, help="Begin no leg after this time.")] = 1e6,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the stored legs, and add what is missing.")] = False,
    store: Annotated[Path, typer.Option(help="Where legs are kept; the picture lies beside it.")] = STORE,
    json_: Annotated[bool, typer.Option("--json", help="The last line of standard output is one JSON object.")] = False,
) -> None:
    """Hours at a steady load, with restarts, a dead follower, a slow consumer, retention and compaction: is anything lost, does
    anything grow?

    Exit 1: a leg is invalid, or a quantity grew. Exit 2: a leg is unknown.
    """
    make_folder_of(store)
    legs = read_store(store) if resume else []
    folder = new_run_folder("bench", "endurance")
    until = time.monotonic() + minutes * 60
    said: dict[str, Any] = {"folder": str(folder), "store": str(store)}
    with until_interrupted(said), Progress() as progress:
        while (left := (hours_ - hours(legs, target)) * 60) > LEAST_MINUTES and time.monotonic() < until:
            number, done = len(legs) + 1, hours(legs, target)
            home = folder / f"leg-{number}"
            home.mkdir()

            def say(text: str, number: int = number, done: float = done) -> None:
                progress.often(f"leg {number}, {done:.1f} of {hours_:g} h: {text}", done)

            try:
                legs.append(run_leg(target, min(leg_minutes, left), rate, number, home, say))
            except TargetError as error:
                progress.clear()
                typer.echo(f"bench: {error}", err=True)
                raise typer.Exit(ENGINE_ERROR) from None
            if legs[-1].get("interrupted"):
                raise KeyboardInterrupt  # the interrupt that ended the leg
            write_store(store, legs)
            draw(legs, store.with_suffix(".svg"))
    announce(said)
    show(legs)
    ours = [leg for leg in legs if leg["target"] == target]
    if json_:
        rows = [{key: value for key, value in leg.items() if key != "samples"} for leg in ours]
        typer.echo(json.dumps(said | {"hours": hours(legs, target), "legs": rows}))
    if any(leg["verdict"] == "invalid" or leg["grew"] for leg in ours):
        raise typer.Exit(1)
    leave(said)
    if any(leg["verdict"] != "valid" for leg in ours):
        raise typer.Exit(2)
