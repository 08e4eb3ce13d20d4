"""Fault patterns: each one draws schedules, and detects the bugs that need it."""

from typing import Any

import pytest

from linearizability.mutants.registry import MUTANTS, planted
from linearizability.simulation.choices import SeededChoices
from linearizability.simulation.drawing_patterns import PATTERNS, FaultPatterns
from linearizability.simulation.judging import Outcome, run_schedule
from linearizability.simulation.schedule import Fault, Producer, Schedule, Topic

ORDERS = Topic(name="orders", configs={"min.insync.replicas": "2"})
APART_MS = 2_500


def played(pattern: str, seed: int, mutant: str | None = None) -> Schedule:
    """One pattern, twice, in a run of one partition and one producer."""
    patterns = FaultPatterns(SeededChoices(seed), 3, [ORDERS])
    faults = [fault for at_ms in (100, 100 + APART_MS) for fault in patterns.draw(pattern, at_ms)]
    producer = Producer(batches=200, records=1, pause_ms=12)
    return Schedule(
        seed=seed,
        mutant=mutant,
        nodes=3,
        duration_ms=2 * APART_MS,
        topics=(ORDERS,),
        clients=(producer,),
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ms)),
    )


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_draws_schedules_that_survive_their_files(pattern: str):
    drawn = [played(pattern, seed).model_copy(update={"seed": 0}) for seed in range(50)]
    assert all(Schedule.model_validate_json(each.to_json()) == each for each in drawn)
    assert len({each.to_json() for each in drawn}) > 25, "much is left to chance"


@pytest.mark.sampled(days=3)
@pytest.mark.parametrize("pattern", ["last one standing", "contested election", "late slices"])
def test_a_pattern_costs_no_promise(pattern: str):
    outcome, _ = run_schedule(played(pattern, 0))
    assert (outcome.verdict, outcome.rule) == ("valid", ""), outcome.text


FOUND_BY = {
    "kip-966": ("last one standing", 0),
    "kip-279": ("there and back", 0),
    "fenced-broker-admitted": ("late word", 205),
    "kip-903": ("words held up", 174),
    "stale-proposal-rolled-back": ("words held up", 13),
    "newer-epochs-appended": ("late slices", 0),
}
"""Mutant -> the pattern that finds it, and a seed from which on few runs are needed."""
MOST_RUNS = 60


DETECTED_BY = {
    "kip-903": ("late succession", 109),
    "stale-proposal-rolled-back": ("late succession", 200),
}
"""Mutant -> the pattern that makes it visible to clients, and a seed as above."""


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("mutant", FOUND_BY)
def test_a_bug_is_found_by_the_pattern_that_leads_to_it(mutant: str):
    assert MUTANTS[mutant].is_found_by(_found(mutant, *FOUND_BY[mutant], by_history=False).rule)


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("mutant", DETECTED_BY)
def test_a_bug_is_found_by_histories_alone_where_a_pattern_goes_on_to_the_loss(mutant: str):
    detected = _found(mutant, *DETECTED_BY[mutant], by_history=True)
    assert detected.judgement is not None and "lost-write" in detected.rule


def _found(mutant: str, pattern: str, first: int, by_history: bool) -> Outcome:
    with planted(mutant):
        for seed in range(first, first + MOST_RUNS):
            outcome, _ = run_schedule(played(pattern, seed), by_history=by_history)
            if outcome.verdict == "invalid":
                return outcome
    pytest.fail(f"not found in {MOST_RUNS} runs")


def test_a_cut_between_the_two_nodes_of_a_step_affects_no_third():
    """The leader proposes a follower and is then cut off from it; the third replica stays in sync."""
    crash = Fault(at_ms=300, kind="crash", node=3, for_ms=100)
    cut = Fault(at_ms=500, after="ExpandIsr", kind="cut", role="between", for_ms=1_500)
    outcome, _ = run_schedule(played("blackout", 0).model_copy(update={"faults": (crash, cut)}))
    assert outcome.verdict == "valid"
    assert outcome.counts["fault cut"] == 1 and outcome.counts["action ShrinkIsr"] >= 1


def test_a_bystander_neither_leads_nor_decides():
    """Leadership moves to bystanders twice, and a third bystander is crashed: never the leader or the controller."""
    moves = [
        Fault(at_ms=at_ms, kind="lead", role="bystander", topic="orders", others=(1, 2, 3)) for at_ms in (300, 900)
    ]
    crash = Fault(at_ms=1_500, kind="crash", role="bystander", topic="orders", for_ms=100)
    rows: list[dict[str, Any]] = []
    outcome, _ = run_schedule(played("blackout", 0).model_copy(update={"faults": (*moves, crash)}), rows=rows)
    assert outcome.verdict == "valid"
    leaders = [row["node"] for row in rows if row["action"] == "BecomeLeader" and row["partition"] == "orders-0"]
    controller = next(row["node"] for row in rows if row["action"] == "RegisterBroker")
    assert len(leaders) >= 3 and controller not in leaders[1:3]
    injected = next(row["node"] for row in rows if row["action"] == "Restart" and row["partition"] == "orders-0")
    assert injected not in (controller, leaders[2])
