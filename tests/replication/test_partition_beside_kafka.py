"""A partition of ours does as Apache Kafka's `Partition`: roles, ISR, high watermark, fetches, deletions, offsets."""

import pytest

from tests.replication.drawn_partitions import STEPS, differences, drawn, is_comparable

PARTITIONS = 80
SAMPLE = 8


@pytest.mark.java
def test_partitions_do_as_kafkas() -> None:
    found = [*differences(range(PARTITIONS), STEPS)]
    assert not found, f"{len(found)} of {PARTITIONS} partitions differ: " + "\n".join(found[:3])


def test_most_drawn_partitions_are_compared_to_their_end() -> None:
    """A comparison ends at the first step after which Kafka's state differs in a known way."""
    states = [[each for each in drawn(seed, STEPS).ours if each is not None] for seed in range(SAMPLE)]
    assert min(map(len, states)) > STEPS // 2
    assert sum(all(map(is_comparable, each)) for each in states) > SAMPLE // 2
