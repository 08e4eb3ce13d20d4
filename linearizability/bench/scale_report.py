"""Shows the rows of `bench scale` as a picture and as tables."""

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
    ("connections", "single_request_cpu_us", "CPU a produce request, µs"),
    ("start", "start_after_stop_s", "start after a clean stop, s"),
    ("start", "start_after_kill_s", "start after kill -9, s"),
    ("start", "resident_mb", "memory, MB"),
    ("start", "idle_cpu_ms_per_s", "idle CPU of one node, ms/s"),
    ("start", "single_request_cpu_us", "CPU a produce request, µs"),
    ("groups", "id_kb", "memory a group, KB"),
    ("transactional-ids", "id_kb", "memory a transactional id, KB"),
    ("producer-ids", "id_kb", "memory a producer id, KB"),
    ("log", "start_after_kill_s", "start with a log after kill -9, s"),
    ("log", "start_reading_all_s", "the same, all of it read, s"),
    ("upkeep", "compaction_p99_us", "p99 beside a compaction, µs"),
)
"""The kind, column and title of each part of the picture."""

UNITS = {"connections": "connections", "groups": "groups", "transactional-ids": "ids", "producer-ids": "ids"} | {
    "log": "MB",
    "upkeep": "records",
}
"""Kind -> what is counted, if not partitions."""

COLUMNS: Mapping[str, Sequence[tuple[str, str]]] = {
    "partitions": (("served_cpu_s", "the same, CPU s"), ("led_again_cpu_s", "led again, CPU s")),
    "connections": (("request_cpu_us", "several under way"), ("requests_per_s", "/s"), ("connection_kb", "KB each")),
    "start": (
        ("served_cpu_s", "record each, CPU s"),
        ("stop_s", "clean stop, s"),
        ("start_after_stop_cpu_s", "start, CPU s"),
        ("start_after_kill_cpu_s", "after kill, CPU s"),
        ("partition_kb", "KB each"),
        ("partition_descriptors", "descriptors each"),
        ("request_cpu_us", "several under way"),
    ),
    "groups": (
        ("used_cpu_s", "committed, CPU s"),
        ("request_cpu_us", "commit, CPU µs"),
        ("resident_mb", "MB"),
        ("start_after_stop_s", "start, s"),
        ("start_after_kill_s", "after kill, s"),
        ("again_mb", "deleted, and others, MB"),
    ),
    "transactional-ids": (
        ("used_cpu_s", "initialized, CPU s"),
        ("request_cpu_us", "InitProducerId, CPU µs"),
        ("resident_mb", "MB"),
        ("start_after_stop_s", "start, s"),
        ("start_after_kill_s", "after kill, s"),
        ("again_mb", "expired, and others, MB"),
    ),
    "producer-ids": (
        ("used_cpu_s", "written, CPU s"),
        ("single_request_cpu_us", "request, CPU µs"),
        ("resident_mb", "MB"),
        ("start_after_stop_s", "start, s"),
        ("start_after_kill_s", "after kill, s"),
        ("again_mb", "expired, and others, MB"),
    ),
    "log": (
        ("start_after_kill_cpu_s", "CPU s"),
        ("start_without_note_s", "without note, s"),
        ("start_without_note_cpu_s", "CPU s"),
        ("start_reading_all_cpu_s", "all read, CPU s"),
        ("start_reading_all_peak_mb", "at most MB"),
        ("start_after_stop_s", "start, s"),
    ),
    "upkeep": (
        ("alone_p99_us", "alone, p99 µs"),
        ("compaction_p99_ratio", "ratio"),
        ("compaction_max_us", "longest"),
        ("compaction_cpu_s", "CPU s"),
        ("retention_p99_ratio", "retention, ratio"),
        ("retention_max_us", "longest"),
    ),
}
"""Columns of the tables that the picture lacks."""


def draw(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Draw a panel for each measured quantity, with a curve for each target over the number of partitions or connections."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    found = [row for row in rows if "failed" not in row]
    targets = {target: f"C{number}" for number, target in enumerate(dict.fromkeys(row["target"] for row in found))}
    figure, grid = pyplot.subplots(5, 4, figsize=(16, 16))
    for axes, (kind, column, title) in zip(grid.flat, PANELS, strict=False):
        for target, colour in targets.items():
            points = [
                (r["count"], r[column]) for r in found if (r["kind"], r["target"]) == (kind, target) and column in r
            ]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), marker="o", color=colour, label=target)
        axes.set(xscale="log", xlabel=UNITS.get(kind, "partitions"), title=title)
        axes.set_ylim(bottom=0)
        axes.set_visible(bool(axes.lines))
        axes.grid(True, alpha=0.3)
    for axes in grid.flat[len(PANELS) :]:
        axes.set_visible(False)
    if labelled := next((axes for axes in grid.flat if axes.lines), None):
        labelled.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def show(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print each kind's rows as a table."""
    from rich.console import Console
    from rich.table import Table

    found = [*rows]
    console = Console(width=200)
    for kind in dict.fromkeys(kind for kind, _, _ in PANELS):
        columns = [(column, title) for each, column, title in PANELS if each == kind]
        columns += COLUMNS.get(kind, ())
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
