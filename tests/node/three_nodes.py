"""Three nodes of one cluster in memory: their messages arrive at once and in order, and time moves only when no
message is in flight. For tests that count the cost of one event, without a clock."""

from __future__ import annotations

import random
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from reference.controller.image import Endpoint
from reference.node.effects import Close, HangUp, Respond, Send
from reference.node.identity import Identity
from reference.node.node import Node
from reference.node.release import versions_of
from reference.protocol.codec_writer import Part
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.produce import ProduceRequest, ProduceResponse
from reference.protocol.primitives import NodeId, TimestampMs
from reference.protocol.schema import Message
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk
from tests.replication.replicas import batch

IDS = (NodeId(1), NodeId(2), NodeId(3))
NOW = TimestampMs(1_700_000_000_000)
FOLDER = Path("/data")
CLIENT = 4711
"""The client's connection, to each node."""
PEERS = 5000
"""Connections between nodes have ids from here on."""
PORTS = {"PLAINTEXT": 9092, "CONTROLLER": 9093}
SOURCES = "/reference/"
"""In the paths of the files whose functions `calls_of` counts."""
MOST_EVENTS = 1_000_000
"""The largest number of events in one wait."""


class _Event(NamedTuple):
    """A pending input of a node: the method, and its arguments without the time."""

    node: NodeId
    take: Callable[..., None]
    arguments: tuple[Any, ...]
    connection: int | None = None
    """The connection whose end drops the event; None if it arrives in any case."""
    is_traced: bool = False
    """Whether `tests/tools/way.py` traces the effects of the event."""


