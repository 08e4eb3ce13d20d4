"""Counts what five operations call in the reference, from their first message until everything that they caused is quiet.

    python -m tests.tools.way [OPERATION] [--list]

Three nodes run in this process, and a message arrives at once. The messages of a traced step are traced where they arrive.
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
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from linearizability.client.errors import error_of
from linearizability.client.producer_session import ProducerSession
from linearizability.client.requests import commit_request, new_topic, produce_request
from linearizability.simulation.configuration import properties_of
from linearizability.simulation.schedule import Schedule
from reference.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from reference.node.node import Node
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.offset_fetch import OffsetFetchRequest
from reference.protocol.primitives import FIRST_OFFSET, NodeId
from reference.protocol.records.batch import BatchProducer, build
from reference.protocol.records.record import Record
from reference.protocol.schema import Message
from tests.node.three_nodes import CLIENT, ThreeNodes

REFERENCE = str(Path(__file__).parents[2] / "reference")
CODEC = REFERENCE + "/protocol/"
ALTER_PARTITION = (56).to_bytes(2)
OF_SIMULATION = properties_of(Schedule(nodes=3, properties={"broker.session.timeout.ms": "6000"}), 1)
PROPERTIES = {name: value for name, value in OF_SIMULATION.items() if name not in ("node.id", "listeners")}
TOPIC, NAME = "t", "way"
"""The topic, and the name of group, producer and cluster."""
COLUMNS = ("steps", "calls", "functions", "files", "returns")


@dataclass(slots=True)
class Way:
    """The calls of an operation."""

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
        """Trace a step; `name` describes it, with its node."""
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


class Nodes(ThreeNodes):
    """Three nodes, all brokers and voters, and one client; the messages of a traced step are traced where they arrive."""

    new_way: type[Way] = Way

    def __init__(self) -> None:
        self.way = self.new_way()
        self.silent: NodeId | None = None
        """A node that is cut off."""
        self.awaited = b""
        """If not empty: the operation begins with the step that sends a request of this API."""
        self._is_traced = False
        super().__init__(**PROPERTIES)
        self.run_until(lambda: all(node.has_caught_up for node in self.nodes.values()))

    # ---- steps

    def _take(self, id: NodeId, method: Any, *arguments: Any) -> None:
        with self.way.traced(name_of_step(id, method, arguments)) if self._is_traced else nullcontext():
            method(self.nodes[id], *arguments, self.now)
            self.nodes[id].next_deadline()  # as drivers ask after each step

    def _step(self, id: NodeId, method: Any, *arguments: Any) -> None:
        """Run one input of a node, and mark its messages as traced or not."""
        if self.awaited:
            self.way, self._is_traced = self.new_way(), True
        before = len(self._under_way)
        super()._step(id, method, *arguments)
        sent = [self._under_way.pop() for _ in range(len(self._under_way) - before)][::-1]
        if self.awaited:
            self._is_traced = any(each.take is Node.receive and each.arguments[1][:2] == self.awaited for each in sent)
            self.awaited = b"" if self._is_traced else self.awaited
        self._under_way.extend(each._replace(is_traced=self._is_traced) for each in sent)
        self._is_traced = False

    def deliver(self) -> bool:
        while self._under_way and self.silent in self._ends(self._under_way[0]):
            self._under_way.popleft()
        self._is_traced = bool(self._under_way) and self._under_way[0].is_traced
        return super().deliver()

    def _ends(self, event: Any) -> tuple[NodeId, ...]:
        """The nodes between which a message travels."""
        if event.take is Node.answered:
            return event.node, event.arguments[0]
        askers = [asker for (asker, _, _), each in self._connections.items() if each == event.connection]
        return event.node, *askers

    def settle(self) -> None:
        """Deliver messages until none is on its way."""
        while self.deliver():
            pass

    # ---- the client

    def asked(self, body: Message, version: int, *, of: int = 1, traced: Traced = "nothing") -> Any:
        """Send a request to a node. Return the response after all messages that it caused are delivered."""
        frame = encode_request(body.KEY, version, 1, "way", body)[4:]
        self.answers.clear()
        self.way = self.new_way() if traced != "nothing" else self.way
        self._is_traced = traced == "all"
        self._step(NodeId(of), Node.receive, CLIENT, frame)
        if traced != "nothing":
            self._under_way = deque(each._replace(is_traced=True) for each in self._under_way)
        self.settle()
        self.run_until(lambda: self.answers)
        return decode_response(body.KEY, version, self.answers.pop()[1])[1]


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
        self.asked(CreateTopicsRequest(topics=[new_topic(TOPIC, placed=[replicas])], timeout_ms=10_000), 7)
        self.run_until(lambda: all((TOPIC, 0) in node.partitions for node in self.nodes.values()))
        self.write()

    def _coordinator(self, topic: str, key_type: int) -> int:
        """Wait until the coordinator has loaded the only partition of an internal topic; return its node."""
        request = FindCoordinatorRequest(key=NAME, key_type=key_type)
        self.run_until(lambda: self.asked(request, 3).error_code == ErrorCode.NONE)
        leader = self.nodes[NodeId(1)].image.topics[topic].partitions[0].leader
        offsets = [OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        loaded = [
            OffsetFetchRequest(group_id=NAME, topics=offsets),
            InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000),
        ][key_type]
        self.run_until(lambda: self.asked(loaded, 4, of=leader).error_code == ErrorCode.NONE)
        return leader

    def write(self, traced: Traced = "nothing", id: str | None = None, acks: int = -1, **fields: Any) -> None:
        records = bytes(build([Record(FIRST_OFFSET, self.now, None, b"value")], **fields))
        body = produce_request({(TOPIC, 0): records}, acks=acks, transactional_id=id)
        check(error_of(self.asked(body, 9, of=self.leader, traced=traced)))

    def produce(self) -> None:
        """Produce with acks=all to a partition with two followers."""
        self.write("all")

    def fetch(self) -> None:
        """The followers' part of a produce, which begins with the responses to their waiting fetches."""
        self.write("what it sends")

    def shrink(self) -> None:
        """Let a silent follower lag, so that the leader removes it from the ISR."""
        self.silent = self.follower
        self.write(acks=1)
        self.awaited = ALTER_PARTITION
        self.run_until(lambda: not self.awaited)
        self.settle()

    def commit(self) -> None:
        """Commit an offset of a group without members."""
        check(error_of(self.asked(commit_request(NAME, {(TOPIC, 0): 1}), 8, of=self.groups, traced="all")))

    def end(self) -> None:
        """Commit a transaction over one partition."""
        session = ProducerSession(NAME)
        given = self.asked(session.begin(), 4, of=self.transactions)
        session.become(given.producer_id, given.producer_epoch)
        check(error_of(self.asked(session.add_partitions([(TOPIC, 0)]), 3, of=self.transactions)))
        self.write(id=NAME, producer=BatchProducer(given.producer_id, given.producer_epoch, 0, transactional=True))
        check(self.asked(session.end(committed=True), 3, of=self.transactions, traced="all").error_code)


def name_of_step(id: NodeId, method: Any, arguments: tuple[Any, ...]) -> str:
    """The name of one input of a node; `method` is the method of Node that takes it."""
    if method is Node.receive:
        return f"node {id} receives {APIS[int.from_bytes(arguments[1][:2])].name}"
    if method is Node.answered:
        return f"node {id} takes node {arguments[0]}'s answer: {arguments[1]}"
    return f"node {id}: {method.__name__}"


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
    """The calls of one operation, in a cluster of its own."""
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
