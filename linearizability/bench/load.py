"""One load on one broker, in a process of its own.

    python -m linearizability.bench.load BOOTSTRAP CASE SECONDS WARMUP REPLICAS [CLIENT_PROPERTIES]

Requests are encoded once and sent over one connection with several in flight, so that the generator costs as little as it
can; every answer is read, its size compared with the first one's, and a sample decoded: an error is not a fast answer.
Prints one JSON object: requests, bytes of records, seconds, latency quantiles in microseconds, the generator's CPU seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from linearizability.client.errors import STALE, error_name
from linearizability.client.requests import fetch_request, new_topic, produce_request
from linearizability.targets.security.authentication import Authentication
from linearizability.targets.security.client_config import ClientSecurity, parse_properties
from reference.protocol.errors import ErrorCode
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.messages.produce import ProduceRequest, ProduceResponse
from reference.protocol.primitives import Offset, TimestampMs
from reference.protocol.records.batch import build
from reference.protocol.records.record import Record

PRODUCE, FETCH, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 3, 19, 20
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION, CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION = 11, 12, 9, 5, 4
IN_FLIGHT = 5
SAMPLE_EVERY = 997
"""Besides the first response, each one at this interval is decoded."""
TIMEOUT_S = 30.0
MAX_LATENCIES = 2_000_000
PLAIN = ClientSecurity()


@dataclass(frozen=True)
class Case:
    """A kind of load: requests with `records` of `record_bytes` each to produce, or `fetch_bytes` to fetch."""

    name: str
    records: int = 0
    record_bytes: int = 0
    fetch_bytes: int = 0
    in_flight: int = IN_FLIGHT
    client: str = "raw"
    """raw: frames encoded once; librdkafka-producer and librdkafka-consumer: that library, for `records` of one batch.

    commit, rebalance, transaction and transaction-read: see `coordination`.
    """
    partitions: int = 0
    """Number of partitions in a commit."""
    members: int = 0
    """Number of a group's members."""


CASES = {
    case.name: case
    for case in (
        Case("produce 1 x 100 B", 1, 100),
        Case("produce 100 x 100 B", 100, 100),
        Case("produce 550 x 100 B", 550, 100),
        Case("produce 60 x 1 KB", 60, 1000),
        Case("produce 250 x 1 KB", 250, 1000),
        Case("ping-pong 1 x 100 B", 1, 100, in_flight=1),
        Case("fetch 64 KiB", fetch_bytes=64 << 10),
        Case("fetch 1 MiB", fetch_bytes=1 << 20),
        Case("fetch 4 MiB", fetch_bytes=4 << 20),
        Case("librdkafka produce 100 B", 1, 100, client="librdkafka-producer"),
        Case("librdkafka consume 100 B", 1, 100, client="librdkafka-consumer"),
    )
}
"""The rows of `bench broker`."""

GROUP_CASES = {
    case.name: case
    for case in (
        Case("commit 1 partition", client="commit", partitions=1),
        Case("commit 10 partitions", client="commit", partitions=10),
        Case("rebalance 2 members", client="rebalance", members=2),
        Case("rebalance 20 members", client="rebalance", members=20),
        Case("rebalance 200 members", client="rebalance", members=200),
    )
}
"""The rows of `bench groups`."""

TRANSACTION_CASES = {
    case.name: case
    for case in (
        Case("transaction 1 x 100 B", 1, 100, client="transaction"),
        Case("transaction 100 x 100 B", 100, 100, client="transaction"),
        Case("transaction end to end", 1, 100, client="transaction-read"),
    )
}
"""The rows of `bench transactions`."""

ALL_CASES = CASES | GROUP_CASES | TRANSACTION_CASES


