"""Hundreds of lives of one partition: no promise is broken, and each planted bug breaks one."""

from collections import Counter

import pytest

from spec.actions import ACTIONS
from tests.replication.planted import PLANTED, Plant
from tests.replication.promises import Broken
from tests.replication.world import World

STEPS = 1000
LIVES = 60
MOST_LIVES = 300
"""Within so many a planted bug must be found."""


def live(seed: int, **settings: object) -> World:
    """A whole incarnation, with its healing. Errors: Broken."""
    world = World(seed, **settings)  # type: ignore[arg-type]
    world.run(STEPS)
    world.heal()
    return world


def first_broken(**settings: object) -> str:
    """The promise that the first bad incarnation breaks."""
    for seed in range(MOST_LIVES):
        try:
            live(seed, **settings)
        except Broken as broken:
            return str(broken)
    raise AssertionError(f"nothing was found in {MOST_LIVES} lives")


@pytest.mark.step("replication", "Crash")
def test_no_promise_is_broken_and_all_runs_come_to_rest() -> None:
    counts: Counter[str] = Counter()
    for seed in range(LIVES):
        world = live(seed)
        assert world.is_at_rest, f"life {seed}"
        counts.update(world.counts)
        counts["acknowledged"] += len(world.promises.acknowledged)
    assert counts["acknowledged"] > 10 * LIVES
    by_world = {"Retry", "Consume", "ElectUncleanLeader"}
    by_world |= {"Reassign", "CallOffReassignment", "GiveUpReplica", "ChangeMinIsr", "LearnMinIsr"}
    assert {action.name for action in ACTIONS} - set(counts) == by_world


def test_the_same_seed_gives_the_same_run() -> None:
    assert live(7).rows == live(7).rows


@pytest.mark.parametrize("min_isr", [1, 3])
def test_other_sizes_of_the_isr(min_isr: int) -> None:
    """With one needed replica no tail may be lost; with three, two at a time."""
    for seed in range(20):
        assert live(seed, min_isr=min_isr).is_at_rest, f"life {seed}"


def test_truncation_to_the_high_watermark_loses_what_was_committed() -> None:
    promise = first_broken(truncation="high-watermark").partition(":")[0]
    assert promise in ("EligibleAreComplete", "LeaderCompleteness", "LogMatching", "CommittedLogsAgree")


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert first_broken()
