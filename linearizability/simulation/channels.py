"""The connections of a node to its peers: the simulated counterpart of `reference.runtime.peers`.

A channel is the connection for one peer and one purpose; the first frame for it opens it. Frames wait until it is
established. When it cannot be established or breaks, the node is informed once, and waiting frames are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from linearizability.simulation.frame_text import request_text
from linearizability.simulation.network import Addresses, Network, SimulatedConnection, fingerprint
from linearizability.simulation.world import MICROSECONDS_A_MS, World
from reference.node.effects import Send

CONNECT_TIMEOUT_MS = 10_000
"""socket.connection.setup.timeout.ms's default."""

ChannelName = tuple[int, str]
"""The peer, and the purpose of the connection."""


class Opener(Protocol):
    """The interface of the process that opens channels."""

    name: str
    number: int

    def when_awake(self, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action` now, or once the paused process resumes."""
        ...

    def on_answer(self, channel: ChannelName, frame: bytes, question: str) -> None: ...
    def on_unreachable(self, channel: ChannelName) -> None: ...


class PeerChannels:
    """The open connections of one process to its peers."""

    def __init__(self, process: Opener, world: World, network: Network, addresses: Addresses) -> None:
        self.process = process
        self.world = world
        self.network = network
        self.addresses = addresses
        self._channels: dict[ChannelName, Channel] = {}

    def send(self, effect: Send) -> None:
        """Send a frame on the peer's connection; opens one if there is none."""
        name = effect.peer, effect.purpose
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = Channel(self, name)
            channel.open(effect.host, effect.port)
        channel.send(effect.frame)

    def hang_up(self, name: ChannelName) -> None:
        """Close a connection without informing the node."""
        channel = self._channels.pop(name, None)
        if channel is not None:
            channel.close()

    def drop_all(self, silently: bool) -> None:
        """Close all connections as the process ends; `silently`, without informing the peers, at a power loss."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close(silently)

    def is_current(self, channel: Channel) -> bool:
        return self._channels.get(channel.channel_name) is channel

    def lost(self, channel: Channel) -> None:
        """Inform the node, if the channel was still in use."""
        if self.is_current(channel):
            del self._channels[channel.channel_name]
            self.process.on_unreachable(channel.channel_name)


class Channel:
    """One connection: requests out, responses in. Responses to a paused process wait until it resumes."""

    def __init__(self, channels: PeerChannels, channel_name: ChannelName) -> None:
        self.name = channels.process.name
        self.place = channels.process.number
        self.channel = channel_name[1]
        self.channel_name = channel_name
        self._channels = channels
        self._connection: SimulatedConnection | None = None
        self._established = False
        self._waiting: list[bytes] = []
        self._buffer = bytearray()
        self._requests: deque[str] = deque()
        """The names of the requests without a response, while readable events are kept."""

    def open(self, host: str, port: int) -> None:
        found = self._channels.addresses.find(host, port)
        if found is None:
            self._channels.world.after(0, self._fail)
            return
        self._connection = self._channels.network.connect(self, *found)
        self._channels.world.after(CONNECT_TIMEOUT_MS * MICROSECONDS_A_MS, self._connect_timed_out)

    def _connect_timed_out(self) -> None:
        if not self._established:
            self._fail()

    def send(self, frame: bytes) -> None:
        if not self._established:
            self._waiting.append(frame)
            return
        assert self._connection is not None
        trace = self._channels.world.trace
        trace.note(f"{self.name} => {self._connection.id} {fingerprint(frame)}")
        if trace.keep:
            name, words = request_text(frame)
            self._requests.append(name)
            trace.log_event(self.name, self._connection.machine.name, words)
        self._connection.send(frame)

    def close(self, silently: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and silently:
            connection.vanish()
        elif connection is not None:
            connection.close_by_client()

    def _fail(self) -> None:
        self.close()
        self._channels.process.when_awake(self._channels.lost, self)

    # ---- called by the network

    def on_connected(self, connection: SimulatedConnection) -> None:
        self._channels.process.when_awake(self._connected)

    def _connected(self) -> None:
        if self._connection is None:
            return
        self._established = True
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            self.send(frame)

    def on_closed(self, connection: SimulatedConnection, reason: str) -> None:
        # A paused process learns of the end only when it resumes, and writes into the dead connection first.
        self._channels.process.when_awake(self._channels.lost, self)

    def on_bytes(self, connection: SimulatedConnection, data: bytes) -> None:
        self._channels.process.when_awake(self._take, data)

    def _take(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4 and self._channels.is_current(self):
            end = 4 + int.from_bytes(buffer[:4], "big")
            if len(buffer) < end:
                return
            frame = bytes(buffer[4:end])
            del buffer[:end]
            request = self._requests.popleft() if self._requests else ""
            self._channels.process.on_answer(self.channel_name, frame, request)
