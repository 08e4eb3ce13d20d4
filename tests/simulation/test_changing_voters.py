"""Drawn runs in which an operator adds and removes voters while nodes fail (KIP-853)."""

from __future__ import annotations

from collections import Counter

import pytest
from pydantic import ValidationError

from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Fault, Schedule

SEEDS = (1, 5)


def test_runs_are_valid_and_voters_come_and_go() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        outcome, _ = run_schedule(draw(seed, None, 3, coordination="changing-voters"))
        assert outcome.verdict == "valid", outcome
        counts.update(outcome.counts)
    assert counts["answer operator remove-voter NONE"] > 2 and counts["answer operator add-voter NONE"] > 2, counts


def test_drawn_schedules_change_voters_and_begin_with_some_or_all() -> None:
    schedules = [draw(seed, None, 5, coordination="changing-voters") for seed in range(60)]
    assert {len(each.voters) for each in schedules} == {3, 4, 5}
    kinds = Counter(fault.kind for each in schedules for fault in each.faults)
    assert kinds["add-voter"] > 60 and kinds["remove-voter"] > 60
    assert all(
        any(fault.kind == "remove-voter" or fault.kind == "add-voter" for fault in each.faults) for each in schedules
    )


@pytest.mark.parametrize(
    ("nodes", "coordination", "said"),
    [(3, "kraft", "needs a cluster whose voters are in its log"), (1, "changing-voters", "has several nodes")],
)
def test_where_voters_do_not_change_they_cannot_be_changed(nodes: int, coordination: str, said: str) -> None:
    node = 0 if nodes == 1 else 2
    faults = (Fault(at_ms=1, kind="add-voter", node=node),) if coordination == "kraft" else ()
    with pytest.raises(ValidationError, match=said):
        Schedule.model_validate({"nodes": nodes, "coordination": coordination, "faults": faults})
