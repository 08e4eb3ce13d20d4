"""A run as a sequence diagram (Mermaid): its last part, in which the promise was broken, without idle requests."""

from __future__ import annotations

from linearizability.simulation.world import Trace

MAX_STEPS = 120
MAX_TEXT = 70
CHATTER = ("Metadata", "BrokerHeartbeat")
"""Requests that are left out, as they seldom explain a violation."""


def drawn(arrows: list[tuple[str, str, str]]) -> str:
    """Mermaid text of messages, and of events at one participant. Participants are in the order of their names."""
    participants = sorted({name for each in arrows for name in each[:2]})
    lines = ["sequenceDiagram", *(f"    participant {_identifier(name)} as {name}" for name in participants)]
    for source, target, text in arrows:
        if source == target:
            lines.append(f"    Note over {_identifier(source)}: {_plain(text)}")
        else:
            lines.append(f"    {_identifier(source)}->>{_identifier(target)}: {_plain(text)}")
    return "\n".join(lines) + "\n"


def sequence_diagram(trace: Trace) -> str:
    """Mermaid text of a trace. Faults and the broken promise are notes over all participants."""
    shown = [each for each in trace.events if not each[3].startswith(CHATTER)]
    faults = [each for each in shown[:-MAX_STEPS] if each[1] == "world"]
    shown = faults + shown[-MAX_STEPS:]
    participants = sorted({name for each in shown for name in each[1:3] if name != "world"}, key=_by_number)
    lines = ["sequenceDiagram", *(f"    participant {_identifier(name)} as {name}" for name in participants)]
    for time_us, source, target, text in shown:
        text_at = f"{time_us / 1000:.1f} ms: {_plain(text)}"
        if source == "world" and participants:
            lines.append(f"    Note over {_identifier(participants[0])},{_identifier(participants[-1])}: {text_at}")
        elif source == target:
            lines.append(f"    Note over {_identifier(source)}: {text_at}")
        elif source != "world":
            lines.append(f"    {_identifier(source)}->>{_identifier(target)}: {text_at}")
    return "\n".join(lines) + "\n"


def _by_number(name: str) -> tuple[str, int]:
    kind, _, number = name.rpartition(" ")
    return kind, int(number)


def _identifier(name: str) -> str:
    return name.replace(" ", "")


def _plain(text: str) -> str:
    """The text without Mermaid's separators, cut to MAX_TEXT."""
    for mark in (";", "#", ":"):
        text = text.replace(mark, ",")
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " …"
