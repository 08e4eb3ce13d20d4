"""Two brokers side by side under the same loads: rates, latencies, and the CPU that a request costs the broker.

Both brokers run at once and are loaded in turn, case by case and round by round (A B A B …), so that a machine whose speed
drifts slows both alike; what is quoted is the median of the rounds, and the ratio of the medians. The generator is a
process of its own; the broker's CPU is read from the system's accounting of its process. Start times and memory are
measured on fresh starts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linearizability.targets import Target, TargetError, open_target
from linearizability.targets.cluster import Cluster

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LOAD_TIMEOUT_S = 120.0

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is measured: the cases, how often, how long."""

    cases: tuple[str, ...]
    rounds: int
    seconds: float
    warmup_s: float


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident_mb(pid: int) -> float:
    """Megabytes of memory that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def process_id(target: Target) -> int:
    """The process of a target's first node. Errors: TargetError where the target is no process of ours."""
    if not isinstance(target, Cluster):
        raise TargetError(f"{target.spec}: a benchmark needs the broker's process; use reference:1 or kafka:VERSION")
    pid = target.member(target.nodes[0].id).process.pid
    if pid is None:
        raise TargetError(f"{target.spec}: the broker does not run")
    return pid


def measure(target: Target, case: str, plan: Plan) -> dict[str, Any]:
    """One case on one broker. Errors: RuntimeError with what the generator said."""
    pid = process_id(target)
    command = [sys.executable, "-m", "linearizability.bench.load", target.nodes[0].address, case]
    command += [str(plan.seconds), str(plan.warmup_s)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as load:
        assert load.stdout is not None and load.stdin is not None
        try:
            load.stdout.readline()
            before = cpu_seconds(pid)
            out, error = load.communicate("go\n", timeout=LOAD_TIMEOUT_S)
        except (subprocess.TimeoutExpired, BrokenPipeError) as trouble:
            load.kill()
            raise RuntimeError(f"{case} on {target.spec}: the load did not end: {trouble}") from trouble
        used = cpu_seconds(pid) - before
    if load.returncode:
        raise RuntimeError(
            f"{case} on {target.spec}: {error.strip().splitlines()[-1] if error.strip() else 'no answer'}"
        )
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    found["broker_cpu_us"] = used / found["requests"] * 1e6
    found["broker_cpus"] = used / found["seconds"]
    return found


QUANTITIES = ("requests_per_s", "records_per_s", "mb_per_s", "p50_us", "p99_us", "broker_cpu_us")


def median_of(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each quantity over the rounds, with the rounds beside it."""
    row: dict[str, Any] = {name: statistics.median(each[name] for each in rounds) for name in QUANTITIES}
    row["rounds"] = [{name: each[name] for name in QUANTITIES} for each in rounds]
    return row


def compare(subject: str, against: str, plan: Plan, folder: Path, progress: Progress) -> dict[str, Any]:
    """Measure both brokers; gives the table that is saved as JSON. Errors: TargetError, RuntimeError."""
    specs = (subject, against)
    table: dict[str, Any] = {"subject": subject, "against": against, "rows": [], "idle": {}}
    with open_target(subject, folder=folder / "subject") as a, open_target(against, folder=folder / "against") as b:
        for spec, target in zip(specs, (a, b), strict=True):
            pid = process_id(target)
            table["idle"][spec] = {
                "seconds_to_first_answer": target.describe()["seconds_to_start"],
                "resident_mb": resident_mb(pid),
            }
        for case in plan.cases:
            rounds: dict[str, list[dict[str, Any]]] = {spec: [] for spec in specs}
            for number in range(plan.rounds):
                for spec, target in zip(specs, (a, b), strict=True):
                    progress(f"{case}: {spec}, round {number + 1} of {plan.rounds}")
                    rounds[spec].append(measure(target, case, plan))
            medians = {spec: median_of(rounds[spec]) for spec in specs}
            ours, theirs = medians[subject], medians[against]
            table["rows"].append(
                {
                    "case": case,
                    "medians": medians,
                    "rate_ratio": ours["requests_per_s"] / theirs["requests_per_s"],
                    "cpu_ratio": ours["broker_cpu_us"] / theirs["broker_cpu_us"],
                    "p50_ratio": ours["p50_us"] / theirs["p50_us"],
                    "p99_ratio": ours["p99_us"] / theirs["p99_us"],
                }
            )
        for spec, target in zip(specs, (a, b), strict=True):
            table["idle"][spec]["resident_mb_after"] = resident_mb(process_id(target))
    return table


def draw(table: dict[str, Any], path: Path) -> None:
    """A picture: for each case the ratio of rates and of CPU a request, on a logarithmic axis around 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows: list[dict[str, Any]] = table["rows"]
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(rows) + 1.6))
    places = range(len(rows))
    series: Iterable[tuple[str, str, float, str]] = (
        ("rate_ratio", "rate, more is better", -0.2, "#2a6f97"),
        ("cpu_ratio", "CPU a request, less is better", 0.2, "#e07a5f"),
    )
    for name, label, shift, colour in series:
        axes.barh(
            [place + shift for place in places],
            [row[name] - 1 for row in rows],
            0.36,
            left=1,
            label=label,
            color=colour,
        )
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks([*places], [row["case"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"{table['subject']} compared with {table['against']} (1 = equal)")
    axes.legend(loc="best", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
