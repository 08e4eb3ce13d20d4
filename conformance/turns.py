"""The order of requirements on a start of the target, and the choice of the next one among those judged in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from conformance.plan import is_exclusive
from conformance.requirement import Entry
from conformance.results import Judgement, Verdict
from conformance.steps import STEPS
from conformance.target_profile import TargetProfile

BASICS = "BAS"
ROUND_TRIPS = "API-05"
"""Judged right after the basics: an API version that it finds unserved blocks the requirements that use it."""
DANGEROUS_AREAS = ("FRM",)
"""Areas whose requests may crash a broker."""
WAITING_AREAS = ("GRP", "OFF", "GAD", "TXV")
"""Areas that mostly wait, on a target whose coordinator delays joins for long."""
WAITING_JOBS = 24
"""How many requirements of these areas run in parallel on such a target, in addition to `jobs` others."""


def phases(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry], list[Entry], list[Entry]]:
    """The requirements to judge first, in parallel, alone, and last, as they may crash the target."""
    first = [e for e in entries if e.requirement.area == BASICS or e.requirement.id in STEPS | {ROUND_TRIPS}]
    first.sort(key=lambda entry: entry.requirement.area != BASICS)
    last = [e for e in entries if e.requirement.area in DANGEROUS_AREAS and e not in first]
    alone = [e for e in entries if is_exclusive(e) and e not in first + last]
    beside = [e for e in entries if e not in first + last + alone]
    return first, beside, alone, last


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


def is_disturbed(judgement: Judgement, verdicts: Mapping[str, Judgement]) -> bool:
    """Whether a requirement failed in a step of another one that holds."""
    step = verdicts.get(judgement.built_on)
    held = step is not None and step.verdict in (Verdict.PASS, Verdict.TOLERATED)
    return judgement.verdict is Verdict.FAIL and held and judgement.built_on != judgement.requirement.id
