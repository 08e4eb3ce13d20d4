"""A leader that has appended nothing in its leader epoch moves to another log directory.

It knows its epoch from then on as before. Apache Kafka's does not (KAFKA-20961; seen of 4.3.1 and 4.4.0): for the epoch that
ListOffsets reports OffsetForLeaderEpoch gives none, by which a consumer that has its position from there takes the log for
truncated.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.batches import batch
from linearizability.targets.wire import Wire
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from reference.protocol.messages.produce import ProduceRequest
from tests.targets.test_cordoned_directories import described, eventually, move
from tests.targets.two_directories import Kafka, Reference, TwoDirectories, opened, second_of

pytestmark = [pytest.mark.process, pytest.mark.kafka]
TOPIC, LATEST = "idle", -1


def leader_epoch(wire: Wire) -> int:
    """The partition's leader epoch; -1 while it has no leader."""
    topic = wire.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])).topics[0]
    return topic.partitions[0].leader_epoch if topic.partitions and topic.partitions[0].leader_id >= 0 else -1


def end_of(wire: Wire, epoch: int) -> tuple[int, int]:
    """The epoch and the end offset that OffsetForLeaderEpoch gives."""
    table = OffsetForLeaderEpochRequest
    asked = table.OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=epoch)
    said = (
        wire.call(table(topics=[table.OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])])).topics[0].partitions[0]
    )
    return said.leader_epoch, said.end_offset


def latest(wire: Wire) -> tuple[int, int]:
    """The leader epoch and the offset of the end that ListOffsets gives."""
    table = ListOffsetsRequest
    asked = table.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    topic = table.ListOffsetsTopic(name=TOPIC, partitions=[asked])
    said = wire.call(table(topics=[topic]), version=7).topics[0].partitions[0]
    return said.leader_epoch, said.offset


def write_one(wire: Wire) -> int:
    """The error of a produce request."""
    topic = ProduceRequest.TopicProduceData(
        name=TOPIC, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch(b"x"))]
    )
    said = wire.call(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), version=9)
    return said.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize(("kind", "keeps"), [(Kafka, False), (Reference, True)])
def test_the_epoch_of_an_idle_leader_moves_with_its_log(
    kind: type[TwoDirectories], keeps: bool, tmp_path: Path
) -> None:
    with opened(kind, tmp_path) as target:
        (member,) = target.members
        wire = Wire.connect(member.node.host, member.node.port)
        topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        assert wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0
        assert eventually(lambda: leader_epoch(wire) >= 0 and write_one(wire) == 0)
        first = leader_epoch(wire)
        target.restart(1)
        wire = Wire.connect(member.node.host, member.node.port)
        assert eventually(lambda: leader_epoch(wire) > first and end_of(wire, leader_epoch(wire))[1] == 1)
        epoch = leader_epoch(wire)
        assert end_of(wire, epoch) == latest(wire) == (epoch, 1)
        before = described(wire, TOPIC)
        assert move(wire, TOPIC, second_of(member) if before[0][0] else member.data) == 0
        assert eventually(lambda: described(wire, TOPIC) == before[::-1])
        assert leader_epoch(wire) == epoch
        assert latest(wire) == (epoch, 1)
        assert eventually(lambda: end_of(wire, epoch) == ((epoch, 1) if keeps else (-1, -1)))
