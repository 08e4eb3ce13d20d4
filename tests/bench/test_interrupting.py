"""A benchmark that is interrupted: it shows what it measured until then, marked as incomplete, and exits 130."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from linearizability.bench.suite import STORE
from linearizability.interrupting import INTERRUPTED, leave, raise_lost_interrupts, until_interrupted

SIDES = ("--target", "reference:1", "--against", "reference")
MEASURED_WITHIN_S = 300.0
QUICK = ("--rounds", "50", "--seconds", "0.2", "--warmup", "0")


@dataclass(frozen=True)
class Case:
    """A command that would take long, what it reports when something is measured, and where its rows are."""

    words: tuple[str, ...]
    at: str
    rows: str
    by: signal.Signals = signal.SIGINT


CASES = (
    Case(("broker", *SIDES, "--case", "fetch 1 MiB", "--case", "produce 1 x 100 B", *QUICK), "round 2", "rows"),
    Case(("history", "--facts", "20000", "--facts", "8000000", "--no-spark"), "8,000,000 facts", "rows"),
    Case(("fuzz", "--mutant", "torn-tail-kept", "--seeds", "100", "--store", "fuzz.json"), "trial 2", "rows"),
    Case(("damage", "--trials", "100000", "--store", "damage.json"), "10 of ", "trials", signal.SIGTERM),
    Case(("suite", "--jobs", "1", "--resume", "--store", "suite.json"), "found by", "planted", signal.SIGTERM),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.words[0]}-{case.by.name}")
def test_what_was_measured_until_then_is_shown(case: Case, tmp_path: Path) -> None:
    without_lies = {"baseline": json.loads(STORE.read_text())["baseline"]}
    (tmp_path / "suite.json").write_text(json.dumps(without_lies))
    interrupted = interrupt(case, tmp_path)
    assert interrupted["interrupted"] is True
    assert interrupted[case.rows], interrupted


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case(("compaction", *SIDES, "--case", "1 KB, 4 of a key", "--megabytes", "40", "--rounds", "50"), "round 2", "rows"),
        Case(("scale", "--connections", "1", "--start", "1,2", "--partitions", "", "--store", "s"), "start/reference/1", "rows"),
        Case(("failover", "--target", "reference:3", "--against", "reference", "--client", "aiokafka", "--fault", "kill", "--rounds", "50"), "round 2", "rows"),
        Case(("endurance", "--target", "reference:1", "--hours", "1", "--store", "s"), " s: ", "legs", signal.SIGTERM),
    ],
    ids=lambda case: case.words[0],
)  # fmt: skip
def test_what_was_measured_in_minutes_is_shown(case: Case, tmp_path: Path) -> None:
    test_what_was_measured_until_then_is_shown(case, tmp_path)


def interrupt(case: Case, folder: Path) -> dict[str, Any]:
    """Run the command, and interrupt it when it reports that text; its summary."""
    command = [sys.executable, "-m", "tidegauge", "bench", *case.words, "--json"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"TIDEGAUGE_VERBOSE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stderr is not None
        seen: list[str] = []
        limit = threading.Timer(MEASURED_WITHIN_S, child.kill)
        limit.start()
        for line in child.stderr:
            seen.append(line)
            if case.at in line:
                break
        limit.cancel()
        child.send_signal(case.by)
        out, error = child.communicate(timeout=120)
    assert child.returncode == INTERRUPTED, "".join(seen) + error
    assert "Traceback" not in error and any(case.at in line for line in seen)
    if case.words[0] != "suite":  # it has no text but its JSON
        assert "interrupted: what was measured until then:" in out
    return json.loads(out.splitlines()[-1])


def test_a_failure_that_was_measured_counts_more_than_the_interruption() -> None:
    table: dict[str, Any] = {}
    before = signal.getsignal(signal.SIGTERM)
    with until_interrupted(table):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    for code, expected in ((0, INTERRUPTED), (1, 1)):
        with pytest.raises(typer.Exit) as left:
            leave(table, code)
        assert left.value.exit_code == expected


def test_a_whole_measurement_exits_by_its_own_code() -> None:
    table: dict[str, Any] = {}
    with until_interrupted(table):
        pass
    leave(table)
    with pytest.raises(typer.Exit) as left:
        leave(table, 1)
    assert left.value.exit_code == 1


class Swallowing:
    """Python ignores an exception of this kind, as pydantic's core does."""

    def __del__(self) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_that_was_swallowed_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    raise_lost_interrupts()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Swallowing()
        time.sleep(60)
    assert time.monotonic() - began < 60
