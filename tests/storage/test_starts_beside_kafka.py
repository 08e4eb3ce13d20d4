"""A start on damaged or stale files does no more harm than that of Apache Kafka's `LogManager`."""

import pytest

from tests.storage.drawn_starts import differences

FOLDERS = 150


@pytest.mark.java
def test_starts_do_no_more_harm_than_kafkas() -> None:
    found = [*differences(range(FOLDERS))]
    assert not found, f"{len(found)} differences: " + "\n".join(found[:3])
