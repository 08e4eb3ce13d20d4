"""The shell around a node: asyncio sockets, the clock, the timer, and the execution of effects.

Everything happens in one thread: the event loop calls the node, which returns at once. A connection's request is passed
on when it has arrived completely; effects are executed before the next event is handled.
"""

from __future__ import annotations

import asyncio
import socket
import time
import traceback
from collections.abc import Callable
from typing import Protocol

from reference.controller.image import Endpoint
from reference.node.effects import Authenticated, Close, HangUp, Respond, Send, WantKeys
from reference.node.lateness import Lateness
from reference.node.listeners import PROTOCOLS, inter_broker_listener, protocols_of, sasl_of
from reference.node.node import Node
from reference.node.properties import controller_listeners_of
from reference.node.zookeeper.node import ZooKeeperNode
from reference.protocol.addresses import host_of
from reference.protocol.primitives import AT_ONCE, Buffer, NodeId, TimestampMs
from reference.runtime.clock import Clock
from reference.runtime.configuration import ConfigurationError, Listener, ServerConfiguration
from reference.runtime.connection import Connection
from reference.runtime.connection_limits import ConnectionLimits
from reference.runtime.flush_threads import FlushThreads
from reference.runtime.frame_buffers import FrameBuffers
from reference.runtime.key_sets import KeySets
from reference.runtime.metrics import Metrics
from reference.runtime.peers import Channel, PeerConnections
from reference.runtime.tls_connection import ListenerTls
from reference.storage.errors import LogError
from reference.storage.flushing import run_now
from reference.zookeeper.operations import ZooKeeperEffect, ZooKeeperEvent

ACCEPTS_AT_ONCE = 64
"""Connections taken from the backlog before other events get their turn."""

IDLE_CHECK_MS = 5_000

CONTROLLED_SHUTDOWN_MS = 30_000
"""How long a broker waits for permission to stop, as long as Kafka's (KafkaServer's three tries)."""

PERCENT_PER_NS = 100 / 1_000_000_000

SYSTEM_BUFFER = -1
"""As a socket's buffer size: the system's default."""

METRICS_BACKLOG = 10
LISTENERS = "listeners"

Logger = Callable[[str, str], None]


class BoundListener:
    """A bound socket and the name of its listener; the sockets that it accepts inherit their receive buffer.

    It is bound before anything else, so that an unavailable address leaves no formatted folder. It listens last, so that an
    accepted client finds a node with open folders.
    """

    def __init__(
        self, listener: Listener, backlog: int, receive_buffer_bytes: int = SYSTEM_BUFFER, setting: str = LISTENERS
    ) -> None:
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        self.name = listener.name
        self.socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_bytes != SYSTEM_BUFFER:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._backlog = backlog
        self._where = f"{setting}: {f'{listener.name}://' * (setting == LISTENERS)}{listener.host}:{listener.port}"
        self._take(lambda: self.socket.bind((listener.host or "0.0.0.0", listener.port)))
        self.port: int = self.socket.getsockname()[1]

    def listen(self) -> None:
        """Let clients connect. Errors: ConfigurationError, where another process has bound and listened in the meantime."""
        self._take(lambda: self.socket.listen(self._backlog))

    def _take(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (OSError, UnicodeError) as error:  # a name of which a part is too long or empty cannot even be looked up
            self.socket.close()
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"{self._where} cannot be bound: {reason}") from error


def bind_listeners(configuration: ServerConfiguration) -> list[BoundListener]:
    """Bind every listener before anything is started. Errors: ConfigurationError for an unavailable address."""
    backlog = max(1, int(configuration.properties.get("socket.listen.backlog.size", "50")))
    # Kafka's default is 102,400 bytes. Here that cuts a request of 250 KB in three and doubles what it costs, so that the
    # system's own choice, which grows with the load, stays where the file does not say otherwise.
    receive_buffer_bytes = int(configuration.properties.get("socket.receive.buffer.bytes", SYSTEM_BUFFER))
    bound: list[BoundListener] = []
    for listener in configuration.listeners:
        try:
            bound.append(BoundListener(listener, backlog, receive_buffer_bytes))
        except ConfigurationError:
            for each in bound:
                each.socket.close()
            raise
    return bound


def bind_metrics(configuration: ServerConfiguration) -> BoundListener | None:
    """Bind the address at which metrics are read, where there is one. Errors: ConfigurationError."""
    listener = configuration.metrics_listener
    return None if listener is None else BoundListener(listener, METRICS_BACKLOG, setting="tidegauge.metrics.listener")


