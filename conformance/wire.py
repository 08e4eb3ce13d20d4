"""The suite's own client: it sends any bytes, also such as no client library would, and records them as evidence.

A `BrokerConnection` is one blocking socket. `call` sends a request and reads its response; `send` and `receive` separate the
two, for pipelining; `send_bytes` sends raw bytes. Each request becomes an `Exchange` in the recorder, with the bytes of both
directions. Every wait is bounded, by its own timeout and by the requirement's deadline.

Errors of the other side are `Misbehaved` (a failure of the target); wrong use of this module is an ordinary exception
(an engine error).
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from linearizability.targets.addresses import UNREACHABLE
from reference.protocol.apis import APIS
from reference.protocol.codec import CodecError, decode_from, encode
from reference.protocol.codec_writer import read_varint, write_varint
from reference.protocol.schema import Message

CLIENT_ID = "tidegauge"
API_VERSIONS = 18
EVIDENCE_BYTES = 16 * 1024
"""The most bytes of a request or response that are kept. Their full sizes are always kept."""
MAX_EXCHANGES = 200
"""The number of exchanges that a requirement keeps outside of cases. Beyond it, ones from the middle are dropped and
counted."""
MAX_FRAME_BYTES = 256 << 20


class Failed(Exception):
    """The target does not meet the requirement. The text is the observation."""

    built_on: str = ""
    """The requirement about the failed step, where that step only prepares the judged one."""
    code: int = 0
    """The error code that caused the failure; 0 for other causes."""
    direct: bool = False
    """The failure came before the test used a requirement that this one builds on."""


class Misbehaved(Failed):
    """The target ended an exchange that it should have completed."""

    about: Exchange | None = None
    """The request without a proper response, where it is known."""


class Closed(Misbehaved):
    """The target closed the connection."""


class NoAnswer(Misbehaved):
    """The target did not answer in time."""


class DeadlinePassed(NoAnswer):
    """The requirement's deadline passed before the present wait ended."""

    waited_s: float = 0.0
    """How long the present wait had lasted."""


class Unreadable(Misbehaved):
    """The target's response cannot be decoded by its API and version."""


class Unreachable(Misbehaved):
    """The target accepts no connection."""


@dataclass(slots=True)
class Deadline:
    """A point in time that bounds all waits of one requirement."""

    at_s: float

    @staticmethod
    def after(seconds: float) -> Deadline:
        return Deadline(time.monotonic() + seconds)

    def left_s(self, wanted_s: float) -> float:
        """The wanted time, or the time until the deadline where that is shorter.

        Errors: DeadlinePassed when nothing is left.
        """
        left = self.at_s - time.monotonic()
        if left <= 0:
            raise DeadlinePassed("the requirement's deadline passed")
        return min(wanted_s, left)


@dataclass(slots=True)
class Exchange:
    """One request and its response, as bytes."""

    connection: int
    at_s: float
    """Seconds since the requirement began."""
    api_key: int
    version: int
    sent: bytes
    sent_bytes: int
    received: bytes = b""
    received_bytes: int = 0
    response_version: int = -1
    """The version in which the response was decoded: the request's, but 0 for a refused ApiVersions."""
    outcome: str = "pending"
    """pending, answered, closed, no answer, unreadable, or not awaited (acks=0, raw bytes)."""
    elapsed_ms: float = 0.0
    case: str = ""
    note: str = ""


