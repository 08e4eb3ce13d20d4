"""Commits transactions on a healed cluster whose producers committed none under faults."""

from __future__ import annotations

from collections.abc import Callable

from linearizability.simulation.client import SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.schedule import Client, Transactor
from linearizability.simulation.transacting import SimulatedTransactor
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation

TRANSACTIONS = 5
"""Transactions to try: a leader may change meanwhile."""


def commit_transactions(
    cluster: SimulatedCluster, add_client: Callable[[Client], SimulatedClient], bound_ms: int
) -> None:
    """Commit a transaction of each version of which the schedule's producers committed none. Errors: Violation."""
    world = cluster.world
    plans = {plan.version: plan for plan in cluster.schedule.clients if isinstance(plan, Transactor)}
    transactors = [client for client in cluster.clients if isinstance(client, SimulatedTransactor)]
    done = {client.plan.version for client in transactors if client.committed}
    for version in sorted({*plans} - done):
        cluster.is_over = False
        world.counts["runs in which no transaction was committed before the end"] += 1
        changes = {"id": "", "transactions": TRANSACTIONS, "aborts_percent": 0, "pause_ms": 1}
        transactor = add_client(plans[version].model_copy(update=changes))
        assert isinstance(transactor, SimulatedTransactor)
        world.run(world.now_us + bound_ms * MICROSECONDS_A_MS, lambda client=transactor: client.finished)
        cluster.is_over = True
        if not transactor.committed and not cluster.promises.is_forgetful:
            text = f"of {TRANSACTIONS} transactions of version {version} none is committed, and all is healed"
            raise Violation("no-transaction-committed", text)
