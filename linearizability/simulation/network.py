"""Simulated connections: two streams of bytes, each in order, late, cut into pieces, and gone when the connection is reset.

A frame that leaves is split now and then, so that the receiver sees it in parts; when the connection is reset between
two parts, the receiver keeps half a frame and the end of the stream, as with TCP.

Where nothing passes from one place to another, bytes wait as with TCP retransmissions: once the way is
free they arrive late and in order, or the connection has died meanwhile. A place is a node's id; all clients are at one.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple, Protocol

from linearizability.simulation.gates import Gates
from linearizability.simulation.traffic import Message, Reader
from linearizability.simulation.world import World

LEAST_LATENCY_US = 100
MOST_LATENCY_US = 2_000
LATENCY_SPREAD_US = MOST_LATENCY_US - LEAST_LATENCY_US
CALM_LATENCY_US = 1_000
SPLITS = 0.05
"""Share of messages that arrive in several pieces."""
DEAD_AFTER_CUT = 0.3
"""Share of connections blocked by a cut that have died by its end."""

LOST_WITH_POWER = 0.5
"""Share of connections of a machine that loses power that lose the bytes just sent."""

MOST_RESEND_US = 1_000_000
"""The longest time between two retransmissions of unconfirmed bytes."""

FETCHES = "fetch"
"""The channel of a follower's connection to its leader."""

Way = tuple[int, int]
"""Source and destination."""


class Uneven(NamedTuple):
    """Slows some of a place's connections."""

    place: int
    channel: str
    """Those that the place opened for this purpose; about half of all, where none is named."""
    salt: int
    """Selects the half."""
    by_us: int


class ClientSide(Protocol):
    """The opener of a connection: a client or another machine."""

    name: str
    place: int
    channel: str
    """What a broker has opened it for; empty for clients."""

    def on_connected(self, connection: SimulatedConnection) -> None: ...
    def on_bytes(self, connection: SimulatedConnection, data: bytes) -> None: ...
    def on_closed(self, connection: SimulatedConnection, reason: str) -> None: ...


class MachineSide(Protocol):
    """The machine that a connection leads to."""

    name: str
    number: int

    def accept(self, connection: SimulatedConnection) -> bool:
        """Whether a process accepts the connection."""
        ...

    def on_bytes(self, connection: SimulatedConnection, data: bytes) -> None: ...

    def on_stranger(self, connection: SimulatedConnection) -> bool:
        """Whether bytes of a connection that the process does not know are answered by a reset now."""
        ...

    def on_closed_by_client(self, connection: SimulatedConnection) -> None: ...


class Addresses(Protocol):
    """Finds machines by address."""

    def find(self, host: str, port: int) -> tuple[MachineSide, str] | None:
        """The machine at an address and the listener's name; None for an unknown address."""
        ...