@dataclass
class Recorder:
    """Keeps the exchanges of one requirement, in the order of sending."""

    started_s: float = field(default_factory=time.monotonic)
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    dropped: int = 0
    connections: int = 0
    case: str = ""

    def begin(self, connection: int, api_key: int, version: int, data: bytes, note: str) -> Exchange:
        """Record a request that is sent now."""
        exchange = Exchange(
            connection,
            time.monotonic() - self.started_s,
            api_key,
            version,
            data[:EVIDENCE_BYTES],
            len(data),
            response_version=version,
            case=self.case,
            note=note,
        )
        self.exchanges.append(exchange)
        if len(self.exchanges) > MAX_EXCHANGES and not self.case:
            del self.exchanges[MAX_EXCHANGES // 2]
            self.dropped += 1
        return exchange

    def end(self, exchange: Exchange, outcome: str, frame: bytes = b"") -> None:
        """Record an exchange's outcome; `frame` is the response with its size field."""
        exchange.outcome = outcome
        exchange.received = frame[:EVIDENCE_BYTES]
        exchange.received_bytes = len(frame)
        exchange.elapsed_ms = (time.monotonic() - self.started_s - exchange.at_s) * 1000


def request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, *, flexible: bool, tags: bytes = b"\x00"
) -> bytes:
    """Request header v1, or v2 where the request's version is flexible. The client id is never compact."""
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id.encode())) + client_id.encode()
    return struct.pack(">hhi", api_key, version, correlation_id) + name + (tags if flexible else b"")


def tagged_fields(*fields: tuple[int, bytes]) -> bytes:
    """A tagged-field section with the given (tag, bytes), in the given order."""
    out = write_varint(len(fields))
    for tag, value in fields:
        out += write_varint(tag) + write_varint(len(value)) + value
    return out


def frame(payload: bytes) -> bytes:
    """A request or response on the wire: its size, then its bytes."""
    return struct.pack(">i", len(payload)) + payload


UNFIT = re.compile(r"^a string of \d+ bytes|'?NoneType'?")
"""The codec's messages about strings and nulls that do not fit a field. The suite's own values fit."""


