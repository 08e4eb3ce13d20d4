"""All nights of a campaign on one page: runs, violations, and trends over the nights."""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from linearizability.campaign.nights import Kind, Row

PAGE, SUMS = "report.html", "report.json"
CORES, HOURS = 1_000, 8
"""The size of the larger night that the page estimates."""


@dataclass(frozen=True)
class Sum:
    """A series in one night."""

    night: str
    kind: Kind
    schedules: int
    invalid: int
    unknown: int
    excused: int
    messages: int
    cpu_seconds: float
    pairs: int
    """The number of different pairs of steps seen up to and including this night."""
    new_pairs: int
    """The number of pairs that no earlier night had seen."""
    found_after: tuple[int, ...]
    """For a planted bug: the number of runs up to each find."""

    @property
    def excused_share(self) -> float:
        return self.excused / self.schedules if self.schedules else 0.0


def name_of(kind: Kind) -> str:
    coordination, nodes, workload, mutant = kind
    parts = [
        mutant,
        f"{nodes} node{'s' if nodes > 1 else ''}",
        workload,
        "" if coordination == "kraft" else coordination,
    ]
    return ", ".join(part for part in parts if part)


def sums(rows: Sequence[Row]) -> list[Sum]:
    """A sum for each series and night, by series and then in the order of the table."""
    found: list[Sum] = []
    for kind in dict.fromkeys(row.kind for row in rows):
        seen: set[str] = set()
        of_kind = [row for row in rows if row.kind == kind]
        for night in dict.fromkeys(row.night for row in of_kind):
            some = [row for row in of_kind if row.night == night]
            before = len(seen)
            seen.update(pair for row in some for pair in row.pairs)
            found.append(
                Sum(
                    night=night,
                    kind=kind,
                    schedules=sum(row.schedules for row in some),
                    invalid=sum(row.invalid for row in some),
                    unknown=sum(row.unknown for row in some),
                    excused=sum(row.excused for row in some),
                    messages=sum(row.messages for row in some),
                    cpu_seconds=sum(row.cpu_seconds for row in some),
                    pairs=len(seen),
                    new_pairs=len(seen) - before,
                    found_after=tuple(row.to_first for row in some if row.to_first is not None),
                )
            )
    return found


def write(rows: Sequence[Row], store: Path) -> None:
    """Write the page, and its numbers as JSON beside it. Errors: OSError."""
    import json

    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = sums(rows)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, undefined=StrictUndefined
    )
    ours, planted = ([each for each in found if bool(each.kind[3]) == is_planted] for is_planted in (False, True))
    page = environment.get_template("report.html.j2").render(
        nights=sorted({each.night for each in found}, reverse=True),
        ours=ours,
        planted=planted,
        name_of=name_of,
        median=statistics.median,
        violations=[(row, each) for row in rows if not row.mutant for each in row.violations],
        pictures=_pictures(ours, planted),
        costs=_costs(ours),
        cores=CORES,
        hours=HOURS,
    )
    (store / PAGE).write_text(page)
    text = [asdict(each) | {"excused_share": round(each.excused_share, 4)} for each in found]
    (store / SUMS).write_text(json.dumps({"sums": text, "costs": _costs(ours)}, indent=1) + "\n")


def _costs(ours: Sequence[Sum]) -> list[dict[str, Any]]:
    """For each series the mean cost of a run, and the number of runs of a larger night."""
    costs: list[dict[str, Any]] = []
    for kind in dict.fromkeys(each.kind for each in ours):
        some = [each for each in ours if each.kind == kind]
        runs, cpu = sum(each.schedules for each in some), sum(each.cpu_seconds for each in some)
        if runs and cpu:
            in_a_night = int(CORES * HOURS * 3600 * runs / cpu)
            costs.append({"series": name_of(kind), "cpu_seconds_a_run": round(cpu / runs, 3), "runs": in_a_night})
    return costs


def _pictures(ours: Sequence[Sum], planted: Sequence[Sum]) -> list[tuple[str, str]]:
    """Title and SVG of each trend that has data."""
    wanted: list[tuple[str, Sequence[Sum], Callable[[Sum], float | None]]] = [
        ("schedules a night", ours, lambda each: each.schedules),
        ("pairs of steps seen by then", ours, lambda each: each.pairs),
        ("share of verdicts that rest on an excuse", ours, lambda each: each.excused_share),
        ("planted bugs: median runs to find", planted, lambda each: _median(each.found_after)),
    ]
    return [(title, picture) for title, some, value in wanted if (picture := _trend(title, some, value))]


def _median(found_after: Sequence[int]) -> float | None:
    return statistics.median(found_after) if found_after else None


def _trend(title: str, some: Sequence[Sum], value: Callable[[Sum], float | None]) -> str:
    """A chart with one line for each series over the nights, as SVG; empty without data."""
    points = {
        kind: [(each.night, value(each)) for each in some if each.kind == kind] for kind in {e.kind: 0 for e in some}
    }
    points = {kind: [(night, number) for night, number in line if number is not None] for kind, line in points.items()}
    nights = sorted({night for line in points.values() for night, _ in line})
    if not nights:
        return ""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.2))
    for kind, line in points.items():
        if line:
            axes.plot(
                [nights.index(night) for night, _ in line],
                [number for _, number in line],
                marker="o",
                label=name_of(kind),
            )
    axes.set_xticks(range(len(nights)), nights, rotation=30 if len(nights) > 4 else 0)
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    pyplot.close(figure)
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]
