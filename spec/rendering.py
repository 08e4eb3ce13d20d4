# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# A value of TLC nests mappings, sequences and sets as it likes.
"""A counterexample for people: its steps in words, and a sequence diagram as text or SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from spec.checker import TraceStep

PATHS: dict[str, tuple[str, str]] = {
    "RegisterBroker": ("broker", "controller"),
    "UnfenceBroker": ("broker", "controller"),
    "ControlledShutdown": ("broker", "controller"),
    "AlterPartition": ("leader", "controller"),
    "BecomeLeader": ("controller", "broker"),
    "BecomeFollower": ("controller", "broker"),
    "CommitIsr": ("controller", "leader"),
    "RollBackIsr": ("controller", "leader"),
    "AnswerFetch": ("follower", "leader"),
    "AppendFetched": ("leader", "follower"),
    "AdoptHighWatermark": ("leader", "follower"),
    "Truncate": ("leader", "follower"),
    "Produce": ("client", "leader"),
    "Retry": ("client", "leader"),
    "Acknowledge": ("leader", "client"),
    "Consume": ("broker", "client"),
}
"""Step -> sender and receiver of its message; all other steps have one node."""

FIXED = {"controller", "client"}


@dataclass(frozen=True)
class Arrow:
    """One step of the diagram; `source` equals `target` for a step of one node."""

    source: str
    target: str
    label: str


def steps_text(trace: Sequence[TraceStep]) -> str:
    """One paragraph for each step: its number, its name with arguments, and the changes to the state."""
    lines: list[str] = []
    for before, step in zip((None, *trace), trace, strict=False):
        lines.append(f"{step.number:>3}  {title(step)}")
        lines += [f"       {change}" for change in changes(before.state if before else {}, step.state)]
    return "\n".join(lines)


def title(step: TraceStep) -> str:
    """`AppendFetched  follower b2, leader b1, end 1`."""
    recorded: Any = step.state.get("step")
    if not isinstance(recorded, dict) or not recorded.get("action"):
        return step.action
    arguments = ", ".join(f"{name} {show(value)}" for name, value in sorted(recorded.items()) if name not in NOT_SHOWN)
    return f"{recorded['action']}  {arguments}".rstrip()


NOT_SHOWN = {"action", "from", "to"}
UNINTERESTING = {"step", "faults", "published"}


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """A line such as `log[b2]: <> becomes <1@1>` for each part of the state that differs."""
    found: list[str] = []
    for name in sorted(after) if before else ():
        if name not in UNINTERESTING:
            found += _differences(name, before.get(name), after[name])
    return found


def _differences(path: str, old: Any, new: Any) -> list[str]:
    if old == new:
        return []
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return [line for key in new for line in _differences(f"{path}[{key}]", old[key], new[key])]
    return [f"{path}: {show(old)} becomes {show(new)}"]


def show(value: Any) -> str:
    """A short text of a value: a record of a log is `number@epoch`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        if set(value) == {"epoch", "number"}:
            return f"{value['number']}@{value['epoch']}"
        return "[" + ", ".join(f"{key} {show(item)}" for key, item in value.items()) + "]"
    if isinstance(value, list):
        return "<" + " ".join(show(item) for item in value) + ">"
    if isinstance(value, tuple):
        return "{" + ", ".join(show(item) for item in value) + "}"
    return str(value)


# ---- the diagram


def arrows(trace: Sequence[TraceStep]) -> tuple[list[str], list[Arrow]]:
    """The nodes of the diagram in their order, and an arrow for each step."""
    drawn: list[Arrow] = []
    for step in trace[1:]:
        recorded: Any = step.state.get("step") or {}
        if not isinstance(recorded, dict):
            recorded = {}
        action = recorded.get("action", step.action)
        source, target = _ends(action, recorded)
        details = [
            show(value) for name, value in sorted(recorded.items()) if name in ("end", "highWatermark", "isr", "number")
        ]
        drawn.append(Arrow(source, target, f"{action} {' '.join(details)}".strip()))
    places = {place for arrow in drawn for place in (arrow.source, arrow.target)}
    middle = sorted(places - FIXED)
    return [
        *(["controller"] if "controller" in places else []),
        *middle,
        *(["client"] if "client" in places else []),
    ], drawn


def _ends(action: str, recorded: dict[str, Any]) -> tuple[str, str]:
    if "from" in recorded:
        return str(recorded["from"]), str(recorded.get("to", recorded["from"]))

    def place(role: str) -> str:
        return role if role in FIXED else str(recorded.get(role, "controller"))

    if action in PATHS:
        source, target = PATHS[action]
        return place(source), place(target)
    own = next((str(recorded[role]) for role in ("leader", "broker") if role in recorded), "controller")
    return (
        ("controller", "controller") if action in ("FenceBroker", "ElectLeader", "ElectUncleanLeader") else (own, own)
    )


WIDTH = 30


def diagram_text(trace: Sequence[TraceStep]) -> str:
    """Lifelines side by side, one row a step."""
    places, drawn = arrows(trace)
    column = {place: index * WIDTH + WIDTH // 2 for index, place in enumerate(places)}
    width = WIDTH * len(places)
    header = [" "] * (width + WIDTH)
    for place in places:
        _write(header, column[place] - len(place) // 2, place)
    lines = ["".join(header).rstrip()]
    for arrow in drawn:
        row = [" "] * (width + 60)
        for at in column.values():
            row[at] = "|"
        left, right = sorted((column[arrow.source], column[arrow.target]))
        if left == right:
            _write(row, left, f"* {arrow.label}")
        else:
            row[left + 1 : right] = "-" * (right - left - 1)
            row[right - 1 if column[arrow.target] == right else left + 1] = (
                ">" if column[arrow.target] == right else "<"
            )
            room = right - left - 5
            label = arrow.label if len(arrow.label) <= room else arrow.label[: room - 1] + "…"
            _write(row, left + 3 + max(0, (room - len(label)) // 2), f" {label} "[: room + 2])
        lines.append("".join(row).rstrip())
    return "\n".join(lines)


def _write(row: list[str], at: int, text: str) -> None:
    row[at : at + len(text)] = list(text)


STEP, COLUMN, TOP = 34, 190, 50


def diagram_svg(trace: Sequence[TraceStep], heading: str) -> str:
    """The diagram as one SVG picture."""
    places, drawn = arrows(trace)
    x = {place: index * COLUMN + COLUMN // 2 for index, place in enumerate(places)}
    width, height = COLUMN * len(places) + 160, TOP + STEP * (len(drawn) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/><text x="10" y="18" font-size="14">{escape(heading)}</text>',
    ]
    for place in places:
        parts.append(
            f'<text x="{x[place]}" y="{TOP - 8}" text-anchor="middle" font-weight="bold">{escape(place)}</text>'
        )
        parts.append(f'<line x1="{x[place]}" y1="{TOP}" x2="{x[place]}" y2="{height - 20}" stroke="#999"/>')
    for number, arrow in enumerate(drawn, 1):
        y, label = TOP + STEP * number, escape(f"{number}. {arrow.label}")
        left, right = x[arrow.source], x[arrow.target]
        if left == right:
            parts.append(f'<circle cx="{left}" cy="{y}" r="4"/><text x="{left + 10}" y="{y + 4}">{label}</text>')
        else:
            parts.append(f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="black" marker-end="url(#tip)"/>')
            parts.append(f'<text x="{(left + right) // 2}" y="{y - 5}" text-anchor="middle">{label}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
