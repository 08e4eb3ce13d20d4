"""Executes runs in another Python interpreter; this one judges them.

The nodes need little besides the standard library, so another interpreter, PyPy for one, can execute their runs: equal traces
there prove that no run depends on the interpreter. The history rules need Arrow, which PyPy lacks, so runs are judged here. A
child process (`python -m linearizability.simulation.remote_interpreter`) reads tasks, one a line as JSON, and answers with
pickles of plain values: a run's histories are large, and PyPy takes three times as long to write them as JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from linearizability.history.contract import Contract
from linearizability.mutants.registry import planted
from linearizability.simulation.drawing import draw
from linearizability.simulation.history_recorder import ClientHistory
from linearizability.simulation.run import FinishedRun, execute

MODULES = ("pydantic", "cramjam", "reference.protocol.checksum")
"""What the other interpreter needs: packages, and this project with what it takes checksums by."""
PYPY = "pypy"
"""Names the one that is found or fetched (`linearizability.targets.pypy`)."""
LEAST_VERSION = (3, 11)
ROOT = Path(__file__).parents[2]
CHECK_S = 60
NURSERY = "128MB"
"""PyPy's space for new objects: a run fits into it, and its garbage is never copied."""
JIT = {
    "decay": 0, "loop_longevity": 1_000_000, "threshold": 520, "function_threshold": 800, "trace_eagerness": 50,
    "trace_limit": 2_500,
}  # fmt: skip
"""PyPy's compiler for runs, which are wide: no place is hot soon, so nothing that was counted or compiled is forgotten; and
short pieces, for one that follows a whole step of a node is left again before its end. Measured: RESULTS.md, "Speed"."""
NUMBERS = ("steps", "virtual_ms", "acknowledged", "acknowledged_by_all", "leader_changes", "consumed")


class Task(NamedTuple):
    """The runs to execute: schedules drawn by ascending seeds."""

    first_seed: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    mutant: str | None
    nodes: int
    workload: str
    coordination: str
    by_history: bool
    with_rows: bool


class RemoteRun(NamedTuple):
    """One run of the other interpreter."""

    finished: FinishedRun
    rows: list[dict[str, Any]]
    """The steps of the specification, where they were asked for."""
    seconds: float
    """CPU seconds that it took there, with the transfer of the one before."""


class InterpreterError(Exception):
    """The other interpreter does not run, or lacks something; the text says what."""


def program_of(python: str) -> str:
    """Return the program that executes runs. Errors: InterpreterError if PyPy can be neither found nor fetched."""
    from linearizability.targets.pypy import PyPyMissing, pypy  # targets need packages that the child lacks

    try:
        return str(pypy()) if python == PYPY else python
    except PyPyMissing as error:
        raise InterpreterError(str(error)) from error


def check(python: str) -> str:
    """Return name and version of an interpreter that can execute runs. Errors: InterpreterError."""
    code = f"import platform, {', '.join(MODULES)}; print(platform.python_implementation(), platform.python_version())"
    try:
        done = subprocess.run(
            [program_of(python), "-c", code],
            capture_output=True,
            text=True,
            timeout=CHECK_S,
            check=False,
            env=_environment(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InterpreterError(f"{python} does not run: {error}") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise InterpreterError(f"{python} cannot execute runs: {reason}")
    name = done.stdout.strip()
    version = tuple(int(part) for part in name.rpartition(" ")[2].split(".")[:2] if part.isdecimal())
    if version < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise InterpreterError(
            f"{python} cannot execute runs: it is {name or 'nameless'}, and they need Python {least}"
        )
    return name


def _environment() -> dict[str, str]:
    """Return the child's environment, with this package on its path."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    nursery = os.environ.get("PYPY_GC_NURSERY", NURSERY)
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYPY_GC_NURSERY": nursery}


class RemoteInterpreter:
    """A child process that executes runs, until `close`."""

    def __init__(self, python: str, name: str = "") -> None:
        """`name` is what the interpreter calls itself, from `check`. Errors: OSError, InterpreterError."""
        self.name = name or python
        self._python = python
        self._child = subprocess.Popen(
            [program_of(python), "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment()
        )

    def runs(self, task: Task) -> Generator[RemoteRun]:
        """The runs of a task, one after the other; the next ones go on there meanwhile. Errors: InterpreterError."""
        tasks, answers = self._child.stdin, self._child.stdout
        assert tasks is not None and answers is not None
        try:
            tasks.write(json.dumps(task).encode() + b"\n")
            tasks.flush()
        except OSError:
            raise self._gone() from None
        seeds = iter(range(task.first_seed, task.first_seed + task.count))
        try:
            for seed in seeds:
                yield _read(self._next(answers), seed, task)
        finally:
            with suppress(InterpreterError):
                for _ in seeds:
                    self._next(answers)  # results that are not wanted any more

    def _next(self, answers: IO[bytes]) -> dict[str, Any]:
        """Return one run as `_written` stored it. Errors: InterpreterError."""
        try:
            return pickle.load(answers)
        except (EOFError, pickle.UnpicklingError):
            raise self._gone() from None

    def _gone(self) -> InterpreterError:
        return InterpreterError(f"{self._python} ended with {self._child.wait()} in the middle of its runs")

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait()


def tune() -> None:
    """Tune PyPy for many runs. Does nothing in another interpreter."""
    if sys.implementation.name != "pypy":
        return
    from pypyjit import set_param  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    set_param(",".join(f"{name}={value}" for name, value in JIT.items()))


def _written(finished: FinishedRun, rows: list[dict[str, Any]] | None, seconds: float) -> dict[str, Any]:
    histories = [
        {"process": each.process, "contract": each.contract.model_dump(), "events": each.events}
        for each in finished.histories
    ]
    return {
        "rule": finished.rule, "text": finished.text, "digest": finished.digest, "counts": finished.counts,
        "histories": histories, "rows": rows or [], "seconds": seconds, **{name: getattr(finished, name) for name in NUMBERS},
    }  # fmt: skip


def _read(stored: dict[str, Any], seed: int, task: Task) -> RemoteRun:
    finished = FinishedRun(
        draw(seed, task.mutant, task.nodes, task.workload, task.coordination),
        [ClientHistory(each["process"], Contract(**each["contract"]), each["events"]) for each in stored["histories"]],
        stored["rule"],
        stored["text"],
        stored["digest"],
        Counter(stored["counts"]),
        **{name: stored[name] for name in NUMBERS},
    )
    return RemoteRun(finished, stored["rows"], stored["seconds"])


def serve(tasks: IO[bytes], answers: IO[bytes]) -> None:
    """Execute the runs of all tasks, until the input ends."""
    began = time.process_time()
    for line in tasks:
        task = Task(*json.loads(line))
        with planted(task.mutant) if task.mutant else nullcontext():
            for seed in range(task.first_seed, task.first_seed + task.count):
                rows: list[dict[str, Any]] | None = [] if task.with_rows else None
                finished, _ = execute(
                    draw(seed, task.mutant, task.nodes, task.workload, task.coordination), False, task.by_history, rows
                )
                before, began = began, time.process_time()
                pickle.dump(_written(finished, rows, began - before), answers)
                answers.flush()


if __name__ == "__main__":
    tune()
    serve(sys.stdin.buffer, sys.stdout.buffer)
