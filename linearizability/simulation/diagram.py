"""A life as a sequence diagram (Mermaid): the last part of it, in which the promise was broken, without idle chatter."""

from __future__ import annotations

from linearizability.simulation.world import Trace

MAX_STEPS = 120
MAX_TEXT = 70
CHATTER = ("Metadata", "BrokerHeartbeat")
"""Requests that seldom explain anything."""


def drawn(arrows: list[tuple[str, str, str]]) -> str:
    """Mermaid text of who said what to whom, or did what by itself; nodes stand in the order of their names."""
    people = sorted({name for each in arrows for name in each[:2]})
    lines = ["sequenceDiagram", *(f"    participant {_identifier(name)} as {name}" for name in people)]
    for source, target, text in arrows:
        if source == target:
            lines.append(f"    Note over {_identifier(source)}: {_plain(text)}")
        else:
            lines.append(f"    {_identifier(source)}->>{_identifier(target)}: {_plain(text)}")
    return "\n".join(lines) + "\n"


def sequence_diagram(trace: Trace) -> str:
    """Mermaid text; faults and the broken promise stand as notes over all participants."""
    told = [each for each in trace.story if not each[3].startswith(CHATTER)]
    faults = [each for each in told[:-MAX_STEPS] if each[1] == "world"]
    told = faults + told[-MAX_STEPS:]
    people = sorted({name for each in told for name in each[1:3] if name != "world"}, key=_by_number)
    lines = ["sequenceDiagram", *(f"    participant {_identifier(name)} as {name}" for name in people)]
    for time_us, source, target, text in told:
        said = f"{time_us / 1000:.1f} ms: {_plain(text)}"
        if source == "world" and people:
            lines.append(f"    Note over {_identifier(people[0])},{_identifier(people[-1])}: {said}")
        elif source == target:
            lines.append(f"    Note over {_identifier(source)}: {said}")
        elif source != "world":
            lines.append(f"    {_identifier(source)}->>{_identifier(target)}: {said}")
    return "\n".join(lines) + "\n"


def _by_number(name: str) -> tuple[str, int]:
    kind, _, number = name.rpartition(" ")
    return kind, int(number)


def _identifier(name: str) -> str:
    return name.replace(" ", "")


def _plain(text: str) -> str:
    """What Mermaid reads as text: no separators of its own."""
    for mark in (";", "#", ":"):
        text = text.replace(mark, ",")
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " …"
