"""A coordinator that agrees to everything fails each requirement on groups, but for those listed here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import conformance.classic_groups
import conformance.cluster
import conformance.consumers
import conformance.requirements.group_departures
from conformance import conversation, observations
from conformance.host import addresses
from conformance.judging import HASTENING, judge
from conformance.requirement import Entry, catalogue
from conformance.results import Verdict
from conformance.subject import Subject
from tests.conformance.agreeable import Agreeable
from tests.conformance.test_can_fail import WAIT_S, hooks_of_all

AREAS = ("GRP", "OFF", "CGH", "GAD")
MET_BY_AGREEING = {
    "GRP-03",
    "GRP-25",
    "GRP-45",
    "GRP-46",
    "OFF-02",
    "OFF-12",
    "OFF-20",
    "OFF-21",
    "OFF-23",
    "OFF-32",
    "CGH-06",
    "CGH-41",
    "GAD-13",
}
"""Requirements that pass, because this coordinator assigns ids, stores offsets and repeats assignments. They fail on brokers of
`test_can_fail`."""
UNDECIDED = {"GRP-36": "who says nothing is a member for"}
"""Requirement that cannot be judged, because this coordinator removes no silent member -> how the reason begins."""
BUSY = {"GRP-27"}
"""Requirements that send thousands of requests before they fail."""
KEPT_ALIVE_S = {"OFF-15": 9.0}
"""Requirement that first keeps members alive for some seconds -> the time within which it fails."""
TESTED = [
    entry
    for entry in catalogue().values()
    if entry.test and entry.requirement.area in AREAS and entry.requirement.needs.nodes == 1
]
"""Those of several nodes are judged where nothing is replicated, by `test_can_fail`."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten all waits: this coordinator's state does not change later."""
    for module in (conversation, observations):
        monkeypatch.setattr(module, "READY_WITHIN_S", WAIT_S)
    monkeypatch.setattr(conformance.cluster, "STATE_WITHIN_S", WAIT_S)
    monkeypatch.setattr(conformance.cluster, "WHOLE_WITHIN_S", WAIT_S)
    monkeypatch.setattr(conformance.classic_groups, "HELD_S", WAIT_S)
    monkeypatch.setattr(conformance.consumers, "SETTLED_WITHIN_S", WAIT_S)
    monkeypatch.setattr(conformance.requirements.group_departures, "LOOKED_AT_S", (WAIT_S,))


@pytest.fixture(scope="module")
def coordinator() -> Iterator[Agreeable]:
    bird = Agreeable()
    yield bird
    bird.close()


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("entry", TESTED, ids=lambda entry: entry.requirement.id)
def test_agreeing_to_everything_is_not_enough(entry: Entry, coordinator: Agreeable) -> None:
    met, undecided = entry.requirement.id in MET_BY_AGREEING, UNDECIDED.get(entry.requirement.id)
    # What is met ends by itself, however busy the machine is; what waits for something else than agreement is cut off.
    ends = met or undecided or entry.requirement.id in BUSY
    hurried = entry.requirement.model_copy(
        update={"deadline_s": 30.0 if ends else KEPT_ALIVE_S.get(entry.requirement.id, 1.0)}
    )
    subject = Subject(
        addresses(coordinator.bootstrap), "4.3.1", coordinator.ranges(), hooks_of_all(), honoured=frozenset(HASTENING)
    )
    for patience in (1, 4, 16):  # on a busy machine the first requests may take all of its time, which is no verdict
        judgement = judge(Entry(requirement=hurried, test=entry.test), subject, patience=patience)
        if not judgement.reason.startswith("needs more than"):
            break
    wanted = (Verdict.PASS, Verdict.TOLERATED) if met else (Verdict.NOT_JUDGED if undecided else Verdict.FAIL,)
    assert judgement.verdict in wanted, f"{judgement.verdict}: {judgement.reason} {judgement.traceback}"
    assert undecided is None or judgement.reason.startswith(undecided)
