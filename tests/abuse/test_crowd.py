"""Thousands of connections that send nothing or little, and clients that send many requests and read no response."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from reference.protocol.frames import encode_request
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.metadata import MetadataRequest
from tests.abuse.broker import MOST_CPU_S, Broker

CROWD = 3000
MIB = 1 << 20
BYTES_A_CONNECTION = 20_000
"""What an idle connection may cost the broker's process."""


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as the crowd and the broker need; skipped where the system gives fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * CROWD:
        pytest.skip(f"only {hard} open files are allowed to a process (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def crowd(broker: Broker, stack: contextlib.ExitStack) -> list[socket.socket]:
    return [stack.enter_context(broker.connect()) for _ in range(CROWD)]


def served_in_time(broker: Broker) -> None:
    """Check that a new client connects, writes and reads, and that this costs little CPU time."""
    before = broker.cpu_s()
    offsets = broker.produce("kept", 2)
    assert broker.values("kept", offsets[0]) == [f"kept {offset}" for offset in offsets]
    assert broker.cpu_s() - before < MOST_CPU_S


def test_idle_connections(broker: Broker, many_files: None) -> None:
    before = broker.rss_bytes()
    with contextlib.ExitStack() as stack:
        crowd(broker, stack)
        served_in_time(broker)
        assert broker.rss_bytes() - before < CROWD * BYTES_A_CONNECTION
    served_in_time(broker)


def test_dribbling_connections(broker: Broker, many_files: None) -> None:
    """Each sends its request byte by byte; all get their answers in the end."""
    request = encode_request(3, 1, 5, "dribble", MetadataRequest(topics=[]))
    before = broker.rss_bytes()
    with contextlib.ExitStack() as stack:
        connections = crowd(broker, stack)
        for position in range(12):
            for connection in connections:
                connection.sendall(request[position : position + 1])
            if position % 4 == 0:
                served_in_time(broker)
        assert broker.rss_bytes() - before < CROWD * BYTES_A_CONNECTION
        for connection in connections:
            connection.sendall(request[12:])
        for connection in connections:
            assert struct.unpack(">ii", connection.recv(8))[1] == 5


def test_a_slow_reader_that_pipelines_large_fetches(broker: Broker) -> None:
    """The responses to 400 fetches of 8 MB are not read: the records stay in the file until the client reads."""
    broker.create("large")
    for _ in range(8):
        assert broker.try_to_produce("large", [b"x" * 1_000_000])[0] == 0
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 * MIB)
    body = FetchRequest(max_bytes=8 * MIB, topics=[FetchRequest.FetchTopic(topic="large", partitions=[partition])])
    before = broker.rss_bytes()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(broker.connect()) for _ in range(4)]
        for connection in connections:
            for number in range(100):
                connection.sendall(encode_request(1, 12, number, "slow", body))
        served_in_time(broker)
        time.sleep(0.5)
        served_in_time(broker)
        assert broker.rss_bytes() - before < 30 * MIB
        for number in range(3):
            assert_answer(connections[0], number)
        served_in_time(broker)
    served_in_time(broker)


def assert_answer(connection: socket.socket, number: int) -> None:
    """Read one whole answer, which holds the eight records."""
    size, correlation = struct.unpack(">ii", connection.recv(8, socket.MSG_WAITALL))
    assert correlation == number
    assert size > 8_000_000
    left = size - 4
    while left:
        part = connection.recv(min(left, MIB))
        assert part, "closed in the middle of an answer"
        left -= len(part)


def test_a_connection_that_sends_and_never_reads(broker: Broker) -> None:
    """Requests without end, responses unread: the broker stops reading from the connection, and its memory does not grow."""
    request = encode_request(3, 9, 1, "deaf", MetadataRequest(topics=None))
    before = broker.rss_bytes()
    with broker.connect() as connection:
        connection.settimeout(1)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 200 * MIB:
                sent += connection.send(request * 1000)
        assert sent < 200 * MIB, "all was taken"
        served_in_time(broker)
        assert broker.rss_bytes() - before < 30 * MIB
