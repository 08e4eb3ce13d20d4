"""A broker of ours applies metadata and fetches as Apache Kafka's `ReplicaManager` and `ReplicaFetcherThread`."""

import pytest

from tests.replication.drawn_followers import STEPS, differences

BROKERS = 12


@pytest.mark.java
def test_followers_do_as_kafkas() -> None:
    found = [*differences(range(BROKERS), STEPS)]
    assert not found, f"{len(found)} of {BROKERS} brokers differ: " + "\n".join(found[:3])
