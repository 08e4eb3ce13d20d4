"""Each requirement can fail: it is judged on brokers that are wrong on purpose, and must fail on at least one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

import conformance.classic_groups
import conformance.cluster
import conformance.consumers
from conformance import conversation, observations
from conformance.host import addresses
from conformance.judging import HASTENING, judge
from conformance.requirement import Entry, catalogue
from conformance.requirements import framing
from conformance.results import Verdict
from conformance.subject import Subject
from linearizability.targets import AddressMap
from reference.protocol.apis import APIS
from tests.conformance.parrot import Flock, Parrot

WAIT_S = 0.15
"""The suite's wait here for a close or a state: a wrong broker's state does not change later."""


class Echoing(Parrot):
    """Answers with another correlation id than the request has."""

    def _answer(self, payload: memoryview) -> bytes:
        answer = super()._answer(payload)
        return answer[:4] + struct.pack(">i", struct.unpack_from(">i", answer, 4)[0] ^ 1) + answer[8:]


class Unclosing(Parrot):
    """Answers what it cannot read with an empty response instead of closing, and closes after what it can."""

    def _answer(self, payload: memoryview) -> bytes:
        try:
            super()._answer(payload)
        except (ValueError, struct.error, LookupError):
            return struct.pack(">ii", 4, 0)
        raise ValueError("hangs up on everything valid")


class Outdated(Parrot):
    """Serves only the lowest version of everything."""

    def ranges(self) -> dict[int, tuple[int, int]]:
        return {key: (lowest, lowest) for key, (lowest, _) in super().ranges().items()}


class Aged(Parrot):
    """Serves the versions before Kafka 4 too."""

    def ranges(self) -> dict[int, tuple[int, int]]:
        return {key: (APIS[key].request.VERSIONS.lowest, highest) for key, (_, highest) in super().ranges().items()}


BIRDS: tuple[type[Parrot], ...] = (Parrot, Echoing, Unclosing, Outdated, Aged)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong brokers need no long waits."""
    for module in (conversation, framing):
        monkeypatch.setattr(module, "CLOSED_WITHIN_S", WAIT_S)
    for module in (conversation, observations):
        monkeypatch.setattr(module, "READY_WITHIN_S", WAIT_S)
    monkeypatch.setattr(conformance.cluster, "STATE_WITHIN_S", WAIT_S)
    monkeypatch.setattr(conformance.cluster, "WHOLE_WITHIN_S", WAIT_S)
    monkeypatch.setattr(conformance.classic_groups, "HELD_S", WAIT_S)
    monkeypatch.setattr(conformance.consumers, "SETTLED_WITHIN_S", WAIT_S)


@pytest.fixture(scope="module")
def birds() -> Iterator[list[Parrot]]:
    made = [kind() for kind in BIRDS]
    yield made
    for bird in made:
        bird.close()


def subject_of(bird: Parrot) -> Subject:
    """The bird as the suite sees it."""
    return Subject(addresses(bird.bootstrap), "4.3.1", bird.ranges(), hooks_of_all(), honoured=frozenset(HASTENING))


def hooks_of_all() -> Any:
    """A target that offers every hook and does nothing."""

    class Hooks:
        hooks = ("kill", "restart", "pause", "resume", "stop", "start", "partition", "heal", "power-loss", "config")
        addresses = AddressMap()
        security = None

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: None

    return Hooks()


@pytest.fixture(scope="module")
def flock() -> Iterator[Flock]:
    bird = Flock()
    yield bird
    bird.close()


TESTED = [entry for entry in catalogue().values() if entry.test and entry.requirement.area != "HIS"]
"""Histories are judged from what clients saw, in `test_histories_can_fail`."""


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("entry", TESTED, ids=lambda entry: entry.requirement.id)
def test_no_requirement_passes_on_every_wrong_broker(entry: Entry, birds: list[Parrot]) -> None:
    hurried = entry.requirement.model_copy(update={"deadline_s": 3.0})
    verdicts = {}
    for bird in birds:
        judgement = judge(Entry(requirement=hurried, test=entry.test), subject_of(bird))
        assert judgement.verdict is not Verdict.ENGINE_ERROR, judgement.traceback
        verdicts[type(bird).__name__] = judgement.verdict
        if judgement.verdict is Verdict.FAIL:
            return
    pytest.fail(f"{entry.requirement.id} fails on none of the wrong brokers: {verdicts}")


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize(
    "entry", [entry for entry in TESTED if entry.requirement.needs.nodes > 1], ids=lambda entry: entry.requirement.id
)
def test_no_requirement_of_several_nodes_passes_where_nothing_is_replicated(entry: Entry, flock: Flock) -> None:
    hurried = entry.requirement.model_copy(update={"deadline_s": 3.0})
    subject = Subject(
        addresses(flock.bootstrap), "4.3.1", flock.ranges(), hooks_of_all(), nodes=3, honoured=frozenset(HASTENING)
    )
    for _ in range(3):  # on a busy machine its time may end within a wait that has only begun, which is no verdict
        judgement = judge(Entry(requirement=hurried, test=entry.test), subject)
        if not judgement.reason.startswith("needs more than"):
            break
    assert judgement.verdict is Verdict.FAIL, f"{judgement.verdict}: {judgement.reason} {judgement.traceback}"
    assert "Metadata reports" not in judgement.reason, "it failed for lack of brokers, not for what it judges"
