"""The rows of `bench scale` as a picture and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PANELS: Sequence[tuple[str, str, str]] = (
    ("partitions", "created_s", "topics created, s"),
    ("partitions", "served_s", "every partition took a record, s"),
    ("partitions", "led_again_s", "again, after a kill, s"),
    ("partitions", "in_sync_again_s", "in sync again, s"),
    ("partitions", "replica_kb", "memory a replica, KB"),
    ("partitions", "replica_descriptors", "descriptors a replica"),
    ("partitions", "idle_cpu_ms_per_s", "idle CPU of all nodes, ms/s"),
    ("partitions", "request_cpu_us", "CPU a produce request, µs"),
    ("connections", "request_cpu_us", "CPU a produce request, µs"),
    ("start", "start_after_stop_s", "start after a clean stop, s"),
    ("start", "start_after_kill_s", "start after kill -9, s"),
    ("start", "resident_mb", "memory, MB"),
)
"""The kind, column and title of each part of the picture."""


def draw(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """A panel for each quantity that was measured: its curve over the number of partitions or connections, a line a target."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    found = [row for row in rows if "failed" not in row]
    targets = {target: f"C{number}" for number, target in enumerate(dict.fromkeys(row["target"] for row in found))}
    figure, grid = pyplot.subplots(3, 4, figsize=(16, 10))
    for axes, (kind, column, title) in zip(grid.flat, PANELS, strict=True):
        for target, colour in targets.items():
            points = [
                (r["count"], r[column]) for r in found if (r["kind"], r["target"]) == (kind, target) and column in r
            ]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), marker="o", color=colour, label=target)
        unit = "connections" if kind == "connections" else "partitions"
        axes.set(xscale="log", xlabel=unit, title=title)
        axes.set_ylim(bottom=0)
        axes.set_visible(bool(axes.lines))
        axes.grid(True, alpha=0.3)
    if found:
        grid.flat[0].legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def show(rows: Iterable[Mapping[str, Any]]) -> None:
    """Each kind's rows as a table: targets side by side, a column a quantity of the picture."""
    from rich.console import Console
    from rich.table import Table

    found = [*rows]
    console = Console(width=170)
    for kind in dict.fromkeys(kind for kind, _, _ in PANELS):
        columns = [(column, title) for each, column, title in PANELS if each == kind]
        table = Table(title=kind)
        for name in ("count", "target", *(title for _, title in columns)):
            table.add_column(name, justify="left" if name == "target" else "right")
        for row in sorted((row for row in found if row["kind"] == kind), key=lambda row: row["count"]):
            cells = [f"{row[column]:,}" if column in row else "–" for column, _ in columns]
            table.add_row(f"{row['count']:,}", row["target"], *cells)
        if table.row_count:
            console.print(table)
    for row in found:
        if "failed" in row:
            console.print(f"{row['kind']} {row['target']} {row['count']:,}: {row['failed']}")
