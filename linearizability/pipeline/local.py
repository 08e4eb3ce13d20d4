"""The rules over one run's facts in this process: no Spark, all in memory; up to some tens of millions of facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from linearizability.history.contract import Contract
from linearizability.history.excuses import excuses_of
from linearizability.history.facts import COLUMNS, UNKNOWN, Flag, Kind, Outcome
from linearizability.history.marks import healing
from linearizability.rules.partition import Partition, is_in
from linearizability.rules.rule import Context, Found, Rule, RunRule

AnyRule = Rule | RunRule
SPREAD = int(Flag.MANY_PARTITIONS | Flag.TRANSACTIONAL)
"""Of an append within a transaction over several partitions."""


def judge_run(facts: pa.Table, run: str, context: Context, rules: Iterable[AnyRule]) -> list[Found]:
    """All that the rules find in one run."""
    alone, joined = split(rules)
    context = replace(context, proven=proven_operations(facts))
    findings: list[Found] = []
    emitted: dict[str, list[npt.NDArray[Any]]] = {}
    for partition in partitions(facts, run):
        findings.extend(judge_partition(partition, context, alone))
        for name, rows in emissions(partition, context, joined):
            emitted.setdefault(name, []).append(rows)
    return [*findings, *judge_emitted({name: np.concatenate(rows) for name, rows in emitted.items()}, context, joined)]


def split(rules: Iterable[AnyRule]) -> tuple[tuple[Rule, ...], tuple[RunRule, ...]]:
    """Rules over one partition, and rules over a run."""
    rules = tuple(rules)
    return tuple(r for r in rules if isinstance(r, Rule)), tuple(r for r in rules if isinstance(r, RunRule))


def judge_partition(partition: Partition, context: Context, rules: Iterable[Rule]) -> Iterator[Found]:
    """All that the rules find in one partition; the same function runs in Spark's workers."""
    partition.prove(context.proven)
    for rule in rules:
        if not rule.optional or context.contract.strict_recency:
            yield from rule.check(partition, context)


def emissions(
    partition: Partition, context: Context, rules: Iterable[RunRule]
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """What one partition contributes to the rules over its run: rows by the name of what emits them."""
    partition.prove(context.proven)
    for emit in dict.fromkeys(rule.emit for rule in rules):
        rows = emit(partition, context)
        if len(rows):
            yield emit.__name__, rows


def judge_emitted(
    emitted: Mapping[str, npt.NDArray[Any]], context: Context, rules: Iterable[RunRule]
) -> Iterator[Found]:
    """All that the rules over a run find in what its partitions emitted."""
    for rule in rules:
        rows = emitted.get(rule.emit.__name__)
        if rows is not None:
            order = np.lexsort(rows.T[::-1])  # partitions may come in any order
            yield from rule.check(rows[order], context)


def partitions(facts: pa.Table, run: str) -> Iterator[Partition]:
    """The partitions of a table of facts, in the order of topic and partition number."""
    if not facts.num_rows:
        return
    names, codes = coded(facts.column("topic"))
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    topic = rank[codes]
    number = facts.column("partition").to_numpy().astype(np.int64) + 1
    sorted_names, width = sorted(names), int(number.max()) + 1
    codes = topic * width + number
    columns = {name: facts.column(name).to_numpy() for name in COLUMNS}
    for code, index in groups_of(codes):
        chosen = columns if index is None else {key: column[index] for key, column in columns.items()}
        yield Partition(run, sorted_names[code // width], code % width - 1, chosen)


def coded(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int64]]:
    """A column of names as the names and each row's index into them."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    array = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    return array.dictionary.to_pylist(), array.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def groups_of(codes: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.intp] | None]]:
    """Each code with the indices of its rows, in their order; None where all rows have the same."""
    if not len(codes):
        return
    dense = int(codes.max()) < 8 * len(codes) + 100_000  # partition numbers may be anything
    present = np.flatnonzero(np.bincount(codes)) if dense else np.unique(codes)
    if len(present) == 1:
        yield int(present[0]), None
        return
    small = np.searchsorted(present, codes)
    order = np.argsort(small.astype(np.uint16) if len(present) < 65_536 else small, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(small))])
    for i, code in enumerate(present):
        yield int(code), order[bounds[i] : bounds[i + 1]]


def proven_operations(facts: pa.Table) -> npt.NDArray[np.int64]:
    """Operations within transactions, of unknown outcome, that wrote to several partitions and of which an ok poll of
    committed records returned one.

    A transaction happens in all its partitions or in none, so a record read in one partition proves those in the others. Only
    the few appends of such operations are joined with the polls.
    """
    if not facts.num_rows:
        return np.empty(0, np.int64)
    kind, outcome = facts.column("kind").to_numpy(), facts.column("outcome").to_numpy()
    flags = facts.column("flags").to_numpy()
    open_ended = (kind == Kind.APPEND) & (outcome == Outcome.INFO) & ((flags & SPREAD) == SPREAD)
    if not open_ended.any():
        return np.empty(0, np.int64)
    values = facts.column("value").to_numpy()
    wanted = np.unique(values[open_ended])
    candidates = (kind == Kind.OBSERVATION) & (outcome == Outcome.OK) & ((flags & int(Flag.READ_COMMITTED)) != 0)
    candidates[candidates] = is_in(values[candidates], wanted)
    columns = ["topic", "partition", "value"]
    sent = facts.select([*columns, "operation"]).filter(pa.array(open_ended))
    seen = facts.select(columns).filter(pa.array(candidates))
    names = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("value", pa.int64())])
    sent = sent.cast(pa.schema([*names, pa.field("operation", pa.int64())]))
    joined = sent.join(seen.cast(names).group_by(columns).aggregate([]), columns, join_type="inner")
    return np.unique(joined.column("operation").to_numpy())


def context_of(contract: Contract, marks: Iterable[dict[str, Any]], ends_at: int = UNKNOWN) -> Context:
    """What checks may know of a run besides its facts."""
    marks = list(marks)
    still_on = any(heal is None for _, heal in healing(marks))
    heals = [mark["time"] for mark in marks if mark.get("f") == "heal"]
    excuses = excuses_of(sorted(marks, key=lambda mark: mark["time"]))
    heals_at = -1 if still_on else max(heals, default=-1)
    return Context(contract, heals_at=heals_at, ends_at=ends_at, excuses=excuses)
