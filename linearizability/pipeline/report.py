"""The one-file HTML report of judged histories: verdicts, each anomaly with its operations and their picture, availability."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from linearizability.history.events import Operation, diagram, operations_of, text_of
from linearizability.history.files import HistoryError
from linearizability.history.keys import join_key
from linearizability.history.streams import History
from linearizability.pipeline.series import picture, series_of
from linearizability.pipeline.verdict import Judgement, worst
from linearizability.results import suite_version
from linearizability.rules import RULES
from linearizability.rules.rule import Anomaly

WITNESSES_A_RULE = 5
"""Anomalies of one rule that are drawn."""
MAX_HISTORIES = 200
"""Histories that are shown one by one; the worst come first."""


def witness_title(anomaly: Anomaly, names: dict[int, str]) -> str:
    """One line with an anomaly's place and text."""
    where = join_key(anomaly.topic, anomaly.partition) or "the run"
    value = "" if anomaly.value == -1 else f", value {names.get(anomaly.value, anomaly.value)}"
    return f"{where}{value}: {anomaly.text}"


def witnesses(history: History, judgement: Judgement, limit: int = WITNESSES_A_RULE) -> dict[Anomaly, list[Operation]]:
    """The operations that show the first anomalies of each finding."""
    chosen = [anomaly for item in judgement.findings for anomaly in item.anomalies[:limit]]
    wanted = {operation for anomaly in chosen for operation in anomaly.operations}
    try:
        known = operations_of(history, wanted)
    except HistoryError:  # the files that a store was made of are gone, or were another tool's
        known = {}
    return {anomaly: [known[number] for number in anomaly.operations if number in known] for anomaly in chosen}


def write_report(path: Path, judged: Iterable[Judgement]) -> None:
    """Write the report; a history that could not be read, or is too large to hold, is shown without its operations."""
    from jinja2 import Environment, FileSystemLoader

    order = {"invalid": 0, "unknown": 1, "valid": 2}
    shown = sorted(judged, key=lambda judgement: order[judgement.verdict])[:MAX_HISTORIES]
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    template = environment.get_template("report.html.j2")
    items = [_item(judgement, judgement.history) for judgement in shown]
    verdict = worst(judgement.verdict for judgement in shown)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.render(items=items, verdict=verdict, version=suite_version()))


def _item(judgement: Judgement, history: History | None) -> dict[str, Any]:
    if history is None:
        return {
            "judgement": judgement,
            "findings": [_finding(item, {}, {}) for item in judgement.findings],
            "picture": "",
        }
    shown = witnesses(history, judgement)
    over_time = series_of(judgement) if history.tally.invocations > 100 else None
    return {
        "judgement": judgement,
        "contract": history.contract.model_dump(),
        "picture": picture(over_time) if over_time is not None else "",
        "findings": [_finding(item, shown, history.names) for item in judgement.findings],
    }


def _finding(item: Any, shown: dict[Anomaly, list[Operation]], names: dict[int, str]) -> dict[str, Any]:
    rule = RULES[item.rule]
    drawn = []
    for anomaly in item.anomalies[:WITNESSES_A_RULE]:
        key = join_key(anomaly.topic, anomaly.partition) or None
        operations = shown.get(anomaly, [])
        text = "\n".join(text_of(operations, key, anomaly.offset))
        picture = diagram(operations, key, anomaly.offset) if operations else ""
        drawn.append({"title": witness_title(anomaly, names), "text": text, "diagram": picture})
    return {
        "rule": item.rule,
        "count": item.count,
        "permitted": item.permitted,
        "definition": rule.definition,
        "promise": rule.promise,
        "witnesses": drawn,
    }
