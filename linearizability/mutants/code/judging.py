"""Asks the unit tests and the simulation about one change of the code, and keeps what they say.

Each judge runs in a process of its own, with the change planted. A judge detects a change when it fails, or when it does not end
where the unchanged code does.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from linearizability.mutants.code import reaching
from linearizability.mutants.code.changes import ROOT, Change, all_changes
from linearizability.mutants.code.reaching import Reached

STORE = Path(__file__).parent / "results.json"
UNIT_TESTS = {package: f"tests/{package}" for package in ("replication", "storage", "controller", "coordinator")}
NOT_UNIT = "not slow and not kafka and not java and not spark"
PYTEST = ("-x", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-m", NOT_UNIT)
THIS = (sys.executable, "-m", "linearizability.mutants.code")
FAILED, INTERRUPTED, NOT_FOUND = 1, 2, 4
"""Exit codes of pytest: tests failed; the session did not begin properly, as by an
import that fails; a test's file is not imported."""
SIMULATED = (
    "reference",
    *(f"linearizability/{each}" for each in ("simulation", "workload", "rules", "history", "pipeline")),
)

KINDS = (
    (1, "records"), (3, "records"), (1, "transactions"), (3, "transactions"), (1, "groups"), (3, "groups"),
    (1, "copy"), (3, "copy"),
)  # fmt: skip
"""Nodes and workload of the simulation's runs, in turn: run n has seed n."""

MOST_MEMORY_BYTES = 4 << 30
HANGS_AFTER_S = 90
"""No run of the simulation takes so long on the unchanged code."""


@dataclass(frozen=True)
class Row:
    """What is kept of one change."""

    change: str
    fingerprint: str
    line: int
    was: str
    becomes: str
    unit: str = ""
    """The test that failed, `hangs`, or nothing: the unit tests do not detect it."""
    simulation: str = ""
    """The broken promise, `hangs`, or nothing."""
    runs: int = 0
    """The simulation's runs up to and with the one that detected it, or how many are known to detect nothing."""
    unit_s: float = 0
    simulation_s: float = 0
    read: str = ""
    """Of what no judge detected: what a reader of the code says of it."""


@dataclass(frozen=True)
class Limits:
    """How long to look for one change."""

    runs: int = 500
    simulation_s: float = 240
    unit_s: float = 300


def judge(change: Change, limits: Limits, before: Row | None = None) -> Row:
    """Ask both judges. With an earlier row whose simulation detected nothing, only its further runs are made."""
    start = time.monotonic()
    unit = before.unit if before else ask_unit_tests(change, limits.unit_s)
    unit_s = before.unit_s if before else time.monotonic() - start
    start = time.monotonic()
    simulation, runs = ask_simulation(change, limits, before.runs if before else 0)
    simulation_s = time.monotonic() - start + (before.simulation_s if before else 0)
    return Row(
        change.name, change.fingerprint, change.line, change.was[:200], change.becomes[:200],
        unit, simulation, runs, round(unit_s, 1), round(simulation_s, 1), before.read if before else "",
    )  # fmt: skip


