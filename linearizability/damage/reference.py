"""Folders of the reference, and starts on them, in this process and on a simulated disk."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from linearizability.damage.content import Producer, create_topics, fill, find_coordinators
from linearizability.damage.folder import Folder
from linearizability.simulation.reception import bytes_of, release
from reference.controller.image import Endpoint
from reference.node.effects import Respond
from reference.node.identity import Identity
from reference.node.node import Node
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.primitives import NodeId, TimestampMs
from reference.protocol.schema import Message
from reference.storage.checkpoints import MetaProperties, write_meta_properties
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk

HOME = Path("/data")
NOW = TimestampMs(1_700_000_000_000)
CHECKPOINTED_AFTER_MS = 70_000
"""The time after which closed segments are flushed, and checkpoints written."""
CLUSTER, DIRECTORY = "simulated-cluster-id00", uuid.UUID(int=4711)
PROPERTIES = {
    "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1", "log.index.size.max.bytes": "2048",
    "metadata.log.max.record.bytes.between.snapshots": "3000", "transaction.state.log.replication.factor": "1",
    "offsets.topic.replication.factor": "1", "transaction.state.log.min.isr": "1",
    "metadata.log.segment.bytes": "2000",
}  # fmt: skip
MOST_TICKS = 50
RESTARTS = 2


class NoAnswer(Exception):
    """A request got no response: the node delays it, or closed the connection."""


class Started:
    """A running node, and its log messages."""

    def __init__(self, disk: SimulatedDisk, now: TimestampMs, others: Sequence[LogDirectory] = ()) -> None:
        """Start a node. Errors: any exception of the start."""
        self.disk = disk
        self.said: list[tuple[str, str]] = []
        self.now = now
        self._correlation = 0
        endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)

        def say(level: str, message: str) -> None:
            self.said.append((level, message))

        logs = LogManager([LogDirectory(disk, HOME, say, DIRECTORY), *others], say=say)
        identity = Identity(NodeId(1), CLUSTER, uuid.UUID(int=now), endpoints)
        self.node = Node(
            identity,
            PROPERTIES,
            logs,
            Random(now),
            now,
            log=say,
        )
        self.node.connected(1, "127.0.0.1", "PLAINTEXT")

    def ask(self, body: Message, version: int) -> Any:
        """Send a request, and return the response. Errors: NoAnswer."""
        self._correlation += 1
        frame = encode_request(body.KEY, version, self._correlation, "damage", body)[4:]
        self.node.receive(1, bytearray(frame), self.now)
        for _ in range(MOST_TICKS):
            for answer in self._answers():
                return decode_response(body.KEY, version, answer)[1]
            self.tick(100)
        raise NoAnswer(f"{type(body).__name__} is not answered")

    def _answers(self) -> Iterator[bytes]:
        for effect in self.node.take_effects():
            if isinstance(effect, Respond) and effect.parts is not None:
                frame = b"".join(map(bytes_of, effect.parts))
                release(effect.parts)
                yield frame[4:]

    def tick(self, after_ms: int) -> None:
        self.now += after_ms
        self.node.tick(self.now)


def make_folder(is_clean: bool) -> tuple[Folder, Producer]:
    """A filled folder after a clean shutdown, or after a kill between two checkpoints."""
    disk = SimulatedDisk()
    disk.make_folder(HOME)
    write_meta_properties(disk, HOME, MetaProperties(CLUSTER, NodeId(1), DIRECTORY))
    started = Started(disk, NOW)
    create_topics(started.ask)
    find_coordinators(started.ask, lambda: started.tick(100))
    fill(started.ask, 0, NOW)
    for _ in range(2):
        started.tick(CHECKPOINTED_AFTER_MS)
    for _ in range(RESTARTS):
        started.node.shut_down(started.now)
        started = Started(disk, started.now + 1)
        started.tick(100)
    producer = fill(started.ask, 1, NOW)
    started.tick(6_000)  # replica.high.watermark.checkpoint.interval.ms
    if is_clean:
        started.node.shut_down(started.now)
    return dict(_files(disk, HOME)), producer


def start(folder: Folder) -> Started:
    """Start a node on a copy of a folder. Errors: any exception of the start."""
    disk = SimulatedDisk()
    disk.make_folder(HOME)
    for path, data in folder.items():
        place = HOME / path
        disk.make_folder(place.parent)
        file = disk.open_file(place)
        if data:
            file.append(data)
    return Started(disk, NOW + 10 * CHECKPOINTED_AFTER_MS)


def _files(disk: SimulatedDisk, folder: Path) -> Iterator[tuple[str, bytes]]:
    for name in disk.list_folder(folder):
        if disk.is_folder(folder / name):
            yield from _files(disk, folder / name)
        else:
            yield str((folder / name).relative_to(HOME)), disk.read_file(folder / name)
