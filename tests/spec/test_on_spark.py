"""Models and traces are checked by tasks of Spark as they are here: the same verdicts, states and rejected events."""

import json
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from linearizability.pipeline.spark_session import failure_of
from linearizability.targets import java
from linearizability.targets.artifacts import ArtifactError
from spec import on_spark, running
from spec.catalogue import all_cases
from spec.checker import Job, Outcome, Verdict
from spec.commands import app
from spec.engine import LOCAL, Engine, Item, Result
from spec.on_spark import SparkEngine, run_in_task
from spec.results import Result as Record
from spec.results import result_of
from spec.running import Limits, run_cases
from spec.trace import check_traces
from tests.pipeline.standalone import standalone
from tests.spec.clusters import small_traces
from tests.spec.test_checker import COUNTER
from tests.spec.test_trace_commands import REJECTED, write
from tests.waiting import await_true

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("spark")]

CASES = ("MCFailover", "TruncateToHighWatermark", "IgnoreMinIsr", "MCGroupsPair")
OF_THE_MACHINE = ("seconds", "cpu_seconds")


@pytest.fixture(scope="module")
def spark() -> Engine:
    return SparkEngine("local[2]", {})


def same(result: Record) -> dict[str, Any]:
    """The fields of a result that do not depend on the machine."""
    return {name: value for name, value in asdict(result).items() if name not in OF_THE_MACHINE}


@pytest.mark.sampled(days=5)
def test_models_and_switches_come_out_as_here(spark: Engine) -> None:
    cases = [all_cases()[name] for name in CASES]
    there = {result.name: same(result) for result in run_cases(cases, Limits(), spark)}
    here = {result.name: same(result) for result in run_cases(cases, Limits(), LOCAL)}
    assert there == here
    assert here["MCFailover"]["coverage"] and here["IgnoreMinIsr"]["steps"]


@pytest.mark.sampled(days=5)
def test_traces_are_judged_as_here(spark: Engine) -> None:
    """Several runs of TLC, and look-ups of what was rejected."""
    traces = [*small_traces(range(2)), *small_traces(range(1, 3), "kip-966")]
    traces = [replace(trace, name=f"{number} {trace.name}") for number, trace in enumerate(traces)]
    there, here = check_traces(traces, look_ups=2, engine=spark), check_traces(traces, look_ups=2)
    assert there.outcome.verdict == here.outcome.verdict == Verdict.HOLDS
    assert there.verdicts == here.verdicts
    assert [verdict.looked_up for verdict in here.rejected][:3] == [True, True, False]


@pytest.mark.sampled(days=5)
def test_the_command_says_the_same(tmp_path: Path) -> None:
    for name, (rows, _, _) in REJECTED.items():
        write(rows, tmp_path / f"{name}.jsonl")
    said = []
    for options in ([], ["--engine", "spark", "--master", "local[2]"]):
        done = CliRunner().invoke(app, ["spec", "trace", str(tmp_path), "--json", *options])
        *rows, summary = map(json.loads, done.stdout.splitlines())
        said.append((done.exit_code, rows, {key: summary[key] for key in ("verdict", "events", "rejected")}))
    assert said[0] == said[1]
    assert said[0][0] == 1 and len(said[0][1]) == 3


ENDLESS = "SPECIFICATION WideSpec\nCONSTANT Limit = 3\nCHECK_DEADLOCK FALSE"


def endless_runs() -> list[Path]:
    found: list[Path] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [path] if b"tlc2.TLC" in (command := path.read_bytes()) and b"Endless.cfg" in command else []
    return found


def test_a_loop_that_is_left_ends_its_tasks(spark: Engine) -> None:
    quick = Job(None, "Counter", "SPECIFICATION Spec\nCONSTANT Limit = 4\nCHECK_DEADLOCK FALSE", 60, 200)
    quick = replace(quick, modules={"Counter": COUNTER})
    endless = {"Endless": COUNTER.replace("MODULE Counter", "MODULE Endless")}
    jobs = [Job(None, "Endless", ENDLESS, 600, 200, modules=endless), quick]
    done = spark.each(spark.check, jobs)
    job, outcome = next(done)
    assert (job.module, outcome.verdict) == ("Counter", Verdict.HOLDS)
    await_true(lambda: endless_runs() != [], "the start of the endless run")
    done.close()
    await_true(lambda: endless_runs() == [], "its end")
    assert spark.check(quick).verdict == Verdict.HOLDS  # the session is still there


