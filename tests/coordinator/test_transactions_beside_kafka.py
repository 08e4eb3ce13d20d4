"""Transactions of ours do as with Apache Kafka's coordinator: sessions, ends, markers, expiry, failovers with either's log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator.drawn_transactions import STEPS, differences
from tests.coordinator.paired_groups import Kafka
from tests.coordinator.paired_transactions import SOURCE

RUNS = 100


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    kafka = Kafka(SOURCE)
    yield kafka
    kafka.close()


@pytest.mark.java
def test_transactions_do_as_kafkas(kafka: Kafka) -> None:
    found = [*differences(kafka, range(RUNS), STEPS)]
    assert not found, f"{len(found)} of {RUNS} runs differ: " + "\n".join(found[:3])
