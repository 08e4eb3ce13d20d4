"""Members whose metadata log ends below the leader's snapshot fetch it, in runs that keep the newest snapshot only."""

from __future__ import annotations

from typing import Any

import pytest

from linearizability.simulation.drawing_rare import QUICK_SNAPSHOTS
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Administrator, Fault, Schedule, Topic
from reference.controller.quorum_log import QuorumLog


def schedule() -> Schedule:
    return Schedule(
        nodes=3,
        duration_ms=2_000,
        topics=(Topic(name="orders"),),
        properties=QUICK_SNAPSHOTS,
        clients=(Administrator(topics=4, pause_ms=100),),
        faults=(Fault(at_ms=100, kind="crash", node=3, for_ms=1_500),),
    )


def test_a_member_that_was_away_installs_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[int] = []
    install = QuorumLog.install

    def noted(log: QuorumLog, *arguments: Any) -> None:
        install(log, *arguments)
        installed.append(log.start)

    monkeypatch.setattr(QuorumLog, "install", noted)
    outcome, _ = run_schedule(schedule())
    assert outcome.text == ""
    assert installed and min(installed) > 0


def test_a_snapshot_that_leaves_the_log_as_it_was_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuorumLog, "install", lambda log, receipt, now: log.snapshots.take(receipt))
    assert run_schedule(schedule())[0].rule == "high-watermark-beyond-end"
