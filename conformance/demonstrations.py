"""Demonstrations of the project's other promises: each is one command, whose result is kept in the suite's report.

A demonstration is a command of this project that prints one JSON object last. The report has the verdict of its exit code.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from conformance.results import Demonstration, RunVerdict

TIMEOUT_S = 600
VERDICT_OF_EXIT_CODE = {0: RunVerdict.PASS, 1: RunVerdict.FAIL}
SHOWN_KEYS = 12
"""The most values of a command's summary in the report."""


@dataclass(frozen=True)
class Shown:
    """One demonstration: its title, and the arguments of its command."""

    title: str
    arguments: tuple[str, ...]


ALL = (
    Shown("The specification: clean models hold, switches are caught", ("spec", "check", "--json")),
    Shown("Simulated runs of the reference, in virtual time", ("fuzz", "--schedules", "100", "--json")),
    Shown("A real process under kill -9", ("hunt", "--target", "reference:1", "--minutes", "1", "--json")),
)


def demonstrate(progress: Callable[[str], None]) -> Iterator[Demonstration]:
    """Run each command in its own process. A command that breaks or does not end in time is unknown, never a pass."""
    for shown in ALL:
        progress(f"{shown.title}: tidegauge {' '.join(shown.arguments)}")
        began = time.monotonic()
        command = [sys.executable, "-m", "tidegauge", *shown.arguments]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)
            code, summary = done.returncode, _last_object(done.stdout)
        except subprocess.TimeoutExpired:
            code, summary = -1, {"error": f"did not end within {TIMEOUT_S} s"}
        yield Demonstration(
            title=shown.title,
            command=f"tidegauge {' '.join(shown.arguments)}",
            verdict=VERDICT_OF_EXIT_CODE.get(code, RunVerdict.UNKNOWN),
            exit_code=code,
            seconds=time.monotonic() - began,
            folder=str(summary.get("folder", "")),
            summary=_plain(summary),
        )


def _last_object(text: str) -> dict[str, Any]:
    """The JSON object in the last line; a command without one gets an `error` entry."""
    lines = text.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        found = None
    if isinstance(found, dict):
        return cast(dict[str, Any], found)
    return {"error": "the command's last line is no JSON object"}


def _plain(summary: dict[str, Any]) -> dict[str, str]:
    plain = {name: str(value) for name, value in summary.items() if isinstance(value, (str, int, float, bool))}
    return dict([*plain.items()][:SHOWN_KEYS])
