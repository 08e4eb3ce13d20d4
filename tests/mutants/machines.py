"""Searches for a planted bug with its state machine, and prints how many runs that took.

    python -m tests.mutants.machines NAME [RUNS]

The bug is planted before the machine is imported, so that functions which the machine imports by name have it too.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any, NamedTuple

from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from linearizability.mutants.registry import MUTANTS, planted
from tests.health_checks import UNCHECKED

STEPS = 50
SEED = 1


class Find(NamedTuple):
    """The result of a search."""

    runs: int
    seconds: float
    """CPU seconds."""
    what: str
    """The class of the error that showed the bug; empty if none did."""


def look_for(name: str, most: int) -> Find:
    """Run the mutant's machine until it fails, at most `most` times. Each call does the same runs."""
    began, runs = time.process_time(), 0
    with planted(name):
        module, _, machine = MUTANTS[name].machine.partition(":")
        origin: type[Any] = getattr(importlib.import_module(module), machine)

        class Counted(origin):
            _hypothesis_internal_use_seed = SEED

            def __init__(self) -> None:
                nonlocal runs
                runs += 1
                super().__init__()

        chosen = settings(
            max_examples=most,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=UNCHECKED,
        )
        what = ""
        try:
            run_state_machine_as_test(Counted, settings=chosen)
        except Exception as error:
            what = type(error).__name__
    return Find(runs, round(time.process_time() - began, 1), what)


if __name__ == "__main__":
    print(json.dumps({"mutant": sys.argv[1], **look_for(sys.argv[1], int((sys.argv[2:] or ["1000"])[0]))._asdict()}))
