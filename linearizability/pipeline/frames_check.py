"""The rules over a DataFrame of facts: verdicts, anomalies, counts and series as DataFrames; see `frames` for their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from linearizability.history.contract import Contract
from linearizability.history.derivation_state import Tally
from linearizability.history.facts import COLUMNS, KEY_COLUMNS, Kind, Outcome
from linearizability.history.files import MISSING, Defect
from linearizability.history.keys import NEVER
from linearizability.history.store import StoredRun
from linearizability.pipeline.blocks import columns_of
from linearizability.pipeline.engine import conclude
from linearizability.pipeline.frames import Read, facts
from linearizability.pipeline.local import context_of, split
from linearizability.pipeline.spark import FOUND_DDL, collect, judge_runs, judged, proven_transactions
from linearizability.pipeline.spark_series import series_of_facts
from linearizability.pipeline.verdict import Judgement
from linearizability.rules import RULES
from linearizability.rules.partition import Columns, PartitionHistory
from linearizability.rules.rule import FOUND_SCHEMA, Found, found_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS_DDL = "run string, id string, verdict string, reasons array<string>, facts long, anomalies map<string,long>"
SERIES_DDL = "run string, seconds double, ok double, failed double, unknown double, p50_ms double, p99_ms double"
COUNTS = "partition counts"
"""The rule's name in a row with a partition's counts."""
COUNTED = ("facts", "sends", "failed", "unknown", "reads", "began", "ended")
NOT_SAID = "nothing says whether these facts are all of the run"


@dataclass(frozen=True)
class Checked:
    """Tables of the results, and the same verdicts as `history check` prints."""

    runs: DataFrame
    anomalies: DataFrame
    partitions: DataFrame
    judgements: list[Judgement] = field(repr=False)
    read: Read = field(repr=False)

    @cached_property
    def series(self) -> DataFrame:
        """Sends by outcome and their latencies over time; two more passes over the facts."""
        return _series(self.read.facts.sparkSession, self.read)

    def write(self, folder: str) -> None:
        """Each table as Parquet below a folder that Spark writes to; all but `runs` are partitioned by run."""
        self.runs.write.parquet(f"{folder}/runs")
        for name in ("anomalies", "partitions", "series"):
            getattr(self, name).write.partitionBy("run").parquet(f"{folder}/{name}")


def anomalies(read: Read | DataFrame, contract: Contract | None = None) -> DataFrame:
    """Only what the rules find, each anomaly with its witness."""
    return check(read, contract).anomalies


def judgements(spark: SparkSession, place: str, given: Contract, over_time: bool) -> list[Judgement]:
    """The judgements of `history check` on a place's runs, with every witness, and their series if asked. Errors: NoSuchPlace."""
    read = facts(spark, place, given=given)
    found = check(read, every_witness=True).judgements
    drawn = series_of_facts(read.facts, {key: run.marks for key, run in read.runs.items()}) if over_time else {}
    for key, judgement in zip(read.runs, found, strict=True):
        judgement.series = drawn.get(key)
        judgement.given = given.model_dump(exclude_unset=True)
    return found


