"""Replicas follow the metadata that their node has replayed, and controlled shutdowns are granted."""

from __future__ import annotations

import pytest

from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Fault, Producer, Schedule, Topic
from reference.controller.heartbeats import Heartbeats
from reference.replication.leader import Leading
from reference.replication.partition import Partition


def schedule() -> Schedule:
    return Schedule(
        nodes=3,
        duration_ms=600,
        topics=(Topic(name="orders", replicas=(1, 2, 3)),),
        clients=(Producer(batches=3),),
        faults=(Fault(at_ms=300, kind="config", topic="orders", configs={"min.insync.replicas": "1"}),),
    )


def test_a_sound_cluster_follows_its_metadata() -> None:
    assert run_schedule(schedule())[0].text == ""


def test_a_setting_that_is_not_taken_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "learn_min_isr", lambda self, min_isr: None)
    assert run_schedule(schedule())[0].rule == "metadata-not-followed"


def test_a_record_that_is_not_taken_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "_take_newer_record", lambda self, state: False)
    assert run_schedule(schedule())[0].rule == "metadata-not-followed"


def test_leave_that_is_not_given_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Heartbeats, "_is_known_to_have_left", lambda self, image, broker: False)
    assert run_schedule(schedule())[0].rule == "no-leave-to-stop"


def test_a_replica_that_never_comes_back_into_the_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Fault(at_ms=100, kind="crash", node=3, for_ms=1_500)
    monkeypatch.setattr(Leading, "expand_isr", lambda self, follower: False)
    plan = schedule().model_copy(update={"faults": (away,), "duration_ms": 1_800})
    assert run_schedule(plan)[0].rule == "replica-out-of-sync"
