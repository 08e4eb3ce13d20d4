"""A simulated ZooKeeper: sessions, connections, watches and their faults.

Each process of a node has a client. What it sends arrives late and in order; what is held up by a cut arrives when that is
over, unless the client has given the connection up by then. A session ends when nothing of its client has arrived for its
timeout, and the client learns of it when it comes back, however long that takes. After a change of ZooKeeper's leader all
connections are gone, what was carried out is kept, and the answers are lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from linearizability.simulation.network import Network
from linearizability.simulation.world import MICROSECONDS_A_MS, World
from linearizability.simulation.znode_tree import ZnodeTree
from reference.zookeeper import znodes
from reference.zookeeper.operations import (
    NO_SESSION,
    Answered,
    AskZooKeeper,
    CloseSession,
    Code,
    ConnectionLost,
    Create,
    GetChildren,
    GetData,
    OpenSession,
    Operation,
    Result,
    SessionConnected,
    SessionExpired,
    SessionId,
    Watched,
    ZooKeeperEffect,
    ZooKeeperEvent,
)

PLACE = 0
"""Where ZooKeeper is, in the geography of nodes."""

FIRST_SESSION: SessionId = 0x1000
OF_TOOLS: SessionId = 0xFFF
"""A session that is none of a broker's."""
LOOK_EVERY_US = 20 * MICROSECONDS_A_MS
"""How often a cut is looked at, and a session."""

RECONNECT_US = 50 * MICROSECONDS_A_MS
GIVES_UP_AFTER = 2 / 3
"""The part of a session's timeout after which a client that receives nothing looks for another server."""


class Owner(Protocol):
    """The process whose client this is."""

    name: str
    number: int

    @property
    def stands_still(self) -> bool: ...

    @property
    def is_alive(self) -> bool: ...

    def when_awake(self, action: Callable[..., None], *arguments: Any) -> None: ...
    def on_zookeeper(self, event: ZooKeeperEvent) -> None: ...


class _Pipe:
    """One direction of a connection."""

    def __init__(
        self, world: World, network: Network, chance: Random, way: tuple[int, int], extra: Callable[[], int]
    ) -> None:
        self._world = world
        self._network = network
        self._chance = chance
        self._way = way
        self._extra_us = extra
        self._waiting: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_waking = False
        self.is_open = True

    def send(self, action: Callable[..., None], *arguments: Any) -> None:
        delay_us = self._network.delay_us(self._chance) + self._extra_us()
        delay_us += sum(self._network.slow_places[place] for place in self._way if place in self._network.slow_places)
        last = self._waiting[-1][0] if self._waiting else 0
        self._waiting.append((max(last, self._world.now_us + delay_us), action, arguments))
        self._wake()

    def _wake(self) -> None:
        if self._waiting and not self._is_waking:
            self._is_waking = True
            self._world.at(self._waiting[0][0], self._deliver)

    def _deliver(self) -> None:
        self._is_waking = False
        if not self.is_open:
            self._waiting.clear()
        elif self._waiting and self._way in self._network.blocked:
            self._is_waking = True
            self._world.after(LOOK_EVERY_US, self._deliver)
        elif self._waiting:
            _, action, arguments = self._waiting.popleft()
            action(*arguments)
            self._wake()


class _Connection:
    """A client's connection: requests one way, answers and watches the other."""

    def __init__(self, zookeeper: SimulatedZooKeeper, client: ZooKeeperClient) -> None:
        world, network = zookeeper.world, zookeeper.network
        place = client.owner.number
        self.client = client
        self.to_server = _Pipe(world, network, zookeeper.chance, (place, PLACE), lambda: zookeeper.extra_us)
        self.to_client = _Pipe(world, network, zookeeper.chance, (PLACE, place), lambda: zookeeper.extra_us)
        self.session: SessionId = NO_SESSION
        self.watches: set[tuple[str, bool]] = set()

    def deliver(self, event: Callable[..., None], *arguments: Any) -> None:
        """Let something happen at the client, when it arrives and its process does not stand still."""
        self.to_client.send(self.client.owner.when_awake, event, self, *arguments)

    def end(self) -> None:
        """Deliver nothing more at either end."""
        self.to_client.is_open = False


