"""A clients' history for the page: operations as bars, marked witnesses, and the record of the worst anomaly, which the page
follows.

A hunt's history also has the nodes of faults, and the leaders. Where these are known, each node has a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from linearizability.explorer.page import DOWN, EXPLORER_FILE, NEVER, NODE, WORLD, Event, Operation, Run, Sample, page
from linearizability.history import events
from linearizability.history.keys import join_key
from linearizability.history.streams import History
from linearizability.pipeline.report import witness_title
from linearizability.pipeline.verdict import Judgement
from linearizability.rules import RULES
from linearizability.rules.rule import Anomaly, Found, Weight

NANOSECONDS_A_US = 1000
MOST_OPERATIONS = 20_000
"""The most operations on the page. Of a longer history it shows the witnesses first, then the operations nearest to the first
one."""

ENDS_A_NODE = ("kill", "stop", "power-loss", "power-loss-journal")
"""Faults after which the node does not run until they are healed."""
NOTES = "notes"
"""The row of a hunt's notes."""


def run_of(history: History, judgement: Judgement) -> Run:
    """The run of a history: the begins and ends of operations, and the marks, are its events."""
    everything = operations_of(history, judgement)
    operations = _nearest(everything)
    marks = [(mark["time"] // NANOSECONDS_A_US, mark) for mark in history.marks]
    start = min([time for time, _ in marks] + [each.begin_us for each in operations], default=0)
    operations = [
        each._replace(begin_us=each.begin_us - start, end_us=each.end_us - start if each.end_us != NEVER else NEVER)
        for each in operations
    ]
    shown: list[Event] = []
    for each in operations:
        shown.append(Event(each.begin_us, each.client, each.client, each.text))
        if each.end_us != NEVER:
            shown.append(Event(each.end_us, each.client, each.client, f"{each.outcome}: {each.text.split()[0]}"))
    nodes = sorted({mark["node"] for _, mark in marks if isinstance(mark.get("node"), int)})
    partitions = sorted({name for each in everything for name in each.records})
    known = [
        (Event(time - start, *_place(mark), _words(mark)), _samples(mark, nodes, partitions)) for time, mark in marks
    ]
    timed = sorted([*known, *((event, []) for event in shown)], key=lambda each: each[0].time_us)
    shown = [event for event, _ in timed]
    samples = [one._replace(event=number) for number, (_, each) in enumerate(timed, 1) for one in each]
    rule, text, record = worst_of(history, judgement)
    share = f" ({len(operations)} of {len(everything)} operations)" if len(operations) < len(everything) else ""
    return Run(f"{history.id}: {judgement.verdict}{share}", shown, samples, operations, rule, text, record)


def _samples(mark: dict[str, Any], nodes: list[int], partitions: list[str]) -> list[Sample]:
    """The states of nodes that a mark reports. The caller sets the number of the event."""
    if mark["f"] in ("fault", "heal") and mark.get("name") in ENDS_A_NODE and "node" in mark:
        return [Sample(0, _name(mark["node"]), NODE, DOWN if mark["f"] == "fault" else "up")]
    if mark.get("leader") not in nodes:
        return []
    return [
        Sample(0, _name(node), partition, "leader" if node == mark["leader"] else "not leading", mark["epoch"])
        for partition in partitions
        if partition.endswith(f"-{mark['partition']}")
        for node in nodes
    ]


def _place(mark: dict[str, Any]) -> tuple[str, str]:
    """The source and target of a mark: a hunt's notes have their own row, all others belong to the world."""
    return (NOTES, NOTES) if mark["f"] == "note" else (WORLD, WORLD)


def _name(node: int) -> str:
    return f"node {node}"


def _nearest(operations: list[Operation]) -> list[Operation]:
    middle = next((each.begin_us for each in operations if each.is_witness), 0)
    near = sorted(operations, key=lambda each: (not each.is_witness, abs(each.begin_us - middle)))[:MOST_OPERATIONS]
    return sorted(near, key=lambda each: each.begin_us)


def write_page(folder: Path, judgement: Judgement) -> Path:
    """Write the page of a judged history into a folder. Errors: OSError."""
    assert judgement.history is not None, "only a history in memory is shown"
    file = folder / EXPLORER_FILE
    file.write_text(page(run_of(judgement.history, judgement)))
    return file


def operations_of(history: History, judgement: Judgement) -> list[Operation]:
    """All operations of a history, ordered by their begin."""
    witnesses = {number for item in judgement.findings for one in item.anomalies for number in one.operations}
    found = sorted(events.operations_of(history).values(), key=lambda each: each.invoked)
    return [
        Operation(
            f"client {each.process}",
            each.invoked // NANOSECONDS_A_US,
            NEVER if each.completed is None else each.completed // NANOSECONDS_A_US,
            each.outcome,
            events.describe(each),
            records_of(each.mops),
            each.id in witnesses,
        )
        for each in found
    ]


def worst_of(history: History, judgement: Judgement) -> tuple[str, str, tuple[str, int] | None]:
    """The rule, the text and the record of the worst anomaly.

    Anomalies that the contract does not permit come first, then violations, then those that name a record.
    """
    found = [(item, one) for item in judgement.findings for one in item.anomalies]
    if not found:
        return "", "", None
    item, one = min(found, key=_doubt)
    record = (join_key(one.topic, one.partition), one.offset) if one.offset >= 0 else None
    permitted = f" (permitted: {one.permitted})" if one.permitted else ""
    return item.rule, witness_title(one, history.names) + permitted, record


def _doubt(found: tuple[Found, Anomaly]) -> tuple[bool, bool, bool]:
    item, one = found
    return bool(item.permitted), RULES[item.rule].weight is not Weight.VIOLATION, one.offset < 0


def _words(mark: dict[str, Any]) -> str:
    """A mark as text, without the fields that every mark has; of a note only its text."""
    if mark["f"] == "note" and "text" in mark:
        return f"note {mark['text']}"
    return " ".join(str(value) for name, value in mark.items() if name not in ("type", "n", "time"))


def records_of(mops: Iterable[dict[str, Any]]) -> dict[str, list[int]]:
    """Partition -> offsets that an operation's parts name."""
    found: dict[str, list[int]] = {}
    for mop in mops:
        records: Any = mop.get("records") or {}
        if isinstance(mop.get("offset"), int):
            found.setdefault(str(mop.get("key")), []).append(mop["offset"])
        if not isinstance(records, dict):  # a list of mappings, from a replica or an importer
            continue
        for key, pairs in records.items():
            found.setdefault(str(key), []).extend(pair[0] for pair in pairs if isinstance(pair[0], int))
    return found
