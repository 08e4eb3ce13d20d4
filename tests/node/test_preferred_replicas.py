"""The replica that a leader names to a consumer of another rack: RackAwareReplicaSelector, case by case."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reference.node.preferred_replicas import preferred_replica
from reference.protocol.primitives import Offset, TimestampMs
from reference.replication.progress import Progress

NOW = TimestampMs(10_000)
BROKERS: Any = {
    1: SimpleNamespace(rack="a", fenced=False),
    2: SimpleNamespace(rack="b", fenced=False),
    3: SimpleNamespace(rack="b", fenced=False),
    4: SimpleNamespace(rack="c", fenced=True),
    5: SimpleNamespace(rack=None, fenced=False),
}


def progress(end: int, *, start: int = 0, caught_up: TimestampMs = NOW) -> Progress:
    return Progress(end=Offset(end), log_start=Offset(start), last_caught_up=caught_up)


@pytest.mark.parametrize(
    ("followers", "rack", "offset", "preferred"),
    [
        ({2: progress(10)}, "b", 5, 2),
        ({2: progress(10)}, "b", 10, 2),
        ({2: progress(10)}, "b", 11, None),  # it does not hold the offset yet
        ({2: progress(10, start=6)}, "b", 5, None),  # nor any more
        ({2: Progress()}, "b", 0, None),  # it has never fetched
        ({2: progress(10)}, "a", 5, None),  # the leader's own rack
        ({2: progress(10)}, "d", 5, None),
        ({4: progress(10)}, "c", 5, None),  # fenced
        ({5: progress(10)}, "", 5, None),
        ({6: progress(10)}, "b", 5, None),  # not registered
        ({2: progress(10), 3: progress(12)}, "b", 5, 3),
        ({2: progress(10, caught_up=NOW - 1), 3: progress(10, caught_up=NOW - 9)}, "b", 5, 2),
        ({2: progress(10), 3: progress(10)}, "b", 5, 3),
    ],
)
def test_the_follower_that_is_named(
    followers: dict[int, Progress], rack: str, offset: int, preferred: int | None
) -> None:
    partition: Any = SimpleNamespace(leading=SimpleNamespace(followers=followers), node=1)
    assert preferred_replica(partition, rack, Offset(offset), BROKERS, NOW) == preferred
    partition.leading = None
    assert preferred_replica(partition, rack, Offset(offset), BROKERS, NOW) is None
