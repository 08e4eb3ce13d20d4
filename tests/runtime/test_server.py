"""The server: sockets as configured, a clean shutdown, long steps, and the end of a node that cannot go on."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from reference.node.identity import Identity
from reference.node.node import Node
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.primitives import FIRST_OFFSET, NodeId
from reference.runtime.clock import Clock
from reference.runtime.configuration import check_configuration
from reference.runtime.metrics import Metrics
from reference.runtime.server import (
    SYSTEM_BUFFER,
    NodeBroken,
    Server,
    advertised_endpoints,
    bind_listeners,
    prepare_socket,
)
from reference.storage.errors import StorageError
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.posix_disk import PosixDisk
from tests.runtime.test_configuration import GOOD

NODE = NodeId(1)


def size_of(sock: socket.socket, option: int) -> int:
    """Linux books twice of what is asked for."""
    return sock.getsockopt(socket.SOL_SOCKET, option) // 2


@pytest.mark.parametrize(("file", "expected"), [({"socket.receive.buffer.bytes": "50000"}, 50_000), ({}, None)])
def test_accepted_sockets_have_the_receive_buffer_of_the_file(file: dict[str, str], expected: int | None) -> None:
    bound = bind_listeners(check_configuration({**GOOD, **file}, "f"))
    try:
        bound[0].listen()
        with socket.create_connection(("127.0.0.1", bound[0].port)), socket.socket() as plain:
            bound[0].socket.setblocking(True)
            accepted, _ = bound[0].socket.accept()
            with accepted:
                found = size_of(accepted, socket.SO_RCVBUF)
            assert found == expected if expected else found >= size_of(plain, socket.SO_RCVBUF)
    finally:
        for each in bound:
            each.socket.close()


def test_an_accepted_socket_is_made_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        before = size_of(sock, socket.SO_SNDBUF)
        prepare_socket(sock, SYSTEM_BUFFER)
        assert size_of(sock, socket.SO_SNDBUF) == before
        prepare_socket(sock, 102_400)
        assert size_of(sock, socket.SO_SNDBUF) == 102_400
        assert not sock.getblocking()
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def served(folder: Path, **properties: str) -> tuple[Server, Node, Clock]:
    """A server of one node whose listeners are bound, and which does not run yet."""
    configuration = check_configuration({**GOOD, "log.dirs": str(folder), **properties}, "f")
    configuration.folder.mkdir()
    listeners = bind_listeners(configuration)
    identity = Identity(NODE, "cluster", uuid4(), advertised_endpoints(configuration, listeners))
    clock = Clock()
    logs = LogManager([LogDirectory(PosixDisk(), configuration.folder, id=uuid4())])
    node = Node(identity, configuration.properties, logs, Random(), clock.now())
    return Server(node, listeners, Metrics(), lambda level, message: None, clock), node, clock


def test_nothing_is_done_after_the_clean_shutdown_file_is_written(tmp_path: Path) -> None:
    """A timer that is due while the event loop ends must not let retention remove what was just written down."""
    server, node, _ = served(tmp_path / "data")
    ticks: list[bool] = []
    was_clean = tmp_path / "data" / ".kafka_cleanshutdown"
    node.tick = lambda now: ticks.append(was_clean.exists())  # type: ignore[method-assign]
    node.next_deadline = lambda: 0  # type: ignore[method-assign]

    async def run() -> None:
        running = asyncio.create_task(server.run())
        while not ticks:
            await asyncio.sleep(0.01)
        server.stop()
        await running
        for _ in range(3):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert was_clean.exists() and True not in ticks


def test_a_step_that_takes_long_ends_no_session(tmp_path: Path) -> None:
    """With 20,000 partitions a decision takes seconds. A controller that fenced its own broker for it would decide again."""
    settings = {"broker.session.timeout.ms": "600", "broker.heartbeat.interval.ms": "100"}
    server, node, _ = served(tmp_path / "data", **settings)

    async def run() -> None:
        running = asyncio.create_task(server.run())
        while node.image.brokers[NODE].fenced:
            await asyncio.sleep(0.01)
        decided = node.image.end_offset
        for _ in range(2):
            time.sleep(1.5)
            await asyncio.sleep(0.3)
        assert node.image.end_offset == decided
        server.stop()
        await running

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("fails", ["image", "replicas"])
def test_a_node_that_cannot_apply_the_metadata_ends(
    tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stay registered otherwise, and serve nothing."""

    def refuse(*_: object) -> None:
        raise LookupError("a record of the future")

    server, node, clock = served(tmp_path / "data")
    if fails == "image":
        monkeypatch.setattr(type(node.image), "apply", refuse)
    else:
        monkeypatch.setattr(node.replicas, "reconcile", refuse)

    async def run() -> None:
        running = asyncio.create_task(server.run())
        await asyncio.sleep(0)
        record = ConfigRecord(resource_type=4, resource_name="", name="background.threads", value="9")
        server._let_node(lambda: node.controller.append([record], clock.now()))
        await running

    with pytest.raises(NodeBroken, match="cannot be applied: LookupError: a record of the future"):
        asyncio.run(asyncio.wait_for(run(), 30))
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_node_whose_metadata_log_is_broken_ends_and_says_so(tmp_path: Path) -> None:
    server, node, clock = served(tmp_path / "data")

    async def whole_run() -> None:
        def refuse_to_cut(offset: int, now: int) -> None:
            raise StorageError("broken")

        node.quorum.log.log.truncate_to = refuse_to_cut  # type: ignore[method-assign]
        running = asyncio.create_task(server.run())
        await asyncio.sleep(0)
        with pytest.raises(StorageError):
            node.quorum.log.truncate(FIRST_OFFSET, clock.now())
        await running

    with pytest.raises(NodeBroken, match="only a new start"):
        asyncio.run(asyncio.wait_for(whole_run(), 30))
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
