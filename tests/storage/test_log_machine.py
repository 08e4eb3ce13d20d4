"""Lives of a log, on both disks: the same ones in every run of the tests.

Drawn anew, some lives fail: see what is open, in `reference/README.md`.
"""

from hypothesis import HealthCheck, settings

from tests.storage.log_machine import PosixLogMachine, SimulatedLogMachine

LIVES = settings(
    max_examples=200, derandomize=True, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)

TestSimulatedLog = SimulatedLogMachine.TestCase
TestSimulatedLog.settings = settings(LIVES, max_examples=400)
TestPosixLog = PosixLogMachine.TestCase
TestPosixLog.settings = settings(LIVES, max_examples=60)