class BrokerConnection:
    """One connection to one broker."""

    def __init__(
        self,
        address: tuple[str, int],
        recorder: Recorder,
        deadline: Deadline,
        *,
        timeout_s: float = 10.0,
        client_id: str | None = CLIENT_ID,
        check: Callable[[Message, int], None] = lambda request, version: None,
    ) -> None:
        """Connect. `check` is called with each request and its version before the encoding; its exceptions propagate.

        Errors: Unreachable when the connection is not accepted in time.
        """
        self.address = address
        self.recorder = recorder
        self.deadline = deadline
        self.timeout_s = timeout_s
        self.client_id = client_id
        self.check = check
        self.number = recorder.connections = recorder.connections + 1
        self._correlation_id = self.number * 1000
        self._pending: deque[tuple[Exchange, int]] = deque()
        self._buffer = bytearray()
        self._last: Exchange | None = None
        self._used_s = time.monotonic()
        try:
            self.socket = socket.create_connection(address, deadline.left_s(timeout_s))
        except UNREACHABLE as error:
            raise Unreachable(f"{address[0]}:{address[1]} takes no connection: {error}") from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and record pending requests as unanswered."""
        self._abandon("no answer")
        with contextlib.suppress(OSError):
            self.socket.close()

    @property
    def is_free(self) -> bool:
        """Whether no response is awaited."""
        return not self._pending

    def is_over(self, idle_s: float) -> bool:
        """Whether the connection is closed: by us, or by the other side after `idle_s` seconds without a request."""
        if self.socket.fileno() < 0:
            return True
        if self._pending or self._buffer or time.monotonic() - self._used_s < idle_s:
            return False
        self.socket.settimeout(0)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def interrupt(self) -> None:
        """End every wait on this connection at once. Called from another thread."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    # ---- saying

    def encode(
        self,
        request: Message,
        version: int,
        *,
        correlation_id: int | None = None,
        client_id: str | None = "",
        header_tags: bytes = b"\x00",
    ) -> bytes:
        """The request with its header and size field, as `send` would send it; an empty client id is the connection's.

        Errors: Failed where a value from an earlier response does not fit: a number or a string that is too large, or a null.
        """
        self.check(request, version)
        if correlation_id is None:
            self._correlation_id += 1
            correlation_id = self._correlation_id
        name = self.client_id if client_id == "" else client_id
        flexible = version in type(request).FLEXIBLE
        header = request_header(type(request).KEY, version, correlation_id, name, flexible=flexible, tags=header_tags)
        try:
            return frame(header + encode(request, version))
        except CodecError as error:
            if isinstance(error.__cause__, struct.error) or UNFIT.search(str(error)):
                raise Failed(f"a value that the target returned cannot be encoded in a request: {error}") from error
            raise

    def send(self, request: Message, version: int, *, awaited: bool = True, note: str = "", **header: Any) -> Exchange:
        """Send a request. A later `receive` reads its response, unless `awaited` is False (acks=0).

        `header` has `correlation_id`, `client_id`, `header_tags`, as `encode` takes them.
        """
        data = self.encode(request, version, **header)
        return self.send_bytes(data, api_key=type(request).KEY, version=version, awaited=awaited, note=note)

    def send_bytes(
        self,
        data: bytes,
        *,
        api_key: int = -1,
        version: int = -1,
        awaited: bool = False,
        pieces: int = 0,
        note: str = "",
    ) -> Exchange:
        """Send raw bytes, in segments of `pieces` bytes where given. An awaited request needs its `api_key` and `version`.

        Errors: Closed when the target has closed the connection, NoAnswer when it does not read the bytes in time.
        """
        exchange = self._last = self.recorder.begin(self.number, api_key, version, data, note)
        self._used_s = time.monotonic()
        if awaited:
            self._pending.append((exchange, struct.unpack_from(">i", data, 8)[0]))
        else:
            exchange.outcome = "not awaited"
        try:
            for at in range(0, len(data), pieces or len(data)):
                self.socket.settimeout(self.deadline.left_s(self.timeout_s))
                self.socket.sendall(data[at : at + (pieces or len(data))])
        except TimeoutError as error:
            raise NoAnswer(f"the target did not read all of {len(data)} bytes within {self.timeout_s} s") from error
        except OSError as error:
            self._abandon("closed")
            raise Closed(f"the connection was closed while sending {describe(exchange)}") from error
        return exchange

    def hang_up_sending(self) -> None:
        """Close our half of the connection: the target reads the end of our bytes, and can still respond."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    # ---- hearing

    def call(self, request: Message, version: int, *, timeout_s: float | None = None, **header: Any) -> Any:
        """Send a request and return its response. Errors: as for `send` and `receive`."""
        self.send(request, version, **header)
        return self.receive(timeout_s=timeout_s)

    def receive(self, *, version: int | None = None, timeout_s: float | None = None) -> Any:
        """The response to the oldest pending request, decoded in its version or in `version`.

        Errors: Closed, NoAnswer; Unreadable when the frame is not exactly that response, or has another correlation id.
        """
        exchange, correlation_id = self._pending[0]
        if version is not None:
            exchange.response_version = version
        try:
            payload = self.receive_frame(timeout_s=timeout_s)
            return self._read(exchange, correlation_id, payload)
        except Misbehaved as failure:
            failure.about = exchange
            raise

    def _read(self, exchange: Exchange, correlation_id: int, payload: bytes) -> Any:
        if len(payload) < 4:
            raise Unreadable(f"a response of {len(payload)} bytes to {describe(exchange)}")
        received = struct.unpack_from(">i", payload)[0]
        if received != correlation_id:
            exchange.outcome = "unreadable"
            raise Unreadable(
                f"correlation id {received} in the answer to {describe(exchange)}, which had {correlation_id}"
            )
        response = APIS[exchange.api_key].response
        view = memoryview(payload)
        try:
            start = response_header_end(view, exchange.api_key, exchange.response_version)
            message, end = decode_from(response, exchange.response_version, view, start)
        except (CodecError, IndexError) as error:
            exchange.outcome = "unreadable"
            raise Unreadable(f"the answer to {describe(exchange)} cannot be read: {error}") from error
        if end != len(payload):
            exchange.outcome = "unreadable"
            raise Unreadable(f"the answer to {describe(exchange)} has {len(payload) - end} bytes after its end")
        return message

    def receive_frame(self, *, timeout_s: float | None = None) -> bytes:
        """The next frame without its size field. Records it as the response to the oldest pending request.

        Errors: Closed, NoAnswer, Unreadable (an impossible size).
        """
        began = time.monotonic()
        until = began + self.deadline.left_s(timeout_s or self.timeout_s)
        try:
            size_field = self._take(4, until)
        except DeadlinePassed as failure:
            failure.waited_s = time.monotonic() - began
            raise
        size = struct.unpack(">i", size_field)[0]
        if not 0 <= size <= MAX_FRAME_BYTES:
            self._abandon("unreadable")
            raise Unreadable(f"a frame announces {size} bytes")
        payload = self._take(size, until)
        self._used_s = time.monotonic()
        if self._pending:
            exchange, _ = self._pending.popleft()
            self.recorder.end(exchange, "answered", size_field + payload)
        return payload

    def _take(self, count: int, until: float) -> bytes:
        while len(self._buffer) < count:
            left = until - time.monotonic()
            waiting = describe(self._pending[0][0]) if self._pending else "anything"
            try:
                if left <= 0:
                    raise TimeoutError
                self.socket.settimeout(left)
                data = self.socket.recv(1 << 20)
            except TimeoutError as error:
                self._abandon("no answer")
                late = DeadlinePassed if time.monotonic() >= self.deadline.at_s else NoAnswer
                raise late(f"no answer to {waiting} in time") from error
            except OSError as error:
                self._abandon("closed")
                raise Closed(f"the connection was reset instead of an answer to {waiting}") from error
            if not data:
                self._abandon("closed")
                raise Closed(f"the connection was closed instead of an answer to {waiting}")
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def is_silent(self, seconds: float) -> bool:
        """Whether for `seconds` no byte arrives and the connection does not close."""
        if self._buffer:
            return False
        self.socket.settimeout(self.deadline.left_s(seconds))
        try:
            self._buffer += self.socket.recv(1 << 20)
        except TimeoutError:
            return True
        except OSError:
            return False
        return False

    def wait_closed(self, within_s: float = 5.0) -> bytes | None:
        """Wait until the target closes the connection. Returns the bytes before the close, or None where it did not close."""
        until = time.monotonic() + self.deadline.left_s(within_s)
        while True:
            left = until - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                self.socket.settimeout(left)
                data = self.socket.recv(1 << 20)
            except TimeoutError:
                self._abandon("no answer")
                return None
            except OSError:
                data = b""
            if not data:
                said = bytes(self._buffer)
                self._abandon("answered, then closed" if said else "closed", said)
                return said
            self._buffer += data

    def _abandon(self, outcome: str, said: bytes = b"") -> None:
        """Record the outcome of pending requests, or of the last raw bytes."""
        unanswered = [exchange for exchange, _ in self._pending]
        if not unanswered and self._last and self._last.outcome == "not awaited" and outcome != "no answer":
            unanswered = [self._last]
        for exchange in unanswered:
            self.recorder.end(exchange, outcome, said)
            said = b""
        self._pending.clear()


def response_header_end(view: memoryview, api_key: int, version: int) -> int:
    """The position of the body: after the correlation id, and in flexible versions after the tagged fields (header v1).

    ApiVersions responses always have header v0: the client does not know the broker's versions yet (KIP-511). Errors:
    CodecError or IndexError when the header is cut off.
    """
    if api_key == API_VERSIONS or version not in APIS[api_key].response.FLEXIBLE:
        return 4
    count, position = read_varint(view, 4)
    for _ in range(count):
        _, position = read_varint(view, position)
        length, position = read_varint(view, position)
        if length > len(view) - position:
            raise CodecError("a tagged field of the response header ends too early")
        position += length
    return position


def describe(exchange: Exchange) -> str:
    """`Fetch v12`, or the number of raw bytes where the exchange is no request."""
    if exchange.api_key in APIS:
        return f"{APIS[exchange.api_key].name} v{exchange.version}"
    return f"{exchange.sent_bytes} raw bytes"
