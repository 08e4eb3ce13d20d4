"""`tidegauge bench scale`: what partitions and connections cost two brokers, as curves over their number.

Three kinds of *steps*, each on a fresh target, subject and other in turn:
- *partitions*, three nodes, RF 3: topics are created, every partition takes a record with acks=all, the cluster idles, one
  partition is loaded, a node is killed, every partition takes a record again, the node comes back into every ISR;
- *connections*, the same load through 1 to 1,000 connections;
- *start*, one node: it starts again after a clean stop, and after kill -9.

A partition counts as served once its leader has acknowledged a record: what Metadata say of it may come earlier. CPU is of
all nodes together. Every step is stored as soon as it is over; `--resume` runs only those that are missing.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from linearizability.bench.brokers import cpu_seconds, descriptors, open_for_bench, resident_mb
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
from linearizability.bench.scale_report import draw, show
from linearizability.client.requests import new_topic, produce_request
from linearizability.faults.plan import FAST_FAILOVER
from linearizability.interrupting import announce, leave, until_interrupted
from linearizability.progress import Progress
from linearizability.results import new_run_folder
from linearizability.targets import Node, TargetError
from linearizability.targets.cluster import ClusterTarget
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.messages.produce import ProduceRequest, ProduceResponse

FOLDER = Path(__file__).parent
STORE = FOLDER / "scale.json"
PARTITIONS = "100,1000,3000,10000"
CONNECTIONS = "1,10,100,1000"
START_PARTITIONS = "1000,5000,20000"
TOPIC_PARTITIONS = 1_000
"""Of one topic: Kafka's controller takes at most 10,000 records of one request."""
REQUEST_PARTITIONS = 200
"""So many records one produce request carries, each to a partition of its own."""
CREATED_WITHIN_S, SERVED_WITHIN_S = 300.0, 600.0
IDLE_S, SETTLE_S, LOAD_S, WARMUP_S = 10.0, 3.0, 5.0, 3.0
IN_FLIGHT = 5
LOOK_EVERY_S = 0.1
ENGINE_ERROR = 3

Key = tuple[str, int]
"""A partition: its topic's name, and its index."""


@dataclass
class Topics:
    """The bench's topics on a target, and the connections by which it is asked."""

    target: ClusterTarget
    count: int

    @property
    def sizes(self) -> dict[str, int]:
        """Each topic's number of partitions."""
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
        """What one node says of some topics."""
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        body = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        found: MetadataResponse = connection.call(METADATA, METADATA_VERSION, body)
        return found

    def await_in_sync(self) -> None:
        """Wait until every ISR is whole. Topics are asked for one by one, so that looking costs little. Errors: TargetError."""
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
            try:
                connections |= {node.id: connect(node) for node in self.alive()}
                answer = self.look(next(iter(connections.values())), sorted({name for name, _ in pending}))
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
                time.sleep(LOOK_EVERY_S)


def connect(node: Node) -> LoadConnection:
    return LoadConnection(node.host, node.port)


def led_by(answer: MetadataResponse, wanted: set[Key]) -> dict[int, list[Key]]:
    """The wanted partitions by leader, without those that have none."""
    found: dict[int, list[Key]] = defaultdict(list)
    for topic in answer.topics:
        for each in topic.partitions:
            key = topic.name or "", each.partition_index
            if key in wanted and each.leader_id >= 0:
                found[each.leader_id].append(key)
    return found


def produce(connection: LoadConnection, keys: Sequence[Key], batch: bytes) -> set[Key]:
    """A record to each partition, all requests sent before the first answer is read; gives the partitions that took one."""
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
    """What processes used that have ended since."""

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

    def holdings(self) -> tuple[float, int]:
        """Megabytes and descriptors of all nodes."""
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
        """The rate of one partition, and the CPU of all nodes for a request."""
        self.progress("load")
        body = produce_body(topic, make_batch(1, 100), acks)
        request = encode_request(PRODUCE, PRODUCE_VERSION, 1, "bench", body)
        drive(connections, request, WARMUP_S)
        cpu, began = self.cpu_s(), time.monotonic()
        count = drive(connections, request, LOAD_S)
        self.row["requests_per_s"] = round(count / (time.monotonic() - began))
        self.row["request_cpu_us"] = round((self.cpu_s() - cpu) / count * 1e6, 1)
        self.row["loaded"] = leader


