"""Connections to other nodes: the runtime's side of `Send` and `HangUp`.

One connection for each peer and purpose, opened by the first frame for it. Frames wait while the connection is being made
and this node authenticates;
when it cannot be made or breaks, the node is informed once, and waiting frames are dropped.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from reference.node.effects import Send
from reference.protocol.buffers import copy_into
from reference.protocol.primitives import Buffer, NodeId
from reference.runtime.frame_buffers import FrameBuffers
from reference.runtime.peer_login import RENEWED_AFTER, LoginFailed, PeerLogin
from reference.runtime.security import mechanism_setting, peer_login
from reference.runtime.tls import RenewedContext, listener_context

CONNECT_TIMEOUT_S = 10
"""socket.connection.setup.timeout.ms's default."""

MAX_ANSWER_BYTES = 100 * 1024 * 1024
"""socket.request.max.bytes' default; no answer that we ask for is larger."""

LEAST_ANSWER_BUFFER = 16 * 1024
"""The least buffer of a response that has arrived in part."""

Channel = tuple[NodeId, str]


class Listener(Protocol):
    """The listener for answers and failures."""

    def on_answer(self, channel: Channel, frame: Buffer) -> None:
        """A complete response has arrived; its bytes are valid during the call only."""
        ...

    def on_unreachable(self, channel: Channel, reason: str) -> None: ...

    def on_refused(self, channel: Channel, reason: str) -> None:
        """TLS or SASL with another node failed; `on_unreachable` follows."""
        ...


@dataclass(frozen=True, slots=True)
class _Way:
    """How connections to a listener of other nodes are secured."""

    tls: RenewedContext | None = None
    login: tuple[str, str, str] | None = field(default=None, repr=False)

    @classmethod
    def to(cls, listener: str, properties: Mapping[str, str], log: Callable[[str, str], None]) -> _Way:
        """Errors: WrongSecurity."""
        tls = listener_context(properties, listener, log, as_client=True)
        return cls(tls, peer_login(properties, listener, mechanism_setting(properties, listener)))

    def new_login(self) -> PeerLogin | None:
        """The authentication of a new connection, or of a new session on one; None without SASL."""
        return PeerLogin(*self.login) if self.login is not None else None


class PeerConnections:
    """Every connection that this node opened."""

    def __init__(self, listener: Listener, properties: Mapping[str, str], log: Callable[[str, str], None]) -> None:
        self._listener = listener
        self._properties = properties
        self._log = log
        self._connections: dict[Channel, _PeerConnection] = {}
        self._ways: dict[str, _Way] = {}
        """By the names of other nodes' listeners."""
        self._buffers = FrameBuffers()

    def send(self, effect: Send) -> None:
        """Hand a frame to the peer's connection, opening it if there is none."""
        channel = effect.peer, effect.purpose
        connection = self._connections.get(channel)
        if connection is None:
            way = self._way(effect.listener)
            connection = _PeerConnection(self._listener, channel, self._forget, way.new_login, self._buffers)
            self._connections[channel] = connection
            connection.open(effect.host, effect.port, way.tls.get() if way.tls is not None else None)
        connection.send(effect.frame)

    def _way(self, listener: str) -> _Way:
        if listener not in self._ways:
            self._ways[listener] = _Way.to(listener, self._properties, self._log) if listener else _Way()
        return self._ways[listener]

    def hang_up(self, channel: Channel) -> None:
        """Close a connection without a report to the node."""
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

    def __init__(
        self,
        listener: Listener,
        channel: Channel,
        forget: Callable[[_PeerConnection], bool],
        new_login: Callable[[], PeerLogin | None],
        buffers: FrameBuffers,
    ) -> None:
        self.channel = channel
        self._listener = listener
        self._forget = forget
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []
        """Frames that are sent when the connection is made, and this node has authenticated."""
        self._new_login = new_login
        self._login: PeerLogin | None = None
        """An authentication that is under way."""
        self._unanswered = 0
        self._renewed_at: float | None = None
        """When to authenticate again, by the event loop's clock."""
        self._buffers = buffers
        self._buffer = buffers.shared
        """The shared buffer, or the connection's own while a response has arrived in part."""
        self._filled = 0
        """Bytes of `_buffer` that have been received."""
        self._closed = False

    def open(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._opening = asyncio.get_running_loop().create_task(self._open(host, port, tls))

    async def _open(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(lambda: self, host, port, ssl=tls)
        except ssl.SSLError as error:
            self._listener.on_refused(self.channel, f"TLS with {host}:{port}: {error.reason or error}")
            self._fail(str(error))
        except (OSError, TimeoutError) as error:
            self._fail(f"{host}:{port}: {getattr(error, 'strerror', None) or error or 'no connection in time'}")

    def send(self, frame: bytes) -> None:
        self._waiting.append(frame)
        self._send_waiting()

    def _send_waiting(self) -> None:
        """Send waiting frames. An old session is renewed before, as soon as no request is unanswered."""
        if self._transport is None or self._login is not None:
            return
        if self._renewed_at is not None and asyncio.get_running_loop().time() >= self._renewed_at:
            if self._unanswered == 0:
                self._begin_login()
            return
        self._unanswered += len(self._waiting)
        self._transport.writelines(self._waiting)
        self._waiting = []

    def _begin_login(self) -> None:
        self._login = self._new_login()
        if self._login is not None:
            assert self._transport is not None
            self._transport.write(self._login.first())

    def _take_login(self, login: PeerLogin, frame: bytes) -> None:
        assert self._transport is not None
        try:
            following = login.take(frame)
        except LoginFailed as error:
            self._listener.on_refused(self.channel, str(error))
            return self._fail(str(error))
        if following is not None:
            self._transport.write(following)
        if login.is_done:
            now = asyncio.get_running_loop().time()
            self._renewed_at = now + RENEWED_AFTER * login.session_ms / 1000 if login.session_ms else None
            self._login = None
            self._send_waiting()

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
        self._begin_login()
        self._send_waiting()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        received, position, size = self._buffer[: self._filled], 0, 0
        while self._filled - position >= 4 and not self._closed:
            size = int.from_bytes(received[position : position + 4], "big", signed=True)
            if not 0 <= size <= MAX_ANSWER_BYTES:
                self._fail(f"an answer of {size} bytes")
                return
            if self._filled < position + 4 + size:
                break
            self._take(received[position + 4 : position + 4 + size])
            position += 4 + size
        self._keep_from(position, 4 + size)

    def _take(self, frame: Buffer) -> None:
        if self._login is not None:
            self._take_login(self._login, bytes(frame))
            return
        self._unanswered -= 1
        self._listener.on_answer(self.channel, frame)
        if self._waiting:
            self._send_waiting()

    def _keep_from(self, position: int, wanted: int) -> None:
        """Keep the beginning of the next answer in a buffer of its own, which grows with what has come."""
        before, buffers = self._buffer, self._buffers
        if position == self._filled:
            self._buffer, self._filled = buffers.shared, 0
        elif position or before is buffers.shared or self._filled == len(before):
            rest = before[position : self._filled]
            self._filled = len(rest)
            self._buffer = buffers.take(max(LEAST_ANSWER_BUFFER, min(wanted, 4 * len(rest))))
            copy_into(self._buffer, rest)
        if before is not self._buffer and before is not buffers.shared:
            buffers.give(before)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "closed by the peer")

    def _fail(self, reason: str) -> None:
        if self._closed:
            return
        self.close()
        if self._forget(self):
            self._listener.on_unreachable(self.channel, reason)
