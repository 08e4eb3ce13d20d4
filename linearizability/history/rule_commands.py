"""`tidegauge history rules|watch`. A watch ends with 1 where an anomaly was found, 2 where none was (which proves nothing)."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linearizability.history.commands import ENGINE_ERROR, ClientConfig, app, known_rules, reached
from linearizability.progress import Progress

if TYPE_CHECKING:
    from linearizability.history.growing import GrowingFolder, GrowingTopic

__all__ = ["app"]

WHOLE = "no: the rule needs the whole partition in one place"


@app.command(
    epilog="Examples: tidegauge history watch results/latest | tidegauge history watch results/latest --window 300 --json | "
    "tidegauge history watch kafka:127.0.0.1:9092/histories"
)
def watch(
    place: Annotated[str, typer.Argument(help="A folder with a run's files, or kafka:HOST:PORT/TOPIC.")],
    window: Annotated[float, typer.Option(min=1, help="Seconds of the history that are looked at together.")] = 60.0,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 5.0,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="For how long; default: until all files are closed, or Ctrl-C.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object an anomaly, and one that sums up.")] = False,
    client_config: ClientConfig = None,
) -> int:
    """Judge a history while it is recorded: report an anomaly by the second look after it shows, in bounded memory.

    Only what is there can accuse. Losses show at the end: `tidegauge history check` judges the whole.
    """
    from linearizability.history.files import HistoryError
    from linearizability.history.topic import TopicError
    from linearizability.pipeline.watch import NS_A_S, Watch

    until = time.monotonic() + (minutes * 60 if minutes is not None else float("inf"))
    watched, found = Watch(int(window * NS_A_S)), 0
    try:
        with reached([place], client_config) as (name,), Progress() as progress:
            source = _growing(name)
            watched.in_order = source.in_order
            is_over = False
            while not is_over:
                is_over = time.monotonic() >= until
                for file, line in source.lines():
                    watched.feed(file, line)
                for anomaly in watched.look():
                    found += 1
                    text = (
                        f"{anomaly.rule}: {anomaly.topic}-{anomaly.partition} offset {anomaly.offset}: {anomaly.text}"
                    )
                    print(json.dumps(vars(anomaly)) if as_json else text, flush=True)
                progress.often(f"{len(watched.files)} files, {watched.held} events in the window, {found} anomalies", 0)
                is_over = is_over or watched.ended
                if not is_over:
                    time.sleep(max(0.0, min(every, until - time.monotonic())))
    except KeyboardInterrupt:
        pass
    except (HistoryError, TopicError, OSError) as error:
        print(json.dumps({"verdict": "error", "error": str(error)}) if as_json else f"error: {error}")
        print(error, file=sys.stderr)
        return ENGINE_ERROR
    summary = {
        "verdict": "invalid" if found else "unknown",
        "anomalies": found,
        "files": len(watched.files),
        "looks": watched.looks,
        "ended": watched.ended,
        "defects": [str(defect) for defect in watched.defects],
    }
    if as_json:
        print(json.dumps(summary))
    else:
        for defect in watched.defects:
            print(f"not read on: {defect}")
        what = (
            f"{found} anomalies"
            if found
            else "no anomaly was seen of those that a part can prove (losses need the whole)"
        )
        print(f"verdict: {summary['verdict']}: {what}; tidegauge history check {place} judges the whole")
    return 1 if found else 2


def _growing(place: str) -> GrowingFolder | GrowingTopic:
    """Errors: typer.BadParameter for what is neither."""
    from linearizability.history.growing import GrowingFolder, GrowingTopic
    from linearizability.history.topic import is_topic

    try:
        source = GrowingTopic(place) if is_topic(place) else GrowingFolder(Path(place))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="PLACE") from None
    if isinstance(source, GrowingFolder) and not source.folder.is_dir():
        raise typer.BadParameter(f"{place} is no folder", param_hint="PLACE")
    return source


@app.command(
    epilog="Examples: tidegauge history rules | tidegauge history rules lost-write G1a | tidegauge history rules --json"
)
def rules(
    names: Annotated[list[str] | None, typer.Argument(help="Only these rules.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a rule.")] = False,
) -> None:
    """Say of each rule what it finds invalid, when the contract permits it, what it needs, and show a history that breaks it."""
    from textwrap import dedent, indent

    from linearizability.pipeline.watch import NOT_WATCHED, WATCHED, is_watched
    from linearizability.rules import RULES

    known_rules(names or [])
    for name in names or RULES:
        rule = RULES[name]
        record = {field: getattr(rule, field) for field in ("id", "definition", "promise", "source", "needs", "cost")}
        record |= {"cut": f"by {rule.cut.by.value}, carries {rule.cut.state}" if rule.cut else WHOLE}
        record |= {"watched": WATCHED if is_watched(rule) else NOT_WATCHED}
        record |= {"weight": rule.weight.value, "optional": rule.optional, "example": dedent(rule.example).strip()}
        if as_json:
            print(json.dumps(record, ensure_ascii=False))
            continue
        print(f"{name} ({record['weight']}{', off by default' if rule.optional else ''})")
        for field in ("definition", "promise", "source", "needs", "cost", "cut", "watched"):
            print(f"  {record[field]}" if field == "definition" else f"  {field}: {record[field]}")
        if record["example"]:
            print(indent(str(record["example"]), "    "))
        print()
    if as_json:
        print(json.dumps({"rules": len(names or RULES)}))