def check(read: Read | DataFrame, contract: Contract | None = None, *, every_witness: bool = False) -> Checked:
    """Judges every run of `frames.facts`, or of a DataFrame of facts; `contract` is that of the latter.

    All anomalies are in the table; the judgements have one of each rule, reason and partition, or all.
    """
    if not isinstance(read, Read):
        read = _without_record(read, contract or Contract())
    spark, alone_and_joined = read.facts.sparkSession, split(RULES.values())
    proven = proven_transactions(read.facts)
    contexts = {
        key: context_of(run.contract, run.marks, run.tally.ends_at, run.defects) for key, run in read.runs.items()
    }
    contexts = {key: replace(context, proven=proven.get(key, context.proven)) for key, context in contexts.items()}

    def judge(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        if lacking := [name for name in COLUMNS if table.column(name).null_count]:
            raise ValueError(f"facts without {', '.join(lacking)}")
        run, topic, number = (part.as_py() for part in key)
        partition = PartitionHistory(run, topic, number, columns_of(table))
        return pa.concat_tables([judged(partition, contexts[run], *alone_and_joined), _counts(partition)])

    rows = read.facts.groupBy(*KEY_COLUMNS).applyInArrow(judge, FOUND_DDL).persist()
    is_finding, is_count = rows["rule"].isin(list(RULES)), rows["rule"] == COUNTS
    over_runs = judge_runs(_collected(rows.where(~is_finding & ~is_count)), contexts, alone_and_joined[1])
    brought = rows.where(is_finding) if every_witness else rows.where(is_finding & (rows["count"] > 0))
    findings = collect(_collected(brought))
    for key, found in over_runs.items():
        findings.setdefault(key, []).extend(found)
    partitions = rows.where(is_count).select(
        *KEY_COLUMNS, *(rows["operations"][place].alias(name) for place, name in enumerate(COUNTED))
    )
    held = {
        row["run"]: row["facts"]
        for row in partitions.groupBy("run").agg({"facts": "sum"}).toDF("run", "facts").collect()
    }
    judgements = [_judgement(key, run, findings.get(key, []), held.get(key, 0)) for key, run in read.runs.items()]
    return Checked(
        _runs(spark, dict(zip(read.runs, judgements, strict=True))),
        rows.where(is_finding).unionByName(_of_runs(spark, over_runs)),
        partitions,
        judgements,
        read,
    )


def _without_record(table: DataFrame, contract: Contract) -> Read:
    """Facts without proof that they are complete: no verdict on them is valid. Errors: ValueError."""
    if lacking := [name for name in (*KEY_COLUMNS, *COLUMNS) if name not in table.columns]:
        raise ValueError(f"facts have no column {', '.join(lacking)}")
    from pyspark.sql import functions as f

    counted = table.groupBy("run").agg(
        f.count_if((f.col("kind") == int(Kind.APPEND)) & (f.col("outcome") == int(Outcome.OK))).alias("acknowledged"),
        f.count_if(f.col("kind") == int(Kind.OBSERVATION)).alias("observed"),
    )
    runs = {
        row["run"]: StoredRun(
            row["run"],
            contract,
            Tally(invocations=1, acknowledged=row["acknowledged"], observed=row["observed"]),
            [Defect(MISSING, NOT_SAID)],
        )
        for row in counted.collect()
    }
    return Read(table, runs)


def _counts(partition: PartitionHistory) -> pa.Table:
    columns: dict[str, Any] = {each.name: pa.nulls(1, each.type) for each in FOUND_SCHEMA}
    columns |= {
        "run": pa.array([partition.run]),
        "topic": pa.array([partition.topic]),
        "partition": pa.array([partition.partition], pa.int32()),
        "rule": pa.array([COUNTS]),
        "operations": pa.array([_counted(partition.columns)], pa.list_(pa.int64())),
    }
    return pa.table(columns).cast(FOUND_SCHEMA)


def _counted(columns: Columns) -> list[int]:
    """As COUNTED; times of what never ended do not count."""
    sent, ended = columns["kind"] == Kind.APPEND, columns["completed"]
    outcomes = [int(np.sum(sent & (columns["outcome"] == each))) for each in (Outcome.FAIL, Outcome.INFO)]
    reads = int(np.sum(columns["kind"] == Kind.OBSERVATION))
    last = int(ended[ended < NEVER].max(initial=-1))
    return [len(ended), int(sent.sum()), *outcomes, reads, int(columns["invoked"].min()), last]


def _collected(rows: DataFrame) -> pa.Table:
    return rows.toArrow().cast(FOUND_SCHEMA)


def _judgement(key: str, run: StoredRun, findings: Iterable[Found], facts: int) -> Judgement:
    judgement = conclude(run.history(), findings, "spark")
    judgement.facts = facts
    return judgement


def _runs(spark: SparkSession, judgements: Mapping[str, Judgement]) -> DataFrame:
    rows = [(key, j.id, j.verdict, j.reasons, j.facts, j.anomalies) for key, j in judgements.items()]
    return spark.createDataFrame(rows, RUNS_DDL)


def _of_runs(spark: SparkSession, findings: Mapping[str, list[Found]]) -> DataFrame:
    tables = [found_table(key, found) for key, found in findings.items()]
    rows = pa.concat_tables([FOUND_SCHEMA.empty_table(), *tables]).to_pylist()
    return spark.createDataFrame([tuple(row.values()) for row in rows], FOUND_DDL)


def _series(spark: SparkSession, read: Read) -> DataFrame:
    drawn = series_of_facts(read.facts, {key: run.marks for key, run in read.runs.items()})
    rows = [(key, *values.values()) for key, series in drawn.items() for values in series.to_table().to_pylist()]
    return spark.createDataFrame([(key, *map(float, values)) for key, *values in rows], SERIES_DDL)
