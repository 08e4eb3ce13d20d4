"""Histories as DataFrames: the same verdicts as those of `history check`, on whatever Spark reads, damaged or not."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from linearizability.history.commands import app as history_commands
from linearizability.history.contract import Contract
from linearizability.history.native import history_files, read_run
from linearizability.history.places import NoSuchPlace
from linearizability.history.store import write_histories
from linearizability.pipeline import anomalies, check, facts
from linearizability.pipeline import engine as engines
from linearizability.pipeline.series import series_of
from linearizability.pipeline.spark_session import session
from tests.history.judged_histories import record
from tests.pipeline.test_engines import flipped, hurt_run, without_a_row

EXAMPLE = Path(engines.__file__).with_name("example.py")
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def spark():
    running = session("local[2]")
    before = running.conf.get("spark.sql.shuffle.partitions")
    assert before is not None
    running.conf.set("spark.sql.shuffle.partitions", "2")
    yield running
    running.conf.set("spark.sql.shuffle.partitions", before)


def reported(judgements) -> list[tuple]:
    """What the judgements report of each run, sorted."""
    return sorted(
        (
            tuple(reason.replace("file:", "") for reason in judgement.reasons),
            judgement.id.rpartition("/")[2],
            judgement.verdict,
            judgement.facts,
            tuple(judgement.anomalies.items()),
        )
        for judgement in judgements
    )


def cut_short(folder: Path) -> None:
    file = history_files(folder)[1]
    file.write_bytes(file.read_bytes()[:-40])


def without_a_file(folder: Path) -> None:
    history_files(folder)[1].unlink()


def without_a_header(folder: Path) -> None:
    history_files(folder)[0].write_text("{}\n")


def a_process_twice(folder: Path) -> None:
    first = history_files(folder)[0]
    shutil.copy(first, first.with_name("history-09999.jsonl"))


def not_json(folder: Path) -> None:
    file = history_files(folder)[1]
    file.write_bytes(file.read_bytes().replace(b'"poll"', b'"poll', 1))


def packed(folder: Path) -> None:
    for file in history_files(folder):
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()


DAMAGES = (cut_short, without_a_file, without_a_header, a_process_twice, not_json, packed)


@pytest.mark.sampled(days=5)
def test_runs_are_judged_as_from_files(spark, tmp_path: Path) -> None:
    """Many runs by one pattern, sound, wrong and damaged; as `history check` judges them one by one."""
    for number in range(2):
        record(tmp_path / "runs" / f"sound-{number}")
    hurt_run(tmp_path / "runs" / "hurt")
    shutil.move(tmp_path / "runs" / "hurt" / "run", tmp_path / "runs" / "hurt" / "history")
    for damage in DAMAGES:
        record(tmp_path / "runs" / damage.__name__)
        damage(tmp_path / "runs" / damage.__name__)
    places = sorted((tmp_path / "runs").iterdir())
    expected = list(engines.check(places, engine="local"))
    found = check(facts(spark, f"{tmp_path.as_uri()}/runs/*"))
    assert reported(found.judgements) == reported(expected)
    rows = {row["run"].rpartition("/")[2]: row for row in found.runs.collect()}
    valid = {name for name, row in rows.items() if row["verdict"] == "valid"}
    assert valid == {"sound-0", "sound-1", "packed"}

    hurt = rows["hurt"]
    (its,) = [
        judgement for judgement in expected if judgement.verdict == "invalid" and judgement.facts == hurt["facts"]
    ]
    assert hurt["anomalies"] == its.anomalies
    table = found.anomalies.where(found.anomalies["run"] == hurt["run"]).toPandas()
    assert table.groupby("rule")["count"].sum().to_dict() == its.anomalies
    assert set(table["text"]) == {anomaly.text for anomaly in its.witnesses()}
    counted = found.partitions.where(found.partitions["run"] == hurt["run"]).toPandas()
    assert counted["facts"].sum() == hurt["facts"] and counted["failed"].sum() > 0 and counted["unknown"].sum() > 0
    assert (counted["ended"] >= counted["began"]).all()
    series = found.series.where(found.series["run"] == hurt["run"]).toPandas()
    local = series_of(next(iter(engines.check([tmp_path / "runs" / "hurt"], engine="local"))))
    assert local is not None
    for name in series.columns.drop("run"):
        np.testing.assert_array_equal(series[name].to_numpy(), local.to_table()[name].to_numpy())

    found.write(str(tmp_path / "results"))
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"runs", "anomalies", "partitions", "series"}
    kept = spark.read.parquet(str(tmp_path / "results" / "anomalies"))
    assert kept.where(kept["run"] == hurt["run"]).count() == len(table)


@pytest.mark.sampled(days=5)
def test_runs_of_a_store_are_judged_as_from_files(spark, tmp_path: Path) -> None:
    """By way of another file system of Hadoop; a damaged part costs its own run and no other."""
    hurt_run(tmp_path)
    history = read_run(history_files(tmp_path / "run"))
    write_histories(tmp_path / "store", [history] * 5)
    parts = [tmp_path / "store" / "facts" / f"run-{number:04d}" / "part-0000.parquet" for number in range(5)]
    flipped(parts[1])
    without_a_row(parts[2])
    parts[3].unlink()
    expected = list(engines.check([tmp_path / "store"], engine="local"))
    assert [judgement.facts > 0 for judgement in expected] == [True, False, False, False, True]
    spark._jsc.hadoopConfiguration().set("fs.viewfs.mounttable.frames.link./data", tmp_path.as_uri())
    found = check(facts(spark, "viewfs://frames/data/store"))
    judged = {row["run"]: row for row in found.runs.collect()}
    assert list(judged) == [f"viewfs://frames/data/store#{number}" for number in range(5)]
    for theirs, ours in zip(expected, found.judgements, strict=True):
        assert (ours.verdict, ours.facts, ours.anomalies) == (theirs.verdict, theirs.facts, theirs.anomalies)
        assert len(ours.reasons) == len(theirs.reasons)
    assert "run-0003/part-0000.parquet" in judged["viewfs://frames/data/store#3"]["reasons"][0]
    called = CliRunner().invoke(
        history_commands, ["check", "viewfs://frames/data/store", "viewfs://frames/data/run", "--json"]
    )
    lines = [json.loads(line) for line in called.stdout.splitlines()]
    assert len(lines) == 7 and lines[-1]["verdict"] == lines[5]["verdict"] == "invalid"
    for line, theirs in zip(lines, expected, strict=False):
        known = theirs.to_json() | {"engine": "spark", "id": line["id"], "reasons": line["reasons"]}
        assert line == known


def test_facts_without_their_record_are_never_valid(spark, tmp_path: Path) -> None:
    record(tmp_path / "run")
    table = facts(spark, str(tmp_path / "run")).facts
    (row,) = check(table).runs.collect()
    assert row["verdict"] == "unknown" and row["reasons"] == ["nothing says whether these facts are all of the run"]
    assert check(facts(spark, str(tmp_path / "run"))).judgements[0].verdict == "valid"
    doubled = table.withColumn("offset", table["offset"] + (table["kind"] == 1).cast("long"))
    assert {row["rule"] for row in anomalies(doubled).collect()} >= {"duplicate"}
    with pytest.raises(ValueError, match="no column epoch"):
        check(table.drop("epoch"))
    with pytest.raises(Exception, match="facts without epoch"):
        check(table.selectExpr("*", "CAST(NULL AS int) AS lost").drop("epoch").withColumnRenamed("lost", "epoch"))


@pytest.mark.sampled(days=5)
def test_a_table_by_name_is_judged_alike_where_it_knows_no_bytes(spark, tmp_path: Path) -> None:
    """Iceberg stores columns of bytes and shorts as ints."""
    hurt_run(tmp_path)
    table = facts(spark, str(tmp_path / "run")).facts
    small = [name for name, kind in table.dtypes if kind in ("tinyint", "smallint")]
    assert {"kind", "outcome"} <= {*small}
    table.withColumns({name: table[name].cast("int") for name in small}).createOrReplaceTempView("kept_facts")
    kept = check(spark.table("kept_facts")).judgements
    assert reported(kept) == reported(check(table).judgements)
    assert any(judgement.anomalies for judgement in kept)


def test_a_contract_that_is_contradicted_is_not_judged(spark, tmp_path: Path) -> None:
    record(tmp_path / "run")
    given = Contract.from_terms(["acks=0"])
    (ours,) = check(facts(spark, str(tmp_path / "run"), given=given)).judgements
    (theirs,) = engines.check([tmp_path / "run"], engine="local", given=given)
    assert theirs.verdict == ours.verdict == "unknown" and ours.facts == 0
    assert "acks" in ours.reasons[0] and "acks" in theirs.reasons[0]


def test_places_are_there_and_are_named_once(spark, tmp_path: Path) -> None:
    with pytest.raises(NoSuchPlace, match="none"):
        facts(spark, str(tmp_path / "none"))
    files = record(tmp_path / "run")
    with pytest.raises(NoSuchPlace, match="is named twice"):
        facts(spark, str(tmp_path / "run"), str(files[0]))
    (alone,) = check(facts(spark, str(files[0]))).judgements
    assert alone.verdict == "unknown" and "files.txt names this file" in alone.reasons[0]


def test_a_run_whose_list_of_files_is_gone_is_not_valid(spark, tmp_path: Path) -> None:
    files = record(tmp_path / "run")
    (files[0].parent / "files.txt").unlink()
    (ours,) = check(facts(spark, str(tmp_path / "run"))).judgements
    (theirs,) = engines.check([tmp_path / "run"], engine="local")
    assert ours.verdict == theirs.verdict == "unknown"
    assert (
        "the list of all files of the run" in ours.reasons[0]
        and "the list of all files of the run" in theirs.reasons[0]
    )


@pytest.mark.slow
def test_the_example_ends_in_pictures(spark, tmp_path: Path) -> None:
    hurt_run(tmp_path / "runs")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), f"{tmp_path.as_uri()}/runs/*", str(tmp_path / "results")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "invalid" in done.stdout and "phantom-read" in done.stdout
    assert "<svg" in (tmp_path / "results" / "sends.svg").read_text()
    assert "<svg" in (tmp_path / "results" / "anomalies.svg").read_text()
    assert (tmp_path / "results" / "tables" / "anomalies" / "_SUCCESS").is_file()
