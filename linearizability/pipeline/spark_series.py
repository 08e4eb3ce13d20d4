"""Series of stored runs, aggregated by Spark: two passes over the sends, a hundred and twenty rows a run come to the driver.

The numbers are those of `series`, and so are the latencies of up to some thousand sends a bucket; of more, they are off by a
ten thousandth of the bucket's sends at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from linearizability.history.facts import Kind, Outcome
from linearizability.pipeline.series import BUCKETS, HIGH, MEDIAN, Series, of_buckets, width_s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ACCURACY = 10_000
"""A percentile's rank is off by its count divided by this, at most."""


def series_of_facts(facts: DataFrame, marks: Mapping[str, list[dict[str, Any]]]) -> dict[str, Series]:
    """Run -> its series; runs without a send have none. `marks` are those of each run."""
    from pyspark.sql import functions as f

    sends = facts.where(f.col("kind") == int(Kind.APPEND)).select("run", "invoked", "completed", "outcome")
    bounds = {
        row["run"]: (row["start"], row["last"])
        for row in sends.groupBy("run").agg(f.min("invoked").alias("start"), f.max("invoked").alias("last")).collect()
    }
    if not bounds:
        return {}
    rows = [(run, start, width_s(start, last)) for run, (start, last) in bounds.items()]
    widths = facts.sparkSession.createDataFrame(rows, "run string, start long, width double")
    place = f.floor((f.col("invoked") - f.col("start")) / f.lit(1e9) / f.col("width")).cast("int")
    is_ok = f.col("outcome") == int(Outcome.OK)
    reported = (
        sends.join(f.broadcast(widths), "run")
        .groupBy("run", f.least(place, f.lit(BUCKETS - 1)).alias("bucket"))
        .agg(
            *(f.count_if(f.col("outcome") == int(each)).alias(each.name) for each in Outcome),
            f.percentile_approx(f.when(is_ok, f.col("completed") - f.col("invoked")), [MEDIAN, HIGH], ACCURACY).alias(
                "took"
            ),
        )
        .collect()
    )
    counts = {run: {each: np.zeros(BUCKETS, int) for each in Outcome} for run in bounds}
    took = {run: np.full((2, BUCKETS), np.nan) for run in bounds}
    for row in reported:
        for each in Outcome:
            counts[row["run"]][each][row["bucket"]] = row[each.name]
        if row["took"] is not None:
            took[row["run"]][:, row["bucket"]] = row["took"]
    return {
        run: of_buckets(
            *bounds[run],
            [counts[run][each] for each in (Outcome.OK, Outcome.FAIL, Outcome.INFO)],
            (took[run][0], took[run][1]),
            marks[run],
        )
        for run in bounds
    }
