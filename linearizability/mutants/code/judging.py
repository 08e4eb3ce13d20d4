"""Runs the unit tests and the simulation on one change of the code, and stores the results.

Each judge runs in a separate process, with the change planted. A judge detects a change if it fails, or if it takes much longer
than with the unchanged code.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from linearizability.mutants.code import reaching
from linearizability.mutants.code.changes import ROOT, Change, all_changes
from linearizability.mutants.code.reaching import Reached
from linearizability.stored import replace_file

STORE = Path(__file__).parent / "results.json"
UNIT_TESTS = {package: f"tests/{package}" for package in ("replication", "storage", "controller", "coordinator")}
NOT_UNIT = "not slow and not kafka and not java and not spark"
PYTEST = (
    "-x", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-m", NOT_UNIT, "--hypothesis-profile=detect"
)  # fmt: skip
THIS = (sys.executable, "-m", "linearizability.mutants.code")
FAILED, INTERRUPTED, NOT_FOUND = 1, 2, 4
"""Exit codes of pytest: tests failed; the session did not begin, for example because an
import failed; a test's file could not be imported."""
SIMULATED = (
    "reference",
    *(f"linearizability/{each}" for each in ("simulation", "workload", "rules", "history", "pipeline")),
)

KINDS = (
    (1, "records"), (3, "records"), (1, "transactions"), (3, "transactions"), (1, "groups"), (3, "groups"),
    (1, "copy"), (3, "copy"),
)  # fmt: skip
"""(nodes, workload) of the simulation's runs, in turn. Run n has seed n."""

RUNS_RECORDED_AT_ONCE = 50
MOST_MEMORY_BYTES = 4 << 30
HANGS_AFTER_S = 60
"""The CPU time after which a run of the simulation hangs: with the unchanged code every run takes less."""


@dataclass(frozen=True)
class Row:
    """The stored result of one change."""

    change: str
    fingerprint: str
    line: int
    was: str
    becomes: str
    unit: str = ""
    """The test that failed, or `hangs`; "" if the unit tests do not detect the change."""
    simulation: str = ""
    """The broken promise, or `hangs`; "" if the simulation does not detect the change."""
    runs: int = 0
    """The number of the simulation's runs up to the one that detected the change, or the number that detected nothing."""
    unit_s: float = 0
    simulation_s: float = 0
    """CPU time of each judge."""
    read: str = ""
    """A reader's explanation of a change that no judge detected."""
    checks: str = ""
    """The digest of the simulation that made these runs (`checks_of_today`); empty in rows before 2026-11-26."""


@dataclass(frozen=True)
class Limits:
    """The limits of one change's judges. All times are CPU times, so the machine's load changes no verdict."""

    runs: int = 500
    simulation_s: float = 240
    unit_s: float = 60
    """Unit tests hang when they take more than twice the time of the unchanged code and this time."""


def judge(change: Change, limits: Limits, before: Row | None = None) -> Row:
    """Run both judges. With an earlier row, whose simulation detected nothing, only the simulation's further runs are made."""
    unit, unit_s = (before.unit, before.unit_s) if before else ask_unit_tests(change, limits.unit_s)
    simulation, runs, simulation_s = ask_simulation(change, limits, before.runs if before else 0)
    simulation_s += before.simulation_s if before else 0
    return Row(
        change.name,
        change.fingerprint,
        change.line,
        change.was[:200],
        change.becomes[:200],
        unit,
        simulation,
        runs,
        round(unit_s, 1),
        round(simulation_s, 1),
        before.read if before else "",
        checks_of_today(),
    )


def checks_of_today() -> str:
    """A digest of the simulation and its rules: with another one, new runs may detect a change that earlier runs did not."""
    return reaching.digest_of(*(each for each in SIMULATED if each != "reference"))


