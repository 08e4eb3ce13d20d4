"""From facts back to readable operations: those that a witness names, as text, as a diagram, as events to export."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from linearizability.history.facts import operation_name
from linearizability.history.files import HistoryError, numbered_lines
from linearizability.history.native import NativeFile
from linearizability.history.operations import INVOKE
from linearizability.history.streams import History

MAX_RECORDS_SHOWN = 8
"""Records of one operation that are written out; the rest is counted."""


@dataclass
class Operation:
    """One operation with both its events."""

    id: int
    process: int | str
    f: str
    invoked: int
    completed: int | None = None
    outcome: str = "never answered"
    mops: list[dict[str, Any]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return operation_name(self.id)


def events_of(history: History) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a history with the number of their operation in its facts; native files are read again."""
    if history.events is None:
        for source in history.sources:
            yield from native_events(Path(source))
        return
    open_by_process: dict[Any, int] = {}
    for index, event in enumerate(history.events()):
        if not isinstance(event, dict) or event.get("type") not in (INVOKE, "ok", "fail", "info"):
            continue
        who = event.get("process")
        if isinstance(event.get("operation"), int) and isinstance(who, int):
            yield who << 32 | event["operation"], event
        elif event["type"] == INVOKE and isinstance(who, int):
            number = event["index"] if type(event.get("index")) is int else index
            open_by_process[who] = who << 32 | number
            yield open_by_process[who], event
        elif who in open_by_process:
            yield open_by_process.pop(who), event


def native_events(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of one native file, with the number of their operation in its facts. Errors: HistoryError."""
    if not path.is_file():
        raise HistoryError(path, 0, "the file is not there any more")
    base = NativeFile(path).summary.process << 32
    for _, line, _ in numbered_lines(path):
        try:
            event = from_json(line)
        except ValueError:
            return  # the reader has reported this defect
        if isinstance(event, dict) and isinstance(event.get("operation"), int):
            yield event["operation"] + base, event


def operations_of(history: History, wanted: Collection[int] | None = None) -> dict[int, Operation]:
    """The operations of a history, or those that are wanted, by their numbers."""
    operations: dict[int, Operation] = {}
    for number, event in events_of(history):
        if wanted is not None and number not in wanted:
            continue
        if event["type"] == INVOKE:
            time = event.get("time")
            operations[number] = Operation(number, event["process"], event["f"], time if isinstance(time, int) else 0)
            operations[number].mops = event.get("mops") or []
            operations[number].fields = _fields(event)
        elif number in operations:
            known = operations[number]
            known.completed, known.outcome = event.get("time"), event["type"]
            known.mops = event.get("mops") or known.mops
            known.fields |= _fields(event)
    return operations


_COMMON = {"type", "n", "time", "process", "operation", "f", "mops", "index"}


def _fields(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in _COMMON}


def describe(operation: Operation, key: str | None = None, around: int | None = None) -> str:
    """One line: operation, fields, records and outcome. With `key` only that partition's records, nearest `around`."""
    parts = [operation.f, *(f"{name}={_short(value)}" for name, value in operation.fields.items() if value)]
    parts += _records(operation.mops, key, around)
    if operation.f != "poll" or operation.outcome != "ok":
        parts.append(operation.outcome)
    return " ".join(parts)


def _records(mops: list[dict[str, Any]], key: str | None, around: int | None) -> list[str]:
    words: list[tuple[int, str]] = []
    for mop in mops:
        if mop["op"] == "send":
            words += _word(mop["key"], mop["value"], mop.get("offset"), key)
        elif mop["op"] == "poll":
            records = mop.get("records") or []
            pairs = (
                [(k, pair[1], pair[0]) for k, pairs in records.items() for pair in pairs]
                if isinstance(records, dict)
                else [(record["key"], record["value"], record.get("offset")) for record in records]
            )
            for name, value, offset in pairs:
                words += _word(name, value, offset, key)
        else:
            words.append((0, " ".join(f"{name}={_short(value)}" for name, value in mop.items() if name != "op")))
    if len(words) <= MAX_RECORDS_SHOWN:
        return [text for _, text in words]
    near = sorted(range(len(words)), key=lambda i: (abs(words[i][0] - (around if around is not None else -1)), i))
    chosen = sorted(near[:MAX_RECORDS_SHOWN])
    return [*(words[i][1] for i in chosen), f"… {len(words) - len(chosen)} more"]


def _word(key: Any, value: Any, offset: int | None, only: str | None) -> list[tuple[int, str]]:
    if only is not None and str(key) != only:
        return []
    return [(offset or 0, f"{key}:{value}" + (f"@{offset}" if offset is not None else ""))]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def text_of(operations: Iterable[Operation], key: str | None = None, around: int | None = None) -> list[str]:
    """Operations as lines, by time, with times in milliseconds since the first."""
    ordered = sorted(operations, key=lambda operation: operation.invoked)
    if not ordered:
        return []
    start = ordered[0].invoked
    lines = []
    for operation in ordered:
        end = "never" if operation.completed is None else f"{(operation.completed - start) / 1e6:.3f}"
        moment = f"[{(operation.invoked - start) / 1e6:.3f} … {end} ms]"
        lines.append(f"{operation.name:>10} {moment:>28}  {describe(operation, key, around)}")
    return lines


ROW, LEFT, WIDTH = 26, 110, 900


def diagram(operations: Iterable[Operation], key: str | None = None, around: int | None = None) -> str:
    """Operations as an SVG picture: a row a process, a bar from invocation to completion, in the order of events.

    The horizontal axis is the order of events, not their time: the picture is to show which operations overlap.
    """
    ordered = sorted(operations, key=lambda operation: operation.invoked)
    moments = {operation.invoked for operation in ordered}
    moments |= {operation.completed for operation in ordered if operation.completed is not None}
    rank = {moment: i for i, moment in enumerate(sorted(moments))}
    last = len(rank)
    processes = list(dict.fromkeys(operation.process for operation in ordered))
    scale = (WIDTH - LEFT - 20) / max(1, last)
    height = ROW * (len(ordered) + 1) + 10
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
    ]
    for row, operation in enumerate(sorted(ordered, key=lambda o: (processes.index(o.process), o.invoked))):
        y = ROW * row + 8
        begin = LEFT + rank[operation.invoked] * scale
        end = LEFT + (rank[operation.completed] if operation.completed is not None else last) * scale
        colour = {"ok": "#7fb77e", "fail": "#d98880", "info": "#d9b466"}.get(operation.outcome, "#c9c9c9")
        text = escape(describe(operation, key, around))
        drawn.append(f'<text x="4" y="{y + 14}">process {escape(str(operation.process))}</text>')
        drawn.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y + 10}" y2="{y + 10}" stroke="#ddd"/>')
        drawn.append(
            f'<rect x="{begin:.0f}" y="{y}" width="{max(6, end - begin):.0f}" height="20" rx="3" fill="{colour}"/>'
        )
        anchor = "end" if begin > WIDTH * 0.6 else "start"
        at = end - 4 if anchor == "end" else begin + 4
        drawn.append(f'<text x="{at:.0f}" y="{y + 14}" text-anchor="{anchor}">{text}</text>')
    return "".join([*drawn, "</svg>"])
