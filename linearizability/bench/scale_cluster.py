"""The cluster that `bench scale` measures: its topics, and the meter of times, CPU, memory and descriptors."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linearizability.bench.brokers import cpu_seconds, descriptors, resident_mb
from linearizability.bench.load import (
    CREATE_TOPICS,
    CREATE_TOPICS_VERSION,
    METADATA,
    METADATA_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    LoadConnection,
    check,
    drive_encoded,
    make_batch,
    produce_body,
)
from linearizability.client.requests import new_topic, produce_request
from linearizability.targets import Node, TargetError
from linearizability.targets.cluster import ClusterTarget
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.messages.produce import ProduceRequest, ProduceResponse

TOPIC_PARTITIONS = 1_000
"""Partitions of a topic. Kafka's controller accepts at most 10,000 records of one request."""
REQUEST_PARTITIONS = 200
"""Records in a produce request, each for another partition."""
CREATED_WITHIN_S, SERVED_WITHIN_S = 600.0, 1200.0
IDLE_S, SETTLE_S, LOAD_S, WARMUP_S = 10.0, 3.0, 5.0, 3.0
LOADS = 3
IN_FLIGHT = 5
STARTED_WITHIN_S, STOPPED_WITHIN_S = 1200.0, 600.0
LOOK_EVERY_S = 0.1
REST = 2.0
"""Pause after a look as a multiple of its duration, since describing thousands of partitions also loads the broker."""

Key = tuple[str, int]
"""A partition: its topic's name, and its index."""


@dataclass
class Topics:
    """The bench's topics on a target, and the connections to it."""

    target: ClusterTarget
    count: int

    @property
    def sizes(self) -> dict[str, int]:
        """Return each topic's number of partitions."""
        whole, rest = divmod(self.count, TOPIC_PARTITIONS)
        sizes = [TOPIC_PARTITIONS] * whole + [rest] * (rest > 0)
        return {f"scale-{number}": size for number, size in enumerate(sizes)}

    @property
    def keys(self) -> set[Key]:
        return {(name, index) for name, size in self.sizes.items() for index in range(size)}

    def alive(self) -> list[Node]:
        return [node for node in self.target.nodes if self.target.running(node.id)]

    def create(self) -> None:
        """Errors: TargetError."""
        connection = connect(self.alive()[0])
        connection.socket.settimeout(CREATED_WITHIN_S)
        factor = min(3, len(self.target.nodes))
        for name, size in self.sizes.items():
            topic = new_topic(name, size, replication_factor=factor)
            body = CreateTopicsRequest(topics=[topic], timeout_ms=int(CREATED_WITHIN_S * 1000))
            code = connection.call(CREATE_TOPICS, CREATE_TOPICS_VERSION, body).topics[0].error_code
            if code:
                raise TargetError(f"{self.target.spec}: topic {name} was refused with error {code}")
        connection.socket.close()

    def look(self, connection: LoadConnection, names: Iterable[str]) -> MetadataResponse:
        """Return one node's metadata of some topics."""
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        body = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        found: MetadataResponse = connection.call(METADATA, METADATA_VERSION, body)
        return found

    def await_in_sync(self) -> None:
        """Wait until every ISR is full. Requests one topic at a time, which costs little. Errors: TargetError."""
        connection = connect(self.alive()[0])
        until = time.monotonic() + SERVED_WITHIN_S
        for name, size in self.sizes.items():
            while True:
                found = self.look(connection, [name]).topics[0].partitions
                missing = size - sum(len(each.isr_nodes) == len(each.replica_nodes) for each in found)
                if not missing:
                    break
                if time.monotonic() > until:
                    raise TargetError(f"{self.target.spec}: {missing} partitions of {name} are not in sync")
                time.sleep(LOOK_EVERY_S)
        connection.socket.close()

    def serve(self) -> None:
        """Wait until every partition has acknowledged a record with acks=all. Errors: TargetError."""
        batch = bytes(make_batch(1, 10))
        pending = self.keys
        until = time.monotonic() + SERVED_WITHIN_S
        while pending:
            if time.monotonic() > until:
                raise TargetError(
                    f"{self.target.spec}: {len(pending)} partitions take no record: {sorted(pending)[:3]}"
                )
            connections: dict[int, LoadConnection] = {}
            began, looked_s = time.monotonic(), 0.0
            try:
                connections |= {node.id: connect(node) for node in self.alive()}
                answer = self.look(next(iter(connections.values())), sorted({name for name, _ in pending}))
                looked_s = time.monotonic() - began
                by_leader = led_by(answer, pending)
                for leader, keys in by_leader.items():
                    if leader in connections:
                        pending -= produce(connections[leader], keys, batch)
            except OSError:
                pass  # a node that starts or ends: it is asked again
            finally:
                for connection in connections.values():
                    connection.socket.close()
            if pending:
                time.sleep(max(LOOK_EVERY_S, REST * looked_s))


