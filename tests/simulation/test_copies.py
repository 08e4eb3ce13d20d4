"""Copiers in the simulated world: each consumed record is produced exactly once, even if a copier dies, stalls or is fenced."""

from collections import Counter
from typing import Any

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import Outcome, run_schedule
from linearizability.simulation.schedule import Copier, Fault, Member, Producer, Schedule, Topic
from reference.coordinator.offsets import Offsets

ORDERS = Topic(name="orders", partitions=3)
COPIES = Topic(name="copies", partitions=2, is_output=True)
WRITER = Producer(batches=40, pause_ms=20)


def outcome_of(*copiers: Member, seed: int = 5, nodes: int = 1, duration_ms: int = 1_000, **more: Any) -> Outcome:
    clients, topics = (WRITER, *copiers), (ORDERS, COPIES)
    schedule = Schedule(seed=seed, nodes=nodes, duration_ms=duration_ms, topics=topics, clients=clients, **more)
    return run_schedule(schedule)[0]


def copied(*copiers: Member, **more: Any) -> Counter[str]:
    outcome = outcome_of(*copiers, **more)
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")
    assert outcome.counts["copied records"] >= outcome.acknowledged > 50
    return outcome.counts


def quiet(**changes: Any) -> Copier:
    return Copier(faults_percent=0, aborts_percent=0, pause_ms=10).model_copy(update=changes)


@pytest.mark.parametrize("version", [1, 2])
def test_all_is_copied(version: int):
    counts = copied(quiet(version=version), quiet(version=version, aborts_percent=30))
    assert bool(counts["answer AddOffsetsToTxn NONE"]) == (version == 1)
    assert counts["answer EndTxn NONE"] > 10 and not counts["answer OffsetCommit NONE"]


def test_copiers_that_die_leave_and_stall_are_replaced():
    unlucky = Copier(faults_percent=15, session_timeout_ms=200, pause_ms=5)
    counts = copied(unlucky, unlucky, unlucky)
    assert counts["member's death"] and counts["member's departure"] and counts["member's stall"]


def test_two_of_one_transactional_id_fence_each_other():
    assert copied(quiet(id="same"), quiet(id="same"))["copiers' sessions lost"]


def test_a_coordinator_of_transactions_that_is_cut_off_is_succeeded():
    cut = Fault(at_ms=400, kind="cut", role="transaction-coordinator", node=1, for_ms=1_000)
    counts = copied(quiet(), quiet(version=1), faults=(cut,), nodes=3)
    assert counts["fault cut"] == 1


def test_a_drawn_run_injects_faults_into_both_coordinators():
    faults = [fault for seed in range(30) for fault in draw(seed, None, 3, "copy").faults]
    assert {"coordinator", "transaction-coordinator"} <= {fault.role for fault in faults}
    drawn = draw(3, None, 1, "copy")
    assert drawn.transacts and drawn.has_groups and drawn.topics[-1].is_output
    assert run_schedule(drawn)[0].verdict == "valid"


def test_the_same_copiers_leave_the_same_trace():
    first, again = (outcome_of(quiet(), quiet()) for _ in range(2))
    assert first.digest == again.digest


def test_offsets_returned_before_their_transaction_is_decided_are_copied_twice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Offsets, "is_unstable", lambda *_: False)
    unlucky = quiet(faults_percent=30, session_timeout_ms=200, rebalance_timeout_ms=250, pause_ms=5)
    outcomes = (outcome_of(unlucky, unlucky, unlucky, seed=seed, duration_ms=3_000) for seed in range(8))
    assert any("exactly-once" in outcome.rule for outcome in outcomes)
