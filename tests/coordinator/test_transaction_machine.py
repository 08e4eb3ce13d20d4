"""Random runs of transactions: never two outcomes, no prepared transaction without its markers, no zombie's write."""

from hypothesis import HealthCheck, settings

from tests.coordinator.transaction_machine import TransactionMachine

TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
