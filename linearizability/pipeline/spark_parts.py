"""Hot partitions under Spark: cut into parts while they are read, shuffled once to where the parts are judged."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from linearizability.pipeline.blocks import Key, RowGroup, by_partition, columns_of, packed, row_groups, unpacked
from linearizability.pipeline.local import groups_of
from linearizability.pipeline.parts import NotCut, Plan, judge_parts, outline, plan_of
from linearizability.rules.cut import By
from linearizability.rules.partition import Columns
from linearizability.rules.rule import Context, Found, Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOT_FACTS = 8_000_000
"""A partition of more facts is cut: judged in one place it would take some 2 GB."""
FACTS_A_PART = 2_000_000
PART_DDL = "by string, part int, block binary"

Result = TypeVar("Result")


def judge_hot(
    spark: SparkSession, files: Sequence[Path], contexts: Mapping[str, Context], rules: Iterable[Rule]
) -> dict[Key, list[Found]]:
    """The findings of rules that can be cut in the hot partitions; a missing partition could not be cut."""
    chosen = tuple(rule for rule in rules if rule.cut is not None)
    findings: dict[Key, list[Found]] = {}
    groups = row_groups(files)
    if not chosen or sum(group.rows for group in groups) <= HOT_FACTS:
        return findings
    for key in sorted(key for key, facts in _sizes(spark, groups).items() if facts > HOT_FACTS):
        within = [group for group in groups if group.key in (key, None)]
        plan = plan_of(_over(spark, within, partial(_outlines, key)), FACTS_A_PART)
        parts = SparkParts(spark, within, key, plan)
        try:
            findings[key] = judge_parts(parts, key, contexts[key.run], chosen)
        except NotCut as reason:
            print(f"{key.topic}-{key.partition} of run {key.run} is judged uncut: {reason}", file=sys.stderr)
        finally:
            parts.close()
    return findings


def _sizes(spark: SparkSession, groups: Sequence[RowGroup]) -> Counter[Key]:
    """How many facts each partition has. Only row groups that hold several partitions must be read."""
    sizes: Counter[Key] = Counter()
    for group in groups:
        if group.key is not None:
            sizes[group.key] += group.rows
    mixed = [group for group in groups if group.key is None]
    for counted in _over(spark, mixed, lambda group: [group.keys()]):
        sizes.update(counted)
    return sizes


def _outlines(key: Key, group: RowGroup) -> list[Any]:
    return [outline(columns) for columns in _facts_of(key, group)]


def _facts_of(key: Key, group: RowGroup) -> Iterator[dict[str, Any]]:
    for run, topic, partition, facts in by_partition(group.read()):
        if Key(run, topic, partition) == key:
            yield columns_of(facts)


def _over(
    spark: SparkSession, groups: Sequence[RowGroup], work: Callable[[RowGroup], Iterable[Result]]
) -> list[Result]:
    """The results of `work` on each row group, in Spark's workers."""
    if not groups:
        return []
    return spark.sparkContext.parallelize(groups, min(len(groups), 256)).flatMap(work).collect()


class SparkParts:
    """The parts of one partition in Spark's workers, spilled to their disks; each pass goes over them there."""

    def __init__(self, spark: SparkSession, groups: Sequence[RowGroup], key: Key, plan: Plan) -> None:
        from pyspark.storagelevel import StorageLevel

        self.plan = plan
        tasks = min(len(groups), 256)

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    for group in groups[task::tasks]:
                        for columns in _facts_of(key, group):
                            yield from _blocks(plan, columns)

        blocks = spark.range(0, tasks, 1, tasks).mapInArrow(read, PART_DDL)
        number = sum(len(cuts) + 1 for cuts in plan.cuts.values())
        self._blocks = blocks.repartition(min(number, 256), "by", "part").persist(StorageLevel.DISK_ONLY)

    def each(self, by: By, work: Callable[[int, Columns], Result]) -> Sequence[Result]:
        def run(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
            result = work(key[1].as_py(), columns_of(unpacked(table)))
            return pa.table({"result": pa.array([pickle.dumps(result)], pa.binary())})

        mine = self._blocks.where(self._blocks["by"] == by.value)
        rows = mine.groupBy("by", "part").applyInArrow(run, "result binary").toArrow()
        return [pickle.loads(row) for row in rows.column("result").to_pylist()]

    def close(self) -> None:
        self._blocks.unpersist()


def _blocks(plan: Plan, columns: Columns) -> Iterator[pa.RecordBatch]:
    """The facts of each part in one block."""
    for by in By:
        part = plan.part_of(by, columns) + 1
        for number, index in groups_of(part):
            if number == 0:
                continue
            chosen = columns if index is None else {name: column[index] for name, column in columns.items()}
            facts = pa.table({name: pa.array(np.asarray(column)) for name, column in chosen.items()})
            row = [pa.array([by.value]), pa.array([number - 1], pa.int32()), pa.array([packed(facts)], pa.binary())]
            yield pa.RecordBatch.from_arrays(row, ["by", "part", "block"])
