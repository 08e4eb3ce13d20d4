"""The stored comparisons with Kafka: a table for each subject and protocol, in `reference/SPEED.md`, and one picture of all.

`tidegauge bench broker`, `groups`, `transactions` and `compaction` store their rows with `--record`; a row replaces the one of
the same load. All figures of a row are medians of rounds that were measured in turn, in one run.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from linearizability.pages import write_part

__all__ = ["PAGE", "STORE", "Comparison", "Recorded", "Row", "draw", "keep", "read", "record", "table", "write"]

STORE = Path(__file__).with_name("comparisons.json")
PICTURE = STORE.with_suffix(".svg")
PAGE = Path(__file__).parents[2] / "reference" / "SPEED.md"


Recorded = Annotated[bool, typer.Option("--record", help="Keep the rows, and write them into reference/SPEED.md.")]


@dataclass(frozen=True)
class Row:
    """The results of one load."""

    load: str
    ours: float
    theirs: float
    unit: str
    """The unit of both rates: `/s` (requests, commits, rebalances or transactions), or `MB/s`."""
    rate_ratio: float
    cpu_ratio: float
    p99_ratio: float | None
    """None for compaction, which has no requests."""
    steady: bool
    """Whether the rates of the rounds differ by less than a tenth, on both sides."""
    date: str


@dataclass
class Comparison:
    """The rows of one subject: `reference-pypy:3` is three nodes on PyPy."""

    subject: str
    against: str
    security: str
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the comparison's part of the page."""
        return f"{self.subject}, {self.security}"


def read(store: Path = STORE) -> dict[str, Comparison]:
    """The stored comparisons by name; empty where there is no such file. Errors: OSError, ValueError."""
    if not store.exists():
        return {}
    found = [Comparison(**each | {"rows": _rows(each["rows"])}) for each in json.loads(store.read_text())]
    return {each.name: each for each in found}


def _rows(kept: Iterable[Mapping[str, Any]]) -> dict[str, Row]:
    return {each["load"]: Row(**each) for each in kept}


def record(
    measured: Mapping[str, Any], date: str, *, store: Path = STORE, page: Path = PAGE, picture: Path = PICTURE
) -> None:
    """Store the result of `bench.broker.compare` or `bench.compaction.compare`, and update page and picture.

    Errors: OSError, ValueError where the page has no part for this subject.
    """
    comparisons = read(store)
    nodes = measured["idle"][measured["subject"]]["nodes"] if "idle" in measured else 1
    subject = f"{measured['subject'].split(':')[0]}:{nodes}"
    new = Comparison(subject, measured["against"], measured.get("security", "PLAINTEXT"))
    rows = {each.load: each for each in (_row(found, measured, date) for found in measured["rows"])}
    kept = comparisons.setdefault(new.name, new)
    kept.rows |= rows
    write(comparisons, store)
    write_part(page, kept.name, table(kept))
    draw(comparisons.values(), picture)


def keep(measured: Mapping[str, Any]) -> None:
    """Call `record` for a command. Errors: typer.Exit, after a line with the reason why nothing was written."""
    try:
        record(measured, datetime.date.today().isoformat())
    except (OSError, ValueError) as error:
        typer.echo(f"bench: the rows were not recorded: {error}", err=True)
        raise typer.Exit(3) from None


def write(comparisons: Mapping[str, Comparison], store: Path = STORE) -> None:
    """Store comparisons with one line for each row, so that a changed row is one line of a diff. Errors: OSError."""
    texts = []
    for each in comparisons.values():
        head = json.dumps({"subject": each.subject, "against": each.against, "security": each.security})
        rows = ",\n".join(f"  {json.dumps(asdict(row))}" for row in each.rows.values())
        texts.append(f'{head[:-1]}, "rows": [\n{rows}\n]}}')
    store.write_text("[\n" + ",\n".join(texts) + "\n]\n")


def _row(found: Mapping[str, Any], measured: Mapping[str, Any], date: str) -> Row:
    a, b = (found["medians"][measured[side]] for side in ("subject", "against"))
    if "cpu_ms_per_mb" in a:
        load, unit, rates, p99 = f"compaction, {found['case']}", "MB/s", "mb_per_s", None
        rate, cpu = found["ratio"], a["cpu_ms_per_mb"] / b["cpu_ms_per_mb"]
    else:
        load, unit, rates = found["case"], "/s", "requests_per_s"
        rate, cpu, p99 = found["rate_ratio"], found["cpu_ratio"], round(found["p99_ratio"], 3)
    ours, theirs = round(a[rates], 1), round(b[rates], 1)
    return Row(load, ours, theirs, unit, round(rate, 3), round(cpu, 3), p99, found["steady"], date)


def table(comparison: Comparison) -> str:
    """The rows as a Markdown table; ~ marks those that were not steady."""
    lines = [
        f"| load | `{comparison.subject}` | `{comparison.against}` | ratio of rates | of CPU | of p99 | measured |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in comparison.rows.values():
        rates = " | ".join(f"{rate:,.{0 if rate >= 100 else 1}f} {row.unit}" for rate in (row.ours, row.theirs))
        ratios = " | ".join(
            "–" if each is None else f"{each:.2f}" for each in (row.rate_ratio, row.cpu_ratio, row.p99_ratio)
        )
        lines.append(f"| {'' if row.steady else '~ '}{row.load} | {rates} | {ratios} | {row.date} |")
    return "\n".join(lines)


SERIES = (
    ("rate_ratio", "rate, more is better", "#2a6f97"),
    ("cpu_ratio", "CPU, less is better", "#e07a5f"),
    ("p99_ratio", "p99, less is better", "#8d99ae"),
)


def draw(comparisons: Iterable[Comparison], path: Path) -> None:
    """A panel for each comparison: its ratios, on a logarithmic axis around 1."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    found = [each for each in comparisons if each.rows]
    heights = [len(each.rows) + 2 for each in found]
    figure, grid = pyplot.subplots(
        len(found), 1, figsize=(10, 0.36 * sum(heights)), height_ratios=heights, sharex=True, squeeze=False
    )
    for axes, comparison in zip(grid.flat, found, strict=True):
        rows = [*comparison.rows.values()]
        for name, label, colour in SERIES:
            points = [(getattr(row, name), place) for place, row in enumerate(rows) if getattr(row, name) is not None]
            axes.plot(*zip(*points, strict=True), "o", color=colour, label=label)
        axes.set_xscale("log")
        axes.set_xticks([0.1, 0.25, 0.5, 1, 2, 4, 8], ["0.1", "0.25", "0.5", "1", "2", "4", "8"])
        axes.minorticks_off()
        axes.axvline(1, color="black", linewidth=1)
        axes.set_yticks(range(len(rows)), [row.load for row in rows])
        axes.invert_yaxis()
        axes.grid(True, alpha=0.3)
        axes.set_title(f"{comparison.name}: compared with {comparison.against} (1 = equal)", fontsize=10)
    if found:
        grid.flat[0].legend(loc="best", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
