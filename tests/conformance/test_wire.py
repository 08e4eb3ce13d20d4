"""The raw client: what the other side does wrong is distinguished, and every byte is kept."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conformance.wire import (
    BrokerConnection,
    Closed,
    Deadline,
    Failed,
    NoAnswer,
    Recorder,
    Unreachable,
    Unreadable,
    request_header,
    tagged_fields,
)
from reference.protocol.codec import encode
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.header import RequestHeader
from reference.protocol.messages.heartbeat import HeartbeatRequest
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse

Script = Callable[[socket.socket, bytes], object]

STALLED_S = 60.0
"""Much longer than a busy machine keeps a thread waiting."""


@contextmanager
def answering(script: Script, *, timeout_s: float = 1.0) -> Iterator[tuple[BrokerConnection, Recorder]]:
    """A connection to a server that reads one frame and then does as the script says."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = server.accept()
        with peer:
            (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
            script(peer, peer.recv(size, socket.MSG_WAITALL))

    threading.Thread(target=serve, daemon=True).start()
    recorder = Recorder()
    with (
        server,
        BrokerConnection(server.getsockname(), recorder, Deadline.after(STALLED_S), timeout_s=timeout_s) as connection,
    ):
        yield connection, recorder


@pytest.fixture
def silent() -> Iterator[Script]:
    """A script that answers nothing, and keeps the connection open until the test is over."""
    over = threading.Event()
    yield lambda peer, request: over.wait(STALLED_S)
    over.set()


def answer(request: bytes, *, correlation_id: int | None = None, more: bytes = b"", cut: int = 0) -> bytes:
    own = struct.unpack_from(">i", request, 4)[0]
    body = struct.pack(">i", own if correlation_id is None else correlation_id)
    body += encode(MetadataResponse(cluster_id="c"), 2) + more
    return struct.pack(">i", len(body) - cut) + body[: len(body) - cut]


def ask(connection: BrokerConnection) -> MetadataResponse:
    return connection.call(MetadataRequest(topics=[]), 2)


def test_an_exchange_is_kept_to_the_last_byte() -> None:
    with answering(lambda peer, request: peer.sendall(answer(request))) as (connection, recorder):
        assert ask(connection).cluster_id == "c"
    (exchange,) = recorder.exchanges
    assert exchange.outcome == "answered"
    assert exchange.sent == connection_bytes(exchange.sent)
    assert exchange.received[4:8] == exchange.sent[8:12]
    assert (exchange.sent_bytes, exchange.received_bytes) == (len(exchange.sent), len(exchange.received))


def connection_bytes(sent: bytes) -> bytes:
    """The same request as the reference's codec writes its header."""
    _, key, version, correlation_id = struct.unpack_from(">ihhi", sent)
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id="tidegauge"
    )
    body = encode(header, 1) + encode(MetadataRequest(topics=[]), 2)
    return struct.pack(">i", len(body)) + body


def test_headers_are_those_of_the_schema() -> None:
    for client_id in (None, "", "someone"):
        held = RequestHeader(request_api_key=3, request_api_version=9, correlation_id=-1, client_id=client_id)
        for flexible in (False, True):
            assert request_header(3, 9, -1, client_id, flexible=flexible) == encode(held, 1 + flexible)
    assert tagged_fields((1, b"a"), (300, b"")) == bytes.fromhex("02 01 01 61 ac02 00")


def test_another_correlation_id_is_unreadable() -> None:
    with (
        answering(lambda peer, request: peer.sendall(answer(request, correlation_id=7))) as (connection, recorder),
        pytest.raises(Unreadable, match="correlation id 7"),
    ):
        ask(connection)
    assert recorder.exchanges[0].outcome == "unreadable"


@pytest.mark.parametrize(("more", "cut", "said"), [(b"xx", 0, "has 2 bytes after its end"), (b"", 3, "cannot be read")])
def test_a_body_of_the_wrong_size_is_unreadable(more: bytes, cut: int, said: str) -> None:
    with (
        answering(lambda peer, request: peer.sendall(answer(request, more=more, cut=cut))) as (connection, _),
        pytest.raises(Unreadable, match=said),
    ):
        ask(connection)


def test_an_impossible_frame_is_unreadable() -> None:
    with (
        answering(lambda peer, request: peer.sendall(b"\xff\xff\xff\xff")) as (connection, _),
        pytest.raises(Unreadable, match="announces -1 bytes"),
    ):
        ask(connection)


def test_a_close_is_distinguished_from_silence(silent: Script) -> None:
    with answering(lambda peer, request: None) as (connection, recorder), pytest.raises(Closed):
        ask(connection)
    assert recorder.exchanges[0].outcome == "closed"
    with (
        answering(silent, timeout_s=0.1) as (connection, recorder),
        pytest.raises(NoAnswer),
    ):
        ask(connection)
    assert recorder.exchanges[0].outcome == "no answer"


