"""Transactional producers in the simulated world: a committed transaction is read as a whole, and none hangs."""

from typing import Literal

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import Outcome, run_schedule
from linearizability.simulation.schedule import Consumer, Fault, Schedule, Topic, Transactor
from reference.coordinator.transaction_coordinator import TransactionCoordinator

ORDERS = Topic(name="orders", partitions=2)
READER = Consumer(isolation="read_committed")


def outcome_of(*transactors: Transactor, faults: tuple[Fault, ...] = (), nodes: int = 1) -> Outcome:
    schedule = Schedule(
        seed=3, nodes=nodes, duration_ms=1_200, topics=(ORDERS,), clients=(*transactors, READER), faults=faults
    )
    outcome, _ = run_schedule(schedule)
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    return outcome


@pytest.mark.parametrize("version", [1, 2])
def test_transactions_are_committed_and_aborted(version: Literal[1, 2]):
    counts = outcome_of(Transactor(transactions=15, aborts_percent=50, pause_ms=20, version=version)).counts
    assert counts["answer EndTxn NONE"] >= 8
    assert bool(counts["answer AddPartitionsToTxn NONE"]) == (version == 1)
    assert counts["transactional sessions given up"], "some were left behind"


def test_two_of_one_id_fence_each_other_and_both_come_to_rest():
    counts = outcome_of(*(Transactor(id="same", transactions=10, pause_ms=20) for _ in range(2))).counts
    fenced = sum(
        count for name, count in counts.items() if "PRODUCER_FENCED" in name or "INVALID_PRODUCER_EPOCH" in name
    )
    assert fenced


def test_what_a_killed_coordinator_had_decided_is_carried_out():
    crash = Fault(at_ms=400, kind="crash", for_ms=100)
    assert outcome_of(Transactor(transactions=15, pause_ms=20), faults=(crash,)).counts["answer EndTxn NONE"] >= 8


def test_a_drawn_run_of_three_nodes():
    drawn = draw(16, None, 3, "transactions")
    assert drawn.transacts and drawn.contract(READER).isolation == "read_committed"
    outcome, _ = run_schedule(drawn)
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    assert outcome.counts["answer EndTxn NONE"] > 10


def test_a_transaction_that_is_not_decided_hangs(monkeypatch):
    deserters = (Transactor(aborts_percent=0), *(Transactor(transactions=1, aborts_percent=100) for _ in range(6)))
    assert outcome_of(*deserters).counts["transactional sessions given up"]
    monkeypatch.setattr(TransactionCoordinator, "timed_out", lambda coordinator, now: [])
    outcome, _ = run_schedule(Schedule(seed=3, duration_ms=1_200, topics=(ORDERS,), clients=(*deserters, READER)))
    assert outcome.rule == "hanging-transaction"


def test_what_is_left_behind_before_a_restart_with_the_clock_set_back_times_out_so_much_later():
    deserters = (Transactor(aborts_percent=0), *(Transactor(transactions=1, aborts_percent=100) for _ in range(6)))
    back = Fault(at_ms=600, kind="clock-jump", amount=-100_000)
    restart = Fault(at_ms=610, kind="crash", for_ms=20)
    assert outcome_of(*deserters, faults=(back, restart)).virtual_ms > 100_000


def test_a_run_in_which_nothing_was_committed_gets_a_last_transaction():
    outage = Fault(at_ms=1, kind="stop", for_ms=1_500)
    outcome = outcome_of(Transactor(transactions=1), faults=(outage,))
    assert outcome.counts["runs in which no transaction was committed before the end"] == 1
    assert outcome.verdict == "valid"


def test_a_run_in_which_nothing_was_acknowledged_gets_a_last_write():
    outcome = outcome_of()
    assert outcome.counts["runs in which nothing was acknowledged before the end"] == 1
    assert outcome.acknowledged
