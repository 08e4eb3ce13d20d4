"""Tunnels: listeners on this machine, each of which forwards to one secured listener of a broker.

For each client connection the tunnel opens one to the broker, and encrypts and authenticates it before it forwards the first
byte. It forwards bytes, and the end of a connection, in both directions. Two things differ from a plain connection. A
half-closed one (TLS has none) is closed completely after the broker had five seconds to respond. And a broker that refuses
the connection appears to close it.

A broker that limits sessions (connections.max.reauth.ms, KIP-368) closes a connection at the end of its session, so the tunnel
authenticates again before that (`session.py`).
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from linearizability.targets.loop import Loop
from linearizability.targets.security.client_config import ClientSecurity
from linearizability.targets.security.errors import SecurityError
from linearizability.targets.security.session import Session

LISTENING = "127.0.0.1"
OPEN_WITHIN_S = 30.0
"""The time limit of connecting and the TLS handshake together."""


class Tunnels:
    """The tunnels to one target. `close` ends them."""

    def __init__(self, security: ClientSecurity) -> None:
        self.security = security
        self._loop = Loop().__enter__()
        self._listeners: dict[tuple[str, int, str], asyncio.Server] = {}
        """By address and by the server name of the handshake, which selects the broker behind a proxy."""
        self._tasks: set[asyncio.Task[None]] = set()

    def to(self, host: str, port: int, *, name: str = "") -> tuple[str, int]:
        """The tunnel's address for a broker's listener. `name` is the name that the certificate must have, if not `host`."""
        key = (host, port, name or host)
        if key not in self._listeners:
            self._listeners[key] = self._loop.run(self._listen(*key))
        return LISTENING, self._listeners[key].sockets[0].getsockname()[1]

    def check(self, host: str, port: int) -> None:
        """Connect once, and close the connection. Errors: SecurityError, which names the failed step."""
        session = self._loop.run(self._open(host, port, host))
        self._loop.loop.call_soon_threadsafe(session.writer.close)

    def close(self) -> None:
        self._loop.run(self._end())
        self._loop.__exit__()

    def __enter__(self) -> Tunnels:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _listen(self, host: str, port: int, name: str) -> asyncio.Server:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                with suppress(SecurityError, asyncio.CancelledError):
                    await (await self._open(host, port, name)).join((reader, writer))
            finally:
                self._tasks.discard(task)
                writer.close()

        return await asyncio.start_server(handle, LISTENING, 0)

    async def _end(self) -> None:
        for server in self._listeners.values():
            server.close()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self, host: str, port: int, name: str) -> Session:
        """Open an authenticated connection, ready for requests. Errors: SecurityError."""
        context = self.security.tls
        try:
            opening = asyncio.open_connection(host, port, ssl=context, server_hostname=name if context else None)
            reader, writer = await asyncio.wait_for(opening, OPEN_WITHIN_S)
        except ssl.SSLError as error:
            raise SecurityError(f"{host}:{port}: the TLS handshake failed: {_reason(error)}") from error
        except (OSError, TimeoutError, UnicodeError) as error:
            doing = "connecting and the TLS handshake" if context else "connecting"
            closed = "the connection was closed" + ("; does this listener speak TLS?" if context else "")
            reason = str(error) or (closed if isinstance(error, ConnectionError) else type(error).__name__)
            raise SecurityError(f"{host}:{port}: {doing} failed: {reason}") from error
        session = Session((reader, writer), self.security)
        try:
            await session.authenticate()
        except SecurityError as error:
            writer.close()
            raise SecurityError(f"{host}:{port}: {error}") from error
        return session


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
