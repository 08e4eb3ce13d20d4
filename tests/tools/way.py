"""Counts what five operations call in the reference, from their first message until everything that they caused is quiet.

    python -m tests.tools.way [OPERATION] [--list]

Three nodes run in this process, and a message arrives at once. What a traced step sends is traced where it arrives, and so on.
For each operation:

    steps        inputs of a node: a message or a tick
    calls        calls of functions below `reference/`, without those of `reference/protocol` (encoding and decoding)
    functions    of these, each counted once: what a reader has to read
    files        files that these functions are in
    returns      how often a call enters a file that the operation had left before

With --list the calls are printed, one a line, indented by depth: this is the way through the code that a reader takes.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, Literal, cast

from linearizability.client.errors import error_of
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import commit_request, new_topic, produce_request
from linearizability.simulation.configuration import PLAINTEXT, PORTS, host_of, properties_of
from linearizability.simulation.reception import bytes_of, release
from linearizability.simulation.schedule import Schedule
from reference.controller.image import Endpoint
from reference.node.effects import Respond, Send
from reference.node.identity import Identity
from reference.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from reference.node.node import Node
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.offset_fetch import OffsetFetchRequest
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.record import Record
from reference.protocol.schema import Message
from reference.storage.disk import Disk
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk

REFERENCE = str(Path(__file__).parents[2] / "reference")
CODEC = REFERENCE + "/protocol/"
ALTER_PARTITION = (56).to_bytes(2)
SCHEDULE = Schedule(nodes=3, properties={"broker.session.timeout.ms": "6000"})
FOLDER = Path("/data")
TOPIC, NAME = "t", "way"
"""The topic, and the name of group, producer and cluster."""
CLIENT = 0
"""The client's connection to each node."""
MOST_STEPS = 1_000
COLUMNS = ("steps", "calls", "functions", "files", "returns")


@dataclass(slots=True)
class Way:
    """What an operation has called."""

    steps: int = 0
    calls: list[tuple[int, str, str]] = field(default_factory=list)
    """Depth, file and name of each call."""

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(REFERENCE) or code.co_filename.startswith(CODEC):
            return
        if code.co_name.startswith("<"):
            return
        depth, outer = 0, frame.f_back
        while outer is not None and outer.f_code.co_filename.startswith(REFERENCE):
            depth, outer = depth + 1, outer.f_back
        self.calls.append((depth, code.co_filename.removeprefix(REFERENCE + "/"), code.co_qualname))

    @contextmanager
    def traced(self, name: str = "") -> Iterator[None]:
        """Trace a step; `name` says whose and what it is."""
        self.steps += 1
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def row(self) -> tuple[int, ...]:
        """Steps, calls, functions, files and returns."""
        files = [file for _, file, _ in self.calls]
        entered = sum(file != before for file, before in zip(files, ["", *files], strict=False))
        functions = {(file, name) for _, file, name in self.calls}
        return self.steps, len(files), len(functions), len({*files}), entered - len({*files})


Traced = Literal["all", "what it sends", "nothing"]

Arriving = tuple[int, int | tuple[int, str], bytes, bool]
"""A node, the connection (for an answer: who answers, and its purpose), the frame, and whether to trace."""


