"""The search in an index, on lists of any length; over all inputs of four slots it is confirmed (spec/PURE_RULES.md)."""

import importlib.util
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.storage.index_search import last_slot_up_to
from tests.health_checks import UNCHECKED

SYMBOLIC = pytest.param(
    "crosshair",
    25,
    marks=pytest.mark.skipif(
        importlib.util.find_spec("hypothesis_crosshair_provider") is None,
        reason="hypothesis-crosshair is not installed",
    ),
)


@pytest.mark.parametrize(("backend", "examples"), [("hypothesis", 100), SYMBOLIC])
def test_is_bisection(backend: str, examples: int) -> None:
    searched = 0

    @settings(backend=backend, max_examples=examples, suppress_health_check=UNCHECKED, database=None)
    @given(st.lists(st.integers(-5, 20)).map(sorted), st.integers(-6, 21))
    def agrees(keys: list[int], target: int) -> None:
        nonlocal searched
        assert last_slot_up_to(keys.__getitem__, len(keys), target) == bisect_right(keys, target) - 1
        searched += 1

    agrees()
    assert searched > 5


def test_looks_at_few_slots() -> None:
    looked: list[int] = []

    def key_at(slot: int) -> int:
        looked.append(slot)
        return slot * 10

    assert last_slot_up_to(key_at, 1_000_000, 123_456) == 12_345
    assert len(looked) <= 20
