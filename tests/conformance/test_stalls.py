"""A machine that stalls makes no broker late: what timed out meanwhile is judged again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance import session, stalls
from conformance.broker import Broker
from conformance.results import Verdict
from conformance.stalls import Stalls
from tests.conformance.mortal import Mortal, entry, judged_on


def test_only_looks_that_come_much_too_late_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(stalls.time, "monotonic", lambda: now.s)
    watched = Stalls(0.5)
    for elapsed_s in (0.5, 0.1, 0.9, 3.5, 0.5):
        now.s += elapsed_s
        watched.look()
    assert watched.lost_s == 3.0


@pytest.mark.parametrize(("load", "busy"), [(7.9, False), (8.1, True)])
def test_a_machine_with_many_processes_is_busy(load: float, busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(stalls.os, "getloadavg", lambda: (load, 0.0, 0.0))
    watched = Stalls(0.5)
    watched.look()
    assert watched.is_busy is busy


@pytest.mark.parametrize(
    ("lost_s", "busy", "tries"),
    [(0.4, False, [1.0]), (30.0, False, [1.0, session.AGAIN_PATIENCE]), (0.4, True, [1.0, session.AGAIN_PATIENCE])],
)
def test_what_times_out_alone_is_judged_again_where_the_machine_stalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost_s: float, busy: bool, tries: list[float]
) -> None:
    seen: list[float] = []

    def late(broker: Broker) -> None:
        broker.expect_served()
        seen.append(broker.patience)
        broker.eventually(lambda: len(seen) > 1, "the second try", within_s=0.2)

    monkeypatch.setattr(session, "Stalls", lambda _: SimpleNamespace(look=lambda: None, lost_s=lost_s, is_busy=busy))
    report = judged_on(Mortal(restartable=True), tmp_path, entry("PRD-01", late, exclusive=True))
    assert seen == tries
    assert report.judgements[0].verdict is (Verdict.FAIL if len(tries) == 1 else Verdict.PASS)