class Nodes:
    """Three nodes, all brokers and voters, and one client."""

    new_way: type[Way] = Way

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        self.arriving: deque[Arriving] = deque()
        self.connections: dict[tuple[int, int, str], int] = {}
        """Who asks, which peer and on which purpose -> the connection at the peer."""
        self.answers: dict[int, bytes] = {}
        self.way = self.new_way()
        self.silent = 0
        """A node that is cut off."""
        self.awaited = b""
        """If not empty: the operation begins with the step that sends a request of this API."""
        self.nodes = {number: self._start(number) for number in SCHEDULE.node_ids}
        for number in self.nodes:
            self.step(number, partial(self.nodes[number].connected, CLIENT, "127.0.0.1", PLAINTEXT))
        self.until(lambda: all(map(self._sees_all, self.nodes.values())))

    def _start(self, number: int) -> Node:
        disk = SimulatedDisk()
        disk.make_folder(FOLDER)
        endpoints = (Endpoint(PLAINTEXT, host_of(number), PORTS[PLAINTEXT]),)
        directory = LogDirectory(cast(Disk, disk), FOLDER, id=uuid.UUID(int=1000 + number))
        identity = Identity(number, "way", uuid.UUID(int=number), endpoints)
        properties = properties_of(SCHEDULE, number)
        return Node(identity, properties, LogManager([directory]), cast(Any, Random(number)), self.now)

    def _sees_all(self, node: Node) -> bool:
        brokers = node.image.brokers.values()
        return node.is_serving and len(brokers) == len(self.nodes) and not any(broker.fenced for broker in brokers)

    # ---- steps

    def step(self, number: int, does: partial[None], is_traced: bool = False) -> None:
        """One input of a node, and what it sends."""
        if self.awaited:
            self.way, is_traced = self.new_way(), True
        before = len(self.arriving)
        with self.way.traced(name_of_step(number, does)) if is_traced else nullcontext():
            does()
            self.nodes[number].next_deadline()  # as drivers ask after each step
        for effect in self.nodes[number].take_effects():
            if isinstance(effect, Send):
                self.arriving.append((effect.peer, self._connection(number, effect), effect.frame[4:], is_traced))
            elif isinstance(effect, Respond) and effect.parts is not None:
                frame = b"".join(map(bytes_of, effect.parts))[4:]
                release(effect.parts)
                if effect.connection == CLIENT:
                    self.answers[number] = frame
                else:
                    asker, _, purpose = [*self.connections][effect.connection - 1]
                    self.arriving.append((asker, (number, purpose), frame, is_traced))
        if self.awaited:
            sent = [self.arriving.pop() for _ in range(len(self.arriving) - before)][::-1]
            is_found = any(isinstance(via, int) and frame[:2] == self.awaited for _, via, frame, _ in sent)
            self.arriving += [(*message, is_found) for *message, _ in sent]
            self.awaited = b"" if is_found else self.awaited

    def _connection(self, number: int, effect: Send) -> int:
        key = (number, effect.peer, effect.purpose)
        if key not in self.connections:
            self.connections[key] = len(self.connections) + 1
            listener = next(name for name, port in PORTS.items() if port == effect.port)
            self.nodes[effect.peer].connected(self.connections[key], "127.0.0.1", listener)
        return self.connections[key]

    def settle(self) -> None:
        """Deliver messages until none is on its way."""
        for _ in range(MOST_STEPS):
            if not self.arriving:
                return
            number, via, frame, is_traced = self.arriving.popleft()
            node = self.nodes[number]
            if isinstance(via, tuple):
                if self.silent not in (number, via[0]):
                    self.step(number, partial(node.answered, *via, frame, self.now), is_traced)
            elif self.silent not in (number, [*self.connections][via - 1][0]):
                self.step(number, partial(node.receive, via, bytearray(frame), self.now), is_traced)
        raise RuntimeError(f"messages are still on their way after {MOST_STEPS} steps")

    def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass."""
        for _ in range(MOST_STEPS):
            self.settle()
            if holds():
                return
            number = min(self.nodes, key=lambda each: self.nodes[each].next_deadline())
            self.now = max(self.now + 1, self.nodes[number].next_deadline())
            for each, node in self.nodes.items():
                self.step(each, partial(node.tick, self.now))
        raise RuntimeError("the nodes do not come to what is waited for")

    # ---- the client

    def ask(self, body: Message, version: int, *, of: int = 1, traced: Traced = "nothing") -> Any:
        """Ask a node; its answer, when all that it caused is quiet."""
        frame = encode_request(body.KEY, version, 1, "way", body)[4:]
        self.answers.pop(of, None)
        self.way = self.new_way() if traced != "nothing" else self.way
        self.step(of, partial(self.nodes[of].receive, CLIENT, bytearray(frame), self.now), traced == "all")
        if traced != "nothing":
            self.arriving = deque((*message, True) for *message, _ in self.arriving)
        self.settle()
        self.until(lambda: of in self.answers)
        return decode_response(body.KEY, version, self.answers.pop(of))[1]


class Operations(Nodes):
    """The five operations. The topic's leader is not the active controller, so that its requests are sent there."""

    def __init__(self) -> None:
        super().__init__()
        controller = next(number for number, node in self.nodes.items() if node.controller.is_active)
        self.groups = self._coordinator(OFFSETS_TOPIC, 0)
        self.transactions = self._coordinator(TRANSACTIONS_TOPIC, 1)
        self.leader, *_ = sorted(set(self.nodes) - {controller}, key=lambda number: number == self.transactions)
        replicas = [self.leader, controller, *(set(self.nodes) - {self.leader, controller})]
        self.follower = replicas[-1]
        self.ask(CreateTopicsRequest(topics=[new_topic(TOPIC, placed=[replicas])], timeout_ms=10_000), 7)
        self.until(lambda: all((TOPIC, 0) in node.partitions for node in self.nodes.values()))
        self.write()

    def _coordinator(self, topic: str, key_type: int) -> int:
        """The node that leads the only partition of an internal topic, once it answers for it."""
        request = FindCoordinatorRequest(key=NAME, key_type=key_type)
        self.until(lambda: self.ask(request, 3).error_code == ErrorCode.NONE)
        leader = self.nodes[1].image.topics[topic].partitions[0].leader
        offsets = [OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        loaded = [
            OffsetFetchRequest(group_id=NAME, topics=offsets),
            InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000),
        ][key_type]
        self.until(lambda: self.ask(loaded, 4, of=leader).error_code == ErrorCode.NONE)
        return leader

    def write(self, traced: Traced = "nothing", id: str | None = None, acks: int = -1, **fields: Any) -> None:
        records = bytes(build([Record(0, self.now, None, b"value")], **fields))
        body = produce_request({(TOPIC, 0): records}, acks=acks, transactional_id=id)
        check(error_of(self.ask(body, 9, of=self.leader, traced=traced)))

    def produce(self) -> None:
        """Produce with acks=all to a partition with two followers."""
        self.write("all")

    def fetch(self) -> None:
        """The followers' part of a produce: from the answers to their waiting fetches on."""
        self.write("what it sends")

    def shrink(self) -> None:
        """A follower is silent and behind, and the leader has it taken out of the ISR."""
        self.silent = self.follower
        self.write(acks=1)
        self.awaited = ALTER_PARTITION
        self.until(lambda: not self.awaited)

    def commit(self) -> None:
        """A group without members commits an offset."""
        check(error_of(self.ask(commit_request(NAME, {(TOPIC, 0): 1}), 8, of=self.groups, traced="all")))

    def end(self) -> None:
        """A transaction over one partition commits."""
        session = ProducerSession(NAME)
        given = self.ask(session.begin(), 4, of=self.transactions)
        session.become(given.producer_id, given.producer_epoch)
        check(error_of(self.ask(session.add_partitions([(TOPIC, 0)]), 3, of=self.transactions)))
        self.write(id=NAME, producer=BatchProducer(given.producer_id, given.producer_epoch, 0, transactional=True))
        check(self.ask(session.end(committed=True), 3, of=self.transactions, traced="all").error_code)


