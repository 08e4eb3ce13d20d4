"""Several stored runs side by side: one row for each requirement, one column for each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from conformance.report.terminal import RUN_STYLE, STYLE
from conformance.requirement import Requirement
from conformance.results import Judgement, Run, Verdict


@dataclass(frozen=True)
class Row:
    """One requirement and its judgement in each run; None where a run did not include it."""

    requirement: Requirement
    cells: list[Judgement | None]

    @property
    def verdicts(self) -> list[str]:
        """The verdicts of the runs that include the requirement."""
        return [str(cell.verdict) for cell in self.cells if cell]

    @property
    def differs(self) -> bool:
        """Whether the runs that include the requirement disagree."""
        return len(set(self.verdicts)) > 1


@dataclass(frozen=True)
class Matrix:
    """Runs and their rows, in the order of reports."""

    runs: list[Run]
    labels: list[str]
    rows: list[Row]


def matrix(runs: Sequence[Run]) -> Matrix:
    """The matrix of several runs. Labels of runs on the same target include the start time."""
    specs = Counter(run.target.spec for run in runs)
    labels = [run.target.spec if specs[run.target.spec] == 1 else f"{run.target.spec} {run.started_at}" for run in runs]
    records: dict[str, Requirement] = {}
    judged: list[dict[str, Judgement]] = []
    for run in runs:
        judged.append({judgement.requirement.id: judgement for judgement in run.judgements})
        records |= {judgement.requirement.id: judgement.requirement for judgement in run.judgements}
    ordered = sorted(records.values(), key=lambda record: record.order)
    rows = [Row(record, [column.get(record.id) for column in judged]) for record in ordered]
    return Matrix(list(runs), labels, rows)


def show(found: Matrix, console: Console, *, everything: bool = False) -> None:
    """Print the rows that differ (or all), and the verdicts."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("requirement", overflow="fold")
    for label in found.labels:
        table.add_column(label)
    rows = [row for row in found.rows if everything or row.differs]
    for row in rows:
        head = Text.assemble((row.requirement.id, "bold"), f" {row.requirement.sentence}")
        table.add_row(head, *(_cell(cell) for cell in row.cells))
    table.add_row("", *("" for _ in found.runs))
    table.add_row("verdict", *(Text(str(run.verdict), style=RUN_STYLE[run.verdict]) for run in found.runs))
    console.print(table)
    console.print(f"{len(rows)} of {len(found.rows)} requirements {'shown' if everything else 'differ'}", style="dim")
    partial = len(found.rows) - sum(None not in row.cells for row in found.rows)
    if partial:
        console.print(f"{partial} of them were not asked in every run (·)", style="dim")


def _cell(cell: Judgement | None) -> Text:
    return Text(str(cell.verdict), style=STYLE[cell.verdict]) if cell else Text("·", style="dim")


def totals(found: Matrix) -> list[tuple[Run, str, dict[str, int]]]:
    """Each run with its label and its requirements by verdict."""
    counted: list[tuple[Run, str, dict[str, int]]] = []
    for run, label in zip(found.runs, found.labels, strict=True):
        counts = Counter(judgement.verdict for judgement in run.judgements)
        counted.append((run, label, {str(verdict): counts[verdict] for verdict in Verdict}))
    return counted
