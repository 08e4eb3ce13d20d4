"""Connections that a machine opened to other machines: what `reference.runtime.peers` is in production.

One connection for each peer and lane, opened by the first frame for it. What is sent while it is being made waits; when it
cannot be made or breaks, the node is told once, and whatever waited is gone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from linearizability.simulation.network import Connection, Network, fingerprint
from linearizability.simulation.speech import question_in_words
from linearizability.simulation.world import MICROSECONDS_A_MS, World
from reference.node.effects import Send

if TYPE_CHECKING:
    from linearizability.simulation.machine import Machine
    from linearizability.simulation.process import Process

CONNECT_TIMEOUT_MS = 10_000
"""socket.connection.setup.timeout.ms's default."""

LaneName = tuple[int, str]
"""Which peer, and for which purpose."""


class Addresses(Protocol):
    """Who listens where."""

    def find(self, host: str, port: int) -> tuple[Machine, str] | None:
        """The machine at an address and the listener's name; None where nobody was ever."""
        ...


class Lanes:
    """Every connection that one process opened."""

    def __init__(self, process: Process, world: World, network: Network, addresses: Addresses) -> None:
        self.process = process
        self.world = world
        self.network = network
        self.addresses = addresses
        self._lanes: dict[LaneName, Lane] = {}

    def send(self, effect: Send) -> None:
        """Hand a frame to the peer's connection, opening it if there is none."""
        name = effect.peer, effect.lane
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(self, name)
            lane.open(effect.host, effect.port)
        lane.send(effect.frame)

    def hang_up(self, name: LaneName) -> None:
        """Close a connection without a word to the node."""
        lane = self._lanes.pop(name, None)
        if lane is not None:
            lane.close()

    def drop_all(self, silently: bool) -> None:
        """The process is gone; silently, with the power, nobody hears of it."""
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.close(silently)

    def is_current(self, lane: Lane) -> bool:
        return self._lanes.get(lane.lane_name) is lane

    def lost(self, lane: Lane) -> None:
        """Tell the node, if the lane was still in use."""
        if self.is_current(lane):
            del self._lanes[lane.lane_name]
            self.process.on_unreachable(lane.lane_name)


class Lane:
    """One connection: frames out as they come, answers in. What comes to a process that stands still waits for it."""

    def __init__(self, lanes: Lanes, lane_name: LaneName) -> None:
        self.name = lanes.process.name
        self.place = lanes.process.number
        self.lane = lane_name[1]
        self.lane_name = lane_name
        self._lanes = lanes
        self._connection: Connection | None = None
        self._established = False
        self._waiting: list[bytes] = []
        self._buffer = bytearray()
        self._questions: deque[str] = deque()
        """What was asked, in words, while the story is kept."""

    def open(self, host: str, port: int) -> None:
        found = self._lanes.addresses.find(host, port)
        if found is None:
            self._lanes.world.after(0, self._fail)
            return
        self._connection = self._lanes.network.connect(self, *found)
        self._lanes.world.after(CONNECT_TIMEOUT_MS * MICROSECONDS_A_MS, self._connect_timed_out)

    def _connect_timed_out(self) -> None:
        if not self._established:
            self._fail()

    def send(self, frame: bytes) -> None:
        if not self._established:
            self._waiting.append(frame)
            return
        assert self._connection is not None
        trace = self._lanes.world.trace
        trace.note(f"{self.name} => {self._connection.id} {fingerprint(frame)}")
        if trace.keep:
            name, words = question_in_words(frame)
            self._questions.append(name)
            trace.tell(self.name, self._connection.machine.name, words)
        self._connection.send(frame)

    def close(self, silently: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and silently:
            connection.vanish()
        elif connection is not None:
            connection.close_by_client()

    def _fail(self) -> None:
        self.close()
        self._lanes.process.when_awake(self._lanes.lost, self)

    # ---- what the network tells

    def on_connected(self, connection: Connection) -> None:
        self._lanes.process.when_awake(self._connected)

    def _connected(self) -> None:
        if self._connection is None:
            return
        self._established = True
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            self.send(frame)

    def on_closed(self, connection: Connection, reason: str) -> None:
        # A process that stands still goes on writing into the dead connection before it hears of the end.
        self._lanes.process.when_awake(self._lanes.lost, self)

    def on_bytes(self, connection: Connection, data: bytes) -> None:
        self._lanes.process.when_awake(self._take, data)

    def _take(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4 and self._lanes.is_current(self):
            end = 4 + int.from_bytes(buffer[:4], "big")
            if len(buffer) < end:
                return
            frame = bytes(buffer[4:end])
            del buffer[:end]
            question = self._questions.popleft() if self._questions else ""
            self._lanes.process.on_answer(self.lane_name, frame, question)
