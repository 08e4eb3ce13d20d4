"""What a run waits for is named with its time: in the main session, on further starts, while the target starts, in every output."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conformance import waits
from conformance.broker import Broker
from conformance.plan import Group
from conformance.releases import Keeper
from conformance.report import terminal
from conformance.requirement import Entry
from conformance.results import Judgement, Verdict
from conformance.runner import Plan, run
from conformance.waits import START, Reminder, Wait, Waits
from linearizability.progress import VERBOSE
from tests.conformance.mortal import Mortal, asks, entry, impatient, verdicts

__all__ = ["impatient"]

PATIENCE_S = 60
"""How long a test waits for a line that has to come."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LOOK_S", 0.01)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Listening:
    """A run listener that releases the tests of `waits` once all wanted ids were named at one moment."""

    def __init__(self, *wanted: str) -> None:
        self.wanted, self.named = set(wanted), threading.Event()

    def starting(self, group: Group, number: int, groups: int) -> None: ...
    def judging(self, entry: Entry) -> None: ...
    def judged(self, judgement: Judgement) -> None: ...

    def waiting(self, waits: list[Wait]) -> None:
        if self.wanted <= {one.what for one in waits}:
            self.named.set()

    def waits(self, broker: Broker) -> None:
        broker.expect_served()
        assert self.named.wait(PATIENCE_S), f"not named: {self.wanted}"


def opening(*, start: Callable[[], object] = lambda: None) -> Any:
    @contextmanager
    def open_target(spec: str, **_: Any) -> Iterator[Mortal]:
        start()
        target = Mortal(restartable=True)
        target.several = True
        yield target

    return open_target


def test_requirements_side_by_side_and_on_further_starts_are_named(tmp_path: Path) -> None:
    """PRD-05 is judged on the first start, PRD-01 and PRD-02 on starts of their own."""
    listener = Listening("PRD-05", "PRD-01", "PRD-02")
    special = [entry(f"PRD-0{n}", listener.waits, needs={"configs": {"a": str(n)}}) for n in (1, 2)]
    entries = [entry("BAS-01", asks), entry("PRD-05", listener.waits), *special]
    report = run(Plan("reference:1", entries, tmp_path, open_target=opening(), listener=listener))
    assert verdicts(report) == dict.fromkeys(("BAS-01", "PRD-01", "PRD-02", "PRD-05"), Verdict.PASS), report.reason


def test_a_requirement_that_is_judged_alone_is_named(tmp_path: Path) -> None:
    listener = Listening("PRD-01")
    entries = [entry("PRD-01", listener.waits, exclusive=True)]
    report = run(Plan("reference:1", entries, tmp_path, open_target=opening(), listener=listener))
    assert verdicts(report) == {"PRD-01": Verdict.PASS}, report.reason


def test_a_prerequisite_that_is_judged_before_its_turn_is_named_beside_what_needs_it(tmp_path: Path) -> None:
    listener = Listening("PRD-02", "MET-01")

    def fails(broker: Broker) -> None:
        broker.expect_equal("the answer", 41, 42)

    needed = entry("MET-01", listener.waits)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("conformance.session.catalogue", lambda: {"MET-01": needed})
        patched.setattr("conformance.requirement.dependencies_of", lambda id: ("MET-01",) if id == "PRD-02" else ())
        entries = [entry("PRD-02", fails)]
        run(Plan("reference:1", entries, tmp_path, open_target=opening(), listener=listener))
    assert listener.named.is_set()


def test_a_start_of_the_target_is_named(tmp_path: Path) -> None:
    listener = Listening(START)
    in_time: list[bool] = []
    target = opening(start=lambda: in_time.append(listener.named.wait(PATIENCE_S)))
    run(Plan("reference:1", [entry("BAS-01", asks)], tmp_path, open_target=target, listener=listener))
    assert in_time == [True]


def test_what_has_ended_is_waited_for_no_longer_however_it_ended() -> None:
    clock = Clock()
    held = Waits(clock)
    with held.during("COO-01"):
        clock.now_s += 70
        with pytest.raises(ValueError, match="a mistake"), held.during("TXN-10"):
            clock.now_s += 2
            assert held.now() == [Wait("COO-01", 72), Wait("TXN-10", 2)]
            raise ValueError("a mistake")
        assert held.now() == [Wait("COO-01", 72)]
    assert held.now() == []


@pytest.mark.parametrize(("verbose", "every_s"), [("", 30), ("1", 10)])
def test_a_pipe_has_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, verbose: str, every_s: int) -> None:
    monkeypatch.setenv(VERBOSE, verbose)
    written, clock = io.StringIO(), Clock()
    progress = terminal.Progress(Console(file=written, width=60), 10)
    progress.reminder.clock = clock
    for second in range(70):
        clock.now_s += 1
        progress.waiting([Wait("COO-01", second), Wait("TXN-10", 3)])
    lines = written.getvalue().splitlines()
    times = range(every_s, 70, every_s)
    assert lines == [f"0 of 10 judged  waiting for COO-01 ({at} s), TXN-10 (3 s)" for at in times]


def test_a_terminal_names_what_takes_longer_than_a_moment() -> None:
    progress = terminal.Progress(Console(file=io.StringIO(), force_terminal=True, width=80), 10)
    assert progress.status is not None
    try:
        progress.waiting([Wait("COO-01", 1)])
        assert "COO-01" not in str(progress.status.status)
        progress.waiting([Wait("COO-01", 12), Wait("[a]", 1)])
        assert "waiting for COO-01 (12 s), \\[a] (1 s)" in str(progress.status.status)
    finally:
        progress.finish()


def test_a_measurement_of_releases_has_such_lines(tmp_path: Path) -> None:
    reported: list[str] = []
    keeper = Keeper("4.3.1", tmp_path / "store.json", reported.append)
    keeper.waiting([Wait("COO-01", 3)])
    keeper.waiting([Wait("COO-01", 31), Wait("TXN-10", 2)])
    keeper.waiting([Wait("COO-01", 32), Wait("TXN-10", 3)])
    assert reported == ["kafka:4.3.1: waiting for COO-01 (31 s), TXN-10 (2 s)"]


def test_of_many_waits_the_longest_are_named() -> None:
    many = [Wait(f"TXN-{n:02}", 60 - n) for n in range(9)]
    text = Reminder(30).text(many)
    assert text.startswith("waiting for TXN-00 (60 s), ") and text.endswith("TXN-05 (55 s) and 3 more")
