"""A history as streams of facts, one a file: each is read once, in bounded memory, and has a summary at its end.

`history_of` takes all facts of a history's streams into memory, for the local engine; `store.write_stream` takes them to
a file, batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from linearizability.history.contract import Contract
from linearizability.history.derivation import Derivation
from linearizability.history.derivation_state import Tally
from linearizability.history.event_fields import BadEvent, time_of
from linearizability.history.excuses import EXCUSE, OVER, excuse_of
from linearizability.history.facts import empty_facts
from linearizability.history.files import CONTRACT, MISSING, UNREADABLE, Contradiction, Defect, reason

ROWS_A_BATCH = 65_536
"""Facts a record batch; with the open operations this is all that reading holds in memory."""
MAX_MARKS = 100_000
"""Faults and notes kept a file; a run has hundreds."""
CLUSTER_TERMS = ("replication_factor", "min_isr", "unclean_election", "replicas_losing_unflushed_data", "cleanup")
RUN_TERMS = (*CLUSTER_TERMS, "strict_recency", "bound_after_healing_ms")
"""What must be equal in all files of a run; the other terms are those of each client, and are kept with what it did."""

Event = dict[str, Any]
Events = Callable[[], Iterator[Event]]
"""Yields a history's events from the start at each call."""


@dataclass
class FileSummary:
    """All that is known of one file besides its facts."""

    file: str
    run: str = ""
    process: int = 0
    listed: bool = False
    """Whether it was recorded with a list of all files of its run."""
    contract: Contract = field(default_factory=Contract)
    tally: Tally = field(default_factory=Tally)
    defects: list[Defect] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def mark(self, event: Event) -> None:
        """Keep a fault or a note. Errors: BadEvent where its time is none, ValueError for an incomplete excuse."""
        time_of(event)
        if event.get("f") == EXCUSE:
            excuse_of(event)
        if len(self.marks) < MAX_MARKS or event.get("f") in (EXCUSE, OVER):
            self.marks.append(event)


class Stream(Protocol):
    """One file, read once: iterate for record batches; `summary` is complete when the iteration ends."""

    summary: FileSummary

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


@dataclass
class History:
    """One history in memory: facts and all that a verdict needs."""

    id: str
    contract: Contract = field(default_factory=Contract)
    facts: pa.Table = field(default_factory=empty_facts)
    tally: Tally = field(default_factory=Tally)
    defects: list[Defect] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    events: Events | None = None
    """Its events, where `sources` are no native files; see `events.events_of`."""
    same_contract: bool = True
    """Whether all its files declare one contract, so that `contract` says all of it."""
    labels: list[str] | None = None
    """The anomalies that another checker found in it (the neutral form's `anomalies`)."""


def history_of(identifier: str, streams: Iterable[Stream]) -> History:
    """The streams of one history as a history in memory."""
    batches: list[pa.RecordBatch] = []
    summaries: list[FileSummary] = []
    for stream in streams:
        batches.extend(stream)
        summaries.append(stream.summary)
    history = History(
        identifier,
        merged_contract(summaries),
        unify(batches),
        defects=merge_defects(summaries),
        sources=[summary.file for summary in summaries if summary.file],
        same_contract=all(summary.contract == summaries[0].contract for summary in summaries),
    )
    for summary in summaries:
        history.tally.add(summary.tally)
        history.marks.extend(summary.marks)
        history.names.update(summary.names)
    history.marks.sort(key=lambda mark: mark["time"])
    return history


def finish(derivation: Derivation, begun: Mapping[int, int], complete: bool, summary: FileSummary) -> None:
    """Finish a file; `begun` has the lines of the open operations. Adds the derived facts to the summary."""
    for number in list(derivation.open_operations()):
        try:
            derivation.never_answered(number)
        except UNREADABLE as error:
            summary.defects.append(Defect(MISSING, reason(error), summary.file, begun[number]))
            complete = False
    derivation.finish(complete)
    summary.tally, summary.names = derivation.tally, derivation.names


def risen(number: Any, last: int) -> int:
    """The number of an operation that is invoked after the operation `last`; its order is that of the numbers.

    Errors: BadEvent where it does not rise: lines are missing, doubled or in another order.
    """
    if type(number) is not int or not 0 <= number < 1 << 32:
        raise BadEvent(f"{number!r} is no number of an operation")
    if number <= last:
        raise BadEvent(f"operation {number} is invoked after operation {last}: the numbers must rise")
    return number


def agreed(declared: Contract, given: Contract, file: Path | str, line: int) -> Contract:
    """A file's declared contract, completed by given terms that it does not declare. Errors: Contradiction."""
    if contradicted := declared.contradicts(given):
        raise Contradiction(file, line, f"the history declares {contradicted} as --contract says")
    return declared.completed(given)


def unify(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Record batches as one table with one dictionary of topics, in one piece: its columns are then read without a copy."""
    batches = list(batches)
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks() if batches else empty_facts()


def merged_contract(summaries: list[FileSummary]) -> Contract:
    """The first file's contract; but a record need only have been looked for from the start where all consumers begin there."""
    return contract_of_all([summary.contract for summary in summaries])


def contract_of_all(contracts: Sequence[Contract]) -> Contract:
    """As merged_contract, of the files' contracts."""
    from_start = all(contract.reads_from_start for contract in contracts)
    return contracts[0].model_copy(update={"reads_from_start": from_start})


def merge_defects(summaries: list[FileSummary]) -> list[Defect]:
    """The files' own defects, and those that only show when the files of a run are held side by side."""
    defects = [defect for summary in summaries for defect in summary.defects]
    for summary in summaries:
        if summary.run != summaries[0].run:
            text = f"belongs to run {summary.run!r}, {summaries[0].file} to {summaries[0].run!r}"
            defects.append(Defect(CONTRACT, text, summary.file, 1))
        for term in RUN_TERMS:
            mine, theirs = getattr(summary.contract, term), getattr(summaries[0].contract, term)
            if mine != theirs:
                text = f"declares {term}={mine}, {summaries[0].file} {theirs}"
                defects.append(Defect(CONTRACT, text, summary.file, 1))
    return defects