def drive(connections: Sequence[LoadConnection], request: bytes, seconds: float) -> int:
    """Keep IN_FLIGHT requests under way, each on the next connection; gives the number answered."""
    if len(connections) == 1:
        return drive_encoded(connections[0], request, IN_FLIGHT, _check, seconds)[0]
    sent: deque[LoadConnection] = deque()
    following = itertools.cycle(connections)
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end or sent:
        while len(sent) < IN_FLIGHT and time.monotonic() < end:
            sent.append(next(following))
            sent[-1].socket.sendall(request)
        _check(sent.popleft().receive())
        count += 1
    return count


def _check(frame: bytes) -> None:
    check(PRODUCE, PRODUCE_VERSION, frame)


def measure_partitions(target: ClusterTarget, count: int, meter: Meter) -> None:
    """One row of a cluster with so many partitions. Errors: TargetError."""
    topics, row = Topics(target, count), meter.row
    empty_mb, empty_descriptors = meter.holdings()
    meter.stage("created", topics.create)
    meter.stage("served", topics.serve)
    topics.await_in_sync()
    full_mb, full_descriptors = meter.holdings()
    replicas = count * min(3, len(target.nodes))
    row["replica_kb"] = round((full_mb - empty_mb) * 1024 / replicas, 2)
    row["replica_descriptors"] = round((full_descriptors - empty_descriptors) / replicas, 3)
    row["resident_mb"] = round(full_mb)
    meter.idle("idle_cpu_ms_per_s")
    name = next(iter(topics.sizes))
    leader = leader_of(topics, name)
    connection = connect(leader)
    meter.load([connection], leader.address, name, -1)
    connection.socket.close()
    killed = target.nodes[-1].id
    lines = meter.log_lines()
    meter.kill(killed)
    meter.stage("led_again", topics.serve)
    meter.stage("back", lambda: target.restart(killed))
    meter.stage("in_sync_again", topics.await_in_sync)
    row["log_lines_of_failover"] = meter.log_lines() - lines


def leader_of(topics: Topics, name: str) -> Node:
    """The leader of a topic's first partition, which the bench loads."""
    connection = connect(topics.alive()[0])
    found = next(each for each in topics.look(connection, [name]).topics[0].partitions if each.partition_index == 0)
    connection.socket.close()
    return next(node for node in topics.target.nodes if node.id == found.leader_id)


def measure_connections(target: ClusterTarget, count: int, meter: Meter) -> None:
    """One row of a node that so many connections load. Errors: TargetError."""
    topics = Topics(target, 1)
    topics.create()
    topics.serve()
    name = next(iter(topics.sizes))
    node = leader_of(topics, name)
    empty_mb, _ = meter.holdings()
    connections = [connect(node) for _ in range(count)]
    meter.load(connections, node.address, name, 1)
    meter.row["connection_kb"] = round((meter.holdings()[0] - empty_mb) * 1024 / count, 2)
    for connection in connections:
        connection.socket.close()


def measure_start(target: ClusterTarget, count: int, meter: Meter) -> None:
    """One row of a node that starts with so many partitions. Errors: TargetError."""
    topics = Topics(target, count)
    node = target.nodes[0].id
    meter.stage("created", topics.create)
    meter.stage("served", topics.serve)
    meter.row["resident_mb"], meter.row["descriptors"] = map(round, meter.holdings())
    meter.idle("idle_cpu_ms_per_s")
    meter.stage("stop", lambda: target.stop(node))
    meter.gone_cpu_s = 0
    meter.stage("start_after_stop", lambda: (target.restart(node), topics.serve()))
    meter.kill(node)
    meter.stage("start_after_kill", lambda: (target.restart(node), topics.serve()))


KINDS: dict[str, tuple[int, Callable[[ClusterTarget, int, Meter], None]]] = {
    "partitions": (3, measure_partitions),
    "connections": (1, measure_connections),
    "start": (1, measure_start),
}
"""The nodes of each kind of step, and what it measures."""


