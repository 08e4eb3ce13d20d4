"""Sockets as the configuration wants them."""

from __future__ import annotations

import socket

import pytest

from reference.runtime.configuration import check_configuration
from reference.runtime.server import SYSTEM_BUFFER, bind_listeners, prepare_socket
from tests.runtime.test_configuration import GOOD


def size_of(sock: socket.socket, option: int) -> int:
    """Linux books twice of what is asked for."""
    return sock.getsockopt(socket.SOL_SOCKET, option) // 2


@pytest.mark.parametrize(("file", "expected"), [({"socket.receive.buffer.bytes": "50000"}, 50_000), ({}, None)])
def test_accepted_sockets_have_the_receive_buffer_of_the_file(file: dict[str, str], expected: int | None) -> None:
    bound = bind_listeners(check_configuration({**GOOD, **file}, "f"))
    try:
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