class SimulatedZooKeeper:
    """The ensemble as its clients see it: one order of transactions."""

    def __init__(self, world: World, network: Network, session_timeout_ms: int) -> None:
        self.world = world
        self.network = network
        self.chance = world.chance("zookeeper")
        self.tree = ZnodeTree()
        self.timeout_us = session_timeout_ms * MICROSECONDS_A_MS
        self.extra_us = 0
        """Extra delay of messages to and from ZooKeeper."""
        self.is_up = True
        self._sessions: dict[SessionId, int] = {}
        """When something of each session arrived last."""
        self._connections: dict[SessionId, _Connection] = {}
        self._next_session = FIRST_SESSION
        self.on_expiry: Callable[[SessionId], None] = lambda session: None
        world.after(LOOK_EVERY_US, self._look)

    # ---- faults

    def change_leader(self) -> None:
        """Until `recover` there is no service: connections are gone, and answers under way with them."""
        self.is_up = False
        for connection in [*self._connections.values()]:
            connection.end()
            connection.client.lose_soon(connection)
        self._connections = {}

    def recover(self) -> None:
        """The new leader gives each session its whole time."""
        self.is_up = True
        for session in self._sessions:
            self._sessions[session] = self.world.now_us

    def expire(self, number: int) -> None:
        """End the session of a node."""
        for session, connection in [*self._connections.items()]:
            if connection.client.owner.number == number:
                self._end_session(session)

    def depose_controller(self) -> None:
        """An operator deletes /controller; the session that it was of goes on."""
        if self.is_up and self.tree.find(znodes.CONTROLLER) is not None:
            self.world.trace.note("an operator deletes /controller")
            if self.world.rows is not None:
                self.world.rows.append({"action": "DeposeController", "node": 0, "args": {}})
            self.tree.remove(znodes.CONTROLLER)
            self._fire()

    # ---- what tools write

    def write_request(self, path: str, data: bytes) -> None:
        """A tool asks for something by a znode, unless ZooKeeper has no leader or the former request is still there."""
        if self.is_up and self.tree.carry_out(Create(path, data), OF_TOOLS).code == Code.OK:
            self.world.counts[f"zookeeper {path} written"] += 1
            self.world.trace.note(f"a tool writes {path}: {data.decode()}")
            self._fire()

    def requests_left(self) -> list[str]:
        return [path for path in (znodes.REASSIGNMENTS, znodes.PREFERRED_ELECTION) if self.tree.find(path) is not None]

    # ---- sessions

    def has_session(self, session: SessionId) -> bool:
        return session == OF_TOOLS or session in self._sessions

    def _look(self) -> None:
        self.world.after(LOOK_EVERY_US, self._look)
        if self.is_up:
            for session, received_us in [*self._sessions.items()]:
                if self.world.now_us - received_us > self.timeout_us:
                    self._end_session(session)

    def _end_session(self, session: SessionId) -> None:
        self.world.counts["zookeeper session expired"] += 1
        self.world.trace.note(f"zookeeper ends session {session}")
        del self._sessions[session]
        self.on_expiry(session)
        connection = self._connections.pop(session, None)
        self.tree.end_session(session)
        self._fire()
        if connection is not None:
            connection.deliver(connection.client.on_closed)

    def connect(self, connection: _Connection, session: SessionId) -> None:
        """A client wants a session, or the one that it had."""
        if not self.is_up:
            return
        if session != NO_SESSION and session not in self._sessions:
            connection.deliver(connection.client.on_expired)
            return
        if session == NO_SESSION:
            session, self._next_session = self._next_session, self._next_session + 1
        former = self._connections.get(session)
        if former is not None:
            former.end()
        self._sessions[session] = self.world.now_us
        self._connections[session] = connection
        connection.session = session
        connection.deliver(connection.client.on_connected, session)

    def ping(self, connection: _Connection) -> None:
        if self._receives(connection):
            connection.deliver(connection.client.on_pong)

    def close(self, connection: _Connection) -> None:
        """Close a session cleanly."""
        if self._receives(connection):
            del self._sessions[connection.session]
            del self._connections[connection.session]
            self.tree.end_session(connection.session)
            self._fire()

    def ask(self, connection: _Connection, number: int, operation: Operation) -> None:
        """Carry out an operation; watches that it triggers come before it is answered."""
        if not self._receives(connection):
            return
        result = self.tree.carry_out(operation, connection.session)
        self.world.counts[f"zookeeper {type(operation).__name__} {result.code.name}"] += 1
        if isinstance(operation, GetData) and operation.watch:
            connection.watches.add((operation.path, False))
        if isinstance(operation, GetChildren) and operation.watch and result.code == Code.OK:
            connection.watches.add((operation.path, True))
        self._fire()
        connection.deliver(connection.client.on_answer, number, result)

    def _receives(self, connection: _Connection) -> bool:
        """Whether the connection is its session's; the session then goes on."""
        if not self.is_up or self._connections.get(connection.session) is not connection:
            return False
        self._sessions[connection.session] = self.world.now_us
        return True

    def _fire(self) -> None:
        changed, self.tree.changed = {*self.tree.changed}, []
        for connection in self._connections.values():
            for path, children in sorted(connection.watches & changed):
                connection.watches.discard((path, children))
                connection.deliver(connection.client.on_watch, path)


