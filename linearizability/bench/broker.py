"""Two brokers, or two clusters, side by side under the same loads: rates, latencies, and the CPU that a request costs.

Both run at once and are loaded in turn, case by case and round by round (A B A B …), so that a machine whose speed drifts
slows both alike. With `until_steady` rounds continue until the rates of both sides are stable, and the last ones count: a JVM
needs tens of seconds to be warm. The results are the medians of the rounds, and their ratios. The generator is a separate
process; the CPU of all nodes together comes from the system's accounting. On several nodes a topic has a replica on up to
three of them, requests ask for acks=all, and min.insync.replicas is 2.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linearizability.bench.brokers import cluster_cpu_seconds, cluster_resident_mb, open_for_bench
from linearizability.bench.load import ALL_CASES, Entry, delete_topic
from linearizability.interrupting import until_interrupted
from linearizability.targets import TargetError
from linearizability.targets.cluster import ClusterTarget, write_properties

STEADY_ROUNDS = 3
STEADY_WITHIN = 0.1
"""Rates are steady when those of the last STEADY_ROUNDS rounds differ by at most this share of their median."""
REPLICAS = 3
ANSWERED_WITHIN_S = 60.0

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """The cases, the number of rounds (the maximum with `until_steady`), and their duration."""

    cases: tuple[str, ...]
    rounds: int
    seconds: float
    warmup_s: float
    until_steady: bool = False
    nodes: int = 1
    """The nodes of each side, where its name has no number."""
    protocol: str = "PLAINTEXT"
    """The security protocol of clients and between brokers."""


def measure(target: ClusterTarget, case: str, plan: Plan) -> dict[str, Any]:
    """Measure one case on one broker, and delete its topic afterwards. Errors: RuntimeError with the generator's last line."""
    replicas = min(REPLICAS, len(target.nodes))
    bootstrap = ",".join(
        member.node.address for member in target.members
    )  # not the tunnels, which would be measured too
    command = [sys.executable, "-m", "linearizability.bench.load", bootstrap, case]
    command += [str(plan.seconds), str(plan.warmup_s), str(replicas)]
    if target.listener:
        file = target.folder / "client.properties"
        write_properties(file, target.listener.client)
        command.append(str(file))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as load:
        assert load.stdout is not None and load.stdin is not None
        try:
            load.stdout.readline()
            before = cluster_cpu_seconds(target)
            out, error = load.communicate("go\n", timeout=plan.seconds + ANSWERED_WITHIN_S)
        except (subprocess.TimeoutExpired, BrokenPipeError) as trouble:
            load.kill()
            raise RuntimeError(f"{case} on {target.spec}: the load did not end: {trouble}") from trouble
        except KeyboardInterrupt:
            load.kill()
            raise
        used = cluster_cpu_seconds(target) - before
    if load.returncode:
        raise RuntimeError(
            f"{case} on {target.spec}: {error.strip().splitlines()[-1] if error.strip() else 'no answer'}"
        )
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    connection = Entry(bootstrap, target.listener.client if target.listener else {}).connect()
    with closing(connection.socket):
        delete_topic(connection, found.pop("topic"))
    found["broker_cpu_us"] = used / found["requests"] * 1e6
    found["broker_cpus"] = used / found["seconds"]
    return found


QUANTITIES = ("requests_per_s", "records_per_s", "mb_per_s", "p50_us", "p99_us", "broker_cpu_us")


def median_of(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each quantity over the rounds, with the rounds beside it."""
    row: dict[str, Any] = {name: statistics.median(each[name] for each in rounds) for name in QUANTITIES}
    row["rounds"] = [{name: each[name] for name in QUANTITIES} for each in rounds]
    return row


def is_steady(rates: Sequence[float]) -> bool:
    """Whether the rates of the last rounds differ little, so that the broker is warm and the machine idle."""
    last = rates[-STEADY_ROUNDS:]
    return len(last) == STEADY_ROUNDS and max(last) - min(last) <= STEADY_WITHIN * statistics.median(last)


def compare(subject: str, against: str, plan: Plan, folder: Path, progress: Progress) -> dict[str, Any]:
    """Measure both brokers, and return the table for JSON, with a mark where it is incomplete (`until_interrupted`).

    Errors: TargetError, RuntimeError.
    """
    specs = (subject, against)
    table: dict[str, Any] = {"subject": subject, "against": against, "security": plan.protocol, "rows": [], "idle": {}}
    with (
        until_interrupted(table),
        open_for_bench(subject, folder / "subject", nodes=plan.nodes, protocol=plan.protocol) as a,
        open_for_bench(against, folder / "against", nodes=plan.nodes, protocol=plan.protocol) as b,
    ):
        targets = dict(zip(specs, (a, b), strict=True))
        _refuse_clusters(plan, targets.values())
        for spec, target in targets.items():
            table["idle"][spec] = {
                "nodes": len(target.nodes),
                "seconds_to_first_answer": target.describe()["seconds_to_start"],
                "resident_mb": cluster_resident_mb(target),
            }
        for case in plan.cases:
            rounds: dict[str, list[dict[str, Any]]] = {spec: [] for spec in specs}
            try:
                measure_rounds(case, targets, plan, rounds, progress)
            finally:
                if all(rounds.values()):
                    table["rows"].append(row_of(case, rounds, plan))
        for spec, target in targets.items():
            table["idle"][spec]["resident_mb_after"] = cluster_resident_mb(target)
    return table


def _refuse_clusters(plan: Plan, targets: Iterable[ClusterTarget]) -> None:
    """Refuse group cases on several nodes, as their load connects to one node only. Errors: TargetError."""
    grouped = [case for case in plan.cases if ALL_CASES[case].client in ("commit", "rebalance")]
    for target in targets:
        if grouped and len(target.nodes) > 1:
            raise TargetError(f"{target.spec}: '{grouped[0]}' is measured on one node")


def measure_rounds(
    case: str,
    targets: dict[str, ClusterTarget],
    plan: Plan,
    rounds: dict[str, list[dict[str, Any]]],
    progress: Progress,
) -> None:
    """Measure a case on both sides in turn, into `rounds`. Errors: RuntimeError."""
    for number in range(plan.rounds):
        for spec, target in targets.items():
            progress(f"{case}: {spec}, round {number + 1} of {'at most ' * plan.until_steady}{plan.rounds}")
            rounds[spec].append(measure(target, case, plan))
        if plan.until_steady and all(map(is_steady, rates_of(rounds).values())):
            break


def rates_of(rounds: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[float]]:
    """The rate of each round, by side."""
    return {spec: [each["requests_per_s"] for each in found] for spec, found in rounds.items()}


def row_of(case: str, rounds: dict[str, list[dict[str, Any]]], plan: Plan) -> dict[str, Any]:
    """One row: the medians of both sides and their ratios."""
    quoted = {spec: each[-STEADY_ROUNDS:] if plan.until_steady else each for spec, each in rounds.items()}
    medians = {spec: median_of(each) for spec, each in quoted.items()}
    ours, theirs = medians.values()
    return {
        "case": case,
        "medians": medians,
        "steady": all(map(is_steady, rates_of(rounds).values())),
        "measured": rates_of(rounds),
        "rate_ratio": ours["requests_per_s"] / theirs["requests_per_s"],
        "cpu_ratio": ours["broker_cpu_us"] / theirs["broker_cpu_us"],
        "p50_ratio": ours["p50_us"] / theirs["p50_us"],
        "p99_ratio": ours["p99_us"] / theirs["p99_us"],
    }


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
