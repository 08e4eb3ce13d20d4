"""Random runs of a log, on both disks: the same ones in each run of the tests; the slow test draws many new ones."""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.health_checks import UNCHECKED
from tests.storage.disk_log_machines import PosixLogMachine, SimulatedLogMachine

RUNS = settings(stateful_step_count=50, deadline=None, derandomize=True, database=None, suppress_health_check=UNCHECKED)

TestSimulatedLog = SimulatedLogMachine.TestCase
TestSimulatedLog.settings = settings(RUNS, max_examples=400)
TestPosixLog = PosixLogMachine.TestCase
TestPosixLog.settings = settings(RUNS, max_examples=60)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_runs_drawn_again() -> None:
    run_state_machine_as_test(SimulatedLogMachine, settings=settings(RUNS, max_examples=10_000, derandomize=False))
