"""Lives that another Python interpreter leads, and this one judges.

The nodes need little besides the standard library, so that another interpreter, PyPy for one, can lead their lives: the same
traces there are a proof that no life depends on the interpreter. The history rules need Arrow, which PyPy lacks. So lives are
led there and judged here: a child process
(`python -m linearizability.simulation.elsewhere`) reads tasks and answers with one life a line, both as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, NamedTuple

from linearizability.history.contract import Contract
from linearizability.mutants.registry import planted
from linearizability.simulation.drawing import draw
from linearizability.simulation.life import Lived, lead
from linearizability.simulation.notebook import Notes

MODULES = ("pydantic", "crc32c", "cramjam")
"""What the other interpreter needs to have installed."""
ROOT = Path(__file__).parents[2]
CHECK_S = 60
NUMBERS = ("steps", "virtual_ms", "acknowledged", "acknowledged_by_all", "leader_changes", "consumed")


class Task(NamedTuple):
    """Which lives are to be led: schedules drawn by ascending seeds."""

    first_seed: int
    count: int
    mutant: str | None
    nodes: int
    workload: str
    by_history: bool
    with_rows: bool


class Told(NamedTuple):
    """What the other interpreter tells of one life."""

    lived: Lived
    rows: list[dict[str, Any]]
    """The steps of the specification, where they were asked for."""
    seconds: float
    """CPU seconds that it took there."""


class CannotLive(Exception):
    """The other interpreter does not run, or lacks something; the text says what."""


def check(python: str) -> str:
    """The name and version of an interpreter that can lead lives. Errors: CannotLive."""
    program = (
        f"import platform, {', '.join(MODULES)}; print(platform.python_implementation(), platform.python_version())"
    )
    try:
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=CHECK_S, check=False, env=_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotLive(f"{python} does not run: {error}") from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise CannotLive(f"{python} cannot lead lives: {reason}")
    return done.stdout.strip()


def _environment() -> dict[str, str]:
    """Where the child finds this package: beside what it has installed itself."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


class Elsewhere:
    """A child process that leads lives, for as long as this process wants them."""

    def __init__(self, python: str) -> None:
        """Errors: OSError."""
        self._python = python
        self._child = subprocess.Popen(
            [python, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
        )

    def lead(self, task: Task) -> Iterator[Told]:
        """The lives of a task, one after the other; the next ones go on there meanwhile. Errors: CannotLive."""
        tasks, answers = self._child.stdin, self._child.stdout
        assert tasks is not None and answers is not None
        try:
            tasks.write(json.dumps(task) + "\n")
            tasks.flush()
        except OSError:
            raise self._gone() from None
        seeds = iter(range(task.first_seed, task.first_seed + task.count))
        try:
            for seed in seeds:
                line = answers.readline()
                if not line.endswith("\n"):
                    raise self._gone()
                yield _read(json.loads(line), seed, task)
        finally:
            for _ in seeds:
                answers.readline()  # nobody wants to hear of them

    def _gone(self) -> CannotLive:
        return CannotLive(f"{self._python} ended with {self._child.wait()} in the middle of its lives")

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait()


def _written(lived: Lived, rows: list[dict[str, Any]] | None, seconds: float) -> dict[str, Any]:
    notes = [{"process": n.process, "contract": n.contract.model_dump(), "events": n.events} for n in lived.notes]
    return {
        "rule": lived.rule, "text": lived.text, "digest": lived.digest, "counts": lived.counts, "notes": notes,
        "rows": rows or [], "seconds": seconds, **{name: getattr(lived, name) for name in NUMBERS},
    }  # fmt: skip


def _read(told: dict[str, Any], seed: int, task: Task) -> Told:
    lived = Lived(
        draw(seed, task.mutant, task.nodes, task.workload),
        [Notes(each["process"], Contract(**each["contract"]), each["events"]) for each in told["notes"]],
        told["rule"], told["text"], told["digest"], Counter(told["counts"]), **{name: told[name] for name in NUMBERS},
    )  # fmt: skip
    return Told(lived, told["rows"], told["seconds"])


def serve(tasks: IO[str], answers: IO[str]) -> None:
    """Lead the lives of all tasks that come, until no more do."""
    for line in tasks:
        task = Task(*json.loads(line))
        with planted(task.mutant) if task.mutant else nullcontext():
            for seed in range(task.first_seed, task.first_seed + task.count):
                rows: list[dict[str, Any]] | None = [] if task.with_rows else None
                began = time.process_time()
                lived, _ = lead(draw(seed, task.mutant, task.nodes, task.workload), False, task.by_history, rows)
                answers.write(json.dumps(_written(lived, rows, time.process_time() - began)) + "\n")
                answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
