"""A second, independent checker: `tla-checker`, written in Rust, which shares no code with TLC.

It is slow, so it runs on tiny models only; the numbers of states are compared. It must be installed by hand:

    cargo install --locked --root .cache/tla-checker --version 0.24.11 --bin tla tla-checker
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spec.behaviours import without_properties
from spec.checker import SHORT_RUN, Outcome, check
from spec.models import SPEC, Case

PINNED = "0.24.11"
PLACE = SPEC.parent / ".cache" / "tla-checker" / "bin" / "tla"
MOST_STATES = 100_000


class SecondCheckerError(Exception):
    """`tla-checker` is not installed, or did not judge; the message has the reason."""


@dataclass(frozen=True)
class Count:
    """The numbers of states that TLC (first) and `tla-checker` (second) found."""

    model: str
    first: int
    second: int


def second_checker() -> Path:
    """The path of `tla-checker`. Errors: SecondCheckerError, with the command to install it."""
    if PLACE.exists():
        return PLACE
    found = shutil.which("tla")
    if found:
        return Path(found)
    root = PLACE.parent.parent.relative_to(SPEC.parent)
    raise SecondCheckerError(
        f"tla-checker is not installed: cargo install --locked --root {root} --version {PINNED} --bin tla tla-checker"
    )


def states_by_second(case: Case, budget_s: float = 300) -> int:
    """The number of states of a case's model, without symmetry, view or promises. Errors: SecondCheckerError."""
    program = second_checker()
    with tempfile.TemporaryDirectory(prefix="tidegauge-second-") as name:
        folder = Path(name)
        for module in sorted((SPEC / case.model.folder).glob("*.tla")):
            shutil.copy(module, folder)
        configuration = folder / "second.cfg"
        configuration.write_text(_bare(case))
        command = [str(program), f"{case.model.module}.tla", "--config", configuration.name, "--json"]
        command += ["--max-states", str(MOST_STATES), "--max-depth", "1000"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=budget_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise SecondCheckerError(f"{case.name}: stopped after {budget_s:.0f} s") from error
    return read_count(case.name, done.stdout, done.stderr, done.returncode)


def read_count(name: str, output: str, errors: str, code: int) -> int:
    """The number of states in the output of `tla-checker`. Errors: SecondCheckerError, also where it reached MOST_STATES."""
    found = re.search(r"\{.*\}", output, re.S)
    said: dict[str, Any]
    try:
        said = json.loads(found[0]) if found else {}
    except ValueError:
        said = {}
    counted: dict[str, Any] = said.get("stats") or {}
    states = counted.get("states_explored")
    if code != 0 or said.get("status") != "ok" or states is None or states >= MOST_STATES:
        text = " ".join((errors or output).split())[-300:]
        raise SecondCheckerError(f"{name}: it did not judge (exit code {code}): {text}")
    return int(states)


def states_by_first(case: Case) -> Outcome:
    """TLC's outcome for the same configuration."""
    return check(replace(case.job(), configuration=_bare(case), coverage=False, jvm=SHORT_RUN))


def compare(case: Case) -> Count:
    """The numbers of states by both checkers. Errors: SecondCheckerError."""
    second = states_by_second(case)
    return Count(case.name, states_by_first(case).distinct, second)


def _bare(case: Case) -> str:
    return re.sub(r"RecordSteps = TRUE", "RecordSteps = FALSE", without_properties(case.configuration()))
