"""The rules over one run's facts in this process: no Spark, all in memory; up to some tens of millions of facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from linearizability.history.contract import Contract
from linearizability.history.excuses import excuses_of
from linearizability.history.facts import COLUMNS, UNKNOWN, Flag, Kind, Outcome
from linearizability.history.files import CLOCK, MISSING, Defect
from linearizability.history.keys import NEVER
from linearizability.history.marks import healing
from linearizability.pipeline.plain import SMALL, Screen, applies
from linearizability.rules.excusing import LOST_MARKS
from linearizability.rules.partition import Columns, PartitionHistory, is_in, order_of
from linearizability.rules.proof import Proofs
from linearizability.rules.rule import Context, Found, Rule, RunRule
from linearizability.rules.transactions import emit_dependencies

AnyRule = Rule | RunRule
Group = tuple[int, npt.NDArray[np.intp] | None]
TOGETHER = 8
"""Fewer small partitions than this are judged one by one."""
FACTS_A_BATCH = 500_000
"""Facts of small partitions that are judged together."""
SPREAD = int(Flag.MANY_PARTITIONS | Flag.TRANSACTIONAL)
"""The flags of an append within a transaction over several partitions."""


def judge_run(facts: pa.Table, run: str, context: Context, rules: Iterable[AnyRule]) -> list[Found]:
    """All that the rules find in one run."""
    alone, joined = split(rules)
    context = replace(context, proven=proven_transactions(facts))
    findings: list[Found] = []
    emitted: dict[str, list[npt.NDArray[Any]]] = {}
    for batch in batches(facts, run):
        found, rows = judge_batch(batch, context, alone, joined)
        findings += found
        for name, each in rows:
            emitted.setdefault(name, []).append(each)
    return [*findings, *judge_emitted({name: np.concatenate(rows) for name, rows in emitted.items()}, context, joined)]


def judge_batch(
    batch: Batch, context: Context, alone: tuple[Rule, ...], joined: tuple[RunRule, ...]
) -> tuple[list[Found], list[tuple[str, npt.NDArray[Any]]]]:
    """All that the rules find in some partitions, in their order, and what these emit for the rules over their run."""
    findings: list[Found] = []
    emitted: list[tuple[str, npt.NDArray[Any]]] = []
    is_plain, asked = np.zeros(len(batch.names), bool), {}
    if len(batch.names) >= TOGETHER and applies(joined):
        screen = Screen(batch.part, batch.columns, context)
        is_plain, asked = screen.plain, {rule: screen.asks(rule) for rule in alone}
        if any(rule.emit is emit_dependencies for rule in joined):
            emitted.append((emit_dependencies.__name__, screen.dependencies()))
    of_plain = [(rule, mask) for rule, mask in asked.items() if mask.any()]
    to_judge = ~is_plain | np.any([mask for _, mask in of_plain], axis=0) if of_plain else ~is_plain
    for number in np.flatnonzero(to_judge).tolist():
        partition = batch.partition(number)
        if is_plain[number]:
            chosen = tuple(rule for rule, mask in of_plain if mask[number])
            findings.extend(judge_partition(partition, context, chosen))
        else:
            findings.extend(judge_partition(partition, context, alone))
            emitted.extend(emissions(partition, context, joined))
    return findings, emitted


def split(rules: Iterable[AnyRule]) -> tuple[tuple[Rule, ...], tuple[RunRule, ...]]:
    """Rules over one partition, and rules over a run."""
    rules = tuple(rules)
    return tuple(r for r in rules if isinstance(r, Rule)), tuple(r for r in rules if isinstance(r, RunRule))


def judge_partition(partition: PartitionHistory, context: Context, rules: Iterable[Rule]) -> Iterator[Found]:
    """All that the rules find in one partition; the same function runs in Spark's workers."""
    partition.prove(context.proven)
    for rule in rules:
        if not rule.optional or context.contract.strict_recency:
            yield from rule.check(partition, context)


