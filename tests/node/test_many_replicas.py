"""A node takes up many replicas in portions, and handles requests in between."""

from __future__ import annotations

import pytest

from reference.node import replicas
from reference.node.effects import Respond
from reference.node.node import Node
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.frames import encode_request
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.primitives import TimestampMs
from reference.storage.simulated_disk import SimulatedDisk
from tests.node.test_metadata_snapshots import FOLDER, NOW, ask, create, delete, start

PARTITIONS = 2 * replicas.TAKE_UPS_A_STEP + 7


def led(node: Node) -> int:
    return sum(partition.is_leader for partition in node.partitions.values())


def create_many(node: Node) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="many", num_partitions=PARTITIONS, replication_factor=1)
    ask(node, CreateTopicsRequest(topics=[topic]), NOW)


def test_replicas_are_taken_up_a_bounded_number_a_step() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    create_many(node)
    assert led(node) == replicas.TAKE_UPS_A_STEP
    assert node.next_deadline() <= NOW
    with pytest.raises(KafkaError) as refused:
        node.replicas.partition("many", PARTITIONS - 1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.tick(NOW)
    assert led(node) == 2 * replicas.TAKE_UPS_A_STEP
    node.tick(NOW)
    assert led(node) == PARTITIONS
    assert node.next_deadline() > NOW
    node.shut_down(NOW + 1)
    again = start(disk, NOW + 2)
    assert len(again.partitions) == replicas.TAKE_UPS_A_STEP and again.image.brokers[again.id].fenced
    again.take_effects()
    again.connected(1, "127.0.0.1", "PLAINTEXT")
    again.receive(
        1, encode_request(ApiVersionsRequest.KEY, 0, 1, "test", ApiVersionsRequest())[4:], TimestampMs(NOW + 2)
    )
    assert again.take_effects() == [], "clients wait until all replicas follow the metadata"
    for ms in range(3, 6):
        again.tick(TimestampMs(NOW + ms))
    answered = [each for each in again.take_effects() if isinstance(each, Respond)]
    assert len(answered) == 1 and len(again.partitions) == PARTITIONS
    for ms in range(6, 30):
        again.tick(TimestampMs(NOW + ms))
    assert not again.image.brokers[again.id].fenced and led(again) == PARTITIONS


def test_metadata_of_one_partition_make_no_other_replica_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    create_many(node)
    for _ in range(3):
        node.tick(NOW)
    followed: list[tuple[str, int]] = []
    follow = replicas.Replicas._follow

    def count(self: replicas.Replicas, key: tuple[str, int], now: TimestampMs) -> bool:
        followed.append(key)
        return follow(self, key, now)

    monkeypatch.setattr(replicas.Replicas, "_follow", count)
    create(node, "one", NOW)
    assert followed == [("one", 0)] and node.replicas.partition("one", 0).is_leader
    followed.clear()
    name = IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="one", configs=[name])
    ask(node, IncrementalAlterConfigsRequest(resources=[resource]), NOW)
    assert set(followed) == {("one", 0)} and node.partitions["one", 0].log.config.retention_ms == 1000
    followed.clear()
    delete(node, "one", NOW)
    assert set(followed) == {("one", 0)} and ("one", 0) not in node.partitions
    resource.resource_type, resource.resource_name, name.name = 4, "", "log.retention.ms"
    ask(node, IncrementalAlterConfigsRequest(resources=[resource]), NOW)
    for _ in range(3):
        node.tick(NOW)
    assert {partition.log.config.retention_ms for partition in node.partitions.values()} == {1000}