@dataclass(frozen=True)
class Step:
    """One measurement on one target."""

    kind: str
    spec: str
    count: int

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.spec}/{self.count}"

    def run(self, folder: Path, progress: Callable[[str], None]) -> dict[str, Any]:
        """The step's row; where the target fails, `failed` says how."""
        nodes, measure = KINDS[self.kind]
        row: dict[str, Any] = {"kind": self.kind, "target": self.spec, "count": self.count}
        try:
            with open_for_bench(self.spec, folder / self.name.replace("/", "-"), FAST_FAILOVER, nodes) as target:
                measure(target, self.count, Meter(target, row, lambda text: progress(f"{self.name}: {text}")))
        except (TargetError, OSError, RuntimeError) as error:
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        return row


def steps(specs: Sequence[str], counts: Mapping[str, Sequence[int]]) -> Iterator[Step]:
    """All steps, small ones first, the targets of each side by side."""
    for kind, numbers in counts.items():
        for count in sorted(numbers):
            yield from (Step(kind, spec, count) for spec in specs)


# ---- the store, the picture, the table


def read_store(path: Path) -> dict[str, dict[str, Any]]:
    """The rows that are kept, by step."""
    return json.loads(path.read_text()) if path.exists() else {}


def write_store(path: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep the rows; a reader never finds half a file."""
    partial = path.with_suffix(".part")
    partial.write_text("{\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(rows[n])}" for n in rows) + "\n}\n")
    partial.replace(path)


# ---- the command

STARTS_WEIGH = 1_000
"""Of the estimate of the time left: to start brokers takes about as long as so many partitions or connections."""


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",") if each]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers", param_hint=option) from None


def scale(
    target: Annotated[str, typer.Option(help="What is measured, without its number of nodes.")] = "reference",
    against: Annotated[str, typer.Option(help="What it is compared with; empty: with nothing.")] = "kafka:4.3.1",
    partitions: Annotated[str, typer.Option(help="Numbers of partitions of three nodes; empty: none.")] = PARTITIONS,
    connections: Annotated[str, typer.Option(help="Numbers of connections to one node; empty: none.")] = CONNECTIONS,
    start: Annotated[str, typer.Option(help="Numbers of partitions with which one node starts.")] = START_PARTITIONS,
    minutes: Annotated[float, typer.Option(min=0.01, help="Begin no step after this time.")] = 1e6,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is stored, and run what is missing.")] = False,
    store: Annotated[Path, typer.Option(help="Where rows are kept; the picture lies beside it.")] = STORE,
    json_: Annotated[bool, typer.Option("--json", help="The last line of standard output is one JSON object.")] = False,
) -> None:
    """What partitions and connections cost: creation, failover, starts, memory, descriptors, idle CPU, CPU a request."""
    counts = {
        "partitions": _numbers(partitions, "--partitions"),
        "connections": _numbers(connections, "--connections"),
        "start": _numbers(start, "--start"),
    }
    rows = read_store(store) if resume else {}
    folder = new_run_folder("bench", "scale")
    until = time.monotonic() + minutes * 60
    planned = steps([spec for spec in (target, against) if spec], counts)
    missing = [step for step in planned if "failed" in rows.get(step.name, {"failed": "not run"})]
    weights = [STARTS_WEIGH + step.count for step in missing]
    said: dict[str, Any] = {"folder": str(folder), "store": str(store)}
    with until_interrupted(said), Progress(sum(weights)) as progress:
        for number, step in enumerate(missing):
            if time.monotonic() > until:
                break
            done = sum(weights[:number])
            rows[step.name] = step.run(folder, lambda text, done=done: progress.step(text, done))
            progress.keep(json.dumps(rows[step.name]))
            write_store(store, rows)
    draw(rows.values(), store.with_suffix(".svg"))
    announce(said)
    show(rows.values())
    if json_:
        print(json.dumps(said | {"rows": [*rows.values()]}))
    leave(said, ENGINE_ERROR if any("failed" in row for row in rows.values()) else 0)
