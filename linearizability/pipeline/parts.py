"""Judging a partition in parts: wherever the parts are, the findings are those of the whole.

A partition is cut twice: by offsets, for the rules that follow the log, and by operations, for those that follow a process
(see `linearizability.rules.cut`). The passes over the parts, each of which returns only little to its caller:

1. *survey* (by offset): which values and which operations each part knows, as runs of consecutive numbers;
2. *gather* (by offset): the facts of strays, of operations over a cut, the final reads, and where the log begins;
3. *carry* (both): the facts that the rules pick for the other parts, and all facts at the offsets of carried ones;
4. *gaps* (by operation), *fill* (by offset): the records that steps of consumers lead over;
5. *judge* (both).

Some partitions cannot be cut: those whose values do not run (hashes of text), and those of which too much would have to be
carried. Then everything is judged in one place, as are the rules that cannot be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from linearizability.history.facts import COLUMNS, Kind, Outcome
from linearizability.pipeline.blocks import Key
from linearizability.pipeline.local import judge_partition
from linearizability.rules import RULES
from linearizability.rules.cut import NO_PLACE, Array, By, Owned
from linearizability.rules.partition import Columns, Mask, PartitionHistory, is_in
from linearizability.rules.proof import Proofs
from linearizability.rules.retention import log_start_rows
from linearizability.rules.rule import MAX_WITNESSES, Context, Found, Rule, in_order

MAX_RUNS = 4_000_000
"""Runs of values and operations in all surveys of a partition; with more it is not cut."""
MAX_CARRIED = 500_000
"""Facts that every part is given; with more the partition is not cut."""
PAST_ALL = np.iinfo(np.int64).max

Result = TypeVar("Result")


class NotCut(Exception):
    """Too many facts would have to be carried; the text names the reason."""


@dataclass(frozen=True)
class Plan:
    """Where a partition is cut: the first place of each part but the first."""

    cuts: Mapping[By, Array]

    def part_of(self, by: By, columns: Columns) -> Array:
        """The number of the part that is each row's home, -1 where it has none."""
        part = np.searchsorted(self.cuts[by], place_of(by, columns), side="right")
        return part if by is By.OFFSET else np.where(is_record(columns), part, -1)

    def range_of(self, by: By, part: int) -> tuple[int, int]:
        bounds = [NO_PLACE, *self.cuts[by].tolist(), PAST_ALL]
        return bounds[part], bounds[part + 1]


class Parts(Protocol):
    """All parts of one partition, wherever they are."""

    plan: Plan

    def each(self, by: By, work: Callable[[int, Columns], Result]) -> Sequence[Result]:
        """The results of `work` on each part's number and facts; in any order."""
        ...


def is_record(columns: Columns) -> Mask:
    return (columns["kind"] == Kind.APPEND) | (columns["kind"] == Kind.OBSERVATION)


def place_of(by: By, columns: Columns) -> Array:
    """Where each row belongs. A log end belongs to the record before it; a fact outside of the log to NO_PLACE."""
    if by is By.OPERATION:
        return columns["operation"]
    ends = (columns["kind"] == Kind.END_OFFSETS) & (columns["offset"] >= 0)
    return np.where(is_record(columns), columns["offset"], np.where(ends, columns["offset"] - 1, NO_PLACE))


# -- where to cut ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outline:
    """The distribution of a partition's facts."""

    facts: int
    low: int
    high: int
    processes: Mapping[int, tuple[int, int, int]]
    """Of each file: records, first operation, last operation."""


def outline(columns: Columns) -> Outline:
    records = is_record(columns)
    offsets = columns["offset"][records & (columns["offset"] >= 0)]
    operations = columns["operation"][records]
    process = operations >> 32
    processes = {}
    for number in np.unique(process).tolist():
        mine = operations[process == number]
        processes[number] = (len(mine), int(mine.min()), int(mine.max()))
    low, high = (int(offsets.min()), int(offsets.max())) if len(offsets) else (PAST_ALL, NO_PLACE)
    return Outline(len(columns["kind"]), low, high, processes)


