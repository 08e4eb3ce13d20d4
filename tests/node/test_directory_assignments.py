"""A broker on a replaced disk reports where its replicas are, and may lead again."""

from __future__ import annotations

import random
import uuid

from linearizability.damage import reference as own
from reference.controller.image import Endpoint
from reference.node.identity import Identity
from reference.node.node import Node
from reference.protocol.primitives import NodeId, TimestampMs
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk
from tests.node.test_metadata_snapshots import create

NODE = NodeId(1)
OLD, NEW = uuid.UUID(int=1001), uuid.UUID(int=1002)


def start(disk: SimulatedDisk, directory: uuid.UUID, now: TimestampMs) -> Node:
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    identity = Identity(NODE, own.CLUSTER, uuid.UUID(int=now), endpoints)
    return Node(
        identity,
        own.PROPERTIES,
        LogManager([LogDirectory(disk, own.HOME, id=directory)]),
        random.Random(now),
        now,
    )


def test_a_replica_in_a_directory_of_another_id_is_assigned_to_it_and_led_again() -> None:
    disk = SimulatedDisk()
    disk.make_folder(own.HOME)
    first = start(disk, OLD, own.NOW)
    create(first, "t", own.NOW)
    assert first.image.topics["t"].partitions[0].directory_of(NODE) == OLD
    first.shut_down(own.NOW + 1)
    again = start(disk, NEW, own.NOW + 2)
    for step in range(20):
        again.tick(own.NOW + 100 * step)
    partition = again.image.topics["t"].partitions[0]
    assert (partition.directory_of(NODE), partition.leader) == (NEW, 1)
    assert again.replicas.partition("t", 0).is_leader
    end = again.image.end_offset
    for step in range(20, 60):
        again.tick(own.NOW + 100 * step)
    assert again.image.end_offset == end, "nothing is reported twice"
