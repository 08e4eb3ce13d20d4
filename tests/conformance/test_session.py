"""How requirements are judged together: a test that ends the target fails, what builds on what, side by side, interruption."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from conformance import requirement, runner, session
from conformance.broker import Broker
from conformance.levels import MAY
from conformance.requirement import Entry, Needs, Requirement
from conformance.results import Judgement, RunVerdict, Verdict
from conformance.steps import built_on, directly
from conformance.waits import Wait
from conformance.wire import Failed
from tests.conformance.mortal import DEADLY, Mortal, asks, entry, fails, impatient, judged_on, verdicts

__all__ = ["impatient"]  # a fixture


def test_a_death_fails_the_run_at_any_level(tmp_path: Path) -> None:
    target = Mortal(restartable=True)

    def deadly(broker: Broker) -> None:
        broker.expect_served()
        target.die()

    record = Requirement(id="FRM-06", level=MAY, sentence="A sentence of its own.", source="a test")
    report = judged_on(target, tmp_path, entry("API-01", asks), Entry(requirement=record, test=deadly))
    assert (report.verdict, report.reason) == (RunVerdict.FAIL, "the target does not survive FRM-06")


@pytest.mark.parametrize("area", ["MET", "FRM"])
def test_a_requirement_that_the_target_does_not_survive_fails_and_the_run_goes_on(tmp_path: Path, area: str) -> None:
    target = Mortal(restartable=True)

    def deadly(broker: Broker) -> None:
        broker.expect_served()
        target.die()

    report = judged_on(
        target,
        tmp_path,
        entry("API-01", asks),
        entry(f"{area}-01", deadly),
        entry("PRD-01", asks),
        entry("FRM-09", asks),
    )
    by_id = {judgement.requirement.id: judgement for judgement in report.judgements}
    assert by_id[f"{area}-01"].verdict is Verdict.FAIL
    assert "exit status 134" in by_id[f"{area}-01"].died
    assert {id for id, verdict in verdicts(report).items() if verdict is Verdict.PASS} == {"API-01", "PRD-01", "FRM-09"}
    assert report.verdict is RunVerdict.FAIL
    assert not report.unexplained_deaths


def test_a_requirement_in_which_the_target_takes_all_memory_is_not_judged(tmp_path: Path) -> None:
    target = Mortal(restartable=True)
    target.taken = "took 21.0 GB of memory, and was ended because 0.9 of this machine's 24.0 GB were left"

    def hungry(broker: Broker) -> None:
        broker.expect_served()
        target.die()
        broker.expect_served()

    report = judged_on(target, tmp_path, entry("API-01", asks), entry(DEADLY, hungry), entry("PRD-01", asks))
    assert verdicts(report) == {"API-01": Verdict.PASS, DEADLY: Verdict.NOT_JUDGED, "PRD-01": Verdict.PASS}
    assert {one.reason for one in report.judgements} == {"", f"the target {target.taken}"}
    assert report.verdict is RunVerdict.PASS


def test_a_basic_step_that_the_target_does_not_survive_is_not_taken_again(tmp_path: Path) -> None:
    target = Mortal(restartable=True)

    @built_on("BAS-11")
    def step(broker: Broker) -> None:
        broker.expect_served()
        target.die()
        raise Failed("the connection was closed")

    def raw(broker: Broker) -> None:
        broker.expect_served()
        target.die()

    about = Needs(apis={"ConsumerGroupHeartbeat": 0})
    report = judged_on(
        target, tmp_path, entry("BAS-11", step), entry("CGH-01", step), entry("CGH-02", raw, needs=about)
    )
    assert verdicts(report) == {"BAS-11": Verdict.FAIL, "CGH-01": Verdict.BLOCKED, "CGH-02": Verdict.BLOCKED}
    assert [one.blocked_by for one in report.judgements] == ["", "BAS-11", "BAS-11"]
    assert target.restarts <= 2


def test_a_delayed_death_is_attributed_to_the_one_that_brings_it_about(tmp_path: Path) -> None:
    target = Mortal(restartable=True)

    def deadly(broker: Broker) -> None:
        broker.expect_served()
        threading.Timer(0.05, target.die).start()

    def slow(broker: Broker) -> None:
        broker.expect_served()
        threading.Event().wait(0.3)
        broker.expect_served()

    report = judged_on(target, tmp_path, entry(DEADLY, deadly), entry("PRD-01", slow), entry("PRD-02", asks), jobs=1)
    assert verdicts(report) == {DEADLY: Verdict.FAIL, "PRD-01": Verdict.PASS, "PRD-02": Verdict.PASS}


def test_a_death_that_no_requirement_brings_about_alone_leaves_the_run_unknown(tmp_path: Path) -> None:
    target = Mortal(restartable=True)

    def once(broker: Broker) -> None:
        broker.expect_served()
        if not target.restarts:
            target.die()

    report = judged_on(target, tmp_path, entry("API-01", asks), entry(DEADLY, once))
    assert verdicts(report) == {"API-01": Verdict.PASS, DEADLY: Verdict.PASS}
    assert report.verdict is RunVerdict.UNKNOWN
    assert "without a known cause" in report.reason


def test_one_that_hurts_the_target_is_not_blamed_for_a_death_before_it(tmp_path: Path) -> None:
    target = Mortal(restartable=True)

    def hurting(broker: Broker) -> None:
        if not target.restarts:
            target.die()
        broker.expect_served()

    report = judged_on(
        target, tmp_path, entry("API-01", asks), entry("TXV-24", hurting, needs=Needs(hooks=("restart",)))
    )
    assert verdicts(report) == {"API-01": Verdict.PASS, "TXV-24": Verdict.PASS}
    assert report.verdict is RunVerdict.UNKNOWN
    assert "none of them ends it alone" in report.unexplained_deaths[0]


def test_without_a_way_back_the_rest_is_not_judged_and_nothing_is_accused(tmp_path: Path) -> None:
    """Its owner may have ended it: only a second judgement would show that."""
    target = Mortal(restartable=False)

    def deadly(broker: Broker) -> None:
        broker.expect_served()
        target.die()
        broker.expect_served()

    dangerous = entry("FRM-06", deadly)
    report = judged_on(target, tmp_path, dangerous, entry("FRM-07", asks), entry("PRD-01", asks))
    assert verdicts(report) == {"FRM-06": Verdict.NOT_JUDGED, "FRM-07": Verdict.NOT_JUDGED, "PRD-01": Verdict.PASS}
    assert report.verdict is RunVerdict.UNKNOWN
    assert "the target is gone since" in report.reason and "FRM-06" in report.reason


def test_what_requires_a_failing_requirement_is_blocked_and_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def failing(broker: Broker) -> None:
        broker.expect_served()
        broker.fail("it was bad")

    first = entry("PRD-05", failing)
    second = entry("PRD-01", lambda broker: asked.append("PRD-01"), requires=("PRD-05",))
    third = entry("PRD-02", lambda broker: asked.append("PRD-02"), requires=("PRD-01",))
    monkeypatch.setattr(session, "catalogue", lambda: {one.requirement.id: one for one in (first, second, third)})
    report = judged_on(Mortal(restartable=True), tmp_path, third, second, first)
    found = {judgement.requirement.id: (judgement.verdict, judgement.blocked_by) for judgement in report.judgements}
    assert found == {
        "PRD-05": (Verdict.FAIL, ""),
        "PRD-01": (Verdict.BLOCKED, "PRD-05"),
        "PRD-02": (Verdict.BLOCKED, "PRD-05"),
    }
    assert asked == []


def outcomes(
    builds_on: dict[str, tuple[str, ...]], folder: Path, patch: pytest.MonkeyPatch, *entries: Entry
) -> dict[str, tuple[Verdict, str]]:
    """Verdicts and what blocks, where requirements build on others."""
    patch.setattr(requirement, "dependencies_of", lambda id: builds_on.get(id, ()))
    patch.setattr(session, "catalogue", lambda: {one.requirement.id: one for one in entries})
    report = judged_on(Mortal(restartable=True), folder, *entries)
    return {judgement.requirement.id: (judgement.verdict, judgement.blocked_by) for judgement in report.judgements}


def test_what_fails_with_something_that_it_builds_on_is_blocked_and_what_passes_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds_on = {"PRD-01": ("PRD-05",), "PRD-02": ("PRD-05",), "PRD-03": ("PRD-02",), "PRD-05": ("PRD-04",)}
    entries = [entry(f"PRD-0{n}", fails if n in (1, 3, 5) else asks) for n in range(1, 6)]
    assert outcomes(builds_on, tmp_path, monkeypatch, *entries) == {
        "PRD-01": (Verdict.BLOCKED, "PRD-05"),
        "PRD-02": (Verdict.PASS, ""),
        "PRD-03": (Verdict.FAIL, ""),
        "PRD-04": (Verdict.PASS, ""),
        "PRD-05": (Verdict.FAIL, ""),
    }


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("in_step", [False, True])
def test_of_two_that_use_each_other_the_one_in_whose_step_both_fail_is_the_cause(
    turned: bool, in_step: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = built_on("BAS-03")(fails)
    entries = [entry("BAS-01", step if in_step else fails), entry("BAS-03", step)]
    found = outcomes({"BAS-03": ("BAS-01",)}, tmp_path, monkeypatch, *(entries[::-1] if turned else entries))
    cause, other = ("BAS-03", "BAS-01") if in_step else ("BAS-01", "BAS-03")
    assert found == {cause: (Verdict.FAIL, ""), other: (Verdict.BLOCKED, cause)}


@pytest.mark.parametrize("in_cases", [False, True])
@pytest.mark.parametrize("in_step", [False, True])
def test_what_is_seen_directly_is_blocked_by_nothing_but_the_step_that_fails(
    in_step: bool, in_cases: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sees_directly(broker: Broker) -> None:
        failing = built_on("BAS-03")(fails) if in_step else fails
        if in_cases and not in_step:
            with broker.case("a case in which something else fails"):
                fails(broker)
        with broker.case("a case") if in_cases else nullcontext(), directly():
            failing(broker)

    entries = [entry("BAS-01", sees_directly), entry("BAS-02", fails), entry("BAS-03", fails)]
    found = outcomes({"BAS-01": ("BAS-02",), "BAS-02": ("BAS-01",)}, tmp_path, monkeypatch, *entries)
    assert found["BAS-01"] == ((Verdict.BLOCKED, "BAS-03") if in_step else (Verdict.FAIL, ""))
    assert found["BAS-02"] == (Verdict.BLOCKED, "BAS-03" if in_step else "BAS-01")


def test_what_requires_something_that_is_not_judged_is_not_judged_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = entry("REP-02", asks, needs={"nodes": 3})
    second = entry("REP-01", asks, requires=("REP-02",))
    monkeypatch.setattr(session, "catalogue", lambda: {one.requirement.id: one for one in (first, second)})
    report = judged_on(Mortal(restartable=True), tmp_path, second)
    assert verdicts(report) == {"REP-01": Verdict.NOT_JUDGED, "REP-02": Verdict.NOT_JUDGED}


def test_what_fails_in_a_step_of_one_that_is_not_judged_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = entry("BAS-03", asks, needs={"nodes": 3})
    other = entry("BAS-01", built_on("BAS-03")(fails))
    monkeypatch.setattr(session, "catalogue", lambda: {one.requirement.id: one for one in (step, other)})
    report = judged_on(Mortal(restartable=True), tmp_path, step, other)
    assert verdicts(report) == {"BAS-01": Verdict.FAIL, "BAS-03": Verdict.NOT_JUDGED}
    reason = next(one.reason for one in report.judgements if one.verdict is Verdict.FAIL)
    assert reason.endswith("; this step is what BAS-03 is about, which was not judged")


def test_independent_requirements_are_judged_side_by_side_and_exclusive_ones_alone(tmp_path: Path) -> None:
    """The three that meet must run at once. Beside an exclusive one no other requirement runs, exclusive or not."""
    running, beside_exclusive = list[str](), list[list[str]]()
    meeting = threading.Barrier(3, timeout=60)

    @contextmanager
    def counted(id: str) -> Iterator[None]:
        running.append(id)
        yield
        running.remove(id)

    def meets(broker: Broker) -> None:
        with counted(broker.requirement.id):
            broker.expect_served()
            meeting.wait()

    def alone(broker: Broker) -> None:
        with counted(broker.requirement.id):
            broker.expect_served()
            threading.Event().wait(0.05)
            beside_exclusive.append(list(running))

    entries = [entry(f"PRD-0{n}", meets) for n in (1, 2, 3)]
    entries += [entry(f"MET-0{n}", alone, exclusive=True) for n in (1, 2, 3)]
    report = judged_on(Mortal(restartable=True), tmp_path, *entries, jobs=3)
    assert set(verdicts(report).values()) == {Verdict.PASS}
    assert sorted(beside_exclusive) == [["MET-01"], ["MET-02"], ["MET-03"]]


@pytest.mark.parametrize("in_cases", [False, True])
def test_what_is_late_beside_others_is_judged_again_alone(tmp_path: Path, in_cases: bool) -> None:
    tries: list[float] = []

    def late(broker: Broker) -> None:
        broker.expect_served()
        tries.append(broker.patience)
        with broker.case("one of several") if in_cases else nullcontext():
            broker.eventually(lambda: len(tries) > 1, "the second try", within_s=0.2)

    report = judged_on(Mortal(restartable=True), tmp_path, entry("PRD-01", late))
    assert verdicts(report) == {"PRD-01": Verdict.PASS}
    assert tries == [1.0, session.AGAIN_PATIENCE]


@pytest.mark.parametrize("tries", [1, 2])
def test_what_fails_beside_others_in_a_step_that_holds_is_judged_again_alone(tmp_path: Path, tries: int) -> None:
    left = [tries]

    def disturbed(broker: Broker) -> None:
        broker.expect_served()
        left[0] -= 1
        if left[0] >= 0:
            failure = Failed("no topic could be made")
            failure.built_on = "BAS-02"
            raise failure

    entries = [entry("BAS-02", lambda broker: broker.saw("a topic")), entry("PRD-01", disturbed, requires=("BAS-02",))]
    report = judged_on(Mortal(restartable=True), tmp_path, *entries)
    assert verdicts(report) == {"BAS-02": Verdict.PASS, "PRD-01": Verdict.TOLERATED if tries == 1 else Verdict.FAIL}
    assert report.judgements[-1].reason.endswith("no topic could be made")


def test_a_requirement_that_does_not_end_is_broken_off_and_blamed_on_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "OVERRUN_S", 0.2)
    monkeypatch.setattr(session, "MOMENT_S", 0.05)
    silent = threading.Event()

    def endless(broker: Broker) -> None:
        broker.expect_served()
        while not broker.abandoned:
            silent.wait(0.01)

    report = judged_on(
        Mortal(restartable=True), tmp_path, entry("PRD-01", endless, deadline_s=3), entry("PRD-02", asks)
    )
    assert verdicts(report) == {"PRD-01": Verdict.ENGINE_ERROR, "PRD-02": Verdict.PASS}


def test_an_interrupted_run_leaves_what_was_judged_and_says_so_of_the_rest(tmp_path: Path) -> None:
    target, stop = Mortal(restartable=True), threading.Event()

    class Interrupting:
        def starting(self, *_: Any) -> None: ...
        def judging(self, entry: Entry) -> None: ...
        def waiting(self, waits: list[Wait]) -> None: ...
        def judged(self, judgement: Judgement) -> None:
            stop.set()

    @contextmanager
    def interruptible(event: threading.Event) -> Iterator[None]:
        nonlocal stop
        stop = event
        yield

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "interruptible", interruptible)
        report = judged_on(target, tmp_path, entry("BAS-01", asks), entry("PRD-02", asks), listener=Interrupting())
    assert verdicts(report) == {"BAS-01": Verdict.PASS, "PRD-02": Verdict.NOT_JUDGED}
    assert (report.verdict, report.reason) == (RunVerdict.UNKNOWN, "the run was interrupted")


def test_why_a_target_did_not_come_back_by_itself_is_reported(tmp_path: Path) -> None:
    target = Mortal(restartable=False)

    def deadly(broker: Broker) -> None:
        broker.expect_served()
        target.die()

    report = judged_on(target, tmp_path, entry("MET-01", deadly))
    assert report.target.not_revived == ["TargetError: it does not come back"]
    assert "it does not come back" in report.reason


def test_a_mistake_in_bringing_a_target_back_is_not_taken_for_its_end(tmp_path: Path) -> None:
    target = Mortal(restartable=True)
    target.revive = lambda: {}["nothing"]  # type: ignore[method-assign]

    def deadly(broker: Broker) -> None:
        broker.expect_served()
        target.die()

    with pytest.raises(KeyError):
        judged_on(target, tmp_path, entry("MET-01", deadly))


def test_verdicts_are_streamed_as_they_are_reached(tmp_path: Path) -> None:
    judged_on(Mortal(restartable=True), tmp_path, entry("PRD-01", asks), entry("PRD-02", asks))
    lines = [json.loads(line) for line in (tmp_path / runner.STREAM_NAME).read_text().splitlines()]
    assert {line["id"]: line["verdict"] for line in lines} == {"PRD-01": "pass", "PRD-02": "pass"}
