"""A node with many replicas takes them up by and by, and answers in between."""

from __future__ import annotations

import pytest

from reference.node import replicas
from reference.node.node import Node
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.storage.disk import SimulatedDisk
from tests.node.test_metadata_snapshots import FOLDER, NOW, ask, start

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
    for _ in range(3):
        again.tick(NOW + 3)
    assert led(again) == PARTITIONS