class ZooKeeperClient:
    """The client of one process: what kazoo is in production."""

    def __init__(self, zookeeper: SimulatedZooKeeper, owner: Owner) -> None:
        self.owner = owner
        self.session: SessionId = NO_SESSION
        self._zookeeper = zookeeper
        self._world = zookeeper.world
        self._connection: _Connection | None = None
        self._is_connected = False
        self._is_wanted = False
        self._received_us = 0

    def carry_out(self, effect: ZooKeeperEffect) -> None:
        match effect:
            case OpenSession():
                self._is_wanted = True
                self._connect()
                self._world.after(self._zookeeper.timeout_us // 6, self._tick)
            case CloseSession():
                self._is_wanted = False
                if self._connection is not None and self._is_connected:
                    self._connection.to_server.send(self._zookeeper.close, self._connection)
            case AskZooKeeper(number, operation):
                if self._connection is not None and self._is_connected:
                    self._connection.to_server.send(self._zookeeper.ask, self._connection, number, operation)

    def _connect(self) -> None:
        if not self._is_wanted or not self.owner.is_alive:
            return
        if self._connection is not None:
            self._connection.end()
        self._received_us = self._world.now_us
        self._connection = _Connection(self._zookeeper, self)
        self._connection.to_server.send(self._zookeeper.connect, self._connection, self.session)

    def _tick(self) -> None:
        """Send a ping, and look whether the server answers."""
        if not self.owner.is_alive or not self._is_wanted:
            return
        self._world.after(self._zookeeper.timeout_us // 6, self._tick)
        if self.owner.stands_still or self._connection is None:
            return
        if self._world.now_us - self._received_us > self._zookeeper.timeout_us * GIVES_UP_AFTER:
            self._lose()
        elif self._is_connected:
            self._connection.to_server.send(self._zookeeper.ping, self._connection)

    def _lose(self) -> None:
        """The connection is given up, and another is made."""
        was_connected, self._is_connected = self._is_connected, False
        if self._connection is not None:
            self._connection.end()
        self._connection = None
        self._received_us = self._world.now_us
        if was_connected:
            self.owner.on_zookeeper(ConnectionLost())
        self._world.after(RECONNECT_US, self.owner.when_awake, self._reconnect)

    def _reconnect(self) -> None:
        if self._connection is None:
            self._connect()

    # ---- from the server, on the connection that there is

    def _receives(self, connection: _Connection) -> bool:
        if connection is not self._connection or not self.owner.is_alive:
            return False
        self._received_us = self._world.now_us
        return True

    def on_connected(self, connection: _Connection, session: SessionId) -> None:
        if self._receives(connection):
            self.session, self._is_connected = session, True
            self.owner.on_zookeeper(SessionConnected(session))

    def on_expired(self, connection: _Connection) -> None:
        if self._receives(connection):
            self.session, self._is_connected = NO_SESSION, False
            self.owner.on_zookeeper(SessionExpired())
            self._connect()

    def on_closed(self, connection: _Connection) -> None:
        if self._receives(connection):
            self._lose()

    def lose_soon(self, connection: _Connection) -> None:
        """The server is gone: the connection breaks a little later."""
        delay_us = self._zookeeper.network.delay_us(self._zookeeper.chance)
        self._world.after(delay_us, self.owner.when_awake, self.on_closed, connection)

    def on_pong(self, connection: _Connection) -> None:
        self._receives(connection)

    def on_answer(self, connection: _Connection, number: int, result: Result) -> None:
        if self._receives(connection):
            self.owner.on_zookeeper(Answered(number, result))

    def on_watch(self, connection: _Connection, path: str) -> None:
        if self._receives(connection):
            self.owner.on_zookeeper(Watched(path))
