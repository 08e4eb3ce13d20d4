"""Which requirement is judged next, of those that are judged side by side."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.requirement import Entry
from conformance.target_profile import TargetProfile

WAITING_AREAS = ("GRP", "OFF", "GAD", "TXV")
"""Areas that mostly wait, on a target whose coordinator delays joins for long."""
WAITING_JOBS = 24
"""How many requirements of these areas run in parallel on such a target, in addition to `jobs` others."""


def next_ready(waiting: Iterable[Entry], running: Iterable[Entry], jobs: int, target: TargetProfile) -> Entry | None:
    """The next requirement with a free thread and no running prerequisite; None where there is none."""
    under_way = {one.requirement.id: one for one in running}
    slow = sum(mostly_waits(one, target) for one in under_way.values())
    full = {True: slow >= WAITING_JOBS, False: len(under_way) - slow >= jobs}
    for entry in waiting:
        if not full[mostly_waits(entry, target)] and not under_way.keys() & set(entry.requirement.prerequisites):
            return entry
    return None


def mostly_waits(entry: Entry, target: TargetProfile) -> bool:
    """Whether the requirement mostly waits for joins on this target."""
    return target.patience > 1 and entry.requirement.area in WAITING_AREAS
