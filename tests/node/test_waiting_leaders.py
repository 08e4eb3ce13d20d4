"""Leaders wait neither for a fenced broker nor for replicas that are no longer asked for, and retry refused proposals."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from reference.controller.image import TOPIC_RESOURCE
from reference.node.known_topics import TopicChanges
from reference.node.replication import PROPOSE_AGAIN_MS, Replication
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition import AlterPartitionResponse
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.primitives import PartitionEpoch, TimestampMs
from reference.replication.fetcher import FetchSettings
from tests.node.three_nodes import IDS, ThreeNodes
from tests.replication.replicas import LAG_MS, NOW, batch, incarnation
from tests.replication.serving import caught_up, produce


def test_the_record_of_a_fence_lets_high_watermarks_advance() -> None:
    cluster = ThreeNodes()
    cluster.create("orders", 1)
    cluster.run_until(lambda: cluster.is_in_sync("orders"))
    led = next(id for id in IDS if cluster.led(id, "orders"))
    leader = cluster.nodes[led]
    kept, lost = (id for id in IDS if id != led)
    partition = leader.partitions["orders", 0]
    leading = partition.leading
    assert leading is not None
    cluster.produce(led, "orders", [0])
    cluster.come_to_rest()
    end = partition.log.log_end_offset
    partition.log.append_as_leader(bytearray(batch(b"a")), partition.leader_epoch, cluster.now)
    leading.followers[kept].end = partition.log.log_end_offset
    state = replace(
        partition.state, isr=(led, kept), partition_epoch=PartitionEpoch(partition.state.partition_epoch + 1)
    )
    assert partition.take_up(state, cluster.now) and partition.high_watermark == end
    assert [*leader.replicas.advanced(cluster.now)] == [], (
        "the other replica is caught up, and its broker is not fenced yet"
    )
    leader.image.brokers[lost].fenced = True
    changes = TopicChanges(leader.image)
    leader._metadata_applied(changes, cluster.now)
    assert partition.high_watermark == end
    changes.brokers = True
    leader._metadata_applied(changes, cluster.now)
    assert partition.high_watermark == end + 1


def test_a_lower_min_isr_lets_the_high_watermark_advance() -> None:
    cluster = ThreeNodes(**{"min.insync.replicas": "2"})
    cluster.create("orders", 1)
    cluster.run_until(lambda: cluster.is_in_sync("orders"))
    led = next(id for id in IDS if cluster.led(id, "orders"))
    leader = cluster.nodes[led]
    partition = leader.partitions["orders", 0]
    alone = replace(partition.state, isr=(led,), partition_epoch=PartitionEpoch(partition.state.partition_epoch + 1))
    partition.take_up(alone, cluster.now)
    partition.produce(bytearray(batch(b"a")), cluster.now, required_acks=1)
    assert (partition.high_watermark, partition.log.log_end_offset) == (0, 1)
    leader.image.configs[TOPIC_RESOURCE, "orders"] = {"min.insync.replicas": "1"}
    leader.replicas.reconcile(cluster.now, [("orders", 0)])
    assert partition.high_watermark == 1


def test_records_of_brokers_are_seen() -> None:
    cluster = ThreeNodes()
    changes = TopicChanges(cluster.nodes[IDS[0]].image)
    assert not changes.brokers
    changes.see(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1, fenced=1))
    assert changes.brokers


LATE = NOW + LAG_MS + 1


def test_a_refused_shrink_is_asked_for_again_after_a_while() -> None:
    """The response comes within the request: without a pause the leader would retry for ever."""
    partition, _ = caught_up()
    produce(partition)
    asked: list[tuple[int, list[int]]] = []

    def refuse(purpose: str, body: Any, answered: Any, now: TimestampMs) -> None:
        (topic,) = body.topics
        (wanted,) = topic.partitions
        asked.append((now, [member.broker_id for member in wanted.new_isr_with_epochs]))
        refusal = AlterPartitionResponse.PartitionData(partition_index=0, error_code=ErrorCode.INELIGIBLE_REPLICA)
        answer = AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=[refusal])
        answered(AlterPartitionResponse(topics=[answer]), now)

    context: Any = SimpleNamespace(
        node=1,
        configuration=SimpleNamespace(integer=lambda name: LAG_MS),
        replicas=SimpleNamespace(partitions={partition.key: partition}),
        purgatories=SimpleNamespace(wake=lambda partition, now: None),
    )
    brokers: Any = None
    replication = Replication(context, brokers, refuse, lambda: incarnation(1), FetchSettings(), NOW)
    for now in (LATE, LATE + 1, LATE + PROPOSE_AGAIN_MS - 1, LATE + PROPOSE_AGAIN_MS):
        replication.tick(now)
    assert asked == [(LATE, [1, 3]), (LATE + PROPOSE_AGAIN_MS, [1, 3])]
