"""The records of simulated runs of the unmodified node over many invocations: their number, commit, and broken promises.

`tidegauge fuzz --record` adds its run to a file of JSON lines in the repository, and begins at the first seed that no
recorded run with the same coordination, nodes and workload has reached. Runs with a planted bug are never recorded.
"""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linearizability.pages import write_part
from linearizability.pipeline.verdict import UNKNOWN, VALID

if TYPE_CHECKING:
    from linearizability.simulation.fuzzing_summary import Summary

FOLDER = Path(__file__).parent
STORE = FOLDER / "accumulated.jsonl"
PAGE = FOLDER / "RESULTS.md"
UNKNOWN_COMMIT = "unknown"


@dataclass(frozen=True)
class Run:
    """One recorded run over consecutive seeds."""

    date: str
    commit: str
    """The commit, with `+` where tracked files differ from it."""
    nodes: int
    workload: str
    first_seed: int
    schedules: int
    valid: int
    unknown: int
    messages: int
    cpu_seconds: float
    violations: tuple[tuple[int, str], ...] = ()
    """Seed and broken promise of each run that was not valid."""
    coordination: str = "kraft"

    @property
    def next_seed(self) -> int:
        return self.first_seed + self.schedules

    @property
    def series(self) -> tuple[str, int, str]:
        """Coordination, nodes and workload: each series has its own seeds."""
        return self.coordination, self.nodes, self.workload


def run_of(summary: Summary) -> Run:
    """The record of a run. Seeds after a gap, which an interrupt may leave, are left to the next run."""
    plan = summary.plan
    runs = [run for number, run in enumerate(summary.runs) if run.seed == plan.first_seed + number]
    next_seed = plan.first_seed + len(runs)
    return Run(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        commit=_commit(),
        nodes=plan.nodes,
        workload=plan.workload,
        first_seed=plan.first_seed,
        schedules=len(runs),
        valid=sum(run.verdict == VALID for run in runs),
        unknown=sum(run.verdict == UNKNOWN for run in runs),
        messages=sum(run.messages for run in runs),
        cpu_seconds=round(sum(run.seconds for run in runs), 1),
        violations=tuple((found.seed, found.rule) for found in summary.found if found.seed < next_seed),
        coordination=plan.coordination,
    )


def _commit() -> str:
    """The commit of the checkout that these files are in."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN_COMMIT


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=FOLDER, capture_output=True, text=True, check=True, timeout=30
    ).stdout.strip()


def read_runs(store: Path = STORE) -> list[Run]:
    """All recorded runs in the order of the file."""
    if not store.exists():
        return []
    lines: list[dict[str, Any]] = [json.loads(line) for line in store.read_text().splitlines()]
    for line in lines:
        line["violations"] = tuple((seed, rule) for seed, rule in line["violations"])
    return [Run(**line) for line in lines]


def record(run: Run, store: Path = STORE) -> None:
    """Append a run to the file."""
    with store.open("a") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def add(summary: Summary, store: Path = STORE) -> None:
    """Record a run that has just ended; with the repository's own file, also update the page."""
    record(run_of(summary), store)
    if store == STORE:
        write_table(read_runs(store))


def next_seed(coordination: str, nodes: int, workload: str, runs: Iterable[Run]) -> int:
    """The first seed that no run of this series has reached."""
    return max((run.next_seed for run in runs if run.series == (coordination, nodes, workload)), default=0)


def table(runs: Sequence[Run]) -> str:
    """The sums, by coordination, nodes and workload, as a Markdown table."""
    lines = [
        "| coordination | nodes | workload | schedules | valid | unknown | with a violation | messages | runs | from | to |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for series in sorted({run.series for run in runs}):
        coordination, nodes, workload = series
        some = [run for run in runs if run.series == series]
        lines.append(f"| {coordination} | {nodes} | {workload} | {_sums(some)} |")
    lines.append(f"| all | all | all | {_sums(runs)} |")
    return "\n".join(lines)


def _sums(runs: Sequence[Run]) -> str:
    numbers = (
        sum(run.schedules for run in runs), sum(run.valid for run in runs), sum(run.unknown for run in runs),
        sum(len(run.violations) for run in runs), sum(run.messages for run in runs), len(runs),
    )  # fmt: skip
    dates = sorted(run.date for run in runs) or ["–"]
    return " | ".join([*(f"{number:,}" for number in numbers), dates[0], dates[-1]])


def write_table(runs: Sequence[Run], page: Path = PAGE) -> None:
    """Replace the table of sums in the page."""
    write_part(page, "accumulated", table(runs))
