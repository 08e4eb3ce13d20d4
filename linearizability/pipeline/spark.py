"""The same checks in one PySpark job: each partition's facts meet in one worker, which judges them.

A partition whose facts are in row groups of their own is judged where they are read. The facts of others are shuffled once, by
run, topic and partition: not as rows, but as blocks (`linearizability.pipeline.blocks`). A partition of more than HOT_FACTS
facts is cut into parts for the rules that can be cut (`linearizability.pipeline.parts`); the others still judge it in one
place.

Memory: each worker holds one partition's facts at a time (about 110 bytes each, and as much again while its checks run), of
a hot one a part's, and one row group while it reads; the driver holds only findings, of which each rule keeps at most
MAX_WITNESSES a partition with their witness, what partitions emit for the rules over a run, and what parts carry.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from linearizability.history.facts import Flag, Kind, Outcome, empty_facts
from linearizability.history.files import HistoryError
from linearizability.history.store import (
    Source,
    StoredRun,
    Unread,
    Written,
    missing,
    read_part,
    read_runs,
    run_folder,
    sound_parts,
    summed_up,
    write_histories,
    write_runs,
    write_stream,
)
from linearizability.history.streams import History
from linearizability.pipeline.blocks import (
    BLOCK_DDL,
    Key,
    RowGroup,
    apart,
    block,
    by_partition,
    columns_of,
    row_groups,
    unpacked,
)
from linearizability.pipeline.engine import conclude, unreadable
from linearizability.pipeline.local import (
    SPREAD,
    context_of,
    emissions,
    judge_emitted,
    judge_partition,
    split,
)
from linearizability.pipeline.series import Series
from linearizability.pipeline.spark_parts import judge_hot
from linearizability.pipeline.spark_session import session
from linearizability.pipeline.verdict import Judgement
from linearizability.rules import RULES
from linearizability.rules.partition import PartitionHistory
from linearizability.rules.proof import Proofs
from linearizability.rules.rule import FOUND_SCHEMA, Anomaly, Context, Found, Rule, RunRule, found_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOUND_DDL = (
    "run string, topic string, partition int, rule string, permitted string, count long, offset long, value long, "
    "operations array<long>, text string"
)
RUNS_A_JOB = 200
"""Runs that are judged together, so that the results of many come one after the other."""
RUNS_OF_THE_FIRST_JOB = 20

Contexts = Mapping[str, Context]
Item = TypeVar("Item")


def check_histories(histories: Iterable[History | HistoryError], master: str) -> Iterator[Judgement]:
    """A judgement for each history, all of a batch in one job, in their order."""
    for batch in in_jobs(histories):
        yield from _check_batch(batch, master)


def in_jobs(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Batches of items that are judged together: small at first, so that the first results come soon."""
    remaining = iter(items)
    size = RUNS_OF_THE_FIRST_JOB
    while batch := list(islice(remaining, size)):
        yield batch
        size = RUNS_A_JOB


def _check_batch(batch: list[History | HistoryError], master: str) -> Iterator[Judgement]:
    known = [history for history in batch if isinstance(history, History)]
    findings: dict[str, list[Found]] = {}
    if known:
        spark = session(master)
        with tempfile.TemporaryDirectory(prefix="tidegauge-facts-") as folder:
            # A history's id need not be unique among files, so runs are distinguished by their number here.
            write_histories(Path(folder), known)
            contexts = {
                str(number): context_of(history.contract, history.marks, history.tally.ends_at, history.defects)
                for number, history in enumerate(known)
            }
            files = [file for number in range(len(known)) for file in run_folder(Path(folder), number).iterdir()]
            findings = judge_files(spark, files, contexts)
    for history in batch:
        if isinstance(history, HistoryError):
            yield unreadable(history)
        else:
            number = next(i for i, other in enumerate(known) if other is history)
            yield conclude(history, findings.get(str(number), []), "spark")