def ask_unit_tests(change: Change, more_s: float) -> tuple[str, float]:
    """The failing test, `hangs` or "", and the CPU time. Only tests that reach the change run, the quickest first."""
    reached = reached_by_tests(change.package)
    tests = reached.of(change)
    if not tests:
        return "", 0
    limit_s = 2 * sum(reached.seconds[test] for test in tests) + more_s
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(folder) / "tests"
        chosen.write_text("\n".join(tests))
        done = subprocess.run(
            [*THIS, "with", change.name, "pytest", *PYTEST, f"@{chosen}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            preexec_fn=partial(_limit, limit_s),
            env=os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": folder},
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode == -signal.SIGXCPU:
        return "hangs", spent
    if done.returncode == 0:
        return "", spent
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode not in (FAILED, INTERRUPTED, NOT_FOUND) or not failed:
        raise RuntimeError(
            f"{change.name}: pytest ended with {done.returncode}: {done.stdout[-600:]}{done.stderr[-600:]}"
        )
    return failed[0].partition(" ")[2].partition(" - ")[0], spent


def reached_by_tests(package: str) -> Reached:
    """The blocks that each unit test of a package reaches; runs the tests once if no current record exists."""
    digest = reaching.digest_of("reference", UNIT_TESTS[package])
    return _recorded(package, digest, "reach-tests", package, digest)


def reached_by_runs(first: int, end: int) -> Reached:
    """The blocks that each of these runs of the simulation reaches; makes the runs once if no current record exists."""
    digest = f"{reaching.digest_of(*SIMULATED)} {first} {end}"
    return _recorded(f"simulation-{first}", digest, "reach-runs", str(first), str(end), digest)


def _recorded(name: str, digest: str, *command: str) -> Reached:
    if (found := reaching.load(name, digest)) is None:
        print(f"What {name} reaches is recorded once ...", file=sys.stderr)
        subprocess.run([*THIS, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        found = reaching.load(name, digest)
    assert found is not None, f"{name} was changed meanwhile"
    return found


def _limit(cpu_s: float) -> None:
    """Limit CPU time and memory of this process: a change may cause an endless loop, or use memory without limit."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + 10))


def ask_simulation(change: Change, limits: Limits, first: int = 0) -> tuple[str, int, float]:
    """The broken promise, `hangs` or ""; the number of runs, with those that do not reach the change; and the CPU time."""
    spent = 0.0
    for begin in range(first - first % RUNS_RECORDED_AT_ONCE, limits.runs, RUNS_RECORDED_AT_ONCE):
        end = min(begin + RUNS_RECORDED_AT_ONCE, limits.runs)
        seeds = sorted(seed for seed in map(int, reached_by_runs(begin, end).of(change)) if seed >= first)
        rule, runs, more = _ask_runs(change, seeds, end, limits.simulation_s - spent)
        spent += more
        if rule or runs < end:
            return rule, runs, spent
    return "", limits.runs, spent


def _ask_runs(change: Change, seeds: list[int], end: int, limit_s: float) -> tuple[str, int, float]:
    """The same for these seeds. If none of the runs detects the change, the number of runs is `end`."""
    if not seeds:
        return "", end, 0
    command, spent, waiting = [*THIS, "simulate", change.name, *map(str, seeds)], 0.0, iter(seeds)
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(_limit, max(limit_s, 0) + 2 * HANGS_AFTER_S),
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for seed in waiting:
            line = process.stdout.readline()
            if not line:
                break
            rule, spent = said(line)
            if rule != "-":
                process.kill()
                return rule, seed + 1, spent
            if spent > limit_s and (following := next(waiting, None)) is not None:
                process.kill()
                return "", following, spent
        else:
            return "", end, spent
        error = process.stderr.read()
    if process.returncode == -signal.SIGXCPU:
        return "hangs", seed + 1, spent
    text = error.strip().splitlines()[-1][:120] if error.strip() else process.returncode
    return f"cannot run: {text}", seed + 1, spent


def said(line: str) -> tuple[str, float]:
    """The broken promise, or several separated by spaces, and the CPU seconds in a line that `simulate` printed."""
    rule, _, seconds = line.rpartition(" ")
    return rule, float(seconds)


def simulate(seeds: Iterable[int]) -> Iterator[str]:
    """The broken promise of each run in turn, or `-`; ends after `hangs`."""
    from linearizability.pipeline.verdict import INVALID
    from linearizability.simulation.drawing import draw
    from linearizability.simulation.fuzzing import collect_rarely
    from linearizability.simulation.judging import run_schedule

    collect_rarely()
    signal.signal(signal.SIGPROF, _hangs)
    for seed in seeds:
        nodes, workload = KINDS[seed % len(KINDS)]
        signal.setitimer(signal.ITIMER_PROF, HANGS_AFTER_S)
        try:
            outcome, _ = run_schedule(draw(seed, None, nodes, workload))
        except _Hangs:
            yield "hangs"
            return
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        yield (outcome.rule or "invalid") if outcome.verdict == INVALID else "-"


class _Hangs(BaseException):
    """A run took longer than HANGS_AFTER_S. A BaseException, so that the simulation does not treat it as a node's failure."""


def _hangs(number: int, frame: object) -> None:
    raise _Hangs


def load(path: Path = STORE) -> dict[str, Row]:
    """The stored rows by change."""
    return {row["change"]: Row(**row) for row in json.loads(path.read_text())} if path.exists() else {}


def store(rows: Iterable[Row], path: Path = STORE) -> None:
    """Add or replace rows; several processes may write the file at a time. Rows of changes that no longer exist are removed."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = load(path) | {row.change: row for row in rows}
        changes = all_changes()
        current = [kept[name] for name in changes if name in kept and is_current(changes[name], kept[name])]
        text = ",\n".join(json.dumps({key: value for key, value in asdict(row).items() if value}) for row in current)
        replace_file(path, f"[\n{text}\n]\n")


def is_current(change: Change, row: Row | None) -> bool:
    """Whether a stored row was measured with the present text of the change."""
    return row is not None and row.fingerprint == change.fingerprint
