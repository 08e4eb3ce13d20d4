"""A node keeps its metadata log short by snapshots, and starts from them."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any, cast

from reference.controller.image import Endpoint
from reference.node.identity import Identity
from reference.node.node import Node
from reference.node.release import versions_of
from reference.protocol.frames import encode_request
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.schema import Message
from reference.storage.disk import Disk, SimulatedDisk
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager

FOLDER = Path("/data")
PROPERTIES = {"metadata.log.max.record.bytes.between.snapshots": "3000", "log.index.size.max.bytes": "2048"}
NOW = 1_700_000_000_000


def start(disk: SimulatedDisk, now: int) -> Node:
    identity = Identity(1, "simulated-cluster-id00", uuid.UUID(int=now), (Endpoint("PLAINTEXT", "127.0.0.1", 9092),))
    directory = LogDirectory(cast(Disk, disk), FOLDER, id=uuid.UUID(int=4711))
    return Node(identity, PROPERTIES, LogManager([directory]), cast(Any, random.Random(now)), now)


def ask(node: Node, body: Message, now: int) -> None:
    """Put a client's request to a node; the answer is not looked at."""
    client = 4711
    node.connected(client, "127.0.0.1", "PLAINTEXT")
    node.receive(client, encode_request(body.KEY, versions_of(body.KEY)[1], 1, "test", body)[4:], now)
    node.disconnected(client)


def create(node: Node, name: str, now: int) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    ask(node, CreateTopicsRequest(topics=[topic]), now)


def delete(node: Node, name: str, now: int) -> None:
    body = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)])
    ask(node, body, now)


def snapshots(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list_folder(FOLDER / "__cluster_metadata-0") if name.endswith(".checkpoint")]


def test_snapshots_are_written_and_tell_what_the_log_told() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    disk.sync_folder(FOLDER.parent)
    node = start(disk, NOW)
    assert snapshots(disk) == []
    for number in range(60):
        create(node, f"topic-{number}", NOW + number)
        if number % 3:
            delete(node, f"topic-{number}", NOW + number)
    assert snapshots(disk)
    before = node.image
    assert len(before.topics) == 20
    disk.lose_power(random.Random(1))
    again = start(disk, NOW + 1000)
    assert {name: topic.id for name, topic in again.image.topics.items()} == {
        name: topic.id for name, topic in before.topics.items()
    }
    assert again.image.features == before.features
    assert again.is_serving and len(again.partitions) == 20