def check_store(store: Path, master: str, *, over_time: bool) -> Iterator[Judgement]:
    """A judgement for each run of a store, with its series if asked. Its facts never come to the driver."""
    for runs in in_jobs(enumerate(read_runs(store))):
        yield from _check_runs(store, runs, master, over_time)


def _check_runs(
    store: Path, runs: Sequence[tuple[int, StoredRun]], master: str, over_time: bool
) -> Iterator[Judgement]:
    """Some runs of a store. A file whose bytes are not those that were written is left out, and its run is not valid."""
    spark = session(master)
    files: dict[int, list[Path]] = {}
    for number, run in runs:
        files[number], defects = sound_parts(store, number, run)
        run.defects += defects
    contexts = {
        str(number): context_of(run.contract, run.marks, run.tally.ends_at, run.defects) for number, run in runs
    }
    try:
        findings = judge_files(spark, _all(files), contexts)
    except Exception:
        damaged = damaged_files(spark, _all(files))
        if not damaged:
            raise
        for number, run in runs:
            run.defects += [missing(damaged[file], file) for file in files[number] if file in damaged]
            files[number] = [file for file in files[number] if file not in damaged]
        findings = judge_files(spark, _all(files), contexts)
    drawn = _series(spark, _all(files), runs) if over_time else {}
    for number, run in runs:
        judgement = conclude(run.history(), findings.get(str(number), []), "spark")
        judgement.facts = sum(pq.read_metadata(file).num_rows for file in files[number])
        judgement.series = drawn.get(str(number))
        yield judgement


def _all(files: Mapping[int, list[Path]]) -> list[Path]:
    return [file for number in files for file in files[number]]


def damaged_files(spark: SparkSession, files: Sequence[Path]) -> dict[Path, str]:
    """The files that cannot be read, and why. Workers read all of them, so this is for after a job has failed."""

    def look(file: Path) -> list[tuple[Path, str]]:
        try:
            read_part(file)
        except HistoryError as error:
            return [(file, error.defect.text)]
        return []

    tasks = min(len(files), MAX_READ_TASKS)
    return dict(spark.sparkContext.parallelize(files, tasks).flatMap(look).collect()) if tasks else {}


def _series(spark: SparkSession, files: Sequence[Path], runs: Iterable[tuple[int, StoredRun]]) -> dict[str, Series]:
    from linearizability.pipeline.spark_series import series_of_facts

    return series_of_facts(read_facts(spark, files), {str(number): run.marks for number, run in runs})


def store_of(unread: Sequence[Unread], store: Path, master: str = "") -> list[StoredRun]:
    """Runs to a store, their sources many at once: Spark's workers derive the facts, in bounded memory."""
    tasks = [
        (number, source, run_folder(store.resolve(), number) / f"part-{part:04d}")
        for number, run in enumerate(unread)
        for part, source in enumerate(run.sources)
    ]

    def derive(task: tuple[int, Source, Path]) -> list[tuple[int, Written]]:
        number, source, target = task
        return [
            (number, write_stream(stream, target.with_name(f"{target.name}-{each:04d}.parquet"), str(number)))
            for each, stream in enumerate(source())
        ]

    results = session(master).sparkContext.parallelize(tasks, len(tasks)).flatMap(derive).collect() if tasks else []
    runs = [
        summed_up((result for which, result in results if which == number), run.name, run.defects)
        for number, run in enumerate(unread)
    ]
    write_runs(store, runs)
    return runs


