"""A leader does not wait for a fenced broker, also where the record of the fence comes after those of its partitions."""

from __future__ import annotations

from dataclasses import replace

from reference.node.known_topics import TopicChanges
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.primitives import PartitionEpoch
from tests.node.three_nodes import IDS, ThreeNodes
from tests.replication.replicas import batch


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


def test_records_of_brokers_are_seen() -> None:
    cluster = ThreeNodes()
    changes = TopicChanges(cluster.nodes[IDS[0]].image)
    assert not changes.brokers
    changes.see(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1, fenced=1))
    assert changes.brokers
