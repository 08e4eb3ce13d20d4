"""A run as one page that plays it: nodes and clients as rows over time, messages as arrows, faults as marks.

The page can follow a record, by partition and offset. It then shows which replicas have it, its leader epoch, when a replica
loses or replaces it, and which operations sent or read it.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import NamedTuple

PAGE = Path(__file__).with_name("explorer.html")
EXPLORER_FILE = "explorer.html"
WORLD = "world"
"""The source of an event without a participant, for instance a fault."""
NEVER = -1
"""The end time of an operation that did not end."""
DOWN = "down"
NODE = ""
"""The partition's name in samples of the node itself: up or down."""


class Event(NamedTuple):
    """A message between two participants, or an event at one (then source and target are the same)."""

    time_us: int
    source: str
    target: str
    text: str


class Sample(NamedTuple):
    """The changed state of a replica after an event."""

    event: int
    """The number of events until then."""
    node: str
    partition: str
    role: str
    leader_epoch: int = -1
    log_end: int = -1
    high_watermark: int = -1
    isr: tuple[int | str, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    """Pairs of a leader epoch and its first offset in the log."""


class Operation(NamedTuple):
    """A client's operation."""

    client: str
    begin_us: int
    end_us: int
    """Or `NEVER`."""
    outcome: str
    text: str
    records: dict[str, list[int]]
    """Partition -> offsets of the records that it sent or read."""
    is_witness: bool = False


@dataclass
class Run:
    """The content of the page. Events are in the order of time."""

    title: str
    events: Sequence[Event]
    samples: Sequence[Sample] = ()
    operations: Sequence[Operation] = ()
    rule: str = ""
    """The violated rule; empty where there is none."""
    text: str = ""
    record: tuple[str, int] | None = None
    """The partition and the offset of the record that is followed first."""
    unit: str = "ms"
    names: list[str] = field(init=False)
    nodes: int = field(init=False)

    def __post_init__(self) -> None:
        nodes = sorted({one.node for one in self.samples}, key=_by_number)
        others = {name for each in self.events for name in each[1:3]} | {each.client for each in self.operations}
        self.names = [*nodes, *sorted(others - {*nodes, WORLD}, key=_by_number)]
        self.nodes = len(nodes)


def page(run: Run) -> str:
    """The HTML page of a run."""
    places = {name: number for number, name in enumerate(run.names)} | {WORLD: -1}
    texts: dict[str, int] = {}
    events = [
        [time_us, places[source], places[target], texts.setdefault(text, len(texts))]
        for time_us, source, target, text in run.events
    ]
    data = {
        "rule": run.rule,
        "text": run.text,
        "record": run.record,
        "unit": run.unit,
        "names": run.names,
        "nodes": run.nodes,
        "texts": list(texts),
        "events": events,
        "samples": [[each.event, places[each.node], *each[2:]] for each in run.samples],
        "operations": [[places[each.client], *each[1:]] for each in run.operations],
    }
    packed = base64.b64encode(gzip.compress(json.dumps(data, separators=(",", ":")).encode(), mtime=0)).decode()
    return Template(PAGE.read_text()).substitute(title=html.escape(run.title), data=packed)


def _by_number(name: str) -> tuple[str, int]:
    kind, _, number = name.rpartition(" ")
    return (kind, int(number)) if number.isdigit() else (name, 0)
