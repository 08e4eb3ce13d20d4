"""Lives of a log, on both disks: the same ones in every run of the tests.

Drawn anew, some lives fail: see what is open, in `reference/README.md`. What is drawn depends on the modules that are loaded
(Hypothesis takes constants from them), so they are lived in a process of their own.
"""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.storage.log_machine import PosixLogMachine, SimulatedLogMachine

MACHINES = {"simulated": (SimulatedLogMachine, 400), "posix": (PosixLogMachine, 60)}


def live(disk: str) -> None:
    """The lives on one disk. Errors: the first one's that fails, made small."""
    machine, lives = MACHINES[disk]
    chosen = settings(
        max_examples=lives, stateful_step_count=50, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.parametrize("disk", MACHINES)
def test_lives(disk: str) -> None:
    done = subprocess.run([sys.executable, "-m", __name__, disk], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    live(sys.argv[1])
