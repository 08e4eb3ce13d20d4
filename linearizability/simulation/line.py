"""A client's connection to one node: sends requests, takes responses in order, and times out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from linearizability.simulation.configuration import PLAINTEXT
from linearizability.simulation.frame_text import outline
from linearizability.simulation.machine import Machine
from linearizability.simulation.network import Network, SimulatedConnection
from linearizability.simulation.schedule import CLIENTS
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation, World
from reference.protocol.apis import APIS
from reference.protocol.codec import CodecError
from reference.protocol.frames import decode_response, encode_request
from reference.protocol.schema import Message

REQUEST_TIMEOUT_MS = 1_500
BACKOFF_MS = 30


class Asked:
    """A request that waits for its response."""

    __slots__ = ("context", "correlation_id", "key", "on_answer", "version")

    def __init__(
        self, correlation_id: int, key: int, version: int, on_answer: Callable[..., None], context: Any
    ) -> None:
        self.correlation_id = correlation_id
        self.key = key
        self.version = version
        self.on_answer = on_answer
        self.context = context

    @property
    def name(self) -> str:
        return APIS[self.key].name


class Owner(Protocol):
    """The client that a line belongs to."""

    name: str
    world: World

    def on_line_up(self, line: Line) -> None:
        """Called when the connection is up; no request is in flight."""

    def on_line_down(self, line: Line, reason: str) -> None:
        """Called when the connection is lost, with the responses of open requests."""

    def next_correlation_id(self) -> int: ...


class Line:
    """One connection at a time; the owner decides when to try again."""

    place = CLIENTS
    channel = ""

    def __init__(self, owner: Owner, network: Network, machine: Machine, listener: str = PLAINTEXT) -> None:
        self.name = owner.name
        self._listener = listener
        self.machine = machine
        self.is_up = False
        self.not_before_us = 0
        """When it may be reopened after a loss."""
        self._owner = owner
        self._network = network
        self._connection: SimulatedConnection | None = None
        self._buffer = bytearray()
        self._asked: deque[Asked] = deque()

    @property
    def node(self) -> int:
        return self.machine.number

    @property
    def is_open(self) -> bool:
        """Whether it is up or coming up."""
        return self._connection is not None

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    # ---- connecting

    def open(self) -> None:
        self._connection = self._network.connect(self, self.machine, self._listener)
        self._owner.world.after(REQUEST_TIMEOUT_MS * MICROSECONDS_A_MS, self._connect_timed_out, self._connection)

    def _connect_timed_out(self, connection: SimulatedConnection) -> None:
        if self._connection is connection and not self.is_up:
            self.hang_up("no connection")

    def on_connected(self, connection: SimulatedConnection) -> None:
        if connection is self._connection:
            self.is_up = True
            self._owner.on_line_up(self)

    def on_closed(self, connection: SimulatedConnection, reason: str) -> None:
        if connection is self._connection:
            self._lost(reason)

    def hang_up(self, reason: str) -> None:
        """Close the connection and inform the owner."""
        if self._connection is not None:
            self._connection.close_by_client()
            self._lost(reason)

    def close(self) -> None:
        """Close the connection without informing the owner."""
        self.is_up = False
        if self._connection is not None:
            self._connection.close_by_client()
            self._connection = None

    def _lost(self, reason: str) -> None:
        self._connection = None
        self.is_up = False
        self._buffer.clear()
        self._asked.clear()
        self.not_before_us = self._owner.world.now_us + BACKOFF_MS * MICROSECONDS_A_MS
        self._owner.on_line_down(self, reason)

    # ---- asking

    def ask(
        self,
        key: int,
        version: int,
        body: Message,
        on_answer: Callable[..., None] | None,
        context: Any,
        timeout_ms: int,
    ) -> None:
        """Send a request. Without `on_answer` (acks=0) none is awaited."""
        connection, world = self._connection, self._owner.world
        assert connection is not None and self.is_up
        correlation_id = self._owner.next_correlation_id()
        frame = encode_request(key, version, correlation_id, self.name, body)
        if world.trace.keep:
            world.trace.log_event(self.name, self.machine.name, f"{APIS[key].name} v{version} {outline(body)}")
        if on_answer is not None:
            asked = Asked(correlation_id, key, version, on_answer, context)
            self._asked.append(asked)
            world.after(timeout_ms * MICROSECONDS_A_MS, self._timed_out, connection, asked)
        connection.send(frame)

    def _timed_out(self, connection: SimulatedConnection, asked: Asked) -> None:
        if connection is self._connection and asked in self._asked:
            self.hang_up(f"no answer to {asked.name}")

    def on_bytes(self, connection: SimulatedConnection, data: bytes) -> None:
        if connection is not self._connection:
            return
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4 and self._connection is connection:
            end = 4 + int.from_bytes(buffer[:4], "big")
            if len(buffer) < end:
                return
            frame = bytes(buffer[4:end])
            del buffer[:end]
            self._answered(frame)

    def _answered(self, frame: bytes) -> None:
        """Take a response: they come in the order of requests, with the same correlation ids."""
        if not self._asked:
            raise Violation("answer-to-nothing", f"{self.name} got {len(frame)} bytes that it had not asked for")
        asked = self._asked.popleft()
        try:
            correlation_id, body = decode_response(asked.key, asked.version, frame)
        except CodecError as error:
            raise Violation("unreadable-answer", f"{asked.name} v{asked.version}: {error}") from error
        if correlation_id != asked.correlation_id:
            text = f"{self.name} asked {asked.name} as {asked.correlation_id}, the answer says {correlation_id}"
            raise Violation("wrong-correlation-id", text)
        trace = self._owner.world.trace
        if trace.keep:
            trace.log_event(self.machine.name, self.name, f"{asked.name} {outline(body)}")
        asked.on_answer(body, asked.context)