def test_a_worker_without_java_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise java.JavaMissing("Java 17 or newer is needed and was not found")

    monkeypatch.setattr(java, "java", missing)
    monkeypatch.setattr(on_spark.socket, "gethostname", lambda: "worker-7")
    monkeypatch.setattr("pyspark.SparkFiles.get", lambda name: f"/files/{name}")
    outcome = run_in_task(Job(None, "Counter", "", modules={"Counter": COUNTER}), "tla.jar")
    assert outcome.verdict == Verdict.NO_CHECKER
    assert outcome.reason == "worker worker-7: Java 17 or newer is needed and was not found"


def test_a_jar_that_cannot_be_sent_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise ArtifactError("tlc could not be fetched")

    monkeypatch.setattr(on_spark, "tlc_jar", missing)
    done = CliRunner().invoke(app, ["spec", "check", "MCFailover", "--engine", "spark", "--json"])
    assert done.exit_code == 3 and json.loads(done.stdout)["verdict"] == "error"
    assert done.stderr == "TLC's jar, which workers need, is missing: tlc could not be fetched\n"


def test_options_of_spark_need_its_engine() -> None:
    for options, reason in (
        (["--master", "local[2]"], "--engine spark"),
        (["--engine", "spark", "--conf", "x"], "'x'"),
    ):
        refused = CliRunner().invoke(app, ["spec", "check", "MCFailover", *options])
        assert refused.exit_code == 2 and reason in refused.stderr, refused.stderr


def test_executors_that_are_lost_again_and_again_are_one_line() -> None:
    error = RuntimeError(
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0 "
        "(TID 4) (127.0.0.1 executor 3): ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: "
        "Command exited with code 137\nDriver stacktrace:\n"
    )
    assert str(failure_of(error)) == (
        "Spark gave up a task: executor 3 exited caused by one of the running tasks: Command exited with code 137"
    )


class Failing(Engine):
    """An engine that is interrupted after the first outcome."""

    def check(self, job: Job) -> Outcome:
        return Outcome(Verdict.HOLDS)

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[tuple[Item, Result], None, None]:
        for item in items:
            yield item, work(item)
            raise KeyboardInterrupt


def test_what_was_found_is_stored_at_once_and_taken_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: dict[str, Record] = {}
    monkeypatch.setattr(running, "load", lambda: dict(stored))
    monkeypatch.setattr(running, "save", stored.update)
    cases = [all_cases()[name] for name in ("MCFailover", "MCIsr")]
    with pytest.raises(KeyboardInterrupt):
        list(run_cases(cases, Limits(), Failing(), record=True))
    assert [*stored] == ["MCFailover"]
    monkeypatch.setattr(running, "run_case", lambda case, *_, **__: result_of(case, Outcome(Verdict.HOLDS)))
    done = list(run_cases(cases, Limits(), LOCAL, resume=True, record=True))
    assert [(result.name, result.stored) for result in done] == [("MCFailover", True), ("MCIsr", False)]
    assert [*stored] == ["MCFailover", "MCIsr"]


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_comes_to_the_same_verdicts(tmp_path: Path) -> None:
    names = ["MCRecovery", "MCIsr", "MCGroupsPair", "TruncateToHighWatermark"]
    checking = [sys.executable, "-m", "tidegauge", "spec", "check", *names, "--json"]
    with standalone(tmp_path) as cluster:
        there = subprocess.Popen(
            [*checking, "--engine", "spark", "--master", cluster.master],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=cluster.environment,
        )
        assert there.stdout is not None
        first = there.stdout.readline()  # the other worker is busy with another case
        cluster.kill(1)
        *rows, summary = map(json.loads, [first, *there.stdout])
        assert there.wait(timeout=60) == 0
    assert (summary["verdict"], summary["as_expected"]) == ("pass", len(names))
    here = subprocess.run(checking, capture_output=True, text=True, timeout=500)
    expected = [json.loads(line) for line in here.stdout.splitlines()[:-1]]

    def compared(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {row["name"]: {key: row[key] for key in row if key not in OF_THE_MACHINE} for row in rows}

    assert compared(rows) == compared(expected)
