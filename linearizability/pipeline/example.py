# %% [markdown]
# # Histories as DataFrames
# Cells in percent format: an editor runs them one by one, `spark-submit example.py PLACE RESULTS` or Python all of them.
# PLACE is a folder, a pattern, or a URI of what Spark reads; RESULTS is a folder for tables and pictures.

# %%
import sys
from pathlib import Path

from matplotlib import pyplot
from pyspark.sql import functions as f

from linearizability.pipeline import check, facts
from linearizability.pipeline.spark_session import session

place, results = sys.argv[1:]
spark = session()

# %% One pass over the files, by the workers; then a verdict for each run.
read = facts(spark, place)
found = check(read)
found.runs.select("run", "verdict", "facts", "anomalies").show(truncate=False)

# %% The anomalies that no contract permits, each with the operations that show it.
wrong = found.anomalies.where(f.col("permitted") == "")
wrong.select("rule", "topic", "partition", "offset", "text").show(20, truncate=False)

# %% Facts are a table like any other: the slowest successful sends.
sends = read.facts.where("kind = 0 AND outcome = 0")
sends.select("topic", "partition", "offset", ((f.col("completed") - f.col("invoked")) / 1e6).alias("ms")).orderBy(
    f.desc("ms")
).show(5)

# %% Everything as Parquet, partitioned by run.
found.write(f"{results}/tables")

# %% Sends a second by outcome, and where anomalies lie.
Path(results).mkdir(parents=True, exist_ok=True)
series = found.series.orderBy("run", "seconds").toPandas()
figure, axes = pyplot.subplots()
for run, rows in series.groupby("run"):
    axes.plot(rows["seconds"], rows["ok"], label=f"{str(run).rpartition('/')[2]}: ok")
    axes.plot(rows["seconds"], rows["failed"] + rows["unknown"], linestyle=":", label="failed or unknown")
axes.set(xlabel="seconds", ylabel="sends/s")
axes.legend()
figure.savefig(f"{results}/sends.svg")

# %%
counted = found.anomalies.groupBy("rule").agg(f.sum("count").alias("count")).orderBy("count").toPandas()
figure, axes = pyplot.subplots(layout="constrained")
axes.barh(counted["rule"], counted["count"])
axes.set(xlabel="anomalies")
figure.savefig(f"{results}/anomalies.svg")