def read_facts(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Facts as rows, for queries by Spark."""
    return spark.read.parquet(*map(str, files)) if files else spark.createDataFrame(decoded(empty_facts()))


def decoded(facts: pa.Table) -> pa.Table:
    """Facts with plain strings, as Spark knows them."""
    plain = [pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in facts.schema]
    return facts.cast(pa.schema(plain))


# -- one job ---------------------------------------------------------------------------------------------------------------

MAX_READ_TASKS = 256
"""Tasks that read; with more row groups each task reads several, one after the other."""


def blocks(spark: SparkSession, groups: Sequence[RowGroup], left_out: Collection[Key] = ()) -> DataFrame:
    """Facts in blocks. Workers read the files themselves, so all must see the folder."""
    groups = [group for group in groups if group.key not in left_out]
    tasks = min(max(1, len(groups)), MAX_READ_TASKS)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for group in groups[task::tasks]:
                    facts = by_partition(group.read())
                    yield from (block(item) for item in facts if Key(*item[:3]) not in left_out)

    return spark.range(0, tasks, 1, tasks).mapInArrow(read, BLOCK_DDL)


def judge_files(
    spark: SparkSession, files: Sequence[Path], contexts: Contexts, rules: Iterable[str] = tuple(RULES)
) -> dict[str, list[Found]]:
    """All that the rules find, run by run: at most one shuffle, and a join only where transactions were left in doubt.

    The rows that partitions emit for the rules over a run are in the same table, under names that are no rule's.
    """
    alone, joined = split(RULES[name] for name in rules)
    proven = proven_transactions(read_facts(spark, files))
    contexts = {run: replace(context, proven=proven.get(run, context.proven)) for run, context in contexts.items()}
    in_parts = judge_hot(spark, files, contexts, alone)
    uncut = tuple(rule for rule in alone if rule.cut is None)
    nothing_left = () if uncut or joined else tuple(in_parts)

    def judge(key: Key, facts: pa.Table) -> pa.Table:
        chosen = uncut if key in hot else alone
        return judged(PartitionHistory(*key, columns_of(facts)), contexts[key.run], chosen, joined)

    hot = frozenset(in_parts)
    groups = row_groups(files)
    own = {key: theirs for key, theirs in apart(groups).items() if key not in nothing_left}
    parts = [_judged_in_place(spark, own, judge)] if own else []
    done = {*own, *nothing_left}
    if any(group.key not in done for group in groups):
        parts.append(_judged_after_shuffle(blocks(spark, groups, done), judge))
    table = (
        reduce(lambda one, other: one.union(other), parts).toArrow().cast(FOUND_SCHEMA)
        if parts
        else FOUND_SCHEMA.empty_table()
    )
    is_finding = np.isin(table.column("rule").to_numpy(zero_copy_only=False).astype(str), list(RULES))
    findings = collect(table.filter(pa.array(is_finding)))
    for run, found in judge_runs(table.filter(pa.array(~is_finding)), contexts, joined).items():
        findings.setdefault(run, []).extend(found)
    for key, found in in_parts.items():
        findings.setdefault(key.run, []).extend(found)
    return findings


Judge = Callable[[Key, pa.Table], pa.Table]
"""A function from a partition's facts to its findings."""


def _judged_in_place(spark: SparkSession, own: Mapping[Key, Sequence[RowGroup]], judge: Judge) -> DataFrame:
    """The findings in partitions with row groups of their own: one task reads and judges each."""
    keys = list(own)
    tasks = min(len(keys), MAX_READ_TASKS)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for key in keys[task::tasks]:
                    yield from judge(key, pa.concat_tables(group.read() for group in own[key])).to_batches()

    return spark.range(0, tasks, 1, tasks).mapInArrow(work, FOUND_DDL)


def _judged_after_shuffle(blocks: DataFrame, judge: Judge) -> DataFrame:
    """The findings in partitions whose facts lie among those of others."""

    def work(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        return judge(Key(*(part.as_py() for part in key)), unpacked(table))

    return blocks.groupBy("run", "topic", "partition").applyInArrow(work, FOUND_DDL)


def judged(partition: PartitionHistory, context: Context, alone: Iterable[Rule], joined: Iterable[RunRule]) -> pa.Table:
    """The findings in a partition, and its rows for the rules over its run."""
    findings = found_table(partition.run, list(judge_partition(partition, context, alone)))
    emitted = [emitted_table(partition.run, *item) for item in emissions(partition, context, joined)]
    return pa.concat_tables([findings, *emitted])


def judge_runs(table: pa.Table, contexts: Contexts, joined: tuple[RunRule, ...]) -> dict[str, list[Found]]:
    """The findings of the rules over a run in the emitted rows, run by run."""
    return {run: list(judge_emitted(emitted, contexts[run], joined)) for run, emitted in collect_emitted(table).items()}


def emitted_table(run: str, name: str, rows: npt.NDArray[Any]) -> pa.Table:
    """Emitted rows in the shape of findings: the four integers stand in `operations`."""
    columns: dict[str, Any] = {field.name: pa.nulls(len(rows), field.type) for field in FOUND_SCHEMA}
    columns["run"], columns["rule"] = pa.array([run] * len(rows)), pa.array([name] * len(rows))
    bounds = pa.array(np.arange(0, rows.size + 1, 4, dtype=np.int32))
    columns["operations"] = pa.ListArray.from_arrays(bounds, pa.array(rows.astype(np.int64).ravel()))
    return pa.table(columns, schema=FOUND_SCHEMA)


def collect_emitted(table: pa.Table) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """Run -> name -> rows of four integers."""
    emitted: dict[str, dict[str, npt.NDArray[Any]]] = {}
    runs, names = (table.column(name).to_numpy(zero_copy_only=False).astype(str) for name in ("run", "rule"))
    numbers = table.column("operations").combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, 4)
    for run in np.unique(runs):
        for name in np.unique(names[runs == run]):
            emitted.setdefault(str(run), {})[str(name)] = numbers[(runs == run) & (names == name)]
    return emitted


def proven_transactions(facts: DataFrame) -> dict[str, Proofs]:
    """As `local.proven_transactions`, for each run."""
    from pyspark.sql import functions as f

    key = ["run", "topic", "partition", "value"]
    sent = facts.where(f.col("kind") == int(Kind.APPEND))
    in_doubt = sent.where(
        (f.col("outcome") == int(Outcome.INFO)) & (f.col("flags").bitwiseAND(f.lit(SPREAD)) == SPREAD)
    ).select(*key, "transaction")
    if in_doubt.isEmpty():
        return {}
    seen = facts.where(
        (f.col("kind") == int(Kind.OBSERVATION))
        & (f.col("outcome") == int(Outcome.OK))
        & (f.col("flags").bitwiseAND(f.lit(int(Flag.READ_COMMITTED))) != 0)
    ).select(*key, "completed")
    sends = sent.join(f.broadcast(in_doubt.select(*key).distinct()), key).groupBy(*key).count()
    once = in_doubt.join(sends.where(f.col("count") == 1).drop("count"), key)
    joined = seen.join(f.broadcast(once), key)
    table = joined.groupBy("run", "transaction").agg(f.min("completed").alias("at")).toArrow()
    proofs: dict[str, list[tuple[int, int]]] = {}
    for run, transaction, at in zip(*(table[name].to_pylist() for name in ("run", "transaction", "at")), strict=True):
        proofs.setdefault(run, []).append((transaction, at))
    return {run: Proofs.of(*np.array(pairs, np.int64).T) for run, pairs in proofs.items()}


def collect(table: pa.Table) -> dict[str, list[Found]]:
    """Rows of findings back to findings, run by run, in the order of topic, partition, rule and reason."""
    rows = table.cast(FOUND_SCHEMA).to_pylist()
    group = ("run", "topic", "partition", "rule", "permitted")
    rows.sort(key=lambda row: tuple(row[name] for name in group))  # stable: witnesses keep their order
    findings: dict[str, list[Found]] = {}
    for (run, topic, partition, rule, permitted), items in groupby(
        rows, lambda row: tuple(row[name] for name in group)
    ):
        items = list(items)
        anomalies = tuple(
            Anomaly(rule, topic, partition, i["offset"], i["value"], tuple(i["operations"]), i["text"], permitted)
            for i in items
        )
        findings.setdefault(run, []).append(Found(rule, permitted, sum(i["count"] for i in items), anomalies))
    return findings
