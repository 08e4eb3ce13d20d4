"""Small portions: a node does much of its work in portions, which a simulated cluster's few partitions never fill.

A real node loads groups, takes up replicas and elects leaders some at a time, and goes on when it is called again.
In a run with small portions it goes on after one or two, so that clients, faults and decisions come between them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType

from reference.controller import elections, metadata_log
from reference.coordinator import group_shard
from reference.node import active_controller, coordination, directory_assignments, replicas
from reference.storage import cleaner, cleaning, copying, making_durable, segment, upkeep_turns
from reference.zookeeper import writes

SMALL: tuple[tuple[ModuleType, str, int], ...] = (
    (active_controller, "RECORDS_IN_A_PART", 1),
    (coordination, "LOAD_BYTES", 2_000),
    (directory_assignments, "MOST_PARTITIONS", 1),
    (replicas, "TAKE_UPS_A_STEP", 1),
    (group_shard, "MAX_TOMBSTONES", 2),
    (elections, "MAX_ELECTIONS_AT_ONCE", 1),
    (metadata_log, "READ_BYTES", 500),
    (upkeep_turns, "LOGS_A_TURN", 2),
    (upkeep_turns, "OTHERS_A_TURN", 1),
    (copying, "COPY_BYTES", 500),
    (cleaner, "MAX_BYTES_PER_TICK", 2_000),
    (cleaning, "WRITE_BYTES", 500),
    (making_durable, "MOST_POSTPONED", 2),
    (segment, "SCAN_BYTES", 100),
    (writes, "MAX_WRITES", 2),
)
"""The constant of each portion, and its value in these runs. No other module imports one of them by name."""


@contextmanager
def portions(are_small: bool) -> Generator[None]:
    """Within it nodes work in small portions, if `are_small`."""
    usual = [(module, name, getattr(module, name)) for module, name, _ in SMALL]
    try:
        for module, name, value in SMALL if are_small else ():
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in usual:
            setattr(module, name, value)
