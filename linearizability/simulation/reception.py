"""The machine's end of connections that others opened: takes whole requests, sends responses.

As in production, one request of a connection at a time is with the node. And stricter than there: a request's bytes are
overwritten as soon as the node has handled it, and a fetch's slices of files are read only when the answer leaves. With the fault
`send-late` a follower's answers leave much later, as where its connection takes no more bytes: the file may be cut meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import cast

from linearizability.simulation.network import SimulatedConnection, fingerprint
from linearizability.simulation.world import World
from reference.node.effects import Respond
from reference.protocol.codec import Part
from reference.storage.log import LogSlice

LEAST_ANSWER_DELAY_US = 10
MOST_ANSWER_DELAY_US = 300
OVERWRITTEN = b"\xaa"


class Inbox:
    """A connection from the process's side."""

    __slots__ = ("busy", "connection", "data", "last_departure_us", "late")

    def __init__(self, connection: SimulatedConnection) -> None:
        self.connection = connection
        self.data = bytearray()
        self.busy = False
        self.last_departure_us = 0
        self.late: deque[list[Part]] = deque()
        """Answers that were to leave and wait: the first one for its slices, the others for the first."""

    def take_frame(self) -> bytearray | None:
        """The next whole request without its size; None where there is none, or one is with the node."""
        data = self.data
        if self.busy or len(data) < 4:
            return None
        end = 4 + int.from_bytes(data[:4], "big", signed=True)
        if len(data) < end:
            return None
        frame = data[4:end]
        del data[:end]
        return frame


Inboxes = dict[int, Inbox]


class Reception:
    """Every connection to one machine, in the present incarnation of its process."""

    def __init__(
        self, name: str, world: World, chance: Random, handle: Callable[[SimulatedConnection, bytearray], None]
    ) -> None:
        """`handle` lets the node handle a request."""
        self._name = name
        self._world = world
        self._chance = chance
        self._handle = handle
        self._inboxes: Inboxes = {}
        self._ready: deque[Inbox] = deque()
        self._is_working = False

    def __contains__(self, connection: SimulatedConnection) -> bool:
        return connection.id in self._inboxes

    def open(self, connection: SimulatedConnection) -> None:
        """Add a connection of a peer."""
        self._inboxes[connection.id] = Inbox(connection)

    def close(self, connection: int) -> SimulatedConnection | None:
        """Remove a connection. Returns it if it was open."""
        inbox = self._inboxes.pop(connection, None)
        if inbox is None:
            return None
        forget_late(inbox)
        return inbox.connection

    def drop_all(self) -> list[SimulatedConnection]:
        """Remove and return all connections, at the end of the process."""
        inboxes, self._inboxes = self._inboxes, {}
        self._ready.clear()
        for inbox in inboxes.values():
            forget_late(inbox)
        return [inbox.connection for inbox in inboxes.values()]

    # ---- requests

    def read(self, connection: SimulatedConnection, data: bytes) -> None:
        """Take bytes, and feed whole requests to the node."""
        inbox = self._inboxes.get(connection.id)
        if inbox is not None:
            inbox.data += data
            self._ready.append(inbox)
            self.work()

    def work(self) -> None:
        """Feed whole requests to the node, one of a connection at a time, until none is left that may be fed."""
        if self._is_working:
            return
        self._is_working = True
        try:
            while self._ready:
                self._feed(self._ready.popleft())
        finally:
            self._is_working = False

    def _feed(self, inbox: Inbox) -> None:
        if inbox.connection.id not in self._inboxes:
            return
        frame = inbox.take_frame()
        if frame is None:
            return
        world = self._world
        world.trace.note(f"{self._name} <- {inbox.connection.id} {fingerprint(frame)}")
        world.counts["messages"] += 1
        inbox.busy = True
        self._handle(inbox.connection, frame)
        frame[:] = OVERWRITTEN * len(frame)

    # ---- answers

    def respond(self, effect: Respond) -> None:
        """The node answers: the answer leaves a little later, in its turn, and the connection's next request is ready."""
        inbox = self._inboxes.get(effect.connection)
        if inbox is None:
            release(effect.parts or [])
            return
        inbox.busy = False
        self._ready.append(inbox)
        if effect.parts is not None:
            delay_us = self._chance.randrange(LEAST_ANSWER_DELAY_US, MOST_ANSWER_DELAY_US)
            inbox.last_departure_us = max(inbox.last_departure_us + 1, self._world.now_us + delay_us)
            self._world.at(inbox.last_departure_us, self._depart, self._inboxes, inbox, effect.parts)

    def _depart(self, inboxes: Inboxes, inbox: Inbox, parts: list[Part]) -> None:
        """An answer leaves, if the process still runs: only now the slices of files are read."""
        if inboxes is not self._inboxes:
            return
        if inbox.connection.id in inboxes:
            if inbox.late or (inbox.connection.is_sent_late and any(isinstance(part, LogSlice) for part in parts)):
                inbox.late.append(parts)
                return
            self._send(inbox, parts)
        release(parts)

    def _send(self, inbox: Inbox, parts: list[Part]) -> None:
        data = b"".join(map(bytes_of, parts))
        self._world.trace.note(f"{self._name} -> {inbox.connection.id} {fingerprint(data)}")
        self._world.counts["messages"] += 1
        inbox.connection.answer(data)

    def send_late(self) -> list[int]:
        """Let answers leave that were late, with what the files hold now; gives the connections that cannot go on, for a file
        has become shorter than its slice."""
        cut_short: list[int] = []
        for inbox in [each for each in self._inboxes.values() if not each.connection.is_sent_late]:
            while inbox.late:
                parts = inbox.late.popleft()
                if any(isinstance(part, LogSlice) and len(part.read()) < len(part) for part in parts):
                    cut_short.append(inbox.connection.id)
                    forget_late(inbox)
                else:
                    self._world.counts["answers sent late"] += 1
                    self._send(inbox, parts)
                release(parts)
        return cut_short


def bytes_of(part: Part) -> bytes | bytearray | memoryview:
    """Return a part of a response, read from its file if it lies in one."""
    if isinstance(part, LogSlice):
        return part.read()
    assert isinstance(part, (bytes, bytearray, memoryview))
    return cast("bytes | bytearray | memoryview", part)


def forget_late(inbox: Inbox) -> None:
    """Drop the responses that wait on a connection."""
    while inbox.late:
        release(inbox.late.popleft())


def release(parts: list[Part]) -> None:
    """Release a response's slices of files."""
    for part in parts:
        if isinstance(part, LogSlice):
            part.release()