class LoadConnection:
    """A blocking connection for frames, encrypted and authenticated if the listener requires it."""

    def __init__(self, host: str, port: int, security: ClientSecurity = PLAIN) -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(1 << 20))
        if security.tls:
            self.socket = security.tls.wrap_socket(self.socket, server_hostname=host)
        if mechanism := security.authentication():
            asyncio.run(Authentication(self._exchange, security.mechanism, mechanism, security.client_id).run())

    async def _exchange(self, data: bytes) -> bytes:
        self.socket.sendall(data)
        return self.receive()

    def call(self, key: int, version: int, body: Any) -> Any:
        """Send a request and return its decoded response."""
        self.send(key, version, body)
        return decode_response(key, version, self.receive())[1]

    def send(self, key: int, version: int, body: Any) -> None:
        """Send a request; its response is received later."""
        self.socket.sendall(encode_request(key, version, 1, "bench", body))

    def receive(self) -> bytes:
        """Receive a whole frame. Returns it without its size."""
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            received = self.socket.recv_into(view[filled:])
            if not received:
                raise ConnectionError("the broker closed the connection")
            filled += received
        return bytes(data)

    def skip(self, size: int) -> None:
        """Read and drop bytes."""
        while size:
            received = self.socket.recv_into(self._buffer[: min(size, len(self._buffer))])
            if not received:
                raise ConnectionError("the broker closed the connection")
            size -= received


def make_topic(connection: LoadConnection, name: str, partitions: int = 1, replicas: int = 1) -> str:
    """Create a topic and wait until all replicas of its first partition are in sync; returns its leader's address."""
    configs = {"min.insync.replicas": str(max(1, replicas - 1)), "file.delete.delay.ms": "1000"}
    topics = [new_topic(name, partitions, replication_factor=replicas, configs=configs)]
    created = connection.call(
        CREATE_TOPICS, CREATE_TOPICS_VERSION, CreateTopicsRequest(topics=topics, timeout_ms=10_000)
    )
    if created.topics[0].error_code:
        raise RuntimeError(f"topic {name} was refused: error {created.topics[0].error_code}")
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        answer: MetadataResponse = connection.call(METADATA, METADATA_VERSION, wanted)
        found = answer.topics[0]
        first = found.partitions[0] if not found.error_code and found.partitions else None
        if first is not None and len(first.isr_nodes) == replicas:
            addresses = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
            if first.leader_id in addresses:
                return addresses[first.leader_id]
        time.sleep(0.05)
    raise TimeoutError(f"topic {name} got no leader with {replicas} replicas in sync")


def delete_topic(connection: LoadConnection, name: str) -> None:
    """Delete a topic if it exists: many disks could not hold the records of all rounds."""
    wanted = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
    code = connection.call(DELETE_TOPICS, DELETE_TOPICS_VERSION, wanted).responses[0].error_code
    if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        raise RuntimeError(f"topic {name} was not deleted: {error_name(code)}")


def await_leader(connection: LoadConnection, topic: str, acks: int) -> None:
    """Write records until one is accepted: a broker may learn of its leadership later than a client.

    Errors: TimeoutError, RuntimeError for a permanent error.
    """
    deadline = time.monotonic() + TIMEOUT_S
    code = ErrorCode.NONE
    while time.monotonic() < deadline:
        answer: ProduceResponse = connection.call(
            PRODUCE, PRODUCE_VERSION, produce_body(topic, make_batch(1, 100), acks)
        )
        if not (code := answer.responses[0].partition_responses[0].error_code):
            return
        if code not in STALE | {ErrorCode.NOT_ENOUGH_REPLICAS}:
            raise RuntimeError(f"topic {topic}: the first record was answered {error_name(code)}")
        time.sleep(0.05)
    raise TimeoutError(f"the leader of topic {topic} takes no records: {error_name(code)}")


def produce_body(topic: str, batch: bytes | bytearray, acks: int = 1) -> ProduceRequest:
    return produce_request({(topic, 0): batch}, acks=acks)


def make_batch(records: int, record_bytes: int) -> bytearray:
    """Return a batch of records whose values have the given size and do not repeat."""
    chance = random.Random(7)
    now = TimestampMs(int(time.time() * 1000))
    return build([Record(Offset(index), now, None, chance.randbytes(record_bytes)) for index in range(records)])


def fetch_body(topic: str, offset: int, max_bytes: int) -> FetchRequest:
    return fetch_request({(topic, 0): offset}, max_wait_ms=500, max_bytes=max_bytes, partition_max_bytes=max_bytes)


