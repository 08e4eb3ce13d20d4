"""A killed broker is fenced, however busy the controller's node is, and unfenced only when its replicas follow."""

from __future__ import annotations

import pytest

from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Producer, Schedule, Topic
from reference.controller.heartbeats import Heartbeats
from reference.node import replicas
from reference.node.lateness import Lateness
from reference.protocol.primitives import TimestampMs

SCHEDULE = Schedule(
    seed=1,  # kills node 2; node 3 is the active controller then, or becomes it
    nodes=3,
    duration_ms=600,
    topics=(Topic(name="orders", replicas=(1, 2, 3), partitions=8),),
    clients=(Producer(batches=3),),
    properties={"replica.lag.time.max.ms": "300"},
)


def test_a_broker_that_is_never_fenced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Heartbeats, "next_deadline", lambda self: None)
    assert run_schedule(SCHEDULE)[0].rule == "not-fenced"


def test_work_that_is_due_at_once_makes_no_timer_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas that are taken up one by one have a past deadline; only a pause counts as lateness of a timer."""
    monkeypatch.setattr(replicas, "TAKE_UPS_A_STEP", 1)
    assert run_schedule(SCHEDULE)[0].text == ""

    def count_from_deadline(lateness: Lateness, deadline: TimestampMs) -> None:
        lateness._due_at = deadline

    def extend_beyond_now(sessions: Heartbeats, ms: int, now: TimestampMs) -> None:
        for each in sessions._received:
            sessions._received[each] = TimestampMs(sessions._received[each] + ms)

    monkeypatch.setattr(Lateness, "timer_set", count_from_deadline)
    monkeypatch.setattr(Heartbeats, "extend", extend_beyond_now)
    assert run_schedule(SCHEDULE)[0].rule == "not-fenced"


def test_a_broker_that_is_unfenced_before_its_replicas_follow_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    restarts = draw(5, None, 3).model_copy(update={"small_portions": True})
    assert run_schedule(restarts)[0].text == ""
    monkeypatch.setattr(replicas.Replicas, "are_behind", property(lambda self: False))
    assert "unfenced before its replicas" in run_schedule(restarts)[0].text
