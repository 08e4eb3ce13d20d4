"""A run as one page that plays it: nodes and clients as rows over time, messages as arrows, faults as marks."""

from __future__ import annotations

import base64
import gzip
import html
import json
from pathlib import Path
from string import Template

from linearizability.simulation.judging import Outcome
from linearizability.simulation.world import Trace

PAGE = Path(__file__).with_name("explorer.html")
EXPLORER_FILE = "explorer.html"


def explorer(outcome: Outcome, trace: Trace) -> str:
    """The page; it needs nothing from outside."""
    nodes = sorted({one.node for one in trace.samples}, key=_by_number)
    others = sorted({name for each in trace.events for name in each[1:3]} - {*nodes, "world"}, key=_by_number)
    names = [*nodes, *others]
    places = {name: number for number, name in enumerate(names)} | {"world": -1}
    texts: dict[str, int] = {}
    events = [
        [time_us, places[source], places[target], texts.setdefault(text, len(texts))]
        for time_us, source, target, text in trace.events
    ]
    data = {
        "verdict": outcome.verdict,
        "rule": outcome.rule,
        "text": outcome.text,
        "seed": outcome.schedule.seed,
        "mutant": outcome.schedule.mutant,
        "names": names,
        "nodes": len(nodes),
        "texts": list(texts),
        "events": events,
        "samples": [[each.event, places[each.node], *each[2:]] for each in trace.samples],
    }
    packed = base64.b64encode(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0)).decode()
    title = f"seed {outcome.schedule.seed}: {outcome.verdict} {outcome.rule}".strip()
    return Template(PAGE.read_text()).substitute(title=html.escape(title), data=packed)


def _by_number(name: str) -> tuple[str, int]:
    kind, _, number = name.rpartition(" ")
    return (kind, int(number)) if number.isdigit() else (name, 0)
