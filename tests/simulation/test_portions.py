"""Runs in which nodes work in small portions."""

from __future__ import annotations

from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.portions import SMALL, portions


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