def advertised_endpoints(configuration: ServerConfiguration, bound: list[BoundListener]) -> tuple[Endpoint, ...]:
    """The addresses that clients receive: those of the file, a port of 0 replaced by the one that was bound."""
    ports = {each.name: each.port for each in bound}
    protocols = protocols_of(configuration.properties)
    found: list[Endpoint] = []
    for listener in configuration.listeners:
        if configuration.is_controller_listener(listener.name):
            continue
        advertised = configuration.advertised(listener)
        host = advertised.host or socket.gethostname()
        protocol = PROTOCOLS[protocols[listener.name]]
        found.append(Endpoint(listener.name, host, advertised.port or ports[listener.name], protocol))
    return tuple(found)


class ZooKeeperDriver(Protocol):
    """A client of ZooKeeper."""

    def carry_out(self, effect: ZooKeeperEffect) -> None: ...
    def close(self) -> None: ...


class NodeBroken(Exception):
    """The node cannot continue; only a restart helps."""


class Server:
    """Serves a node to its clients until it is stopped."""

    def __init__(
        self,
        node: Node,
        listeners: list[BoundListener],
        metrics: Metrics,
        log: Logger,
        clock: Clock,
        max_connections: int | None = None,
    ) -> None:
        """Errors: WrongSecurity, where keys and certificates cannot be read."""
        self.node = node
        self.metrics = metrics
        self._now = clock.now
        self.frame_buffers = FrameBuffers()
        integer = node.configuration.integer
        self.max_request_bytes = integer("socket.request.max.bytes")
        self._registration_timeout_ms = integer("initial.broker.registration.timeout.ms")
        self._is_unregistered = False
        self._max_idle_ms = integer("connections.max.idle.ms")
        self._send_buffer_bytes = integer("socket.send.buffer.bytes")
        self._limits = ConnectionLimits(node.configuration, max_connections)
        self._listeners = listeners
        self._inner = {
            *controller_listeners_of(node.configuration.static),
            inter_broker_listener(node.configuration.static),
        }
        """Listeners of other nodes."""
        self._log = log
        self._connections: dict[int, Connection] = {}
        properties = node.configuration.static
        self._tls = {each.name: ListenerTls.of(properties, each.name, log) for each in listeners}
        sasl = {each.name: sasl_of(properties, each.name) for each in listeners}
        self._max_first_bytes = {
            name: settings.max_receive_bytes if settings is not None else self.max_request_bytes
            for name, settings in sasl.items()
        }
        """The request size limit of a client that has not authenticated, by listener."""
        self._key_sets = {
            name: KeySets(settings.bearer, name, node.take_keys, log)
            for name, settings in sasl.items()
            if settings is not None and settings.bearer is not None
        }
        self._peers = PeerConnections(self, properties, log)
        self.zookeeper: ZooKeeperDriver | None = None
        """Executes the effects on ZooKeeper, where ZooKeeper coordinates."""
        self._coordinated: ZooKeeperNode | None = None
        self._refusals: dict[NodeId, str] = {}
        """The last TLS or SASL error of each other node."""
        self._next_id = 1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = AT_ONCE
        self._lateness = Lateness()
        self._stopped: asyncio.Event = asyncio.Event()
        self._carrying_out = False
        self._is_stopping = False
        self._has_ended = False
        """Whether the node was shut down, or is broken: from then on nothing may change its files, least of all a timer that
        is due while the event loop ends."""

    def attach(self, zookeeper: ZooKeeperDriver, node: ZooKeeperNode) -> None:
        """Let ZooKeeper's client execute this node's effects on ZooKeeper."""
        self.zookeeper, self._coordinated = zookeeper, node

    def on_zookeeper(self, event: ZooKeeperEvent) -> None:
        """Pass an event from ZooKeeper to the node."""
        node = self._coordinated
        if node is not None:
            self._let_node(lambda: node.zookeeper_event(event, self._now()))

    # ---- incarnation

    async def run(self) -> None:
        """Serve until `stop` is called. A clean stop then closes every connection and shuts the node down.

        Errors: NodeBroken, with every connection closed and nothing written any more.
        """
        loop = self._loop = asyncio.get_running_loop()
        flushes = FlushThreads(loop, self._let_node)
        self.node.logs.run_flushes_by(flushes.run)
        for listener in self._listeners:
            loop.add_reader(listener.socket.fileno(), self._on_acceptable, listener)
        loop.call_later(IDLE_CHECK_MS / 1000, self._close_idle)
        loop.call_later(self._registration_timeout_ms / 1000, self._check_registration)
        for each in self._key_sets.values():
            each.begin(loop)
        self._carry_out()
        try:
            await self._stopped.wait()
        finally:
            for listener in self._listeners:
                loop.remove_reader(listener.socket.fileno())
                listener.socket.close()
            for connection in [*self._connections.values()]:
                connection.close("the broker stops")
            self.node.logs.run_flushes_by(run_now)
            flushes.close()
            if not self.node.is_broken:
                self._shut_down()
            self._has_ended = True
            if self._timer is not None:
                self._timer.cancel()
            self._peers.close()
            for each in self._key_sets.values():
                each.close()
            if self.zookeeper is not None:
                self.zookeeper.close()
        if self._is_unregistered:
            raise NodeBroken(f"no controller has registered this broker within {self._registration_timeout_ms} ms")
        if self.node.is_broken:
            raise NodeBroken(self.node.failure)

    def _check_registration(self) -> None:
        """Stop a broker that no controller has registered within the timeout (BrokerLifecycleManager)."""
        if self.node.is_broker and self.node.membership.broker_epoch < 0 and not self._is_stopping:
            self._is_unregistered = True
            self._stopped.set()

    def _shut_down(self) -> None:
        try:
            self.node.shut_down(self._now())
        except LogError as error:
            self._log("error", f"the end was not clean: {error}")
        self._carry_out()  # a leader's EndQuorumEpoch to its voters

    def stop(self) -> None:
        """Begin a controlled shutdown, in which other brokers take over; `run` returns when everything is flushed."""
        self._is_stopping = True
        self._let_node(lambda: self.node.leave(self._now(), CONTROLLED_SHUTDOWN_MS))

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    # ---- connections

    def _on_acceptable(self, listener: BoundListener) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, address = listener.socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._log("warning", f"a connection was not accepted: {error.strerror}")
                return
            host = host_of(address[0])
            if refused := self._limits.refuses(listener.name, host):
                self._log("info", f"a connection from {host} is closed: {refused}")
                sock.close()
            elif throttle_ms := self.node.quotas.throttle_address(host, self._now()):
                self._close_later(sock, listener.name, host, throttle_ms)
            else:
                self._accept(sock, listener.name, host)
            if self._rests(listener):
                return

    def _close_later(self, sock: socket.socket, listener: str, host: str, throttle_ms: int) -> None:
        """Close a connection that exceeds its address's creation rate, after the throttle time (KIP-612)."""
        assert self._loop is not None
        self._limits.opened(listener, host)

        def close() -> None:
            self._limits.closed(listener, host)
            sock.close()

        self._loop.call_later(throttle_ms / 1000, close)

    def _rests(self, listener: BoundListener) -> bool:
        """Pause a listener whose connections exceed its creation rate; returns whether it is paused."""
        assert self._loop is not None
        throttle_ms = self.node.quotas.throttle_listener(listener.name, listener.name in self._inner, self._now())
        if throttle_ms > 0:
            self._loop.remove_reader(listener.socket.fileno())
            self._loop.call_later(throttle_ms / 1000, self._accept_again, listener)
        return throttle_ms > 0

    def _accept_again(self, listener: BoundListener) -> None:
        if self._loop is not None and listener.socket.fileno() >= 0:
            self._loop.add_reader(listener.socket.fileno(), self._on_acceptable, listener)

    def _accept(self, sock: socket.socket, listener: str, host: str) -> None:
        assert self._loop is not None
        prepare_socket(sock, self._send_buffer_bytes)
        id, self._next_id = self._next_id, self._next_id + 1
        tls = self._tls[listener]
        if tls is None:
            self.node.connected(id, host, listener)
            connection = Connection(self._loop, self, sock, id, listener, host)
        else:
            try:
                connection = tls.connect(self._loop, self, sock, id, host)
            except OSError as error:  # the client is gone already
                self._log("info", f"TLS with {host} does not begin: {error}")
                return sock.close()
        self._limits.opened(listener, host)
        connection.max_request_bytes = self._max_first_bytes[listener]
        self._connections[id] = connection
        self.metrics.connections_accepted += 1

    def on_open(self, connection: Connection, principal: str) -> None:
        """Report to the node a connection whose TLS handshake is complete."""
        self.node.connected(connection.id, connection.peer, connection.listener, principal)

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Pass a complete request to the node."""
        self.metrics.requests += 1
        self.metrics.bytes_in += len(frame) + 4
        measures_time = self.node.quotas.measures_time
        began = time.perf_counter_ns() if measures_time else 0
        try:
            self.node.receive(connection.id, frame, self._begin_step())
            if measures_time:
                self.node.quotas.spent((time.perf_counter_ns() - began) * PERCENT_PER_NS)
        except Exception:
            # A bug of ours: other clients are still served, and the log has the traceback.
            self._log("error", f"connection {connection.id}: a request failed\n{traceback.format_exc()}")
            connection.close("a request failed")
        self._carry_out()

    def on_closed(self, connection: Connection, reason: str) -> None:
        """A connection is closed, by either side."""
        if self._connections.pop(connection.id, None) is not None:
            self._limits.closed(connection.listener, connection.peer)
        self.metrics.connections_closed += 1
        if reason != "closed by the client":
            self._log("info", f"connection {connection.id} from {connection.peer}: {reason}")
        self.node.disconnected(connection.id)

    def on_answer(self, channel: Channel, frame: Buffer) -> None:
        """Another node has answered."""
        self._let_node(lambda: self.node.answered(*channel, frame, self._now()))

    def on_unreachable(self, channel: Channel, reason: str) -> None:
        """Another node cannot be reached, or its connection broke before it had answered."""
        self._let_node(lambda: self.node.unreachable(*channel, self._now()))

    def on_refused(self, channel: Channel, reason: str) -> None:
        """Log an error of TLS or SASL with another node, when its reason is new."""
        if self._refusals.get(channel[0]) != reason:
            self._refusals[channel[0]] = reason
            self._log("error", f"node {channel[0]} cannot be asked: {reason}")

    def _let_node(self, act: Callable[[], None]) -> None:
        """Run a step of the node that no client requested; a bug of ours must not stop the loop."""
        if self._has_ended:
            return
        self._begin_step()
        try:
            act()
        except Exception:
            self._log("error", f"a step of the node failed\n{traceback.format_exc()}")
        self._carry_out()

    def _close_idle(self) -> None:
        """Close connections that were silent for connections.max.idle.ms (FRM-13)."""
        assert self._loop is not None
        self._loop.call_later(IDLE_CHECK_MS / 1000, self._close_idle)
        limit = self.monotonic_ms() - self._max_idle_ms
        for connection in [*self._connections.values()]:
            if connection.last_active_ms < limit and not connection.busy:
                connection.close(f"idle for {self._max_idle_ms} ms")

    # ---- effects and time

    def _carry_out(self) -> None:
        """Carry out the node's effects; further effects that they cause run in the same loop, never in a nested one."""
        if self._carrying_out:
            return
        self._carrying_out = True
        try:
            while effects := self.node.take_effects():
                for effect in effects:
                    if isinstance(effect, Respond):
                        self._respond(self._connections.get(effect.connection), effect)
                    elif isinstance(effect, Send):
                        self._peers.send(effect)
                    elif isinstance(effect, HangUp):
                        self._peers.hang_up((effect.peer, effect.purpose))
                    elif isinstance(effect, WantKeys):
                        self._key_sets[effect.listener].look()
                    elif not isinstance(effect, Authenticated | Close):
                        assert self.zookeeper is not None
                        self.zookeeper.carry_out(effect)
                    elif (connection := self._connections.get(effect.connection)) is None:
                        continue
                    elif isinstance(effect, Authenticated):
                        connection.max_request_bytes = self.max_request_bytes
                    else:
                        connection.close(effect.reason)
        finally:
            self._carrying_out = False
        if self.node.is_broken or (self._is_stopping and self.node.may_stop):
            self._stopped.set()
        self._set_timer()

    def _respond(self, connection: Connection | None, effect: Respond) -> None:
        parts = effect.parts
        if effect.muted_ms > 0 and connection is not None:
            assert self._loop is not None
            connection.mute()
            self._loop.call_later(effect.muted_ms / 1000, connection.unmute)
        if connection is None:
            for part in parts or ():
                release = getattr(part, "release", None)
                if release is not None and not isinstance(part, memoryview):
                    release()
            return
        connection.respond(parts)  # type: ignore[arg-type]  # slices of a PosixDisk can be sent

    def _set_timer(self) -> None:
        """Wake at the node's next deadline; a timer that is early enough stays."""
        assert self._loop is not None
        deadline = self.node.next_deadline()
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._lateness.timer_set(deadline)
        self._timer = self._loop.call_later(max(0.0, (deadline - self._now()) / 1000), self._on_timer)

    def _begin_step(self) -> TimestampMs:
        """The time of a step. The controller learns of a late timer: heartbeats that came meanwhile are not received yet."""
        now = self._now()
        if late_ms := self._lateness.begin_step(now):
            self.node.controller.was_busy(late_ms, now)
        return now

    def _on_timer(self) -> None:
        self._begin_step()
        self._timer = None
        self._lateness.timer_fired()
        self._let_node(lambda: self.node.tick(self._now()))


def prepare_socket(sock: socket.socket, send_buffer_bytes: int) -> None:
    """Make an accepted socket ready: nothing blocks, nothing is held back, and the buffer is socket.send.buffer.bytes."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if send_buffer_bytes != SYSTEM_BUFFER:
        # A buffer of the system's choice takes megabytes at once, which leave the processor's caches before the client
        # reads them: with Kafka's 102,400 bytes a fetch of 1 MiB costs two thirds.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)


__all__ = [
    "BoundListener",
    "Close",
    "NodeBroken",
    "Server",
    "advertised_endpoints",
    "bind_listeners",
    "bind_metrics",
    "prepare_socket",
]
