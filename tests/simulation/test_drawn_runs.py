"""Drawn runs of the unchanged nodes, of each workload beside each coordination: none breaks a promise.

The seeds are fixed. They are few, and find what breaks one run in ten or more; `fuzz` and `fuzz campaign` look for the rest. Some
runs change voters (KIP-853), in others nodes work in small portions.
"""

from __future__ import annotations

from collections import Counter

import pytest
from pydantic import ValidationError

from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.portions import SMALL, portions
from linearizability.simulation.schedule import Fault, Schedule

WORKLOADS = ("records", "transactions", "groups", "copy")
CLUSTERS = {("kraft", 3): 5, ("kraft", 1): 2, ("zookeeper", 3): 2, ("changing-voters", 3): 2}
"""(coordination, number of nodes) -> number of seeds of each workload."""


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(
    ("coordination", "nodes", "seed"),
    [(*cluster, seed) for cluster, seeds in CLUSTERS.items() for seed in range(seeds)],
)
def test_no_promise_is_broken(coordination: str, nodes: int, seed: int, workload: str) -> None:
    outcome, _ = run_schedule(draw(seed, None, nodes, workload, coordination))
    assert (outcome.verdict, outcome.rule, outcome.text) == ("valid", "", "")


def test_portions_are_smaller_within_a_run_and_as_before_after_it() -> None:
    usual = [getattr(module, name) for module, name, _ in SMALL]
    with portions(True):
        assert [getattr(module, name) for module, name, _ in SMALL] == [small for _, _, small in SMALL]
    with portions(False):
        assert [getattr(module, name) for module, name, _ in SMALL] == usual
    assert all(small < before for (_, _, small), before in zip(SMALL, usual, strict=True))


def test_some_rare_schedules_have_them_and_keep_every_promise() -> None:
    drawn = {seed for seed in range(60) if draw(seed, None, 3).small_portions}
    assert 3 <= len(drawn) <= 20 and all(seed % 5 >= 3 for seed in drawn)
    outcome, _ = run_schedule(draw(min(drawn), None, 3))
    assert (outcome.verdict, outcome.text) == ("valid", "")


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