class Stream:
    """One direction of a connection: what happens at its far end, in the order in which it was sent off.

    What comes to a way that is cut, or is held up by a gate, waits there, and all that comes behind it waits too, until
    the way is free again.
    """

    def __init__(
        self, connection: SimulatedConnection, world: World, network: Network, chance: Random, way: Way
    ) -> None:
        self.waiting: deque[tuple[Message | None, Callable[..., None], tuple[Any, ...]]] = deque()
        self.was_cut = False
        """What waits here waits for the end of a cut."""
        self._connection = connection
        self._world = world
        self._network = network
        self._chance = chance
        self._way = way
        self._last_arrival_us = 0

    def send(self, action: Callable[..., None], *arguments: Any, message: Message | None = None) -> None:
        """Schedule an action at the far end, after all that was sent before."""
        time = max(self._last_arrival_us + 1, self._world.now_us + self._delay_us())
        self._last_arrival_us = time
        self._world.at(time, self.arrive, message, action, *arguments)

    def arrive(self, message: Message | None, action: Callable[..., None], *arguments: Any) -> None:
        """Run the action, or queue it if it or an earlier one must wait."""
        if self.waiting or (self._network.may_hold and self._has_to_wait(message)):
            self.waiting.append((message, action, arguments))
        else:
            self._deliver(message, action, arguments)

    def _deliver(self, message: Message | None, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        gates = self._network.gates
        if message is not None and gates is not None and gates.loses(message):
            self._connection.reset()
        else:
            action(*arguments)

    def _has_to_wait(self, message: Message | None) -> bool:
        """Whether this does not pass now; the network then remembers that something waits."""
        gates = self._network.gates
        if self._way in self._network.blocked:
            self.was_cut = True
        elif message is None or gates is None or not gates.holds(message):
            return False
        self._network.holding[self._connection.id] = self._connection
        return True

    def go_on(self) -> None:
        """A cut is over somewhere: what waits here arrives after a while."""
        if self.waiting:
            self._world.after(self._delay_us(), self.flow)

    def flow(self) -> None:
        """Deliver what need no longer wait."""
        while self.waiting and not self._has_to_wait(self.waiting[0][0]):
            self._deliver(*self.waiting.popleft())
        self.was_cut = self.was_cut and bool(self.waiting)

    def _delay_us(self) -> int:
        network = self._network
        delay = network.delay_us(self._chance)
        if network.slow_places:
            delay += sum(network.slow_places[place] for place in self._way)
        if network.uneven:
            delay += sum(each.by_us for each in network.uneven if self._is_late(each))
        return delay

    def _is_late(self, uneven: Uneven) -> bool:
        """Whether this is one of the slower connections of a place."""
        client = self._connection.client
        if uneven.channel:
            return client.place == uneven.place and client.channel == uneven.channel
        return uneven.place in self._way and zlib.crc32(b"%d/%d" % (self._connection.id, uneven.salt)) % 2 == 0


class SimulatedConnection:
    """One connection between a client and a machine. Each end knows for itself whether it is still open."""

    def __init__(
        self, world: World, network: Network, id: int, client: ClientSide, machine: MachineSide, listener: str
    ) -> None:
        self.id = id
        self.client = client
        self.machine = machine
        self.listener = listener
        self.client_open = True
        self.server_open = False
        self._world = world
        self._network = network
        self._chance = world.chance(f"connection/{client.name}/{id}")
        self._to_machine = Stream(self, world, network, self._chance, (client.place, machine.number))
        self._to_client = Stream(self, world, network, self._chance, (machine.number, client.place))
        self._to_client_lost = False
        self._to_machine_lost = False
        is_read = network.gates is not None and (client.channel or network.reads_clients)
        self._reader = Reader(client.channel, client.place, machine.number) if is_read else None

    # ---- connecting

    def open(self) -> None:
        """Begin to connect."""
        self._to_machine.send(self._knock)

    def _knock(self) -> None:
        if not self.client_open:
            return
        if self.machine.accept(self):
            self.server_open = True
            self._to_client.send(self._established)
        else:
            self._to_client.send(self._end_at_client, "refused")

    def _established(self) -> None:
        if self.client_open:
            self.client.on_connected(self)

    # ---- towards the machine

    def send(self, data: bytes) -> None:
        """Send bytes from the client."""
        message = self._reader.question(data, self._world.now_us) if self._reader is not None else None
        self._write(self._to_machine, self._arrive_at_machine, data, message)

    def _arrive_at_machine(self, piece: bytes) -> None:
        if self._to_machine_lost:
            return
        if self.server_open:
            self.machine.on_bytes(self, piece)
        elif self.machine.on_stranger(self):
            self._to_client.send(self._end_at_client, "reset")

    def refuse_late(self) -> None:
        """The machine is up again: bytes that are sent to it over and over belong to nothing it knows."""
        delay_us = self._chance.randrange(MOST_RESEND_US)
        self._world.after(delay_us, self._to_client.arrive, None, self._end_at_client, "reset")

    def close_by_client(self) -> None:
        """The client hangs up: nothing reaches it any more, the machine learns a little later."""
        if self.client_open:
            self._close_client_end()
            self._to_machine.send(self._end_at_machine)

    def vanish(self) -> None:
        """The client's end is gone without a word, as in a power failure; the machine learns nothing.

        What was under way may have been no further than the client's network card.
        """
        # What is held up had left the card.
        self._to_machine_lost = self._chance.random() < LOST_WITH_POWER and not self._to_machine.waiting
        self._close_client_end()

    def _end_at_machine(self) -> None:
        if self.server_open:
            self.server_open = False
            self.machine.on_closed_by_client(self)

    # ---- towards the client

    def answer(self, data: bytes) -> None:
        """Send bytes from the machine."""
        message = self._reader.answer(data, self._world.now_us) if self._reader is not None else None
        self._write(self._to_client, self._arrive_at_client, data, message)

    @property
    def is_sent_late(self) -> bool:
        """Whether slices of files do not leave the machine now: its peer is a follower, and the fault `send-late` lasts."""
        return self.client.channel == FETCHES and self.machine.number in self._network.late_senders

    def _arrive_at_client(self, piece: bytes) -> None:
        if self.client_open and not self._to_client_lost:
            self.client.on_bytes(self, piece)

    def close_by_machine(self, reason: str, silently: bool = False) -> None:
        """The machine's end is gone. Silently (a power failure): the client is not informed and must find out itself."""
        self.server_open = False
        if not silently:
            self._to_client.send(self._end_at_client, reason)

    def lose_what_is_under_way(self) -> None:
        """Bytes that have left the machine never arrive."""
        self._to_client_lost = True

    def _end_at_client(self, reason: str) -> None:
        if self.client_open:
            self._close_client_end()
            self.client.on_closed(self, reason)

    def _close_client_end(self) -> None:
        self.client_open = False
        self._network.connections.pop(self.id, None)

    # ---- faults

    def reset(self) -> None:
        """The connection breaks between the two ends; bytes in flight are lost in both directions."""
        self._to_client_lost = True
        self._end_at_machine()
        self._to_client.send(self._end_at_client, "reset")

    def _maybe_cut(self) -> None:
        """On a flaky network a connection is cut while it is in use: before, between or behind the bytes under way."""
        share = self._network.cut_share
        if share and self._chance.random() < share:
            self._world.after(self._network.delay_us(self._chance), self._cut)

    def _cut(self) -> None:
        if self.client_open:
            self.reset()

    def go_on(self) -> None:
        """A cut is over somewhere: what waited arrives, unless its way is cut still, or the connection has died."""
        streams = self._to_machine, self._to_client
        waits = any(stream.waiting and stream.was_cut for stream in streams)
        if waits and self._chance.random() < DEAD_AFTER_CUT:
            for stream in streams:
                stream.waiting.clear()
            self.reset()
        else:
            for stream in streams:
                stream.go_on()

    def flow(self) -> None:
        """Gates may have been opened."""
        self._to_machine.flow()
        self._to_client.flow()

    # ---- writing

    def _write(self, stream: Stream, arrive: Callable[[bytes], None], data: bytes, message: Message | None) -> None:
        """Send bytes, now and then in two pieces."""
        if len(data) < 2 or self._network.is_calm or self._chance.random() >= SPLITS:
            stream.send(arrive, data, message=message)
        else:
            at = self._chance.randrange(1, len(data))
            stream.send(arrive, data[:at], message=message)
            stream.send(arrive, data[at:])
        self._maybe_cut()


class Network:
    """All connections, and their delays."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next_id = 1
        self.connections: dict[int, SimulatedConnection] = {}
        self.is_calm = False
        """Whether chance has no part: every message takes CALM_LATENCY_US, in one piece."""
        self.extra_latency_us = 0
        self.cut_share = 0.0
        """The share of messages that end their connection."""
        self.slow_places: Counter[int] = Counter()
        """How many microseconds longer everything to and from a place takes."""
        self.uneven: list[Uneven] = []
        """A place some of whose connections are slower, a number that says which, and by how many microseconds."""
        self.late_senders: Counter[int] = Counter()
        """The nodes that send late what they read from files for followers."""
        self.blocked: Counter[Way] = Counter()
        """The ways that are cut, and how often; empty where all are free."""
        self.holding: dict[int, SimulatedConnection] = {}
        """The connections with waiting messages."""
        self.gates: Gates | None = None
        """The gates that hold up messages between brokers, if there are any."""
        self.reads_clients = False
        """Whether the gates are also about what clients send."""

    @property
    def may_hold(self) -> bool:
        """Whether anything may have to wait."""
        return bool(self.blocked) or self.gates is not None

    def look_again(self) -> None:
        """Gates may have been opened."""
        holding, self.holding = self.holding, {}
        for connection in holding.values():
            connection.flow()

    def delay_us(self, chance: Random) -> int:
        if self.is_calm:
            return CALM_LATENCY_US + self.extra_latency_us
        return LEAST_LATENCY_US + int(chance.random() * LATENCY_SPREAD_US) + self.extra_latency_us

    def connect(self, client: ClientSide, machine: MachineSide, listener: str = "PLAINTEXT") -> SimulatedConnection:
        """Begin to open a connection: the client's `on_connected` is called, or `on_closed` when no process listens."""
        connection = SimulatedConnection(self._world, self, self._next_id, client, machine, listener)
        self._next_id += 1
        self.connections[connection.id] = connection
        connection.open()
        return connection

    def cut(self, ways: Iterable[Way]) -> None:
        """Block these ways until `heal` was called as often."""
        self.blocked.update(ways)

    def heal(self, ways: Iterable[Way]) -> None:
        """End a cut."""
        self.blocked.subtract(ways)
        self.blocked = +self.blocked
        self._release()

    def heal_all(self) -> None:
        """End all cuts and slowness."""
        self.blocked.clear()
        self.slow_places.clear()
        self.uneven.clear()
        self.late_senders.clear()
        self.extra_latency_us = 0
        self.cut_share = 0.0
        if self.gates is not None:
            self.gates.open_all()
        self._release()

    def slow_down(self, place: int, by_us: int) -> None:
        """Make everything to and from a place slower, or with a negative number faster again."""
        self.slow_places[place] += by_us
        self.slow_places = +self.slow_places

    def _release(self) -> None:
        holding, self.holding = self.holding, {}
        for connection in holding.values():
            connection.go_on()

    def reset_some(self, chance: Random, share: float) -> int:
        """Reset a share of all connections. Returns their number."""
        chosen = [each for each in [*self.connections.values()] if chance.random() < share]
        for connection in chosen:
            connection.reset()
        return len(chosen)


def fingerprint(data: bytes | bytearray) -> str:
    """Return length and checksum of bytes, for the trace."""
    return f"{len(data)}:{zlib.crc32(data):08x}"
