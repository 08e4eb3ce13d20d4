"""Simulated connections: two streams of bytes, each in order, late, cut into pieces, and gone when the connection is reset.

A frame that leaves is split now and then, so that the receiver sees it in parts; when the connection is reset between
two parts, the receiver keeps half a frame and the end of the stream, as with TCP.
"""

from __future__ import annotations

import zlib
from random import Random
from typing import TYPE_CHECKING, Protocol

from linearizability.simulation.world import World

if TYPE_CHECKING:
    from linearizability.simulation.machine import Machine

LEAST_LATENCY_US = 100
MOST_LATENCY_US = 2_000
SPLITS = 0.05
"""How many of the messages arrive in more than one piece."""


class ClientSide(Protocol):
    """What a connection needs of the client that opened it."""

    name: str

    def on_connected(self, connection: Connection) -> None: ...
    def on_bytes(self, connection: Connection, data: bytes) -> None: ...
    def on_closed(self, connection: Connection, reason: str) -> None: ...


class Connection:
    """One connection between a client and a machine. Each end knows for itself whether it is still open."""

    def __init__(self, world: World, network: Network, id: int, client: ClientSide, machine: Machine) -> None:
        self.id = id
        self.client = client
        self.machine = machine
        self.client_open = True
        self.server_open = False
        self._world = world
        self._network = network
        self._chance = world.chance(f"connection/{client.name}/{id}")
        self._last_arrival_us = [0, 0]
        self._to_client_lost = False

    # ---- towards the machine

    def send(self, data: bytes) -> None:
        """The client writes."""
        for piece in self._pieces(data):
            self._world.at(self._arrival(0), self._arrive_at_machine, piece)
        self._maybe_cut()

    def _arrive_at_machine(self, piece: bytes) -> None:
        if self.server_open:
            self.machine.on_bytes(self, piece)

    def close_by_client(self) -> None:
        """The client hangs up: nothing reaches it any more, the machine learns a little later."""
        if self.client_open:
            self.client_open = False
            self._network.connections.pop(self.id, None)
            self._world.at(self._arrival(0), self._end_at_machine)

    def _end_at_machine(self) -> None:
        if self.server_open:
            self.server_open = False
            self.machine.on_closed_by_client(self)

    # ---- towards the client

    def answer(self, data: bytes) -> None:
        """The machine writes."""
        for piece in self._pieces(data):
            self._world.at(self._arrival(1), self._arrive_at_client, piece)
        self._maybe_cut()

    def _arrive_at_client(self, piece: bytes) -> None:
        if self.client_open and not self._to_client_lost:
            self.client.on_bytes(self, piece)

    def close_by_machine(self, reason: str, silently: bool = False) -> None:
        """The machine's end is gone. Silently (a power failure): the client hears nothing and must find out itself."""
        self.server_open = False
        if not silently:
            self._world.at(self._arrival(1), self._end_at_client, reason)

    def lose_what_is_under_way(self) -> None:
        """Bytes that have left the machine never arrive."""
        self._to_client_lost = True

    def reset(self) -> None:
        """Somebody between the two cuts the connection; what is under way is lost in both directions."""
        self._to_client_lost = True
        if self.server_open:
            self.server_open = False
            self.machine.on_closed_by_client(self)
        self._world.at(self._arrival(1), self._end_at_client, "reset")

    def _end_at_client(self, reason: str) -> None:
        if self.client_open:
            self.client_open = False
            self._network.connections.pop(self.id, None)
            self.client.on_closed(self, reason)

    def _maybe_cut(self) -> None:
        """On a flaky network a connection is cut while it is in use: before, between or behind the bytes under way."""
        share = self._network.cut_share
        if share and self._chance.random() < share:
            self._world.after(self._network.delay_us(self._chance), self._cut)

    def _cut(self) -> None:
        if self.client_open:
            self.reset()

    # ---- pieces and delays

    def _pieces(self, data: bytes) -> list[bytes]:
        if len(data) < 2 or self._chance.random() >= SPLITS:
            return [data]
        at = self._chance.randrange(1, len(data))
        return [data[:at], data[at:]]

    def _arrival(self, direction: int) -> int:
        """When what is sent now arrives: later than all that was sent before in this direction."""
        delay = self._network.delay_us(self._chance)
        time = max(self._last_arrival_us[direction] + 1, self._world.now_us + delay)
        self._last_arrival_us[direction] = time
        return time


class Network:
    """All connections, and how slow they are."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next_id = 1
        self.connections: dict[int, Connection] = {}
        self.extra_latency_us = 0
        self.cut_share = 0.0
        """How many of the messages cost their connection its life."""

    def delay_us(self, chance: Random) -> int:
        return chance.randrange(LEAST_LATENCY_US, MOST_LATENCY_US) + self.extra_latency_us

    def connect(self, client: ClientSide, machine: Machine) -> Connection:
        """Begin to open a connection: the client hears `on_connected`, or `on_closed` when nobody listens."""
        connection = Connection(self._world, self, self._next_id, client, machine)
        self._next_id += 1
        self.connections[connection.id] = connection
        self._world.at(connection._arrival(0), self._arrive, connection)
        return connection

    def _arrive(self, connection: Connection) -> None:
        if not connection.client_open:
            return
        if connection.machine.accept(connection):
            connection.server_open = True
            self._world.at(connection._arrival(1), self._established, connection)
        else:
            self._world.at(connection._arrival(1), connection._end_at_client, "refused")

    def _established(self, connection: Connection) -> None:
        if connection.client_open:
            connection.client.on_connected(connection)

    def reset_some(self, chance: Random, share: float) -> int:
        """Reset a share of all connections; gives how many."""
        chosen = [each for each in [*self.connections.values()] if chance.random() < share]
        for connection in chosen:
            connection.reset()
        return len(chosen)


def fingerprint(data: bytes | bytearray) -> str:
    """Length and checksum of bytes, for the trace."""
    return f"{len(data)}:{zlib.crc32(data):08x}"
