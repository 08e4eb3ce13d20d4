"""Kafka and the reference take and refuse damaged requests alike."""

from pathlib import Path

import pytest

from tests.targets.drawn_damage import compared

pytestmark = [pytest.mark.process, pytest.mark.kafka]
REQUESTS = 150


@pytest.mark.parametrize("seed", [10])
def test_damaged_requests_are_taken_alike(tmp_path: Path, seed: int) -> None:
    """What differs once, and not when both have more time to settle, is a slow machine's."""
    found = compared(tmp_path / "first", seed, REQUESTS)
    if found:
        again = compared(tmp_path / "again", seed, REQUESTS, settles_in_s=2.0)
        found = [each for each in found if each in again]
    assert not found, "\n".join(found)
