"""A shard of ours does as Apache Kafka's group coordinator: classic and consumer groups, offsets, timers, loads of either's log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator.drawn_groups import STEPS, differences
from tests.coordinator.paired_groups import Kafka

RUNS = 75


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    kafka = Kafka()
    yield kafka
    kafka.close()


@pytest.mark.java
def test_groups_do_as_kafkas(kafka: Kafka) -> None:
    found = [*differences(kafka, range(RUNS), STEPS)]
    assert not found, f"{len(found)} of {RUNS} runs differ: " + "\n".join(found[:3])
