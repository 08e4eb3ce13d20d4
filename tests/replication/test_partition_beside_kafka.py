"""A partition of ours does as Apache Kafka's `Partition`: roles, ISR, high watermark, fetches, deletions, offsets."""

import pytest

from tests.replication.drawn_partitions import STEPS, differences

PARTITIONS = 80


@pytest.mark.java
def test_partitions_do_as_kafkas() -> None:
    found = [*differences(range(PARTITIONS), STEPS)]
    assert not found, f"{len(found)} of {PARTITIONS} partitions differ: " + "\n".join(found[:3])
