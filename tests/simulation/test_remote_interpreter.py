"""Runs of another interpreter: here the same one, in another process."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import tidegauge
from linearizability.simulation.drawing import draw
from linearizability.simulation.fuzzing import fuzz
from linearizability.simulation.fuzzing_summary import Plan, Small, Summary
from linearizability.simulation.remote_interpreter import (
    MODULES,
    InterpreterError,
    RemoteInterpreter,
    Task,
    check,
    tune,
)
from linearizability.simulation.run import execute

TASK = Task(5, 3, None, 1, "records", "kraft", by_history=False, with_rows=False)

NEEDED_BY_PYDANTIC = ("pydantic_core", "annotated_types", "typing_extensions", "typing_inspection")
CHECKSUMS = "crc32c"
"""CPython's package; PyPy has another one for it."""
BARE = f"""
import importlib.abc, importlib.metadata, sys

class Refusal(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(name)

here = importlib.metadata.packages_distributions().keys()
missing = here - {{*{(*MODULES, *NEEDED_BY_PYDANTIC, CHECKSUMS, "linearizability", "reference")}}}
sys.meta_path.insert(0, Refusal())
import linearizability.simulation.remote_interpreter
"""
"""A program that imports the runner while most packages are missing."""


def without_time(run: Small) -> Small:
    return replace(run, seconds=0.0)


def test_runs_need_no_package_that_the_other_interpreter_is_not_asked_for() -> None:
    """PyPy has neither Arrow nor NumPy: an import of one of them, also an indirect one, would end it."""
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_run_is_the_same_in_another_interpreter() -> None:
    interpreter = RemoteInterpreter(sys.executable)
    try:
        received = list(interpreter.runs(TASK))
    finally:
        interpreter.close()
    here = [execute(draw(seed, None, 1, "records"))[0] for seed in (5, 6, 7)]
    assert [each.finished.digest for each in received] == [finished.digest for finished in here]
    for each, finished in zip(received, here, strict=True):
        assert each.seconds > 0
        assert [len(history.events) for history in each.finished.histories] == [
            len(history.events) for history in finished.histories
        ]


@pytest.mark.sampled(days=6)
@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_are_judged_alike(tmp_path: Path, jobs: int) -> None:
    plan = Plan(tmp_path, schedules=12, first_seed=40, jobs=jobs)
    here, there = fuzz(replace(plan, jobs=1)), fuzz(replace(plan, python=sys.executable))
    assert [without_time(run) for run in there.runs] == [without_time(run) for run in here.runs]
    assert here.verdict == "valid"


@pytest.mark.sampled(days=5)
def test_a_bug_is_planted_there(tmp_path: Path) -> None:
    plan = Plan(tmp_path, schedules=200, mutant="torn-tail-kept", until_found=True)
    here, there = fuzz(plan), fuzz(replace(plan, python=sys.executable))
    assert [(found.seed, found.rule) for found in there.found] == [(found.seed, found.rule) for found in here.found]
    assert there.found


def test_steps_of_the_specification_are_traced(tmp_path: Path) -> None:
    plan = Plan(tmp_path, schedules=1, nodes=3, traces=True)
    fuzz(plan)
    (here,) = (tmp_path / "traces").rglob("*.jsonl")
    before = here.read_text()
    fuzz(replace(plan, python=sys.executable))
    assert here.read_text() == before


def test_answers_without_an_open_request_do_not_come_later() -> None:
    interpreter = RemoteInterpreter(sys.executable)
    try:
        runs = interpreter.runs(TASK)
        next(runs)
        runs.close()
        (received,) = interpreter.runs(TASK._replace(first_seed=9, count=1))
    finally:
        interpreter.close()
    assert received.finished.digest == execute(draw(9, None, 1, "records"))[0].digest


def test_an_interpreter_that_dies_is_named() -> None:
    interpreter = RemoteInterpreter(sys.executable)
    interpreter.close()
    with pytest.raises(InterpreterError, match="ended with"):
        next(interpreter.runs(TASK))


def test_one_that_dies_in_the_middle_of_a_run_is_named(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\nimport pickle, sys\nsys.stdout.buffer.write(pickle.dumps({{'rule': ''}})[:-4])\n"
    )
    python.chmod(0o755)
    interpreter = RemoteInterpreter(str(python))
    try:
        with pytest.raises(InterpreterError, match="ended with 0 in the middle"):
            next(interpreter.runs(TASK))
    finally:
        interpreter.close()


def test_pypy_is_set_for_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[str] = []
    monkeypatch.setitem(sys.modules, "pypyjit", SimpleNamespace(set_param=received.append))
    tune()
    assert not received, "CPython has no such compiler"
    monkeypatch.setattr(sys, "implementation", SimpleNamespace(name="pypy"))
    tune()
    (setting,) = received
    assert {"decay=0", "trace_limit=2500"} <= {*setting.split(",")}


def test_speed_is_reported_by_hundred_runs(tmp_path: Path) -> None:
    runs = [
        Small(n, "valid", "", "", 300 if n < 100 else 600, 0, 0, 0, 0.1, Counter(), {}, 0, {}, "") for n in range(250)
    ]
    summary = Summary(Plan(tmp_path), runs)
    assert summary.speeds == [3_000, 6_000]
    said = summary.to_json()
    assert said["messages_per_second_and_core_by_hundred_runs"] == summary.speeds
    assert said["schedules_per_minute_and_core"] == 600 and said["messages_per_minute_and_core"] == 288_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "does not run"),
        ("#!/bin/sh\nexit 7\n", "it says nothing"),
        ("#!/bin/sh\necho No module >&2; exit 1\n", "No module"),
        ("#!/bin/sh\necho PyPy 3.9.16\n", "it is PyPy 3.9.16, and they need Python 3.11"),
        ("#!/bin/sh\n", "it is nameless"),
    ],
)
def test_an_interpreter_that_cannot_live_is_refused(tmp_path: Path, text: str | None, reason: str) -> None:
    python = tmp_path / "python"
    if text is not None:
        python.write_text(text)
        python.chmod(0o755)
    with pytest.raises(InterpreterError, match=reason):
        check(str(python))
    with pytest.raises(SystemExit) as ended:
        tidegauge.main(["fuzz", "--python", str(python)])
    assert ended.value.code == 64
