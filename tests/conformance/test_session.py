"""How requirements are judged together: a test that ends the target fails, what builds on what, side by side, interruption."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import host, requirement, runner, session
from conformance.broker import Broker
from conformance.levels import MAY, MUST
from conformance.requirement import Entry, Needs, Requirement
from conformance.results import Judgement, Run, RunVerdict, Verdict
from conformance.runner import Plan, run
from conformance.stalls import Stalls
from conformance.steps import built_on, directly
from conformance.waits import Wait
from conformance.wire import Failed
from linearizability.targets import TargetError
from tests.conformance.parrot import Parrot

DEADLY = "MET-01"
"""Bears the requirement that the mortal broker does not survive."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "ANSWERS_WITHIN_S", 0.3)
    monkeypatch.setattr(session, "GRACE_S", 0.1)
    monkeypatch.setattr(requirement, "dependencies_of", lambda id: ())


class Mortal:
    """A target of one broker that ends when it is asked to, and comes back with another port unless it may not."""

    def __init__(self, *, restartable: bool) -> None:
        self.hooks = ("restart", "logs") if restartable else ("logs",)
        self.bird = Parrot()
        self.dead = False
        self.nodes = [SimpleNamespace(id=1)]
        self.restarts = 0
        self.several = False

    @property
    def bootstrap(self) -> str:
        return self.bird.bootstrap

    def die(self) -> None:
        self.dead = True
        self.bird.refuse()

    def running(self, node: int) -> bool:
        return not self.dead

    def exit_status(self, node: int) -> int:
        return 134

    def logs(self, node: int) -> list[Path]:
        return []

    def revive(self) -> None:
        if "restart" not in self.hooks:
            raise TargetError("it does not come back")
        self.dead, self.restarts = False, self.restarts + 1
        self.bird.accept_again()


def entry(id: str, test: Any, **fields: Any) -> Entry:
    record = Requirement(id=id, level=MUST, sentence="A sentence of its own.", source="a test", **fields)
    return Entry(requirement=record, test=test)


def judged_on(target: Mortal, folder: Path, *entries: Entry, **options: Any) -> Run:
    @contextmanager
    def open_target(spec: str, **_: Any) -> Iterator[Mortal]:
        yield target

    return run(Plan("addr:mortal", list(entries), folder, open_target=open_target, **options))


def test_a_death_fails_the_run_at_any_level(tmp_path: Path) -> None:
    target = Mortal(restartable=True)

    def deadly(broker: Broker) -> None:
        broker.expect_served()
        target.die()

    record = Requirement(id="FRM-06", level=MAY, sentence="A sentence of its own.", source="a test")
    report = judged_on(target, tmp_path, entry("API-01", asks), Entry(requirement=record, test=deadly))
    assert (report.verdict, report.reason) == (RunVerdict.FAIL, "the target does not survive FRM-06")


def verdicts(report: Run) -> dict[str, Verdict]:
    return {judgement.requirement.id: judgement.verdict for judgement in report.judgements}


def asks(broker: Broker) -> None:
    broker.expect_served()


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


def test_without_a_way_back_the_rest_is_not_judged(tmp_path: Path) -> None:
    target = Mortal(restartable=False)

    def deadly(broker: Broker) -> None:
        broker.expect_served()
        target.die()
        broker.expect_served()

    dangerous = entry("FRM-06", deadly)
    report = judged_on(target, tmp_path, dangerous, entry("FRM-07", asks), entry("PRD-01", asks))
    assert verdicts(report) == {"FRM-06": Verdict.FAIL, "FRM-07": Verdict.NOT_JUDGED, "PRD-01": Verdict.PASS}
    assert report.verdict is RunVerdict.FAIL


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


def fails(broker: Broker) -> None:
    broker.expect_served()
    broker.fail("it was bad")


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


@pytest.mark.parametrize("in_step", [False, True])
def test_what_is_seen_directly_is_blocked_by_nothing_but_the_step_that_fails(
    in_step: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sees_directly(broker: Broker) -> None:
        with directly():
            (built_on("BAS-03")(fails) if in_step else fails)(broker)

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


def test_independent_requirements_are_judged_side_by_side_and_exclusive_ones_alone(tmp_path: Path) -> None:
    together, lock = [0, 0], threading.Lock()
    meeting = threading.Barrier(3, timeout=60)

    def meets(broker: Broker) -> None:
        broker.expect_served()
        meeting.wait()

    def alone(broker: Broker) -> None:
        broker.expect_served()
        with lock:
            together[0] += 1
            together[1] = max(together)
        threading.Event().wait(0.05)
        with lock:
            together[0] -= 1

    entries = [entry(f"PRD-0{n}", meets) for n in (1, 2, 3)]
    entries += [entry(f"MET-0{n}", alone, exclusive=True) for n in (1, 2, 3)]
    report = judged_on(Mortal(restartable=True), tmp_path, *entries, jobs=3)
    assert set(verdicts(report).values()) == {Verdict.PASS}
    assert together[1] == 1


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
    """On a machine that is busy what is late there, too, is judged a third time, when no other start runs."""
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
