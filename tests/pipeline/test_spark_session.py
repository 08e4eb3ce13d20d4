"""Spark is configured by its user first, and seeds are run there as anywhere: same seeds, same digests."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from linearizability.history.commands import app as history
from linearizability.history.places import NoSuchPlace, local_paths
from linearizability.pipeline.spark_session import (
    failure_of,
    packed_packages,
    session,
    settings_of_arguments,
    settings_of_file,
    settings_of_terms,
)
from linearizability.simulation.fuzzing import fuzz
from linearizability.simulation.fuzzing_summary import Plan
from tests.pipeline.standalone import standalone
from tests.rules.test_labelled import LABELLED

pytestmark = pytest.mark.xdist_group("spark")


def test_settings_are_read_where_spark_has_them(tmp_path):
    file = tmp_path / "spark-defaults.conf"
    file.write_text("# ours\nspark.driver.memory  6g\nspark.master=local[1]\nspark.empty\n")
    assert settings_of_file(file) == {"spark.driver.memory": "6g", "spark.master": "local[1]"}
    assert settings_of_file(tmp_path / "none") == {}
    given = settings_of_arguments(
        "--master local[3] --conf spark.x=a=b --driver-memory=1g -c spark.y='1 2' pyspark-shell"
    )
    assert given == {"spark.master": "local[3]", "spark.x": "a=b", "spark.driver.memory": "1g", "spark.y": "1 2"}
    with pytest.raises(ValueError, match="'spark' is not NAME=VALUE"):
        settings_of_terms(["spark.z=1", "spark"])


def test_the_users_settings_go_before_the_projects(tmp_path):
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.shuffle.partitions 7\nspark.driver.memory 700m\n")
    code = (
        "from linearizability.pipeline.spark_session import session\n"
        "conf = session(conf={'spark.x.given': '1'}).conf\n"
        "names = ('sql.shuffle.partitions', 'driver.memory', 'x.given', 'master', 'ui.enabled')\n"
        "print(*(conf.get('spark.' + name) for name in names))\n"
        "import resource, pathlib; from pyspark import SparkContext\n"
        "print(SparkContext._active_spark_context._jvm.Runtime.getRuntime().maxMemory() >> 20)"
    )
    environment = os.environ | {
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--master local[1] pyspark-shell",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said, heap = done.stdout.split("\n")[:2]
    assert said == "7 700m 1 local[1] false"
    assert 500 < int(heap) <= 700


def test_a_missing_package_is_one_line():
    error = RuntimeError("... File x\nModuleNotFoundError: No module named 'crc32c'\n\tat org.apache...")
    assert str(failure_of(error)) == "a worker lacks the Python package crc32c: install tidegauge's dependencies there"
    assert failure_of(RuntimeError("anything else")) is None


def test_places_are_files_patterns_and_uris(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("")
    both = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    assert local_paths([str(tmp_path / "*.jsonl")]) == both
    assert local_paths([both[0].as_uri(), f"{tmp_path.as_uri()}/b*"]) == both
    assert local_paths(["kafka:127.0.0.1:9092/t"]) == [Path("kafka:127.0.0.1:9092/t")]
    with pytest.raises(NoSuchPlace, match=r"/none\.\* does not exist"):
        local_paths([f"{tmp_path}/none.*"])
    refused = CliRunner().invoke(history, ["check", f"file://{tmp_path}/none"])
    assert refused.exit_code == 2 and "does not exist" in refused.output


def test_a_history_in_a_file_system_of_hadoop_is_copied_whole(tmp_path):
    shutil.copy(LABELLED, tmp_path / LABELLED.name)
    running: Any = session("local[2]")
    hadoop = running._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.cluster.link./data", tmp_path.as_uri())
    (file,) = local_paths([f"viewfs://cluster/data/{LABELLED.name[:6]}*"])
    assert file.name == LABELLED.name and file.read_bytes() == LABELLED.read_bytes()
    with pytest.raises(NoSuchPlace, match="viewfs://cluster/data/none does not exist"):
        local_paths(["viewfs://cluster/data/none"])
    with pytest.raises(NoSuchPlace, match='No FileSystem for scheme "nosuch"'):
        local_paths(["nosuch://cluster/data"])


@pytest.mark.sampled(days=3)
def test_the_archive_for_workers_is_enough_to_run_schedules(tmp_path):
    archive = packed_packages(tmp_path)
    with zipfile.ZipFile(archive) as packed:
        assert not [name for name in packed.namelist() if name.startswith("tests")]
    code = (
        "import linearizability, pickle; from pathlib import Path; from linearizability.simulation.fuzzing import *;"
        "print(linearizability.__file__); print(run_in_worker(range(3), Plan(folder=Path()))[0].digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "tidegauge-packages.zip" in done.stdout


def small_plan(folder: Path, name: str, **changes) -> Plan:
    (folder / name).mkdir()
    return Plan(folder=folder / name, schedules=12, nodes=1, **changes)


@pytest.mark.sampled(days=3)
def test_seeds_on_spark_have_the_digests_that_they_have_here(tmp_path):
    here = fuzz(small_plan(tmp_path, "here"))
    there = fuzz(small_plan(tmp_path, "there", engine="spark", master="local[2]"))
    assert [run.digest for run in there.runs] == [run.digest for run in here.runs]
    assert there.to_json()["digest"] == here.to_json()["digest"]
    assert there.counts == here.counts


@pytest.mark.sampled(days=5)
def test_a_mutant_is_found_on_spark_and_its_schedule_is_shrunk_here(tmp_path):
    plan = small_plan(tmp_path, "mutant", engine="spark", master="local[2]", mutant="torn-tail-kept", until_found=True)
    summary = fuzz(plan)
    assert summary.verdict == "invalid"
    assert (Path(summary.found[0].folder) / "schedule.json").is_file()


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_gives_the_same_digests(tmp_path):
    fuzzing = ["fuzz", "--schedules", "400", "--nodes", "1", "--json", "--results", str(tmp_path / "results")]
    with standalone(tmp_path) as cluster:
        there = subprocess.Popen(
            [sys.executable, "-m", "tidegauge", *fuzzing, "--engine", "spark", "--master", cluster.master],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=cluster.environment,
        )
        assert there.stderr is not None
        progress = next(line for line in there.stderr if " schedules, " in line)  # some seeds are done, others are not
        cluster.kill(1)
        said, errors = there.communicate(timeout=500)
    here = subprocess.run([sys.executable, "-m", "tidegauge", *fuzzing], capture_output=True, text=True, timeout=500)
    assert there.returncode == here.returncode, errors
    assert here.returncode in (0, 2), "a run with power losses may be undecided"
    digests = [line.split('"digest": "')[1][:64] for line in (said, here.stdout)]
    assert digests[0] == digests[1]
    assert int(progress.split()[0]) < 400