def emissions(
    partition: PartitionHistory, context: Context, rules: Iterable[RunRule]
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """One partition's rows for the rules over its run, by the name of the function that emits them."""
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


@dataclass(frozen=True)
class Batch:
    """Some partitions of a run: small ones together, a large one alone. The rows of each lie side by side."""

    run: str
    names: list[tuple[str, int]]
    bounds: npt.NDArray[np.intp]
    """Where the rows of each begin, and the end."""
    columns: Columns

    @property
    def part(self) -> npt.NDArray[np.int64]:
        """The number of each row's partition."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.bounds))

    def partition(self, number: int) -> PartitionHistory:
        rows = slice(self.bounds[number], self.bounds[number + 1])
        return PartitionHistory(
            self.run, *self.names[number], {name: column[rows] for name, column in self.columns.items()}
        )


def batches(facts: pa.Table, run: str) -> Iterator[Batch]:
    """The partitions of a table of facts, in the order of topic and partition number."""
    if not facts.num_rows:
        return
    names, width, codes = _codes_of_partitions(facts)
    columns = {name: facts.column(name).to_numpy() for name in COLUMNS}
    for groups in _together(groups_of(codes)):
        rows = [np.arange(facts.num_rows) if index is None else index for _, index in groups]
        bounds = np.concatenate([[0], np.cumsum([len(each) for each in rows])])
        whole = groups[0][1] is None
        chosen = columns if whole else _sorted(np.concatenate(rows), bounds, columns)
        yield Batch(run, [(names[code // width], code % width - 1) for code, _ in groups], bounds, chosen)


def _codes_of_partitions(facts: pa.Table) -> tuple[list[str], int, npt.NDArray[np.int64]]:
    """The topics, a width, and for each row its topic's place among them times the width plus its partition's number plus 1."""
    names, codes = coded(facts.column("topic"))
    rank = np.empty(len(names), np.int64)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    number = facts.column("partition").to_numpy().astype(np.int64) + 1
    width = int(number.max()) + 1
    codes = rank[codes]
    codes *= width
    codes += number
    return sorted(names), width, codes


def _together(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Neighbouring small groups of rows, up to FACTS_A_BATCH, and each large group alone."""
    small: list[Group] = []
    facts = 0
    for group in groups:
        size = SMALL + 1 if group[1] is None else len(group[1])
        if small and (size > SMALL or facts + size > FACTS_A_BATCH):
            yield small
            small, facts = [], 0
        if size > SMALL:
            yield [group]
        else:
            small.append(group)
            facts += size
    if small:
        yield small


def _sorted(rows: npt.NDArray[np.intp], bounds: npt.NDArray[np.intp], columns: Columns) -> Columns:
    """These rows of the columns in order: a large partition's by `order_of`, small ones' by partition, process, operation
    and position. They are copied once."""
    keys = {name: columns[name][rows] for name in ("kind", "process", "operation", "position")}
    if len(bounds) > 2:
        part = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        rows = rows[np.lexsort((keys["position"], keys["operation"], keys["process"], part))]
    elif (order := order_of(keys)) is not None:
        rows = rows[order]
    return {name: column[rows] for name, column in columns.items()}


def partitions(facts: pa.Table, run: str) -> Iterator[PartitionHistory]:
    """Each partition by itself."""
    for batch in batches(facts, run):
        yield from map(batch.partition, range(len(batch.names)))


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
    few = len(present) < 65_536
    small = np.searchsorted(present, codes).astype(np.uint16 if few else np.int64, copy=False)
    del codes
    order = np.argsort(small, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(small))])
    for i, code in enumerate(present):
        yield int(code), order[bounds[i] : bounds[i + 1]]


def proven_transactions(facts: pa.Table) -> Proofs:
    """Transactions of unknown outcome that wrote to several partitions, and of which an ok poll of committed records returned a
    record.

    A transaction happens in all its partitions or in none, so a record read in one partition proves those in the others; but a
    value that was sent twice does not show which of its transactions it proves. Only the few appends of such transactions are
    joined with the polls.
    """
    if not facts.num_rows:
        return Proofs()
    kind, outcome = facts.column("kind").to_numpy(), facts.column("outcome").to_numpy()
    flags = facts.column("flags").to_numpy()
    open_ended = (kind == Kind.APPEND) & (outcome == Outcome.INFO) & ((flags & SPREAD) == SPREAD)
    if not open_ended.any():
        return Proofs()
    values = facts.column("value").to_numpy()
    wanted = np.unique(values[open_ended])
    candidates = (kind == Kind.OBSERVATION) & (outcome == Outcome.OK) & ((flags & int(Flag.READ_COMMITTED)) != 0)
    candidates[candidates] = is_in(values[candidates], wanted)
    columns = ["topic", "partition", "value"]
    alike = kind == Kind.APPEND
    alike[alike] = is_in(values[alike], wanted)
    names = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("value", pa.int64())])
    sent, seen = (
        facts.select([*columns, name]).filter(pa.array(rows)).cast(pa.schema([*names, pa.field(name, pa.int64())]))
        for name, rows in (("transaction", alike), ("completed", candidates))
    )
    sends = sent.group_by(columns).aggregate([("transaction", "count"), ("transaction", "min")])
    once = sends.filter(pa.array(sends.column("transaction_count").to_numpy() == 1))
    in_doubt = facts.column("transaction").to_numpy()[open_ended]
    first = seen.group_by(columns).aggregate([("completed", "min")])
    joined = once.join(first, columns, join_type="inner")
    proven, at = joined.column("transaction_min").to_numpy(), joined.column("completed_min").to_numpy()
    chosen = is_in(proven, np.unique(in_doubt))
    return Proofs.of(proven[chosen], at[chosen])


def context_of(
    contract: Contract, marks: Iterable[dict[str, Any]], ends_at: int = UNKNOWN, defects: Iterable[Defect] = ()
) -> Context:
    """The context of a run's checks: its data besides the facts."""
    marks = list(marks)
    still_on = any(heal is None for _, heal in healing(marks))
    heals = [mark["time"] for mark in marks if mark.get("f") == "heal"]
    excuses = excuses_of(sorted(marks, key=lambda mark: mark["time"]))
    defects = list(defects)
    kinds = {defect.kind for defect in defects}
    if CLOCK in kinds:
        excuses = tuple(replace(excuse, begins=-NEVER, ends=NEVER) for excuse in excuses)
    heals_at = -1 if still_on else max(heals, default=-1)
    faults_at = min((mark["time"] for mark in marks if mark.get("f") == "fault"), default=NEVER)
    if any(defect.marks for defect in defects):
        excuses, heals_at, faults_at = (*excuses, LOST_MARKS), -1, -NEVER
    return Context(
        contract,
        faults_at=faults_at,
        heals_at=heals_at,
        ends_at=ends_at,
        excuses=excuses,
        is_whole=MISSING not in kinds,
        is_timed=CLOCK not in kinds,
    )
