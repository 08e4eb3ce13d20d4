"""The files of a check's output folder: anomalies as Parquet, a summary, the series around the faults, pictures, the report.

OUTPUT/summary.json         one object a history, as `history check --json` prints them
OUTPUT/anomalies.parquet    one row an anomaly (see rules.rule.FOUND_SCHEMA)
OUTPUT/series-0000.parquet  sends by outcome and their latencies over time, and its picture series-0000.svg
OUTPUT/report.html          all of it for people
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from linearizability.pipeline.report import write_report
from linearizability.pipeline.series import picture, series_of
from linearizability.pipeline.verdict import Judgement
from linearizability.rules.rule import FOUND_SCHEMA, found_table

MAX_SERIES = 50
"""Histories whose series are written; they are drawn one by one."""


def write_output(folder: Path, judgements: Sequence[Judgement]) -> None:
    """Write these files for some judgements."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = [judgement.to_json() for judgement in judgements]
    (folder / "summary.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False))
    tables = [found_table(judgement.id, judgement.findings) for judgement in judgements]
    pq.write_table(pa.concat_tables([FOUND_SCHEMA.empty_table(), *tables]), folder / "anomalies.parquet")
    for number, judgement in enumerate(judgements[:MAX_SERIES]):
        over_time = series_of(judgement)
        if over_time is not None:
            pq.write_table(over_time.to_table(), folder / f"series-{number:04d}.parquet")
            (folder / f"series-{number:04d}.svg").write_text(picture(over_time))
    write_report(folder / "report.html", judgements)
