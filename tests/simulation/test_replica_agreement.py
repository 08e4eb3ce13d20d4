"""Replicas follow their node's metadata, coordinators their records, no request waits for nothing, and nodes may leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import reference.coordinator.consumer_group_description as description
from linearizability.simulation.coordinator_agreement import _replay
from linearizability.simulation.drawing import draw
from linearizability.simulation.judging import run_schedule
from linearizability.simulation.schedule import Fault, Producer, Schedule, Topic
from linearizability.simulation.world import Violation
from reference.controller.heartbeats import Heartbeats
from reference.coordinator.group_shard import GroupShard
from reference.coordinator.transaction_coordinator import TransactionCoordinator
from reference.node.coordination import Coordination
from reference.node.replicas import Replicas
from reference.node.requests import Purgatory
from reference.protocol.codec import CodecError
from reference.protocol.primitives import LONG_AGO, Offset
from reference.protocol.records.record import Record
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


def small_portions(seed: int) -> Schedule:
    return draw(seed, None, 3).model_copy(update={"small_portions": True})


def test_a_leader_that_waits_for_a_fenced_broker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of the fence comes after those of the partitions, in a batch and a step of its own."""
    assert run_schedule(small_portions(1))[0].text == ""
    monkeypatch.setattr(Replicas, "advanced", lambda self, now: iter(()))
    assert run_schedule(small_portions(1))[0].rule == "high-watermark-behind"


def test_a_request_that_waits_for_a_fenced_broker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeleteRecords waits for the log starts of all live replicas, which may be the leader's own alone."""
    assert run_schedule(small_portions(24))[0].text == ""
    monkeypatch.setattr(Purgatory, "wake_all", lambda self, now: None)
    assert run_schedule(small_portions(24))[0].rule == "request-left-waiting"


def test_leave_that_is_not_given_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Heartbeats, "_is_known_to_have_left", lambda self, image, broker: False)
    assert run_schedule(schedule())[0].rule == "no-leave-to-stop"


def test_a_replica_that_never_comes_back_into_the_isr_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Fault(at_ms=100, kind="crash", node=3, for_ms=1_500)
    monkeypatch.setattr(Leading, "expand_isr", lambda self, follower: False)
    plan = schedule().model_copy(update={"faults": (away,), "duration_ms": 1_800})
    assert run_schedule(plan)[0].rule == "replica-out-of-sync"


def forget_offsets(shard: object) -> None:
    if isinstance(shard, GroupShard):
        shard.offsets._committed.clear()


def forget_times(shard: object) -> None:
    if isinstance(shard, TransactionCoordinator):
        shard.transactions = {id: replace(each, updated_at=1) for id, each in shard.transactions.items()}


@pytest.mark.parametrize(("workload", "change"), [("groups", forget_offsets), ("transactions", forget_times)])
def test_state_that_differs_from_the_records_is_found(
    monkeypatch: pytest.MonkeyPatch, workload: str, change: Callable[[object], None]
) -> None:
    write = Coordination.write

    def write_and_change(coordination: Coordination[Any], index: int, *arguments: Any, **named: Any) -> None:
        write(coordination, index, *arguments, **named)
        change(coordination.loaded_shard(index))

    monkeypatch.setattr(Coordination, "write", write_and_change)
    assert run_schedule(draw(0, workload=workload))[0].rule == "coordinator-disagrees"


def test_a_description_that_differs_from_the_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assignment = description._assignment

    def leave_out_the_first_topic(*arguments: Any) -> Any:
        answer = assignment(*arguments)
        del answer.topic_partitions[:1]
        return answer

    monkeypatch.setattr(description, "_assignment", leave_out_the_first_topic)
    assert run_schedule(draw(0, workload="groups"))[0].rule == "description-differs"


def test_a_record_that_no_coordinator_could_load_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the tombstone of a member whose other records are compacted away (KAFKA-17306)."""
    shard: Any = SimpleNamespace(replay=lambda *record: None)
    record = Record(Offset(7), LONG_AGO, b"key", None)
    _replay(shard, record, None, "__consumer_offsets-0")
    shard.replay = refuse(CodecError("of a later version"))
    _replay(shard, record, None, "__consumer_offsets-0")
    shard.replay = refuse(ValueError("the member is unknown"))
    with pytest.raises(Violation, match=r"__consumer_offsets-0 at 7: ValueError.*the member is unknown") as broken:
        _replay(shard, record, None, "__consumer_offsets-0")
    assert broken.value.rule == "record-not-loaded"


def refuse(error: Exception) -> Callable[..., None]:
    def replay(*record: object) -> None:
        raise error

    return replay