def plan_of(outlines: Iterable[Outline], facts_a_part: int) -> Plan:
    """Parts of about equally many facts, if these lie evenly."""
    outlines = list(outlines)
    low, high = min(each.low for each in outlines), max(each.high for each in outlines)
    processes: dict[int, tuple[int, int, int]] = {}
    for each in outlines:
        for process, (count, first, last) in each.processes.items():
            known = processes.get(process, (0, first, last))
            processes[process] = (known[0] + count, min(known[1], first), max(known[2], last))
    facts = sum(each.facts for each in outlines)
    return Plan(
        {
            By.OFFSET: _evenly(low, high, -(-facts // facts_a_part)),
            By.OPERATION: _by_processes([processes[process] for process in sorted(processes)], facts_a_part),
        }
    )


def _evenly(low: int, high: int, parts: int) -> Array:
    """The inner bounds of so many ranges from `low` to `high`."""
    if high <= low:
        return np.empty(0, np.int64)
    return np.unique([low + (high + 1 - low) * part // parts for part in range(1, parts)]).astype(np.int64)


def _by_processes(processes: list[tuple[int, int, int]], facts_a_part: int) -> Array:
    """Small files share a part, large ones are cut."""
    cuts: list[int] = []
    filled = 0
    for count, first, last in processes:
        if filled and filled + count > facts_a_part:
            cuts.append(first)
            filled = 0
        cuts.extend(_evenly(first, last, -(-count // facts_a_part)).tolist())
        filled += count
    return np.array(cuts, np.int64)


# -- what parts say of themselves ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Survey:
    """The summary of one part by offset. Records without an offset count as a part of their own."""

    values: list[Array]
    """Runs of values (first, last), of records with an offset and of records without."""
    operations: list[Array]
    """Runs of producers' operations."""
    odd_values: Array
    """Values that were sent twice, and those of appends that failed, are in doubt, or have no offset."""
    odd_operations: Array


def survey(part: int, columns: Columns) -> Survey:
    partition = PartitionHistory("", "", 0, columns)
    appends, observations = partition.appends, partition.observations
    odd = (appends.outcome != Outcome.OK) | (appends.offset < 0)
    placed, seen = appends.offset >= 0, observations.offset >= 0
    known = np.flatnonzero(partition.writer >= 0)
    moved = known[appends.offset[partition.writer[known]] != observations.offset[known]]
    odd_values = np.concatenate([appends.value[odd], observations.value[moved]])
    return Survey(
        [
            runs(np.concatenate([appends.value[placed], observations.value[seen]])),
            runs(np.concatenate([appends.value[~placed], observations.value[~seen]])),
        ],
        [runs(appends.operation[placed]), runs(appends.operation[~placed])],
        np.union1d(odd_values, partition.repeated_values),
        np.unique(appends.operation[odd]),
    )


def runs(numbers: Array) -> Array:
    """The runs of consecutive numbers, as (first, last)."""
    ordered = np.unique(numbers).astype(np.int64)
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    first = np.concatenate([ordered[:1], ordered[breaks + 1]])
    last = np.concatenate([ordered[breaks], ordered[-1:]])
    return np.stack([first, last], axis=1)


def shared(sets: Iterable[Array]) -> Array:
    """The numbers that lie in the runs of two sets at least. Sorted."""
    together = np.concatenate([np.empty((0, 2), np.int64), *sets])
    if len(together) > MAX_RUNS:
        raise NotCut(f"its values form {len(together)} runs")
    points = np.concatenate([together[:, 0], together[:, 1] + 1])
    steps = np.repeat([1, -1], len(together))
    order = np.lexsort((steps, points))
    points, cover = points[order], np.cumsum(steps[order])
    twice = np.flatnonzero(cover[:-1] >= 2) if len(cover) else np.empty(0, np.intp)
    low, length = points[twice], points[twice + 1] - points[twice]
    if length.sum() > MAX_CARRIED:
        raise NotCut(f"{length.sum()} values lie in several parts")
    return np.unique(np.repeat(low - np.concatenate([[0], np.cumsum(length)[:-1]]), length) + np.arange(length.sum()))


@dataclass
class Carried:
    """The facts that every part gets."""

    values: Array = field(default_factory=lambda: np.empty(0, np.int64))
    operations: Array = field(default_factory=lambda: np.empty(0, np.int64))
    columns: Columns = field(default_factory=lambda: {name: np.empty(0, kind) for name, kind in COLUMNS.items()})

    def wanted(self, columns: Columns) -> Mask:
        """Facts of strays, of operations over a cut, the final reads, and where the log begins."""
        chosen = is_record(columns) & is_in(columns["value"], self.values)
        chosen |= (columns["kind"] == Kind.APPEND) & is_in(columns["operation"], self.operations)
        chosen |= columns["kind"] == Kind.DRAIN
        chosen[log_start_rows(columns)] = True
        return chosen

    def with_more(self, more: Iterable[Columns]) -> Carried:
        """These and more carried facts, each once."""
        columns = joined([self.columns, *more])
        if len(columns["kind"]) > 4 * MAX_CARRIED:
            raise NotCut(f"{len(columns['kind'])} facts would have to be carried")
        rows = np.stack([columns[name].astype(np.int64) for name in COLUMNS], axis=1)
        _, first = np.unique(rows, axis=0, return_index=True)
        if len(first) > MAX_CARRIED:
            raise NotCut(f"{len(first)} facts would have to be carried")
        return replace(self, columns=chosen_rows(columns, np.sort(first)))


def joined(tables: Sequence[Columns]) -> dict[str, Array]:
    return {name: np.concatenate([table[name] for table in tables]) for name in COLUMNS}


def chosen_rows(columns: Columns, rows: Array) -> dict[str, Array]:
    return {name: columns[name][rows] for name in COLUMNS}


# -- the passes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judge:
    """One partition's rules, and the facts that are carried to its parts so far."""

    key: Key
    plan: Plan
    context: Context
    rules: tuple[Rule, ...]
    carried: Carried
    proven: Proofs

    def rules_by(self, by: By) -> list[Rule]:
        return [rule for rule in self.rules if rule.cut is not None and rule.cut.by is by]

    def view(self, by: By, part: int, columns: Columns) -> PartitionHistory:
        """The part with the facts that are carried to it."""
        away = self.plan.part_of(by, self.carried.columns) != part
        facts = joined([columns, chosen_rows(self.carried.columns, np.flatnonzero(away))])
        return PartitionHistory(*self.key, facts, Owned(by, *self.plan.range_of(by, part), self.proven))

    def gather(self, part: int, columns: Columns) -> Columns:
        return chosen_rows(columns, np.flatnonzero(self.carried.wanted(columns)))

    def carry(self, by: By, part: int, columns: Columns) -> Columns:
        """The facts that the rules pick in this part; by offset also all other facts at the offsets of carried ones."""
        view = self.view(by, part, columns)
        picks = dict.fromkeys(rule.cut.carry for rule in self.rules_by(by) if rule.cut is not None)
        chosen = np.unique(np.concatenate([np.empty(0, np.intp), *(pick(view, self.context) for pick in picks)]))
        picked = chosen_rows(view.columns, chosen)
        if by is By.OPERATION:
            return picked
        known = is_record(columns) & (columns["offset"] >= 0)
        together = np.concatenate([self.carried.columns["offset"], picked["offset"]])
        known &= is_in(columns["offset"], np.unique(together))
        return joined([picked, chosen_rows(columns, np.flatnonzero(known))])

    def gaps(self, part: int, columns: Columns) -> Array:
        """Ranges of offsets of which the rules by operation must know everything."""
        view = self.view(By.OPERATION, part, columns)
        wanted = [rule.cut.gaps(view) for rule in self.rules_by(By.OPERATION) if rule.cut is not None and rule.cut.gaps]
        return np.concatenate([np.empty((0, 2), np.int64), *wanted])

    def judge(self, by: By, part: int, columns: Columns) -> list[Found]:
        return list(judge_partition(self.view(by, part, columns), self.context, self.rules_by(by)))


def fill(gaps: Array, part: int, columns: Columns) -> Columns:
    """The records in sorted ranges of offsets that do not overlap."""
    after = np.searchsorted(gaps[:, 0], columns["offset"], side="right") - 1
    inside = is_record(columns) & (after >= 0)
    if len(gaps):
        inside &= columns["offset"] <= gaps[np.maximum(after, 0), 1]
    return chosen_rows(columns, np.flatnonzero(inside))


def union(gaps: Array) -> Array:
    """Ranges (first, last) as sorted ranges that do not overlap."""
    gaps = gaps[np.argsort(gaps[:, 0], kind="stable")]
    reach = np.maximum.accumulate(gaps[:, 1])
    begins = np.ones(len(gaps), bool)
    begins[1:] = gaps[1:, 0] > reach[:-1]
    return np.stack([gaps[begins, 0], reach[np.roll(begins, -1)]], axis=1)


def judge_parts(parts: Parts, key: Key, context: Context, rules: Iterable[Rule]) -> list[Found]:
    """All that rules that can be cut find in a partition. Errors: NotCut."""
    judge = Judge(key, parts.plan, context, tuple(rules), Carried(), context.proven)
    surveys = parts.each(By.OFFSET, survey)
    odd_values, odd_operations = (
        np.unique(np.concatenate([np.empty(0, np.int64), *(getattr(each, name) for each in surveys)]))
        for name in ("odd_values", "odd_operations")
    )
    values = np.union1d(shared(runs for each in surveys for runs in each.values), odd_values)
    operations = np.union1d(shared(runs for each in surveys for runs in each.operations), odd_operations)
    if len(values) > MAX_CARRIED:
        raise NotCut(f"{len(values)} records have no certain place")
    judge = replace(judge, carried=Carried(values, operations))
    base = judge.carried.with_more(parts.each(By.OFFSET, judge.gather))
    judge = replace(judge, carried=base, proven=_proven(key, base, context))
    along = _along_the_log(parts, judge)
    return merged([*along, *_along_the_processes(parts, judge)])


def _proven(key: Key, carried: Carried, context: Context) -> Proofs:
    """The whole partition's proofs of transactions in doubt: all facts of their values are carried."""
    whole = PartitionHistory(*key, carried.columns)
    whole.prove(context.proven)
    return whole.proven_transactions


def _along_the_log(parts: Parts, judge: Judge) -> Iterable[Found]:
    if not judge.rules_by(By.OFFSET):
        return
    picked = parts.each(By.OFFSET, partial(judge.carry, By.OFFSET))
    ready = replace(judge, carried=judge.carried.with_more(picked))
    for findings in parts.each(By.OFFSET, partial(ready.judge, By.OFFSET)):
        yield from findings


def _along_the_processes(parts: Parts, judge: Judge) -> Iterable[Found]:
    rules = judge.rules_by(By.OPERATION)
    if not rules:
        return
    picked = parts.each(By.OPERATION, partial(judge.carry, By.OPERATION))
    ready = replace(judge, carried=judge.carried.with_more(picked))
    if any(rule.cut is not None and rule.cut.gaps for rule in rules):
        gaps = union(np.concatenate([np.empty((0, 2), np.int64), *parts.each(By.OPERATION, ready.gaps)]))
        ready = replace(ready, carried=ready.carried.with_more(parts.each(By.OFFSET, partial(fill, gaps))))
    for findings in parts.each(By.OPERATION, partial(ready.judge, By.OPERATION)):
        yield from findings


def merged(findings: Iterable[Found]) -> list[Found]:
    """Findings of parts as those of the whole: counts add up, and the first witnesses are kept."""
    together: dict[tuple[str, str], list[Found]] = {}
    for item in findings:
        together.setdefault((item.rule, item.permitted), []).append(item)
    whole = []
    for (rule, permitted), items in sorted(together.items()):
        anomalies = in_order(anomaly for item in items for anomaly in item.anomalies)[:MAX_WITNESSES]
        whole.append(Found(rule, permitted, sum(item.count for item in items), tuple(anomalies)))
    return sorted(_singled(whole), key=lambda item: (item.rule, item.permitted))


def _singled(findings: list[Found]) -> Iterable[Found]:
    """Of rules that find one anomaly a partition, the first that the contract does not permit, or the first."""
    single: dict[str, list[Found]] = {}
    for item in findings:
        cut = RULES[item.rule].cut
        if cut is None or not cut.single:
            yield item
        else:
            single.setdefault(item.rule, []).append(item)
    for of_rule in single.values():
        first = min(of_rule, key=lambda item: (item.permitted != "", item.anomalies[0].offset))
        yield replace(first, count=1, anomalies=first.anomalies[:1])


# -- in this process -------------------------------------------------------------------------------------------------------


class LocalParts:
    """The parts of a partition in memory; for tests and to explain."""

    def __init__(self, columns: Columns, plan: Plan) -> None:
        self.plan = plan
        self._parts = {
            by: [
                chosen_rows(columns, np.flatnonzero(plan.part_of(by, columns) == part))
                for part in range(len(plan.cuts[by]) + 1)
            ]
            for by in By
        }

    def each(self, by: By, work: Callable[[int, Columns], Result]) -> Sequence[Result]:
        return [work(part, columns) for part, columns in enumerate(self._parts[by])]
