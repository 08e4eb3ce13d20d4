"""Sums up many runs: counts, findings, and the rows that are printed."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linearizability.pipeline.verdict import INVALID, LACKS, UNKNOWN, VALID
from linearizability.results import suite_version
from linearizability.simulation.schedule import STEPS

MAX_NAMED = 1_000

ACTION, PAIR = "action ", "pair "
"""Prefixes of the specification's steps in the counts of a run."""


@dataclass(frozen=True)
class Plan:
    """What to fuzz, and for how long: by number of schedules, by time, or both."""

    folder: Path
    schedules: int | None = None
    seconds: float | None = None
    first_seed: int = 0
    jobs: int = 1
    mutant: str | None = None
    until_found: bool = False
    nodes: int = 1
    by_history: bool = False
    """Whether the clients' histories alone decide."""
    coordination: str = "kraft"
    """What coordinates the nodes (`Schedule.coordination`)."""
    workload: str = "records"
    """What clients do besides single records (`workloads.WORKLOADS`)."""
    traces: bool = False
    """Whether each run's steps are kept, for `tidegauge spec trace`."""
    python: str = ""
    """The interpreter that executes the runs (`remote_interpreter`); empty for this one."""
    engine: str = "processes"
    """Where runs are executed: in `jobs` processes of this machine, or by `spark`."""
    master: str = ""
    """The Spark master; empty for the one that Spark's configuration names, or `local[*]`."""
    spark: Mapping[str, str] = field(default_factory=dict[str, str])
    """Spark's settings."""
    kept: int = 5
    """Failures that are shrunk and kept; all are counted and named."""


@dataclass
class Small:
    """A worker's result of one run: an outcome without its history."""

    seed: int
    verdict: str
    rule: str
    text: str
    messages: int
    acknowledged: int
    safe: int
    """Of the acknowledged records, those with acks=all."""
    leader_changes: int
    seconds: float
    counts: Counter[str]
    permitted: dict[str, int]
    excuses: int
    """Number of excuses that the faults gave."""
    excused: dict[str, int]
    """Of the permitted anomalies, those that rest on them."""
    digest: str
    """Of all that happened in the run: the same seed has the same, wherever it is run."""

    @property
    def is_undecided(self) -> bool:
        """Whether it has no verdict though it shows something, of which the rules could not say what."""
        return self.verdict == UNKNOWN and not {*self.text.split("; ")} <= LACKS


@dataclass
class Found:
    """A shrunk schedule that failed, and its folder."""

    seed: int
    rule: str
    text: str
    folder: str = ""
    trials: int = 0


