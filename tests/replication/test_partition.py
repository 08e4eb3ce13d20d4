"""A partition's leader: visible records, refused clients, and trace events."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import BrokerEpoch, LeaderEpoch, NodeId, Offset, TimestampMs
from reference.protocol.records.batch import build, records_of
from reference.protocol.records.record import Record
from reference.replication.follower import Following
from reference.replication.leader import Leading
from reference.replication.partition import LATEST, Partition
from reference.replication.partition_state import Peer
from reference.replication.reading import FollowerFetch, Read
from reference.storage.config import LogConfig
from reference.storage.log import Log
from reference.storage.segment_list import LogIdentity
from reference.storage.simulated_disk import SimulatedDisk
from spec.actions import ACTIONS
from tests.replication.replicas import incarnation, state

NOW = TimestampMs(1_700_000_000_000)


def batch(*timestamps: int) -> bytearray:
    return build(
        [Record(Offset(index), TimestampMs(time), None, b"v%d" % index) for index, time in enumerate(timestamps)]
    )


def partition(
    *, leader: int = 1, isr: Sequence[int] = (1,), replicas: Sequence[int] = (1,), config: LogConfig | None = None
) -> Partition:
    disk = SimulatedDisk()
    disk.make_folder(Path("/data"))
    topic_id = UUID(int=7)
    log = Log(disk, Path("/data/t-0"), config or LogConfig(), NOW, LogIdentity("t", 0, topic_id))
    found = Partition("t", topic_id, 0, log, NodeId(1), brokers=lambda node: Peer(incarnation(node)))
    assert found.take_up(state(leader, 3, 1, isr, replicas), NOW)
    return found


def read(found: Partition, offset: int, **changes: Any) -> Read:
    wanted: dict[str, Any] = {
        "max_bytes": 1_000_000, "minimum_one": True, "committed": False, "asked_epoch": -1, "last_epoch": -1,
    }  # fmt: skip
    return found.read(Offset(offset), **{**wanted, **changes})


def values(read_result: Any) -> list[bytes]:
    data = read_result.records if isinstance(read_result.records, bytes) else read_result.records.read()
    return [bytes(record.value or b"") for record in records_of(memoryview(data))] if data else []


@pytest.mark.step("replication", "Produce")
def test_a_leader_alone_commits_what_it_appends() -> None:
    found = partition()
    info = found.produce(batch(NOW, NOW + 1), NOW)
    assert (info.first_offset, info.last_offset, found.high_watermark) == (0, 1, 2)
    assert values(read(found, 0)) == [b"v0", b"v1"]


@pytest.mark.step("replication", "Produce", "AnswerFetch", "AdvanceHighWatermark")
def test_nothing_is_seen_before_every_in_sync_replica_has_it() -> None:
    found = partition(isr=(1, 2), replicas=(1, 2, 3))
    found.produce(batch(NOW), NOW, min_isr=2)
    assert found.high_watermark == 0
    assert values(read(found, 0)) == []
    assert found.require_leader().list_offset(LATEST, False).offset == 0
    found.require_leader().answer_fetch(
        FollowerFetch(NodeId(2), BrokerEpoch(102), Offset(1), LeaderEpoch(3), LeaderEpoch(3), 1000, True), NOW
    )
    assert found.high_watermark == 1
    assert values(read(found, 0)) == [b"v0"]


def test_acks_all_needs_min_insync_replicas_and_acks_one_does_not() -> None:
    found = partition(isr=(1,), replicas=(1, 2, 3))
    with pytest.raises(KafkaError) as error:
        found.produce(batch(NOW), NOW, required_acks=-1, min_isr=2)
    assert error.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert found.log.log_end_offset == 0
    assert found.produce(batch(NOW), NOW, required_acks=1, min_isr=2).first_offset == 0


def test_the_needed_isr_is_no_larger_than_the_replicas() -> None:
    assert partition().produce(batch(NOW), NOW, required_acks=-1, min_isr=2).first_offset == 0


def test_delete_records_needs_the_policy_and_stays_below_the_high_watermark() -> None:
    compacted = partition(config=LogConfig(cleanup_policy="compact"))
    with pytest.raises(KafkaError) as error:
        compacted.delete_records(Offset(0))
    assert error.value.code is ErrorCode.POLICY_VIOLATION
    found = partition()
    found.produce(batch(NOW, NOW), NOW)
    for offset in (-2, 3):
        with pytest.raises(KafkaError) as error:
            found.delete_records(Offset(offset))
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert found.delete_records(Offset(-1)) == 2


def test_steps_are_traced_by_the_specifications_names() -> None:
    steps: list[str] = []
    found = partition()
    found.trace = lambda action, state: steps.append(f"{action} leo={state['leo']} hw={state['hw']}")
    found.produce(batch(NOW), NOW)
    found.take_up(state(1, 4, 2, (1,), (1,)), NOW)
    assert steps == ["Produce leo=1 hw=0", "AdvanceHighWatermark leo=1 hw=1", "BecomeLeader leo=1 hw=1"]
    assert {step.split()[0] for step in steps} <= {action.name for action in ACTIONS}


@pytest.mark.step("replication", "Acknowledge", "Consume")
def test_acknowledged_and_consumed_ends_are_traced() -> None:
    steps: list[tuple[str, dict[str, Any]]] = []
    found = partition()
    found.produce(batch(NOW, NOW), NOW)
    found.trace = lambda action, state: steps.append((action, state["args"]))
    found.acknowledge(Offset(2))
    found.consume(Offset(1))
    assert steps == [("Acknowledge", {"leader": 1, "end": 2}), ("Consume", {"broker": 1, "end": 1})]


def test_every_step_of_a_broker_is_a_method_by_its_name() -> None:
    of_brokers = {action.method for action in ACTIONS if action.actor != "controller"}
    in_clients = {"crash", "retry"}
    methods = {*dir(Partition), *dir(Leading), *dir(Following)}
    assert of_brokers - methods == in_clients, (
        "a crash is not reported, and a retry cannot be distinguished from a produce"
    )
