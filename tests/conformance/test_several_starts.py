"""Groups of requirements with configurations of their own are judged on further starts of the target, side by side.

A target is started with the configurations that its release owes, and with no others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from conformance import session
from conformance.broker import Broker
from conformance.requirement import select
from conformance.results import Run, Verdict
from conformance.runner import Plan, run
from conformance.stalls import Stalls
from linearizability.targets import TargetError
from tests.conformance.mortal import Mortal, asks, entry, impatient, verdicts

__all__ = ["impatient"]  # a fixture


def test_groups_with_configurations_of_their_own_are_judged_on_further_starts_at_the_same_time(tmp_path: Path) -> None:
    """Each start has its own folder, all that was asked for has one verdict, and the basics come before any other start."""
    meeting = threading.Barrier(3, timeout=60)
    opened: list[tuple[str, dict[str, str]]] = []
    basics_at: list[int] = []

    @contextmanager
    def open_target(spec: str, *, folder: Path, config: dict[str, str], **_: Any) -> Iterator[Mortal]:
        opened.append((folder.name, config))
        target = Mortal(restartable=True)
        target.several = True
        yield target

    def meets(broker: Broker) -> None:
        broker.expect_served()
        meeting.wait()

    def basic(broker: Broker) -> None:
        broker.expect_served()
        basics_at.append(len(opened))

    special = [entry(f"PRD-0{n}", meets, needs={"configs": {"a": str(n)}}) for n in (1, 2)]
    entries = [entry("BAS-01", basic), entry("PRD-05", meets), *special]
    report = run(Plan("reference:1", entries, tmp_path, open_target=open_target))
    assert verdicts(report) == dict.fromkeys(("BAS-01", "PRD-01", "PRD-02", "PRD-05"), Verdict.PASS), report.reason
    assert basics_at == [1]
    assert sorted(name for name, _ in opened) == ["target-1", "target-2", "target-3"]
    assert sorted(config.get("a", "") for _, config in opened) == ["", "1", "2"]


def test_what_is_late_beside_other_starts_is_judged_again_when_they_are_done(tmp_path: Path) -> None:
    busy, done = threading.Event(), threading.Event()
    tries: list[tuple[str, bool]] = []

    @contextmanager
    def open_target(spec: str, **_: Any) -> Iterator[Mortal]:
        target = Mortal(restartable=True)
        target.several = True
        yield target

    def late(broker: Broker) -> None:
        broker.expect_served()
        assert busy.wait(60)
        tries.append((broker.requirement.id, done.is_set()))
        broker.eventually(done.is_set, "the other start is done", within_s=0.1)

    def long(broker: Broker) -> None:
        broker.expect_served()
        busy.set()
        threading.Event().wait(1.5)
        done.set()

    entries = [entry("BAS-01", asks), entry("PRD-01", late), entry("PRD-02", late, exclusive=True)]
    entries.append(entry("PRD-03", long, needs={"configs": {"a": "1"}}))
    report = run(Plan("reference:1", entries, tmp_path, open_target=open_target))
    assert set(verdicts(report).values()) == {Verdict.PASS}, report.reason
    assert tries[:2] == [("PRD-01", False), ("PRD-02", False)]
    assert sorted(tries[2:]) == [("PRD-01", True), ("PRD-02", True)]


@pytest.mark.parametrize("busy", [False, True])
def test_what_is_late_is_judged_again_alone_on_several_starts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    """On a busy machine a requirement that is late there, too, is judged a third time, when no other start runs."""
    meeting, tries = threading.Barrier(3, timeout=60), dict[str, list[str]]()

    def open_target(spec: str, *, folder: Path, **_: Any) -> Any:
        target = Mortal(restartable=True)
        target.several = True
        starts.append(folder.name)
        return nullcontext(target)

    def late(broker: Broker) -> None:
        broker.expect_served()
        tried = tries.setdefault(broker.requirement.id, [])
        tried.append(broker.target.bootstrap)
        if len(tried) == 2:
            meeting.wait()
            monkeypatch.setattr(Stalls, "look", lambda stalls: setattr(stalls, "is_busy", busy))
            threading.Event().wait(3 * session.MOMENT_S)
        broker.eventually(lambda: len(tried) > 2, "a third try", within_s=0.1)

    def beside(broker: Broker) -> None:
        broker.expect_served()
        threading.Event().wait(1.0)

    starts: list[str] = []
    monkeypatch.setattr(session, "MOMENT_S", 0.05)
    entries = [entry("BAS-01", asks), *(entry(f"PRD-0{n}", late) for n in (1, 2, 3))]
    entries.append(entry("PRD-04", beside, needs={"configs": {"a": "1"}}))
    report = run(Plan("reference:1", entries, tmp_path, open_target=open_target))
    wanted = Verdict.PASS if busy else Verdict.FAIL
    assert {id: verdict for id, verdict in verdicts(report).items() if id in tries} == dict.fromkeys(tries, wanted)
    assert {len(tried) for tried in tries.values()} == {3 if busy else 2}
    assert len({tried[1] for tried in tries.values()}) == 3


def test_what_a_further_start_cannot_judge_is_left_to_the_first(tmp_path: Path) -> None:
    starts: list[str] = []

    def open_target(spec: str, *, folder: Path, **_: Any) -> Any:
        starts.append(folder.name)
        if len(starts) == 2:
            raise TargetError("no room for a second one")
        target = Mortal(restartable=True)
        target.several = True
        return nullcontext(target)

    entries = [entry("BAS-01", asks), entry("PRD-01", asks, needs={"configs": {"a": "1"}})]
    report = run(Plan("reference:1", entries, tmp_path, open_target=open_target))
    assert verdicts(report) == {"BAS-01": Verdict.PASS, "PRD-01": Verdict.PASS}, report.reason
    assert len(starts) == 3


TOKENS = {"delegation.token.secret.key": "secret"}


def judged_without_tokens(folder: Path, version: str, *ids: str) -> Run:
    """A run on a broker that does not start with delegation tokens, as KRaft before Kafka 3.6."""

    def open_target(spec: str, *, config: dict[str, str], **_: Any) -> Any:
        if config.keys() & TOKENS.keys():
            raise TargetError("Delegation tokens are not supported")
        return nullcontext(Mortal(restartable=True))

    entries = [entry("BAS-01", asks), entry("SEC-20", asks, since="3.6", needs={"configs": TOKENS})]
    chosen = [each for each in entries if each.requirement.id in ids]
    return run(Plan(f"kafka:{version}", chosen, folder, open_target=open_target))


@pytest.mark.parametrize("ids", [("BAS-01", "SEC-20"), ("SEC-20",)])
def test_it_is_not_started_for_what_the_release_does_not_owe(tmp_path: Path, ids: tuple[str, ...]) -> None:
    report = judged_without_tokens(tmp_path, "3.4.1", *ids)
    wanted = {"BAS-01": Verdict.PASS, "SEC-20": Verdict.NOT_JUDGED}
    assert verdicts(report) == {id: wanted[id] for id in ids}
    assert report.judgements[-1].reason.startswith("owed since 3.6")


def test_it_is_started_for_what_the_release_owes(tmp_path: Path) -> None:
    report = judged_without_tokens(tmp_path, "3.6.2", "BAS-01", "SEC-20")
    assert "did not start" in report.reason


def test_what_one_start_has_switched_off_another_is_judged_for(tmp_path: Path) -> None:
    """The first start is for TOP-15, with delete.topic.enable=false; ACL-68 deletes a topic in the next one."""
    report = run(Plan("reference:1", select(["TOP-15", "ACL-68"]), tmp_path, starts=1))
    assert {judgement.requirement.id: judgement.reason for judgement in report.judgements} == {
        "TOP-15": "",
        "ACL-68": "",
    }
    assert verdicts(report) == dict.fromkeys(("TOP-15", "ACL-68"), Verdict.PASS)
