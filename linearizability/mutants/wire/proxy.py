"""The proxy: one listener for each node, whose address replaces the node's in responses.

Bytes that no *tamper* changes pass unchanged and at once, malformed ones too: the proxy in front of a correct broker is itself a
correct broker. Clients' bytes are forwarded as they arrive; if the tamper rewrites requests, whole frames are. Responses are
matched to requests by their correlation ids, in order; a request without a response is skipped.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from linearizability.targets.addresses import AddressMap
from linearizability.targets.loop import Loop
from linearizability.targets.target import Node
from reference.protocol.apis import APIS
from reference.protocol.codec import CodecError, decode_from
from reference.protocol.frames import decode_request, decode_response, encode_response
from reference.protocol.schema import Message

LARGEST_FRAME_BYTES = 100 << 20
"""The largest size of a frame that is parsed (socket.request.max.bytes). After a larger one the client's bytes pass unparsed."""
LARGEST_KEPT_REQUEST = 1 << 20
"""The largest request whose frame a tamper sees."""
READ_BYTES = 1 << 16
LISTENING = "127.0.0.1"


@dataclass
class Exchange:
    """One request, as a tamper sees it."""

    api: str
    """The API's name; empty for an unknown key."""
    key: int
    version: int
    correlation_id: int
    frame: bytes = field(repr=False)
    """The request without its size; empty if it was longer than LARGEST_KEPT_REQUEST."""
    connection: ProxiedConnection = field(repr=False)
    dropped: bool = False
    """Whether the tamper added the request: the client does not get its response."""
    _request: Message | None = field(default=None, repr=False)

    @property
    def request(self) -> Any:
        """The request's body as the client sent it. Errors: CodecError."""
        if self._request is None:
            self._request = self.decoded()[1]
        return self._request

    def decoded(self) -> tuple[bytes, Any]:
        """The bytes of the request's header, and a copy of its body. Errors: CodecError."""
        _, form, view, position = decode_request(self.frame)
        return self.frame[:position], decode_from(form.request, self.version, view, position)[0]

    def reply(self, body: Message) -> None:
        """Send a response in place of the broker; the caller must not forward the request."""
        self.connection.pending.remove(self)
        parts = encode_response(self.key, self.version, self.correlation_id, body)
        self.connection.writer.write(b"".join(parts))  # type: ignore[arg-type]


@dataclass
class Answer:
    """A replacement of a response: frames with their sizes, sent after a delay; with `close` the connection is then closed."""

    frames: list[bytes]
    delay_s: float = 0.0
    close: bool = False
    hold: bool = False
    """Whether to hold the frames until after the connection's next response, if one is pending."""


class Tamper(Protocol):
    """Rewrites requests and responses. Each method may return None, for no change."""

    rewrites_requests: bool
    """Whether requests are forwarded as whole frames, after `asked`."""

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        """The frames, with sizes, to forward in place of the request; []: none. The client gets the response to the first."""

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        """The replacement of a response; `frame` is without its size."""

    def ended(self, connection: ProxiedConnection) -> bytes | None:
        """The bytes to send after the broker closed the connection, which then stays open; None closes it."""


class Honest:
    """Rewrites nothing."""

    rewrites_requests = False

    def asked(self, exchange: Exchange) -> Sequence[bytes] | None:
        return None

    def answered(self, exchange: Exchange, frame: bytes) -> Answer | None:
        return None

    def ended(self, connection: ProxiedConnection) -> bytes | None:
        return None


def sized(frame: bytes) -> bytes:
    """A frame with its size in front."""
    return struct.pack(">i", len(frame)) + frame


