"""One connection to a secured listener: authenticates it, forwards bytes, and authenticates it again in time.

A broker with connections.max.reauth.ms closes a connection at the end of its session (KIP-368). Where the broker limits
sessions, the tunnel tracks the frames in both directions. Between two requests of the client, before the session ends, it
sends the requests of a new authentication. It recognises their responses by the correlation ids and does not forward them. It
does not wait for a client with an incomplete frame: that session ends, as it would without a tunnel.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from contextlib import suppress
from dataclasses import dataclass

from linearizability.targets.security.authentication import Authentication, Exchange
from linearizability.targets.security.client_config import ClientSecurity
from linearizability.targets.security.errors import SecurityError
from linearizability.targets.wire import announced
from reference.protocol.codec import CodecError

AUTHENTICATED_WITHIN_S = 30.0
LINGER_S = 5.0
READ_BYTES = 1 << 16
LARGEST_ANSWER_BYTES = 1 << 20
RENEWED_AFTER = 0.85
"""The share of a session's lifetime after which Kafka's clients begin to authenticate again."""
FIRST_RENEWAL_ID = 0x54696465
"""The first correlation id of our own requests, far from those of clients, which count from 0."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Frames:
    """Finds the ends of frames in a stream. A negative size counts as 0."""

    def __init__(self) -> None:
        self._size = b""
        self._missing = 0

    @property
    def are_complete(self) -> bool:
        return not self._size and not self._missing

    def take(self, data: bytes) -> int:
        """Consume bytes of `data`, at most to the end of a size field or frame. Returns their number."""
        if self._missing:
            taken = min(self._missing, len(data))
            self._missing -= taken
            return taken
        taken = min(4 - len(self._size), len(data))
        self._size += data[:taken]
        if len(self._size) == 4:
            self._missing = max(0, int.from_bytes(self._size, signed=True))
            self._size = b""
        return taken


@dataclass
class _Awaited:
    correlation_id: int
    answer: asyncio.Future[bytes]


class Session:
    """A connection to the broker, and the time of its next authentication."""

    def __init__(self, broker: Streams, security: ClientSecurity) -> None:
        self.reader, self.writer = broker
        self.security = security
        self._renew_at: float | None = None
        """The time to authenticate again, by the loop's clock; None where the broker does not limit the session."""
        self._awaited: _Awaited | None = None
        self._renewal_ids = itertools.count(FIRST_RENEWAL_ID)

    async def authenticate(self) -> None:
        """Authenticate, before the client's first byte. Errors: SecurityError."""
        await self._authenticate(self._exchange)

    async def _authenticate(self, exchange: Exchange) -> None:
        mechanism, name = self.security.authentication(), self.security.mechanism
        if mechanism is None:
            return
        began = asyncio.get_running_loop().time()
        authentication = Authentication(exchange, name, mechanism, self.security.client_id, self._renewal_ids)
        try:
            lifetime_ms = await asyncio.wait_for(authentication.run(), AUTHENTICATED_WITHIN_S)
        except (OSError, TimeoutError, EOFError, CodecError) as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise SecurityError(f"the authentication by {name} broke off: {reason}") from error
        self._renew_at = began + RENEWED_AFTER * lifetime_ms / 1000 if lifetime_ms else None

    async def _exchange(self, data: bytes) -> bytes:
        self.writer.write(data)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        if not 0 <= size <= LARGEST_ANSWER_BYTES:
            raise SecurityError(f"the authentication by {self.security.mechanism} broke off: {announced(size)}")
        return await self.reader.readexactly(size)

    # ---- passing bytes

    async def join(self, client: Streams) -> None:
        """Forward bytes both ways until the broker's side ends, or LINGER_S after the client's side has ended."""
        limited = self._renew_at is not None
        requests = self._pass_requests(client[0]) if limited else _pass_on(client[0], self.writer)
        responses = self._pass_responses(client[1]) if limited else _pass_on(self.reader, client[1])
        up, down = asyncio.create_task(requests), asyncio.create_task(responses)
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({down}, timeout=LINGER_S)
        finally:
            for task in (up, down):
                task.cancel()
            self.writer.close()

    async def _pass_requests(self, client: asyncio.StreamReader) -> None:
        frames = Frames()
        with suppress(OSError, SecurityError):
            while data := await self._next_requests(client, frames):
                while data:
                    if frames.are_complete and self._is_due():
                        await self._authenticate(self._exchange_between)
                    taken = frames.take(data)
                    self.writer.write(data[:taken])
                    data = data[taken:]
                await self.writer.drain()
        if self.writer.can_write_eof():
            self.writer.write_eof()

    async def _next_requests(self, client: asyncio.StreamReader, frames: Frames) -> bytes:
        """The client's next bytes; authenticates again whenever that is due before they come. Errors: SecurityError."""
        reading = asyncio.ensure_future(client.read(READ_BYTES))
        try:
            while not reading.done():
                await asyncio.wait({reading}, timeout=self._seconds_left() if frames.are_complete else None)
                if not reading.done() and self._is_due():
                    await self._authenticate(self._exchange_between)
            return reading.result()
        finally:
            reading.cancel()

    async def _pass_responses(self, client: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while head := await _up_to(self.reader, 8):
                size, correlation_id = struct.unpack(">ii", head) if len(head) == 8 else (0, -1)
                awaited = self._awaited
                if awaited is not None and correlation_id == awaited.correlation_id:
                    self._awaited = None
                    if size > LARGEST_ANSWER_BYTES:
                        return  # too large for an authentication's response: end the connection
                    answer = head[4:] + await _up_to(self.reader, size - 4)
                    if not awaited.answer.done():
                        awaited.answer.set_result(answer)
                    continue
                client.write(head)
                missing = size - 4
                while missing > 0 and (data := await self.reader.read(min(missing, READ_BYTES))):
                    missing -= len(data)
                    client.write(data)
                    await client.drain()
                await client.drain()
            if client.can_write_eof():
                client.write_eof()

    async def _exchange_between(self, data: bytes) -> bytes:
        """The same as `_exchange`, while `_pass_responses` reads from the broker."""
        (correlation_id,) = struct.unpack_from(">i", data, 8)
        self._awaited = _Awaited(correlation_id, asyncio.get_running_loop().create_future())
        answer = self._awaited.answer
        self.writer.write(data)
        return await answer

    def _seconds_left(self) -> float | None:
        return None if self._renew_at is None else max(0.0, self._renew_at - asyncio.get_running_loop().time())

    def _is_due(self) -> bool:
        return self._seconds_left() == 0.0


async def _up_to(reader: asyncio.StreamReader, size: int) -> bytes:
    """Read `size` bytes, or fewer where the stream ends."""
    try:
        return await reader.readexactly(max(0, size))
    except asyncio.IncompleteReadError as error:
        return error.partial


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(READ_BYTES):
            sink.write(data)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