def connect(node: Node) -> LoadConnection:
    return LoadConnection(node.host, node.port)


def led_by(answer: MetadataResponse, wanted: set[Key]) -> dict[int, list[Key]]:
    """Return the wanted partitions by leader, without those that have none."""
    found: dict[int, list[Key]] = defaultdict(list)
    for topic in answer.topics:
        for each in topic.partitions:
            key = topic.name or "", each.partition_index
            if key in wanted and each.leader_id >= 0:
                found[each.leader_id].append(key)
    return found


def produce(connection: LoadConnection, keys: Sequence[Key], batch: bytes) -> set[Key]:
    """Send a record to each partition, all before the first response is read. Returns the partitions that accepted one."""
    requests = [keys[at : at + REQUEST_PARTITIONS] for at in range(0, len(keys), REQUEST_PARTITIONS)]
    for some in requests:
        connection.socket.sendall(encode_request(PRODUCE, PRODUCE_VERSION, 1, "bench", _records(some, batch)))
    taken: set[Key] = set()
    for _ in requests:
        _, body = decode_response(PRODUCE, PRODUCE_VERSION, connection.receive())
        assert isinstance(body, ProduceResponse)
        taken |= {
            (topic.name, each.index)
            for topic in body.responses
            for each in topic.partition_responses
            if not each.error_code
        }
    return taken


def _records(keys: Iterable[Key], batch: bytes) -> ProduceRequest:
    return produce_request(dict.fromkeys(keys, batch), timeout_ms=20_000)


# ---- what is measured