def name_of_step(number: int, does: partial[None]) -> str:
    """`does` is a call of one of a node's inputs."""
    name, arguments = does.func.__name__, does.args
    if name == "receive":
        return f"node {number} receives {APIS[int.from_bytes(arguments[1][:2])].name}"
    if name == "answered":
        return f"node {number} takes node {arguments[0]}'s answer: {arguments[1]}"
    return f"node {number}: {name}"


def check(code: int) -> None:
    if code:
        raise RuntimeError(name_of(code))


OPERATIONS: dict[str, Callable[[Operations], None]] = {
    "produce": Operations.produce,
    "follower fetch": Operations.fetch,
    "ISR shrink": Operations.shrink,
    "offset commit": Operations.commit,
    "end of transaction": Operations.end,
}


def way_of(operation: str) -> Way:
    """What one operation calls, in a cluster of its own."""
    nodes = Operations()
    nodes.settle()
    OPERATIONS[operation](nodes)
    return nodes.way


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operation", nargs="*", help=f"of {', '.join(OPERATIONS)}; all where none is named")
    parser.add_argument("--list", action="store_true", help="print the calls")
    options = parser.parse_args()
    print(f"{'operation':20}" + "".join(f"{name:>10}" for name in COLUMNS))
    for operation in options.operation or OPERATIONS:
        way = way_of(operation)
        print(f"{operation:20}" + "".join(f"{number:10}" for number in way.row()))
        for depth, file, name in way.calls if options.list else ():
            print(f"{'  ' * depth}{file}: {name}")


if __name__ == "__main__":
    main()
