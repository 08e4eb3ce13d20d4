"""Kafka and the reference take and refuse the same changes of settings."""

from pathlib import Path

import pytest

from tests.targets.drawn_settings import compared

pytestmark = [pytest.mark.process, pytest.mark.kafka]
SEEDS = 2
"""Drawn on one pair of brokers."""


def test_each_value_of_each_setting(tmp_path: Path) -> None:
    found = compared(tmp_path, [], each=True)
    assert not found, "\n".join(found)


@pytest.mark.sampled(days=7)
@pytest.mark.parametrize("first", range(0, 14, SEEDS))
def test_settings_that_meet_each_other(tmp_path: Path, first: int) -> None:
    found = compared(tmp_path, range(first, first + SEEDS), each=False)
    assert not found, "\n".join(found)
