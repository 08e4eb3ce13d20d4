"""The checks agree with the definitions on random histories: a sample here, 100,000 under `make test-slow`."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linearizability.history.paired import derive_events
from linearizability.pipeline.engine import judge_history
from tests.rules.definitions import COMPARED, anomalies
from tests.rules.random_histories import random_history


def compare(seed: int) -> set[str]:
    rng = Random(seed)
    events = random_history(rng, lies=rng.choice([0.0, 0.05, 0.2, 0.5]))
    history = derive_events(str(seed), events)
    assert not history.defects
    ours = judge_history(history).anomalies
    expected = anomalies(events)
    for rule in COMPARED:
        assert ours.get(rule, 0) == expected[rule], (seed, rule, ours, expected, events)
    return set(ours)


def test_a_sample() -> None:
    found: set[str] = set()
    for seed in range(1500):
        found |= compare(seed)
    assert found >= set(COMPARED) - {"future-read"}  # the sample is not blind: it meets nearly every rule


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand() -> None:
    for seed in range(100_000):
        compare(10_000 + seed)


@settings(max_examples=100, deadline=None)
@given(st.integers(1 << 32, 1 << 62))
def test_any_seed(seed: int) -> None:
    compare(seed)