def ask_unit_tests(change: Change, limit_s: float) -> str:
    """The test that fails, `hangs` after `limit_s`, or nothing. Only tests that reach the change are run, the quickest first."""
    tests = reached_by_tests(change.package).of(change)
    if not tests:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(folder) / "tests"
        chosen.write_text("\n".join(tests))
        arguments = ["with", change.name, "pytest", *PYTEST, f"@{chosen}"]
        try:
            done = subprocess.run(
                [*THIS, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=limit_s, preexec_fn=_limit_memory,
                env=os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": folder},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "hangs"
    if done.returncode == 0:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode not in (FAILED, INTERRUPTED, NOT_FOUND) or not failed:
        raise RuntimeError(
            f"{change.name}: pytest ended with {done.returncode}: {done.stdout[-600:]}{done.stderr[-600:]}"
        )
    return failed[0].partition(" ")[2].partition(" - ")[0]


def reached_by_tests(package: str) -> Reached:
    """Which unit tests of a package reach what; they are run once where that is not known."""
    digest = reaching.digest_of("reference", UNIT_TESTS[package])
    return _recorded(package, digest, "reach-tests", package, digest)


def reached_by_runs(runs: int) -> Reached:
    """Which of the simulation's runs reach what; they are made once where that is not known."""
    return _recorded(f"simulation-{runs}", f"{reaching.digest_of(*SIMULATED)} {runs}", "reach-runs", str(runs))


def _recorded(name: str, digest: str, *command: str) -> Reached:
    if (found := reaching.load(name, digest)) is None:
        print(f"What {name} reaches is recorded once ...", file=sys.stderr)
        subprocess.run([*THIS, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        found = reaching.load(name, digest)
    assert found is not None, f"{name} was changed meanwhile"
    return found


def _limit_memory() -> None:
    """A change may make a loop that never ends collect without end: then memory is refused, and a judge fails."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))


def ask_simulation(change: Change, limits: Limits, first: int = 0) -> tuple[str, int]:
    """The promise that breaks, `hangs`, or nothing; and after how many runs, with those that do not reach the change."""
    reached = {int(name) for name in reached_by_runs(limits.runs).of(change)}
    seeds = sorted(seed for seed in reached if seed >= first)
    if not seeds:
        return "", limits.runs
    command, deadline = [*THIS, "simulate", change.name, *map(str, seeds)], time.monotonic() + limits.simulation_s
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_limit_memory
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        last, waiting = time.monotonic(), iter(seeds)
        seed = next(waiting)
        try:
            while True:
                line = process.stdout.readline()
                now = time.monotonic()
                if line:
                    last, rule = now, line.strip()
                    if rule != "-":
                        return rule, seed + 1
                    seed = next(waiting, limits.runs)
                elif process.poll() is not None:
                    break
                elif now - last > HANGS_AFTER_S:
                    return "hangs", seed + 1
                elif now > deadline:
                    return "", seed
                else:
                    time.sleep(0.02)
        finally:
            process.kill()
        error = process.stderr.read() if process.stderr else ""
    if process.returncode != 0:
        text = error.strip().splitlines()[-1][:120] if error.strip() else process.returncode
        return f"cannot run: {text}", seed + 1
    return "", limits.runs


def simulate(seeds: Iterable[int]) -> Iterator[str]:
    """The broken promise of each run in turn, or `-`."""
    from linearizability.pipeline.verdict import INVALID
    from linearizability.simulation.drawing import draw
    from linearizability.simulation.fuzzing import collect_rarely
    from linearizability.simulation.judging import run_schedule

    collect_rarely()
    for seed in seeds:
        nodes, workload = KINDS[seed % len(KINDS)]
        outcome, _ = run_schedule(draw(seed, None, nodes, workload))
        yield (outcome.rule or "invalid") if outcome.verdict == INVALID else "-"


def load(path: Path = STORE) -> dict[str, Row]:
    """The stored rows by change."""
    return {row["change"]: Row(**row) for row in json.loads(path.read_text())} if path.exists() else {}


def store(rows: Iterable[Row], path: Path = STORE) -> None:
    """Put rows in; several runs may share the file. Rows of code that is no more are left out."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = load(path) | {row.change: row for row in rows}
        changes = all_changes()
        current = [kept[name] for name in changes if name in kept and is_current(changes[name], kept[name])]
        text = ",\n".join(json.dumps({key: value for key, value in asdict(row).items() if value}) for row in current)
        partial = path.with_suffix(".partial")
        partial.write_text(f"[\n{text}\n]\n")
        partial.replace(path)


def is_current(change: Change, row: Row | None) -> bool:
    """Whether the stored row speaks of the present text."""
    return row is not None and row.fingerprint == change.fingerprint