@dataclass
class Meter:
    """Times and CPU of stages, under the names of the row's columns."""

    target: ClusterTarget
    row: dict[str, Any]
    progress: Callable[[str], None]
    gone_cpu_s: float = 0.0
    """CPU seconds of processes that have ended."""

    def pids(self) -> list[int]:
        processes = [self.target.member(node.id).process for node in self.target.nodes]
        return [each.pid for each in processes if each.running and each.pid is not None]

    def cpu_s(self) -> float:
        return self.gone_cpu_s + sum(cpu_seconds(pid) for pid in self.pids())

    def stage(self, name: str, act: Callable[[], object]) -> None:
        """Carry out a stage: `NAME_s` is its time, `NAME_cpu_s` the CPU of all nodes in it."""
        self.progress(name)
        began, cpu = time.monotonic(), self.cpu_s()
        act()
        self.row[f"{name}_s"] = round(time.monotonic() - began, 3)
        self.row[f"{name}_cpu_s"] = round(self.cpu_s() - cpu, 3)

    def kill(self, node: int) -> None:
        pid = self.target.member(node).process.pid
        self.gone_cpu_s += cpu_seconds(pid) if pid is not None else 0
        self.target.kill(node)

    def stop(self, node: int) -> None:
        """Stop a node cleanly, without a time limit: `stop_s`. Errors: TargetError if it does not stop cleanly."""
        self.progress("stop")
        process = self.target.member(node).process
        began, pid = time.monotonic(), process.pid
        self.gone_cpu_s += cpu_seconds(pid) if pid is not None else 0
        if not process.stop(STOPPED_WITHIN_S):
            raise TargetError(f"node {node} of {self.target.spec} did not end within {STOPPED_WITHIN_S:.0f} s")
        self.row.setdefault("stop_s", round(time.monotonic() - began, 3))

    def start(self, name: str, node: int, is_back: Callable[[], object]) -> None:
        """Start a node that ended: `NAME_s` until `is_back` returns, and its memory then and at most."""
        self.gone_cpu_s = 0

        def start() -> None:
            self.target.restart(node, wait=False)
            self.target.await_answers([self.target.member(node)], STARTED_WITHIN_S)
            self.row[f"{name}_answers_s"] = round(time.monotonic() - began, 3)
            is_back()

        began = time.monotonic()
        self.stage(name, start)
        (pid,) = self.pids()
        self.row[f"{name}_mb"] = round(resident_mb(pid))
        self.row[f"{name}_peak_mb"] = round(peak_mb(pid))

    def holdings(self) -> tuple[float, int]:
        """Return megabytes and descriptors of all nodes."""
        pids = self.pids()
        return sum(map(resident_mb, pids)), sum(map(descriptors, pids))

    def log_lines(self) -> int:
        logs = [log for node in self.target.nodes for log in self.target.logs(node.id)]
        return sum(log.read_bytes().count(b"\n") for log in logs if log.exists())

    def idle(self, name: str) -> None:
        """`NAME`: milliseconds of CPU a second, while there is nothing to do."""
        self.progress(name)
        time.sleep(SETTLE_S)
        cpu = self.cpu_s()
        time.sleep(IDLE_S)
        self.row[name] = round((self.cpu_s() - cpu) / IDLE_S * 1000, 2)

    def load(self, connections: Sequence[LoadConnection], leader: str, topic: str, acks: int) -> None:
        """Measure one partition's rate and the CPU of all nodes per request, with several in flight and with one."""
        body = produce_body(topic, make_batch(1, 100), acks)
        request = encode_request(PRODUCE, PRODUCE_VERSION, 1, "bench", body)
        drive(connections, request, WARMUP_S)
        self.row["loaded"] = leader
        for prefix, in_flight in (("", IN_FLIGHT), ("single_", 1)):
            self.progress(f"{prefix}load")
            self.load_with(prefix, lambda seconds, most=in_flight: drive(connections, request, seconds, most))

    def load_with(self, prefix: str, driver: Callable[[float], int]) -> None:
        """Record the turn with the least CPU per request: other work on the machine only adds CPU."""
        found: list[tuple[float, float]] = []
        for _ in range(LOADS):
            cpu, began = self.cpu_s(), time.monotonic()
            count = driver(LOAD_S)
            found.append(((self.cpu_s() - cpu) / count * 1e6, count / (time.monotonic() - began)))
        cost, rate = min(found)
        self.row[f"{prefix}requests_per_s"] = round(rate)
        self.row[f"{prefix}request_cpu_us"] = round(cost, 1)


def peak_mb(pid: int) -> float:
    """Return the most megabytes of memory that a process has held since its start."""
    found = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return next((int(line[1]) / 1024 for line in found if line[0] == "VmHWM:"), 0.0)


def drive(connections: Sequence[LoadConnection], request: bytes, seconds: float, in_flight: int = IN_FLIGHT) -> int:
    """Keep several requests in flight, each on the next connection. Returns the number of responses."""
    if len(connections) == 1:
        return drive_encoded(connections[0], request, in_flight, _check, seconds)[0]
    sent: deque[LoadConnection] = deque()
    following = itertools.cycle(connections)
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end or sent:
        while len(sent) < in_flight and time.monotonic() < end:
            sent.append(next(following))
            sent[-1].socket.sendall(request)
        _check(sent.popleft().receive())
        count += 1
    return count


def _check(frame: bytes) -> None:
    check(PRODUCE, PRODUCE_VERSION, frame)


def send_all(
    connection: LoadConnection, requests: Iterable[bytes], in_flight: int, check: Callable[[bytes], object]
) -> None:
    """Send every request, several in flight. `check` gets each response and raises for an error."""
    under_way = 0
    for request in requests:
        if under_way == in_flight:
            check(connection.receive())
            under_way -= 1
        connection.socket.sendall(request)
        under_way += 1
    for _ in range(under_way):
        check(connection.receive())
