"""Explains a run as text: messages and events in order of time. Writes the folder of a failure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from linearizability.explorer.page import EXPLORER_FILE
from linearizability.simulation.diagram import sequence_diagram
from linearizability.simulation.explorer import explorer
from linearizability.simulation.judging import Outcome
from linearizability.simulation.schedule import FAULTS, Fault, Schedule
from linearizability.simulation.world import Trace

MAX_LINES = 400
"""The most lines of a run. A longer one is shown from its end, with every earlier fault."""


def plan_of(schedule: Schedule) -> list[str]:
    """Return the schedule as lines of text."""
    lines = [f"seed {schedule.seed}" + (f", mutant {schedule.mutant}" if schedule.mutant else "")]
    lines += [
        f"topic {topic.name} with {topic.partitions} partitions {topic.configs or ''}".rstrip()
        for topic in schedule.topics
    ]
    for number, client in enumerate(schedule.clients, 2):
        settings = ", ".join(f"{name}={value}" for name, value in client.model_dump().items() if name != "kind")
        lines.append(f"client {number}: {client.kind}, {settings}")
    lines += [f"{fault.at_ms} ms: {_fault(fault)}" for fault in schedule.faults]
    return lines


def _fault(fault: Fault) -> str:
    """Return the text of a fault and its target."""
    partition = f"{fault.topic}-{fault.partition}" if fault.topic else ""
    aims = {
        "controller": "the active controller",
        "leader": f"the leader of {partition}",
        "bystander": f"a node that neither leads {partition} nor is the active controller",
        "coordinator": "the groups' coordinator",
        "transaction-coordinator": "the transactions' coordinator",
        "actor": "the node that takes that step",
        "other": "the other node of that step",
        "between": "the two nodes of that step",
        "": f"node {fault.node}" if fault.node else partition,
    }
    waits = f"{fault.wait_ms} ms after the next {fault.after}" if fault.after else ""
    parts = [waits, fault.kind, aims[fault.role], f"others {list(fault.others)}" if fault.others else ""]
    parts += [f"for {fault.for_ms} ms" if fault.for_ms else "", f"amount {fault.amount}" if fault.amount else ""]
    parts += [str(fault.configs) if fault.configs else ""]
    return f"{', '.join(filter(None, parts))} — {FAULTS[fault.kind]}"


def explain(outcome: Outcome, trace: Trace) -> str:
    """Return the explanation of an outcome."""
    head = [f"verdict: {outcome.verdict}"]
    if outcome.rule:
        head += [f"broken promise: {outcome.rule}", f"seen: {outcome.text}"]
    elif outcome.text:
        head.append(f"because: {outcome.text}")
    if outcome.judgement is not None:
        for item in outcome.judgement.findings:
            mark = f"permitted: {item.permitted}" if item.permitted else "not permitted"
            head.append(f"{item.rule} × {item.count} ({mark})")
            head += [f"    {each.topic}-{each.partition}: {each.text}" for each in item.anomalies[:3]]
    return "\n".join([*head, "", *plan_of(outcome.schedule), "", *_sequence(trace.events)]) + "\n"


def _sequence(events: list[tuple[int, str, str, str]]) -> Iterable[str]:
    """Yield one line per event: milliseconds, participants, text."""
    skipped = max(0, len(events) - MAX_LINES)
    parts = [each for each in events[:skipped] if each[1] == "world"] + events[skipped:]
    if skipped:
        yield f"({skipped} earlier lines are left out, but for the faults)"
    for time_us, source, target, text in parts:
        who = source if source == target else f"{source} → {target}"
        yield f"{time_us / 1000:12.3f} ms  {who:<22} {text}"


def keep(folder: Path, schedule: Schedule, outcome: Outcome, trace: Trace) -> None:
    """Write the files with which to understand and repeat a run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedule.json").write_text(schedule.to_json() + "\n")
    (folder / "outcome.json").write_text(json.dumps(outcome.to_json(), indent=1) + "\n")
    (folder / "trace.txt").write_text("\n".join(trace.lines) + "\n")
    (folder / "explanation.txt").write_text(explain(outcome, trace))
    (folder / EXPLORER_FILE).write_text(explorer(outcome, trace))
    (folder / "diagram.mmd").write_text(sequence_diagram(trace))