class ProxiedConnection:
    """One client's connection to the proxy, and the proxy's connection to the broker."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.reader, self.writer = reader, writer
        self.pending: deque[Exchange] = deque()
        self.last: Exchange | None = None
        """The last request whose header could be read."""
        self.memory: dict[str, Any] = {}
        """State that the tamper keeps for this connection."""
        self._held: list[bytes] = []
        self._unread = bytearray()
        self.malformed = b""
        """The first invalid size field that the client sent; empty before."""

    async def serve(self, node: Node) -> None:
        """Pass bytes both ways until both sides have ended."""
        try:
            broker_reader, self.broker = await asyncio.open_connection(node.host, node.port)
        except OSError:
            self.writer.close()
            return
        sending = asyncio.ensure_future(self._send())
        try:
            closed_by_broker = await self._answer(broker_reader)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            said = self.proxy.tamper.ended(self) if closed_by_broker else None
            if said is not None:
                self.writer.write(said)
                while await self.reader.read(READ_BYTES):
                    pass
        finally:
            sending.cancel()
            self.broker.close()
            self.writer.close()

    async def _send(self) -> None:
        """Forward the client's bytes to the broker, and then the end of its stream; responses still pass after that."""
        try:
            while data := await self.reader.read(READ_BYTES):
                for part in self._requests(data):
                    self.broker.write(part)
                await self.broker.drain()
            if self.proxy.tamper.rewrites_requests and not self.malformed:
                self.broker.write(bytes(self._unread))
            self.broker.write_eof()
        except OSError:
            self.broker.close()

    def _requests(self, data: bytes) -> Sequence[bytes]:
        """The bytes to forward to the broker after these bytes of the client."""
        if self.malformed:
            return [data]
        self._unread += data
        out: list[bytes] = []
        while len(self._unread) >= 4:
            size = struct.unpack_from(">i", self._unread)[0]
            if not 0 <= size <= LARGEST_FRAME_BYTES:
                self.malformed = bytes(self._unread[:4])
                out.append(bytes(self._unread))
                break
            if len(self._unread) < 4 + size:
                break
            frame = bytes(self._unread[4 : 4 + size])
            del self._unread[: 4 + size]
            out += self._request(frame)
        return out if self.proxy.tamper.rewrites_requests else [data]

    def _request(self, frame: bytes) -> Sequence[bytes]:
        if len(frame) < 8:
            return [sized(frame)]
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        kept = frame if len(frame) <= LARGEST_KEPT_REQUEST else b""
        name = APIS[key].name if key in APIS else ""
        self.last = exchange = Exchange(name, key, version, correlation_id, kept, self)
        self.pending.append(exchange)
        instead = self.proxy.tamper.asked(exchange)
        if instead is None:
            return [sized(frame)]
        for more in instead[1:]:
            self.pending.append(
                Exchange(name, key, version, struct.unpack_from(">i", more, 8)[0], b"", self, dropped=True)
            )
        return instead

    async def _answer(self, broker: asyncio.StreamReader) -> bool:
        """Forward the broker's frames to the client; return True if the broker closed the connection, False if the tamper did."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size_field = await broker.readexactly(4)
                frame = await broker.readexactly(struct.unpack(">i", size_field)[0])
                if not await self._pass(frame):
                    return False
        return True

    async def _pass(self, frame: bytes) -> bool:
        """Forward a response, rewritten or not; return False if the connection must then be closed."""
        exchange = self._asked_by(frame)
        if exchange and exchange.dropped:
            return True
        answer = self._rewritten(exchange, frame) if exchange else Answer([sized(frame)])
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        if answer.hold and self.pending:
            self._held += answer.frames
            return True
        self.writer.write(b"".join([*answer.frames, *self._held]))
        self._held = []
        await self.writer.drain()
        return not answer.close

    def _asked_by(self, frame: bytes) -> Exchange | None:
        """The request of a response, and remove it and all earlier ones: these get no response (acks=0)."""
        correlation_id = struct.unpack_from(">i", frame)[0] if len(frame) >= 4 else None
        if not any(exchange.correlation_id == correlation_id for exchange in self.pending):
            return None
        while (exchange := self.pending.popleft()).correlation_id != correlation_id:
            pass
        return exchange

    def _rewritten(self, exchange: Exchange, frame: bytes) -> Answer:
        frame = self.proxy.with_own_addresses(exchange, frame)
        return self.proxy.tamper.answered(exchange, frame) or Answer([sized(frame)])


def names_nodes(message: type[Message]) -> bool:
    """Whether a message has fields for addresses of nodes."""
    names = {each.name for each in message.FIELDS}
    return {"host", "port"} <= names or any(
        names_nodes(each.element) for each in message.FIELDS if isinstance(each.element, type)
    )


NAMING_NODES = ("Metadata", "FindCoordinator", "DescribeCluster", "DescribeQuorum", "Produce", "Fetch")
"""APIs whose responses to clients have addresses (a test compares this with the schemas)."""


class Proxy:
    """Listeners in front of a target's nodes. A context manager; `nodes` have the listeners' addresses.

    `controllers` are further listeners of the target that responses name: the proxy listens for those, too.
    """

    def __init__(
        self,
        loop: Loop,
        behind: Sequence[Node],
        tamper: Tamper | None = None,
        addresses: AddressMap | None = None,
        controllers: Sequence[Node] = (),
    ) -> None:
        self.tamper: Tamper = tamper or Honest()
        self.mapped = addresses or AddressMap()
        """Maps addresses in responses to those at which this process reaches the nodes."""
        self.memory: dict[str, Any] = {}
        """State that the tamper keeps for the whole proxy."""
        self.nodes: list[Node] = []
        self._loop, self._behind, self._controllers = loop, behind, controllers
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._addresses: dict[tuple[str, int], Node] = {}

    def __enter__(self) -> Proxy:
        self._loop.run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._close())

    async def _listen(self) -> None:
        for behind in [*self._behind, *self._controllers]:
            server = await asyncio.start_server(self._handler(behind), LISTENING, 0)
            self._servers.append(server)
            own = Node(behind.id, LISTENING, server.sockets[0].getsockname()[1])
            self._addresses[behind.host, behind.port] = own
        self.nodes = [self._addresses[behind.host, behind.port] for behind in self._behind]

    def _handler(self, behind: Node) -> Any:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                with suppress(ConnectionError, asyncio.CancelledError):
                    await ProxiedConnection(self, reader, writer).serve(behind)
            finally:
                self._tasks.discard(task)

        return handle

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def with_own_addresses(self, exchange: Exchange, frame: bytes) -> bytes:
        """The response with the listeners' addresses in place of the nodes'."""
        if exchange.api not in NAMING_NODES:
            return frame
        try:
            correlation_id, message = decode_response(exchange.key, exchange.version, frame)
            if not self._replace(message):
                return frame
            return b"".join(encode_response(exchange.key, exchange.version, correlation_id, message))[4:]  # type: ignore[arg-type]
        except CodecError:
            return frame

    def _replace(self, message: Any) -> bool:
        changed = False
        names = {each.name for each in message.FIELDS}
        if {"host", "port"} <= names and (own := self._addresses.get(self.mapped.reach(message.host, message.port))):
            message.host, message.port, changed = own.host, own.port, True
        for each in message.FIELDS:
            inner = getattr(message, each.name) if isinstance(each.element, type) else None
            for one in inner if isinstance(inner, list) else [inner] if inner is not None else []:
                changed = self._replace(one) or changed
        return changed