@dataclass
class Summary:
    """The sums of all runs."""

    plan: Plan
    runs: list[Small] = field(default_factory=list[Small])
    found: list[Found] = field(default_factory=list[Found])
    counts: Counter[str] = field(default_factory=Counter[str])
    permitted: Counter[str] = field(default_factory=Counter[str])
    excused: Counter[str] = field(default_factory=Counter[str])
    verdicts: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0
    seconds_to_first: float | None = None
    schedules_to_first: int | None = None
    interrupted: bool = False
    not_kept: str = ""
    """Why the folder is incomplete, for example a full disk."""

    def add(self, run: Small) -> None:
        self.runs.append(run)
        self.verdicts[run.verdict] += 1
        self.counts.update(run.counts)
        self.permitted.update(run.permitted)
        self.excused.update(run.excused)

    @property
    def actions(self) -> dict[str, int]:
        """How often each step of the specification was seen."""
        return {
            name.removeprefix(ACTION): count for name, count in sorted(self.counts.items()) if name.startswith(ACTION)
        }

    @property
    def pairs(self) -> dict[str, int]:
        """How often one step was followed by another on the same partition."""
        return {name.removeprefix(PAIR): count for name, count in self.counts.items() if name.startswith(PAIR)}

    @property
    def unknown(self) -> list[Small]:
        """The runs without a verdict; `text` says why."""
        return [run for run in self.runs if run.verdict == UNKNOWN]

    @property
    def undecided(self) -> list[Small]:
        return [run for run in self.runs if run.is_undecided]

    @property
    def verdict(self) -> str:
        """Single runs that show nothing (too short, nothing acknowledged) do not make many unknown; one that is undecided does,
        and an interrupt."""
        if self.verdicts[INVALID]:
            return INVALID
        return VALID if self.verdicts[VALID] and not self.interrupted and not self.undecided else UNKNOWN

    @property
    def reason(self) -> str:
        """Why the verdict is unknown; empty where it is not."""
        if self.verdict != UNKNOWN:
            return ""
        if self.interrupted:
            return f"interrupted after {len(self.runs)} schedules, of which {self.verdicts[VALID]} are valid"
        if self.undecided:
            first = self.undecided[0]
            return f"{len(self.undecided)} runs are undecided, as that of seed {first.seed}: {first.text}"
        why = next((f", as that of seed {run.seed}: {run.text}" for run in self.runs if run.text), "")
        return f"no run showed enough to be judged{why}"

    @property
    def speeds(self) -> list[int]:
        """Messages a CPU second of each full hundred of runs: an interpreter that compiles gains as it warms up."""
        hundreds = [self.runs[end - 100 : end] for end in range(100, len(self.runs) + 1, 100)]
        return [round(sum(run.messages for run in few) / (sum(run.seconds for run in few) or 1e-9)) for few in hundreds]

    @property
    def share(self) -> float:
        """How much of the plan is done: of its schedules or of its time, whichever ends first; 0 where neither is given."""
        of_schedules = len(self.runs) / self.plan.schedules if self.plan.schedules else 0.0
        return max(of_schedules, self.seconds / self.plan.seconds if self.plan.seconds else 0.0)

    def to_json(self) -> dict[str, Any]:
        cpu = sum(run.seconds for run in self.runs) or 1e-9
        messages = sum(run.messages for run in self.runs)
        wall = self.seconds or 1e-9
        return {
            "verdict": self.verdict,
            "tidegauge": suite_version(),
            "reason": self.reason,
            "schedules": len(self.runs),
            "valid": self.verdicts[VALID],
            "invalid": self.verdicts[INVALID],
            "unknown": self.verdicts[UNKNOWN],
            "unknown_runs": [{"seed": run.seed, "reason": run.text} for run in self.unknown[:MAX_NAMED]],
            "first_seed": self.plan.first_seed,
            "nodes": self.plan.nodes,
            "coordination": self.plan.coordination,
            "workload": self.plan.workload,
            "mutant": self.plan.mutant,
            "jobs": self.plan.jobs,
            "seconds": round(self.seconds, 2),
            "schedules_per_second": round(len(self.runs) / wall, 2),
            "schedules_per_minute_and_core": round(60 * len(self.runs) / cpu, 1),
            "messages": messages,
            "messages_per_second": round(messages / wall),
            "messages_per_minute_and_core": round(60 * messages / cpu),
            "messages_per_second_and_core": round(messages / cpu),
            "messages_per_second_and_core_by_hundred_runs": self.speeds,
            "median_messages": _median(run.messages for run in self.runs),
            "median_acknowledged": _median(run.acknowledged for run in self.runs),
            "median_acknowledged_by_all": _median(run.safe for run in self.runs),
            "median_leader_changes": _median(run.leader_changes for run in self.runs),
            "actions": self.actions,
            "actions_not_seen": [] if self.plan.nodes == 1 else [step for step in STEPS if step not in self.actions],
            "pairs_of_actions": len(self.pairs),
            "schedules_to_first": self.schedules_to_first,
            "seconds_to_first": self.seconds_to_first,
            "violations": [vars(found) for found in self.found[:MAX_NAMED]],
            "permitted": dict(sorted(self.permitted.items())),
            "excused": {
                "runs_with_an_excuse": sum(run.excuses > 0 for run in self.runs),
                "runs": sum(bool(run.excused) for run in self.runs),
                "anomalies": dict(sorted(self.excused.items())),
            },
            "coverage": {name: count for name, count in sorted(self.counts.items()) if not name.startswith(PAIR)},
            "interrupted": self.interrupted,
            "not_kept": self.not_kept,
            "engine": self.plan.engine,
            "digest": hashlib.sha256("".join(run.digest for run in self.runs).encode()).hexdigest(),
            "folder": str(self.plan.folder),
        }


def _median(values: Iterator[int]) -> int:
    numbers = list(values)
    return int(statistics.median(numbers)) if numbers else 0
