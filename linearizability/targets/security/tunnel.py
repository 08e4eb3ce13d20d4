"""Tunnels: listeners on this machine, each of which leads to one secured listener of a broker.

A connection to a tunnel becomes one connection to the broker, encrypted and authenticated before the first byte is passed.
Bytes are passed as they come, in both directions, and so is the end of a connection. Two things differ from a plain
connection: a half-closed one (TLS has none) is closed as a whole once the broker had five seconds to answer, and a broker that
refuses the connection is seen as one that closes it.

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
"""Connecting and the TLS handshake."""


class Tunnels:
    """The tunnels to one target. `close` ends them."""

    def __init__(self, security: ClientSecurity) -> None:
        self.security = security
        self._loop = Loop().__enter__()
        self._listeners: dict[tuple[str, int, str], asyncio.Server] = {}
        """By address, and the name that the handshake asks for: behind one proxy it says which broker is meant."""
        self._tasks: set[asyncio.Task[None]] = set()

    def to(self, host: str, port: int, *, name: str = "") -> tuple[str, int]:
        """The address on this machine that leads there. `name` is what the certificate must name, where `host` is another."""
        key = (host, port, name or host)
        if key not in self._listeners:
            self._listeners[key] = self._loop.run(self._listen(*key))
        return LISTENING, self._listeners[key].sockets[0].getsockname()[1]

    def check(self, host: str, port: int) -> None:
        """Connect once, and hang up. Errors: SecurityError, which says how far it came."""
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
        """A connection that is ready for requests. Errors: SecurityError."""
        context = self.security.tls
        try:
            opening = asyncio.open_connection(host, port, ssl=context, server_hostname=name if context else None)
            reader, writer = await asyncio.wait_for(opening, OPEN_WITHIN_S)
        except ssl.SSLError as error:
            raise SecurityError(f"{host}:{port}: the TLS handshake failed: {_reason(error)}") from error
        except (OSError, TimeoutError, UnicodeError) as error:
            doing = "connecting and the TLS handshake" if context else "connecting"
            raise SecurityError(f"{host}:{port}: {doing} failed: {error or type(error).__name__}") from error
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
