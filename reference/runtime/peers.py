"""Connections to other nodes: the runtime's side of `Send` and `HangUp`.

One connection for each peer and purpose, opened by the first frame for it. Frames wait while the connection is being made;
when it cannot be made or breaks, the node is informed once, and waiting frames are dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from reference.node.effects import Send
from reference.protocol.primitives import NodeId

CONNECT_TIMEOUT_S = 10
"""socket.connection.setup.timeout.ms's default."""

MAX_ANSWER_BYTES = 100 * 1024 * 1024
"""socket.request.max.bytes' default; no answer that we ask for is larger."""

RECEIVE_BYTES = 64 * 1024
"""Of the buffer that a connection has while no larger answer comes."""

Channel = tuple[NodeId, str]


class Listener(Protocol):
    """The listener for answers and failures."""

    def on_answer(self, channel: Channel, frame: bytes) -> None:
        """An answer has wholly come."""
        ...

    def on_unreachable(self, channel: Channel, reason: str) -> None: ...


class PeerConnections:
    """Every connection that this node opened."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._connections: dict[Channel, _PeerConnection] = {}

    def send(self, effect: Send) -> None:
        """Hand a frame to the peer's connection, opening it if there is none."""
        channel = effect.peer, effect.purpose
        connection = self._connections.get(channel)
        if connection is None:
            connection = _PeerConnection(self._listener, channel, self._forget)
            self._connections[channel] = connection
            connection.open(effect.host, effect.port)
        connection.send(effect.frame)

    def hang_up(self, channel: Channel) -> None:
        """Close a connection without a word to the node."""
        connection = self._connections.pop(channel, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all of them."""
        for channel in [*self._connections]:
            self.hang_up(channel)

    def _forget(self, connection: _PeerConnection) -> bool:
        """Drop a connection that failed; whether it was still in use."""
        if self._connections.get(connection.channel) is not connection:
            return False
        del self._connections[connection.channel]
        return True


class _PeerConnection(asyncio.BufferedProtocol):
    """One connection: frames out as they come, answers in."""

    def __init__(self, listener: Listener, channel: Channel, forget: Callable[[_PeerConnection], bool]) -> None:
        self.channel = channel
        self._listener = listener
        self._forget = forget
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []
        self._received = bytearray(RECEIVE_BYTES)
        self._filled = 0
        """Bytes of `_received` that have come."""
        self._closed = False

    def open(self, host: str, port: int) -> None:
        self._opening = asyncio.get_running_loop().create_task(self._open(host, port))

    async def _open(self, host: str, port: int) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        except (OSError, TimeoutError) as error:
            self._fail(f"{host}:{port}: {getattr(error, 'strerror', None) or error or 'no connection in time'}")

    def send(self, frame: bytes) -> None:
        if self._transport is None:
            self._waiting.append(frame)
        else:
            self._transport.write(frame)

    def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._closed:
            transport.abort()
            return
        self._transport = transport
        transport.writelines(self._waiting)
        self._waiting = []

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._received)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        position, size = 0, 0
        with memoryview(self._received) as received:
            while self._filled - position >= 4 and not self._closed:
                size = int.from_bytes(received[position : position + 4], "big", signed=True)
                if not 0 <= size <= MAX_ANSWER_BYTES:
                    self._fail(f"an answer of {size} bytes")
                    return
                if self._filled < position + 4 + size:
                    break
                # A copy, for the reader may hold on to parts of it, and the buffer takes what comes next.
                self._listener.on_answer(self.channel, bytes(received[position + 4 : position + 4 + size]))
                position += 4 + size
        self._keep_from(position, 4 + size)

    def _keep_from(self, position: int, wanted: int) -> None:
        """Put the beginning of the next answer first in a buffer with room for more, which grows with what has come."""
        if position == 0 and self._filled < len(self._received):
            return
        rest = self._received[position : self._filled]
        self._filled = len(rest)
        room = max(RECEIVE_BYTES, min(wanted, 4 * len(rest)))
        if room != len(self._received):
            self._received = bytearray(room)
        self._received[: len(rest)] = rest

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "closed by the peer")

    def _fail(self, reason: str) -> None:
        if self._closed:
            return
        self.close()
        if self._forget(self):
            self._listener.on_unreachable(self.channel, reason)
