"""A machine that stalls makes no broker late: what timed out meanwhile is judged again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance import session, stalls
from conformance.broker import Broker
from conformance.results import Verdict
from conformance.stalls import Stalls
from tests.conformance.test_session import Mortal, entry, judged_on


def test_only_looks_that_come_much_too_late_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(stalls.time, "monotonic", lambda: now.s)
    watched = Stalls(0.5)
    for elapsed_s in (0.5, 0.1, 0.9, 3.5, 0.5):
        now.s += elapsed_s
        watched.look()
    assert watched.lost_s == 3.0


@pytest.mark.parametrize(("lost_s", "tries"), [(0.4, [1.0]), (30.0, [1.0, session.AGAIN_PATIENCE])])
def test_what_times_out_alone_is_judged_again_where_the_machine_stalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost_s: float, tries: list[float]
) -> None:
    seen: list[float] = []

    def late(broker: Broker) -> None:
        broker.expect_served()
        seen.append(broker.patience)
        broker.eventually(lambda: len(seen) > 1, "the second try", within_s=0.2)

    monkeypatch.setattr(session, "Stalls", lambda _: SimpleNamespace(look=lambda: None, lost_s=lost_s))
    report = judged_on(Mortal(restartable=True), tmp_path, entry("PRD-01", late, exclusive=True))
    assert seen == tries
    assert report.judgements[0].verdict is (Verdict.FAIL if len(tries) == 1 else Verdict.PASS)