def prepare(connection: LoadConnection, case: Case, topic: str, acks: int) -> tuple[int, int, bytes, int]:
    """Return the case's API key, version, encoded request, and record bytes per request."""
    if not case.fetch_bytes:
        batch = make_batch(case.records, case.record_bytes)
        body = produce_body(topic, batch, acks)
        return PRODUCE, PRODUCE_VERSION, encode_request(PRODUCE, PRODUCE_VERSION, 1, "bench", body), len(batch)
    filler = make_batch(60, 1000)
    for _ in range(2 * case.fetch_bytes // len(filler) + 2):
        connection.call(PRODUCE, PRODUCE_VERSION, produce_body(topic, filler, acks))
    body = fetch_body(topic, 0, case.fetch_bytes)
    answer: FetchResponse = connection.call(FETCH, FETCH_VERSION, body)
    moved = len(answer.responses[0].partitions[0].records or b"")  # type: ignore[arg-type]
    return FETCH, FETCH_VERSION, encode_request(FETCH, FETCH_VERSION, 1, "bench", body), moved


def check(key: int, version: int, frame: bytes) -> None:
    """Errors: RuntimeError when an answer carries an error."""
    _, body = decode_response(key, version, frame)
    if isinstance(body, ProduceResponse):
        code = body.responses[0].partition_responses[0].error_code
    else:
        assert isinstance(body, FetchResponse)
        code = body.error_code or body.responses[0].partitions[0].error_code
    if code:
        raise RuntimeError(f"the broker answered error {code}")


Driver = Callable[[float], tuple[int, list[int]]]
"""Loads the broker for some seconds. Returns the number of responses and their latencies in nanoseconds."""


def connect(address: str, security: ClientSecurity = PLAIN) -> LoadConnection:
    """A connection to HOST:PORT."""
    host, _, port = address.rpartition(":")
    return LoadConnection(host, int(port), security)


@dataclass(frozen=True)
class Entry:
    """A cluster's addresses, and client properties by the names of Kafka's own clients."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    def connect(self, address: str = "") -> LoadConnection:
        """Return a connection to HOST:PORT, or to the first address."""
        return connect(address or self.bootstrap.split(",")[0], ClientSecurity.of(self.properties))

    def librdkafka(self) -> dict[str, str]:
        """Return the same properties by librdkafka's names."""
        given = {"bootstrap.servers": self.bootstrap}
        security = ClientSecurity.of(self.properties)
        if security.protocol != "PLAINTEXT":
            given["security.protocol"] = security.protocol
        if security.tls:
            given["ssl.ca.location"] = self.properties["ssl.truststore.location"]
        if security.mechanism:
            login = {f"sasl.{name}": security.login[name] for name in ("username", "password")}
            given |= {"sasl.mechanism": security.mechanism, **login}
        return given


def run(entry: Entry, case: Case, seconds: float, warmup_s: float, replicas: int) -> dict[str, Any]:
    """Warm up, notify the parent, wait for its signal, then measure for a time."""
    topic = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    driver, moved = prepare_driver(entry, case, topic, replicas)
    driver(warmup_s)
    print(json.dumps({"phase": "measuring"}), flush=True)
    sys.stdin.readline()
    cpu = time.process_time()
    began = time.monotonic()
    count, latencies = driver(seconds)
    elapsed = time.monotonic() - began
    latencies.sort()
    return {
        "case": case.name,
        "topic": topic,
        "requests": count,
        "seconds": elapsed,
        "requests_per_s": count / elapsed,
        "records_per_s": count * max(1, case.records) / elapsed,
        "mb_per_s": count * moved / elapsed / 1e6,
        "p50_us": latencies[len(latencies) // 2] / 1000,
        "p99_us": latencies[len(latencies) * 99 // 100] / 1000,
        "generator_cpu_s": time.process_time() - cpu,
        "settings": asdict(case),
    }


def prepare_driver(entry: Entry, case: Case, topic: str, replicas: int) -> tuple[Driver, int]:
    """Return the driver of this case, and the record bytes per request.

    Requests go to the leader of the topic's one partition; with several replicas they ask for acks=all.
    """
    first = entry.connect()
    if not case.client.startswith(("raw", "librdkafka")):
        from linearizability.bench.coordination import make_coordination_driver

        return make_coordination_driver(entry, first, case, topic), case.records * case.record_bytes
    acks = -1 if replicas > 1 else 1
    connection = entry.connect(make_topic(first, topic, replicas=replicas))
    await_leader(connection, topic, acks)
    if case.client == "raw":
        key, version, request, moved = prepare(connection, case, topic, acks)
        return lambda seconds: drive_encoded(
            connection, request, case.in_flight, lambda frame: check(key, version, frame), seconds
        ), moved
    if case.client == "librdkafka-producer":
        return lambda seconds: produce_with_librdkafka(
            entry, topic, case.record_bytes, seconds, acks
        ), case.record_bytes
    batch = make_batch(500, case.record_bytes)
    for _ in range(400):
        connection.call(PRODUCE, PRODUCE_VERSION, produce_body(topic, batch, acks))
    return lambda seconds: consume_with_librdkafka(entry, topic, seconds), case.record_bytes


def produce_with_librdkafka(entry: Entry, topic: str, size: int, seconds: float, acks: int) -> tuple[int, list[int]]:
    """Produce as fast as the library can. A record counts when it is acknowledged."""
    from confluent_kafka import Producer

    delivered = 0
    latencies: list[int] = []

    def on_delivery(error: Any, message: Any) -> None:
        nonlocal delivered
        if error is not None:
            raise RuntimeError(f"librdkafka: {error}")
        delivered += 1
        if delivered % 100 == 0:
            latencies.append(int(message.latency() * 1e9))

    producer = Producer({**entry.librdkafka(), "acks": str(acks), "on_delivery": on_delivery})
    value = random.Random(7).randbytes(size)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(100):
            try:
                producer.produce(topic, value, partition=0)
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("librdkafka: records were not acknowledged in time")
    return delivered, latencies or [0]


def consume_with_librdkafka(entry: Entry, topic: str, seconds: float) -> tuple[int, list[int]]:
    """Read the topic over and over; latencies are those of one call for up to 10,000 records."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**entry.librdkafka(), "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count, latencies = 0, [0]
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            began = time.monotonic_ns()
            found = consumer.consume(10_000, 0.5)
            latencies.append(time.monotonic_ns() - began)
            for message in found:
                if message.error():
                    raise RuntimeError(f"librdkafka: {message.error()}")
            count += len(found)
            if found and (found[-1].offset() or 0) >= 190_000:
                consumer.assign([TopicPartition(topic, 0, 0)])
    finally:
        consumer.close()
    return count, latencies


def drive_encoded(
    connection: LoadConnection, request: bytes, in_flight: int, check: Callable[[bytes], None], seconds: float
) -> tuple[int, list[int]]:
    """Keep `in_flight` requests in flight for some seconds. Returns the number of responses and their latencies in nanoseconds.

    `check` is given a sample of the answers, and raises where one carries an error.
    """
    sent: deque[int] = deque()
    latencies: list[int] = []
    size = 0
    count = 0
    clock = time.monotonic_ns
    end = clock() + int(seconds * 1e9)
    for _ in range(in_flight):
        sent.append(clock())
        connection.socket.sendall(request)
    while sent:
        found = int.from_bytes(connection._exactly(4), "big")
        if size == 0 or count % SAMPLE_EVERY == 0 or found != size:
            check(connection._exactly(found))
            size = found
        else:
            connection.skip(found)
        now = clock()
        if len(latencies) < MAX_LATENCIES:
            latencies.append(now - sent[0])
        sent.popleft()
        count += 1
        if now < end:
            sent.append(now)
            connection.socket.sendall(request)
    return count, latencies


def main() -> int:
    bootstrap, name, seconds, warmup_s, replicas = sys.argv[1:6]
    properties = parse_properties(Path(sys.argv[6]).read_text()) if len(sys.argv) > 6 else {}
    entry = Entry(bootstrap, properties)
    found = run(entry, ALL_CASES[name], float(seconds), float(warmup_s), int(replicas))
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
