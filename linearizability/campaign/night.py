"""One night: each series of the plan runs for its time. The next start of an interrupted night runs the rest."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from linearizability.campaign.nights import Kind, Row, add, next_seed, read_rows, runs_without_find, spent
from linearizability.campaign.plan import NightPlan, Series
from linearizability.pipeline.verdict import INVALID, UNKNOWN, VALID
from linearizability.results import new_run_folder, suite_version
from linearizability.simulation.fuzzing import fuzz
from linearizability.simulation.fuzzing_summary import Plan, Summary

LEAST_S = 1.0
"""A series with less time left is over."""

Progress = Callable[[Series, Summary], None]


@dataclass
class Night:
    """The runs of one night so far."""

    name: str
    kinds: tuple[Kind, ...]
    """The series of its plan."""
    rows: list[Row] = field(default_factory=list[Row])
    interrupted: bool = False
    not_kept: str = ""

    @property
    def verdict(self) -> str:
        """The verdict on the current code; series with a planted bug do not count. It is unknown where a series has no valid
        run, a run is undecided, the night was interrupted, or the plan has only planted bugs."""
        ours = [row for row in self.rows if not row.mutant]
        if any(row.invalid for row in ours):
            return INVALID
        shown = {row.kind for row in ours if row.valid}
        wanted = {kind for kind in self.kinds if not kind[3]}
        is_whole = wanted and wanted <= shown and not self.interrupted
        return VALID if is_whole and not any(row.undecided for row in ours) else UNKNOWN


def carry_out(plan: NightPlan, name: str, store: Path, progress: Progress) -> Night:
    """Run the rest of this night. Errors: BadTable; SparkFailure; OSError where the table cannot be written."""
    store.mkdir(parents=True, exist_ok=True)
    rows = read_rows(store)
    kinds = tuple(series.kind for series in plan.series)
    night = Night(name, kinds, [row for row in rows if row.night == name])
    for series in plan.series:
        while not night.interrupted and not night.not_kept:
            seconds, finds = spent(name, series.kind, rows)
            left = 60 * series.minutes - seconds
            if left < LEAST_S or finds >= series.finds:
                break
            summary = fuzz(_plan(plan, series.kind, left, rows, store), lambda so_far, of=series: progress(of, so_far))
            row = _row(name, summary, rows)
            night.interrupted, night.not_kept = summary.interrupted, summary.not_kept
            if not row.schedules:
                break
            add(row, store)
            rows.append(row)
            night.rows.append(row)
    return night


def _plan(plan: NightPlan, kind: Kind, seconds: float, rows: list[Row], store: Path) -> Plan:
    from linearizability.mutants.registry import MUTANTS

    coordination, nodes, workload, mutant = kind
    seed = next_seed(kind, rows)
    return Plan(
        folder=new_run_folder("fuzz", mutant or f"{nodes}-{workload}-{seed}", store / "runs"),
        seconds=seconds,
        first_seed=seed,
        jobs=plan.jobs or os.cpu_count() or 1,
        mutant=mutant or None,
        until_found=bool(mutant),
        nodes=nodes,
        by_history=bool(mutant and MUTANTS[mutant].only_in_history),
        coordination=coordination,
        workload=workload,
        engine=plan.engine,
        master=plan.master,
        spark=plan.spark,
        kept=0 if mutant else 5,
    )


def _row(name: str, summary: Summary, rows: list[Row]) -> Row:
    """The row of the runs that count: those of consecutive seeds from the first on, as an interrupt may leave gaps."""
    plan = summary.plan
    kind = (plan.coordination, plan.nodes, plan.workload, plan.mutant or "")
    runs = [run for number, run in enumerate(summary.runs) if run.seed == plan.first_seed + number]
    found = [each for each in summary.found if each.seed < plan.first_seed + len(runs)]
    first = found[0].seed - plan.first_seed + 1 if found and plan.mutant else None
    if first is not None:
        runs = runs[:first]  # seeds behind the find belong to the next search
    return Row(
        night=name,
        tidegauge=suite_version(),
        coordination=plan.coordination,
        nodes=plan.nodes,
        workload=plan.workload,
        mutant=plan.mutant or "",
        first_seed=plan.first_seed,
        schedules=len(runs),
        valid=sum(run.verdict == VALID for run in runs),
        invalid=sum(run.verdict == INVALID for run in runs),
        unknown=sum(run.verdict == UNKNOWN for run in runs),
        excused=sum(bool(run.excused) for run in runs),
        messages=sum(run.messages for run in runs),
        acknowledged=sum(run.acknowledged for run in runs),
        cpu_seconds=round(sum(run.seconds for run in runs), 3),
        seconds=round(summary.seconds, 3),
        to_first=None if first is None else first + runs_without_find(kind, rows),
        pairs=tuple(sorted(summary.pairs)),
        violations=tuple((each.seed, each.rule, each.folder) for each in found[: 1 if plan.mutant else None]),
        undecided=tuple(run.seed for run in runs if run.is_undecided),
    )