def test_the_deadline_bounds_a_longer_timeout(silent: Script) -> None:
    with answering(silent, timeout_s=2 * STALLED_S) as (connection, _):
        connection.deadline = Deadline.after(0.2)
        started = time.monotonic()
        with pytest.raises(NoAnswer):
            ask(connection)
        assert time.monotonic() - started < STALLED_S
        with pytest.raises(NoAnswer, match="deadline"):
            ask(connection)


def test_an_address_without_a_listener_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(Unreachable):
        BrokerConnection(address, Recorder(), Deadline.after(STALLED_S))


@pytest.mark.parametrize(
    "given",
    [
        HeartbeatRequest(group_id="g", member_id="m" * 32768),
        HeartbeatRequest(group_id=None),  # type: ignore[arg-type]
        HeartbeatRequest(group_id="g", generation_id=1 << 31),
        MetadataRequest(topics=[None]),  # type: ignore[list-item]
    ],
)
def test_what_fits_into_no_request_is_the_doing_of_the_target_that_gave_it(given: Any) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        BrokerConnection(server.getsockname(), Recorder(), Deadline.after(STALLED_S)) as connection,
        pytest.raises(Failed, match="cannot be encoded in a request"),
    ):
        connection.send(given, 4)


def test_waiting_for_a_close_gives_what_was_said_before(silent: Script) -> None:
    with answering(lambda peer, request: peer.sendall(b"hello")) as (connection, recorder):
        connection.send_bytes(struct.pack(">i", 2) + b"xx", note="garbage")
        assert connection.wait_closed() == b"hello"
    assert recorder.exchanges[0].received == b"hello"
    with answering(silent) as (connection, _):
        connection.send_bytes(struct.pack(">i", 2) + b"xx")
        assert connection.wait_closed(0.1) is None


@pytest.mark.parametrize("is_in_order", [True, False])
def test_pipelined_answers_go_to_their_requests_in_order(is_in_order: bool) -> None:
    """Two responses in the order of their requests are read; two in the other order are not."""

    def script(peer: socket.socket, first: bytes) -> None:
        (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
        second = peer.recv(size, socket.MSG_WAITALL)
        peer.sendall(answer(first) + answer(second) if is_in_order else answer(second) + answer(first))

    with answering(script) as (connection, _):
        connection.send(MetadataRequest(topics=[]), 2)
        connection.send(MetadataRequest(topics=[]), 2)
        if is_in_order:
            assert [connection.receive().cluster_id for _ in range(2)] == ["c", "c"]
        else:
            with pytest.raises(Unreadable, match="correlation id"):
                connection.receive()


def test_api_versions_never_has_a_flexible_response_header() -> None:
    from reference.protocol.messages.api_versions import ApiVersionsResponse

    def script(peer: socket.socket, request: bytes) -> None:
        body = struct.pack(">i", struct.unpack_from(">i", request, 4)[0]) + encode(ApiVersionsResponse(), 3)
        peer.sendall(struct.pack(">i", len(body)) + body)

    with answering(script) as (connection, _):
        assert connection.call(ApiVersionsRequest(), 3).error_code == 0


def test_long_messages_are_cut_and_their_sizes_kept() -> None:
    with answering(lambda peer, request: peer.sendall(b"")) as (connection, recorder):
        connection.send_bytes(struct.pack(">i", 100_000) + bytes(100_000))
        connection.wait_closed()
    assert (len(recorder.exchanges[0].sent), recorder.exchanges[0].sent_bytes) == (16384, 100_004)


def test_the_number_of_exchanges_is_bounded() -> None:
    recorder = Recorder()
    for _ in range(500):
        recorder.begin(1, 3, 1, b"", "")
    assert len(recorder.exchanges) == 200
    assert recorder.dropped == 300


def test_a_connection_is_over_that_the_other_side_closed_while_it_was_idle(silent: Script) -> None:
    def answered_and_closed(peer: socket.socket, request: bytes) -> None:
        peer.sendall(answer(request))
        peer.shutdown(socket.SHUT_RDWR)

    with answering(answered_and_closed) as (connection, _):
        assert ask(connection).cluster_id == "c"
        assert not connection.is_over(STALLED_S), (
            "one that closes at once after an answer is judged by the next request"
        )
        until = time.monotonic() + STALLED_S
        while not connection.is_over(0) and time.monotonic() < until:
            time.sleep(0.01)
        assert connection.is_over(0)
    with answering(silent) as (connection, _):
        assert not connection.is_over(0)
        connection.close()
        assert connection.is_over(STALLED_S)