class ThreeNodes:
    """The nodes, their disks, and the messages in flight between them."""

    def __init__(self, **properties: str) -> None:
        self.now = NOW
        self.properties = properties
        self.nodes: dict[NodeId, Node] = {}
        self.disks = {id: SimulatedDisk() for id in IDS}
        self.answers: list[tuple[NodeId, bytes]] = []
        """The responses to the client, with the node."""
        self._under_way: deque[_Event] = deque()
        self._connections: dict[tuple[NodeId, NodeId, str], int] = {}
        """Asking node, asked node and purpose -> the connection's id at the asked node."""
        self.steps = 0
        for id in IDS:
            self.disks[id].make_folder(FOLDER)
            self.disks[id].sync_folder(FOLDER.parent)
            self.start(id)
        self.run_until(lambda: all(self._knows_all(node) for node in self.nodes.values()))

    def _knows_all(self, node: Node) -> bool:
        return len(node.image.brokers) == len(IDS) and not any(each.fenced for each in node.image.brokers.values())

    def start(self, id: NodeId) -> None:
        """Start a node, for the first time or again."""
        endpoint = Endpoint("PLAINTEXT", f"node-{id}", PORTS["PLAINTEXT"])
        identity = Identity(id, "simulated-cluster-id00", uuid.UUID(int=id * 1000 + self.steps), (endpoint,))
        directory = LogDirectory(self.disks[id], FOLDER, id=uuid.UUID(int=1000 + id))
        properties = {
            "controller.quorum.voters": ",".join(f"{each}@node-{each}:{PORTS['CONTROLLER']}" for each in IDS),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": ",".join(f"{name}://node-{id}:{port}" for name, port in PORTS.items()),
            "log.index.size.max.bytes": "2048",
        } | self.properties
        self.nodes[id] = Node(identity, properties, LogManager([directory]), random.Random(id), self.now)
        self.nodes[id].connected(CLIENT, "client", "PLAINTEXT")
        self._carry_out(id)

    def kill(self, id: NodeId) -> None:
        """End the process; messages in flight to it or from it are lost."""
        del self.nodes[id]
        for asker, asked, purpose in [*self._connections]:
            if id in (asker, asked):
                self._hang_up(asker, asked, purpose)
                if asker != id:
                    self._lose(asker, id, purpose)

    def _lose(self, asker: NodeId, asked: NodeId, purpose: str) -> None:
        """Lose a node's requests to another."""
        self._under_way.append(_Event(asker, Node.unreachable, (asked, purpose)))

    # ---- time

    def run_until(self, is_over: Any, within_ms: int = 120_000) -> None:
        """Deliver messages and let time pass until a condition holds."""
        end = self.now + within_ms
        for _ in range(MOST_EVENTS):
            if is_over():
                return
            if not self.deliver():
                deadline = min(node.next_deadline() for node in self.nodes.values())
                self.now = max(TimestampMs(self.now + 1), deadline)
                assert self.now <= end, "not within the time"
                for id in [*self.nodes]:
                    if self.nodes[id].next_deadline() <= self.now:
                        self._step(id, Node.tick)
        raise AssertionError("too many events")

    def deliver(self) -> bool:
        """Deliver the first message in flight; return False if there is none."""
        if not self._under_way:
            return False
        event = self._under_way.popleft()
        is_open = event.connection is None or event.connection in self._connections.values()
        if is_open and event.node in self.nodes:
            self._step(event.node, event.take, *event.arguments)
        return True

    def come_to_rest(self) -> None:
        """Deliver until nothing is in flight or due, in as little time as possible."""
        self.run_until(lambda: not self._under_way and all(n.next_deadline() > self.now for n in self.nodes.values()))

    def _step(self, id: NodeId, method: Any, *arguments: Any) -> None:
        self.steps += 1
        if method in (Node.receive, Node.answered):
            *others, frame = arguments
            shared = bytearray(frame)
            self._take(id, method, *others, memoryview(shared))
            shared[:] = bytes(len(shared))  # the runtime receives the next frame into it
        else:
            self._take(id, method, *arguments)
        self._carry_out(id)

    def _take(self, id: NodeId, method: Any, *arguments: Any) -> None:
        """Handle one input of a node."""
        method(self.nodes[id], *arguments, self.now)

    def _carry_out(self, id: NodeId) -> None:
        while effects := self.nodes[id].take_effects():
            for effect in effects:
                if isinstance(effect, Send):
                    self._send(id, effect)
                elif isinstance(effect, HangUp):
                    self._hang_up(id, effect.peer, effect.purpose)
                elif isinstance(effect, Respond):
                    self._respond(id, effect)
                elif isinstance(effect, Close):
                    self._close(id, effect)

    def _send(self, asker: NodeId, effect: Send) -> None:
        asked = effect.peer
        if asked not in self.nodes:
            self._lose(asker, asked, effect.purpose)
            return
        key = asker, asked, effect.purpose
        if key not in self._connections:
            self.steps += 1
            connection = self._connections[key] = PEERS + self.steps
            listener = next(name for name, port in PORTS.items() if port == effect.port)
            self.nodes[asked].connected(connection, f"node-{asker}", listener)
        connection = self._connections[key]
        self._under_way.append(_Event(asked, Node.receive, (connection, effect.frame[4:]), connection))

    def _hang_up(self, asker: NodeId, asked: NodeId, purpose: str) -> None:
        connection = self._connections.pop((asker, asked, purpose), None)
        if connection is not None and asked in self.nodes:
            self.nodes[asked].disconnected(connection)

    def _respond(self, id: NodeId, effect: Respond) -> None:
        frame = frame_of(effect)
        if effect.connection == CLIENT:
            self.answers.append((id, frame))
        for (asker, asked, purpose), connection in self._connections.items():
            if asked == id and connection == effect.connection:
                self._under_way.append(_Event(asker, Node.answered, (id, purpose, frame), connection))

    def _close(self, id: NodeId, effect: Close) -> None:
        """Close a client's connection on the node's side."""

    # ---- a client

    def ask(self, id: NodeId, body: Message) -> None:
        frame = encode_request(body.KEY, versions_of(body.KEY)[1], 1, "test", body)[4:]
        self._step(id, Node.receive, CLIENT, frame)

    def call(self, id: NodeId, body: Message) -> Message:
        """Send a request, and wait for the response."""
        self.answers.clear()
        self.ask(id, body)
        self.run_until(lambda: self.answers)
        return decode_response(body.KEY, versions_of(body.KEY)[1], self.answers.pop()[1])[1]

    def create(self, name: str, partitions: int, factor: int = 3) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
        self.call(IDS[0], CreateTopicsRequest(topics=[topic], timeout_ms=60_000))

    def produce(self, id: NodeId, topic: str, indexes: list[int]) -> ProduceResponse:
        node = self.nodes[id]
        data = [ProduceRequest.PartitionProduceData(index=index, records=bytes(batch(b"a"))) for index in indexes]
        wanted = ProduceRequest.TopicProduceData(topic_id=node.image.topics[topic].id, partition_data=data)
        answer = self.call(id, ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[wanted]))
        assert isinstance(answer, ProduceResponse)
        return answer

    def is_in_sync(self, topic: str) -> bool:
        """Whether the leaders of all of a topic's partitions count all three replicas in sync."""
        replicas = [each for node in self.nodes.values() for each in node.partitions.values() if each.topic == topic]
        counted = sum(each.is_leader and len(each.state.isr) == len(IDS) for each in replicas)
        return counted == len(self.nodes[IDS[0]].image.topics[topic].partitions)

    def led(self, id: NodeId, topic: str) -> list[int]:
        return [key[1] for key, each in self.nodes[id].partitions.items() if key[0] == topic and each.is_leader]


def calls_of(act: Callable[[], object], within: str = SOURCES) -> int:
    """The number of Python functions that an act calls: its cost, equal on every machine.

    Those of the reference's files are counted; with `within=""` also those that dataclasses have to compare messages.
    """
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and within in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def frame_of(effect: Respond) -> bytes:
    """The response's frame without its size."""
    return joined(effect.parts or ())[4:]


def joined(parts: Iterable[Part]) -> bytes:
    """The parts of a response, those that are read from files among them."""
    return b"".join(part if isinstance(part, bytes) else _bytes(part) for part in parts)


def _bytes(part: Any) -> bytes:
    if isinstance(part, (bytearray, memoryview)):
        return bytes(part)
    found = part.read()
    part.release()
    return bytes(found)
