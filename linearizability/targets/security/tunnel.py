"""Tunnels: listeners on this machine, each of which leads to one secured listener of a broker.

A connection to a tunnel becomes one connection to the broker, encrypted and authenticated before the first byte is passed.
Bytes are passed as they come, in both directions, and so is the end of a connection. Two things differ from a plain
connection: a half-closed one (TLS has none) is closed as a whole once the broker had `LINGER_S` to answer, and a broker that
refuses the connection is seen as one that closes it.

A broker that limits sessions (connections.max.reauth.ms, KIP-368) closes the connection at their end: nothing authenticates
again. `shortest_session_ms` says whether it does.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from linearizability.targets.loop import Loop
from linearizability.targets.security.client_config import ClientSecurity
from linearizability.targets.security.errors import SecurityError
from linearizability.targets.security.mechanisms import Mechanism
from linearizability.targets.wire import announced
from reference.protocol.codec import CodecError
from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from reference.protocol.messages.sasl_handshake import SaslHandshakeRequest
from reference.protocol.schema import Message

CLIENT_ID = "tidegauge"
LISTENING = "127.0.0.1"
OPEN_WITHIN_S = 30.0
"""Connecting, the TLS handshake and the authentication, each."""
LINGER_S = 5.0
READ_BYTES = 1 << 16
LARGEST_ANSWER_BYTES = 1 << 20
ROUNDS = 8
"""More challenges than any mechanism has."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Tunnels:
    """The tunnels to one target. `close` ends them."""

    def __init__(self, security: ClientSecurity) -> None:
        self.security = security
        self.shortest_session_ms = 0
        """The shortest session that the broker granted; 0: they are not limited."""
        self._loop = Loop().__enter__()
        self._listeners: dict[tuple[str, int], asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def to(self, host: str, port: int, *, name: str = "") -> tuple[str, int]:
        """The address on this machine that leads there. `name` is what the certificate must name, where `host` is another."""
        if (host, port) not in self._listeners:
            self._listeners[host, port] = self._loop.run(self._listen(host, port, name or host))
        return LISTENING, self._listeners[host, port].sockets[0].getsockname()[1]

    def check(self, host: str, port: int) -> None:
        """Connect once, and hang up. Errors: SecurityError, which says how far it came."""
        _, writer = self._loop.run(self._open(host, port, host))
        self._loop.loop.call_soon_threadsafe(writer.close)

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
                    await _join((reader, writer), await self._open(host, port, name))
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

    async def _open(self, host: str, port: int, name: str) -> Streams:
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
        mechanism = self.security.authentication()
        if mechanism is None:
            return reader, writer
        authentication = Authentication(reader, writer, self.security.mechanism, mechanism)
        try:
            lifetime_ms = await asyncio.wait_for(authentication.run(), OPEN_WITHIN_S)
        except SecurityError as error:
            writer.close()
            raise SecurityError(f"{host}:{port}: {error}") from error
        except (OSError, TimeoutError, EOFError, CodecError) as error:
            writer.close()
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise SecurityError(
                f"{host}:{port}: the authentication by {self.security.mechanism} broke off: {reason}"
            ) from error
        if lifetime_ms:
            self.shortest_session_ms = min(lifetime_ms, self.shortest_session_ms or lifetime_ms)
        return reader, writer


@dataclass
class Authentication:
    """SaslHandshake and SaslAuthenticate (KIP-43, KIP-152) on one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    name: str
    mechanism: Mechanism
    _numbers: Any = field(default_factory=itertools.count)

    async def run(self) -> int:
        """Authenticate. Returns the session's lifetime in ms, 0 where it is not limited.

        Errors: SecurityError where the broker refuses; OSError, EOFError, CodecError.
        """
        versions = {api.api_key: api.max_version for api in (await self._call(ApiVersionsRequest(), 0)).api_keys}
        in_frames = versions.get(SaslHandshakeRequest.KEY, 0) >= 1
        shaken = await self._call(SaslHandshakeRequest(mechanism=self.name), int(in_frames))
        if shaken.error_code != ErrorCode.NONE:
            raise SecurityError(f"{name_of(shaken.error_code)}: {self.name} is none of {', '.join(shaken.mechanisms)}")
        version = min(versions.get(SaslAuthenticateRequest.KEY, 0), SaslAuthenticateRequest.VERSIONS.highest)
        said: bytes | None = self.mechanism.first()
        lifetime_ms = 0
        for _ in range(ROUNDS):
            if said is None:
                return lifetime_ms
            if in_frames:
                answer = await self._call(SaslAuthenticateRequest(auth_bytes=said), version)
                if answer.error_code != ErrorCode.NONE:
                    raise SecurityError(f"{name_of(answer.error_code)}: {answer.error_message or 'no reason given'}")
                challenge, lifetime_ms = bytes(answer.auth_bytes), answer.session_lifetime_ms
            else:
                challenge = await self._exchange(struct.pack(">i", len(said)) + said)
            said = self.mechanism.answer(challenge)
        raise SecurityError(f"the authentication by {self.name} did not end after {ROUNDS} rounds")

    async def _call(self, request: Message, version: int) -> Any:
        number = next(self._numbers)
        frame = await self._exchange(encode_request(request.KEY, version, number, CLIENT_ID, request))
        correlation_id, answer = decode_response(request.KEY, version, frame)
        if correlation_id != number:
            raise SecurityError(
                f"the answer to {type(request).__name__} belongs to request {correlation_id}, not {number}"
            )
        return answer

    async def _exchange(self, data: bytes) -> bytes:
        self.writer.write(data)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        if not 0 <= size <= LARGEST_ANSWER_BYTES:
            raise SecurityError(f"the authentication by {self.name} broke off: {announced(size)}")
        return await self.reader.readexactly(size)


async def _join(client: Streams, broker: Streams) -> None:
    """Pass bytes both ways until the broker's side ends, or the client's side ended and what is owed came."""
    up = asyncio.create_task(_pass_on(client[0], broker[1]))
    down = asyncio.create_task(_pass_on(broker[0], client[1]))
    try:
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({down}, timeout=LINGER_S)
    finally:
        for task in (up, down):
            task.cancel()
        broker[1].close()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(READ_BYTES):
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
