"""Random lives of a log, on both disks."""

from hypothesis import HealthCheck, settings

from tests.storage.log_machine import PosixLogMachine, SimulatedLogMachine

LIVES = settings(stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))

TestSimulatedLog = SimulatedLogMachine.TestCase
TestSimulatedLog.settings = settings(LIVES, max_examples=400)
TestPosixLog = PosixLogMachine.TestCase
TestPosixLog.settings = settings(LIVES, max_examples=60)
