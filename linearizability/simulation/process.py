"""One process of a node: the counterpart of `reference.runtime`.

Requests come in by `reception`, peers are asked over `channels`, effects are carried out in order, and a timer waits for the
node's next deadline. While the process stands still, everything that happens to it waits.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Protocol

from linearizability.simulation.channels import ChannelName, PeerChannels
from linearizability.simulation.frame_text import response_text
from linearizability.simulation.network import Addresses, Network, SimulatedConnection, fingerprint
from linearizability.simulation.reception import Reception
from linearizability.simulation.simulated_zookeeper import SimulatedZooKeeper, ZooKeeperClient
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation, World
from reference.node.effects import Close, Effect, HangUp, Respond, Send
from reference.node.lateness import Lateness
from reference.node.node import Node
from reference.node.zookeeper.node import ZooKeeperNode
from reference.protocol.primitives import TimestampMs
from reference.storage.simulated_disk import SimulatedDisk
from reference.zookeeper.operations import CloseSession, ZooKeeperEffect, ZooKeeperEvent

MAX_IDLE_TICKS = 1_000
"""Ticks in a row after which the node's next deadline was already over; more, and it spins."""
STOP_WITHIN_MS = 1_000
"""After this time a clean stop goes on without the controller's leave."""
LOST_IN_DEATH = 0.5
"""Share of a dying process's connections that lose the bytes just sent."""


class Host(Protocol):
    """The machine that a process runs on."""

    name: str
    number: int

    @property
    def disk(self) -> SimulatedDisk: ...

    @property
    def disk_refuses(self) -> bool:
        """Whether the disk is full, read-only or does not flush, so that a node may fail."""
        ...

    def look_at_clock(self) -> TimestampMs:
        """Begin a step, and return its time."""
        ...

    def look_at(self, node: Node) -> None:
        """Check what must hold after every step. Errors: Violation."""
        ...

    def fail(self, process: Process) -> None: ...
    def shut_down(self, process: Process) -> None: ...


class Process:
    """A node that runs."""

    def __init__(
        self,
        machine: Host,
        node: Node,
        world: World,
        network: Network,
        addresses: Addresses,
        chance: Random,
        zookeeper: SimulatedZooKeeper | None = None,
    ) -> None:
        self.name = machine.name
        self.number = machine.number
        self.node = node
        self.is_alive = True
        self.is_leaving = False
        self._machine = machine
        self._world = world
        self._chance = chance
        self._reception = Reception(self.name, world, chance, self._handle)
        self._channels = PeerChannels(self, world, network, addresses)
        self._zookeeper = ZooKeeperClient(zookeeper, self) if zookeeper is not None else None
        self._stands_still = False
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """Calls that came while the process was paused."""
        self._timer = 0
        self._timer_at_us: int | None = None
        self._lateness = Lateness()
        self._idle_ticks = 0

    # ---- faults and end

    def pause(self) -> None:
        self._stands_still = True

    def resume(self) -> bool:
        """Resume and run the waiting calls. Returns False if it was not paused."""
        if not self._stands_still:
            return False
        self._stands_still = False
        waiting, self._waiting = self._waiting, []
        for action, arguments in waiting:
            action(*arguments)
        self._machine.look_at_clock()
        self._set_timer()
        return True

    def leave(self, within_ms: int) -> None:
        """Ask the controller's leave to stop; `Machine.shut_down` follows, after this time without leave."""
        if not self._stands_still:
            self.is_leaving = True
            self.call(self.node.leave, self._begin_step(), within_ms)
            self.after_step()

    @property
    def stands_still(self) -> bool:
        return self._stands_still

    def say_farewell(self) -> None:
        """Send the node's last messages to its peers, at a clean end."""
        for effect in self.node.take_effects():
            if isinstance(effect, Send):
                self._channels.send(effect)
            elif isinstance(effect, CloseSession) and self._zookeeper is not None:
                self._zookeeper.carry_out(effect)

    def die(self, silently: bool) -> None:
        """Its memory and connections are gone; silently, with the power, peers are not informed."""
        self.is_alive = False
        self._channels.drop_all(silently)
        for connection in self._reception.drop_all():
            if self._chance.random() < LOST_IN_DEATH:
                connection.lose_what_is_under_way()
            connection.close_by_machine("the peer is gone", silently)

    # ---- what happens to it: now, or when it goes on after a pause

    def when_awake(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run the action, or queue it while the process is paused. Ignored after its end."""
        if self._stands_still:
            self._waiting.append((action, arguments))
        elif self.is_alive:
            action(*arguments)

    def accept(self, connection: SimulatedConnection) -> None:
        """A peer has connected: the machine accepts for a frozen process, too."""
        self._reception.open(connection)
        self.when_awake(self._accepted, connection)

    def _accepted(self, connection: SimulatedConnection) -> None:
        if connection in self._reception:
            self.call(self.node.connected, connection.id, "127.0.0.1", connection.listener)

    def on_bytes(self, connection: SimulatedConnection, data: bytes) -> None:
        """A peer has sent bytes."""
        if self._stands_still:
            self._waiting.append((self._reception.read, (connection, data)))
        else:
            self._reception.read(connection, data)

    def on_closed_by_client(self, connection: SimulatedConnection) -> None:
        """A peer has closed its connection."""
        self.when_awake(self._closed, connection)

    def _closed(self, connection: SimulatedConnection) -> None:
        if self._reception.close(connection.id) is not None:
            self._world.trace.note(f"{self.name} closed {connection.id}")
            self._machine.look_at_clock()
            self.call(self.node.disconnected, connection.id)
            self.after_step()

    def on_answer(self, channel: ChannelName, frame: bytes, question: str) -> None:
        """A peer has answered; `question` is its name, while readable events are kept."""
        trace = self._world.trace
        trace.note(f"{self.name} <= {channel[0]}/{channel[1]} {fingerprint(frame)}")
        if trace.keep:
            trace.log_event(f"node {channel[0]}", self.name, response_text(question, frame))
        received = bytearray(frame)
        self.call(self.node.answered, channel[0], channel[1], received, self._begin_step())
        received[:] = bytes(len(received))  # valid in this call alone, as in the runtime
        self.after_step()

    def on_unreachable(self, channel: ChannelName) -> None:
        """A connection to a peer could not be made, or was lost."""
        self._world.trace.note(f"{self.name} lost {channel[0]}/{channel[1]}")
        self.call(self.node.unreachable, channel[0], channel[1], self._begin_step())
        self.after_step()

    def on_zookeeper(self, event: ZooKeeperEvent) -> None:
        """Something has come from ZooKeeper, or has become of the session."""
        assert isinstance(self.node, ZooKeeperNode)
        self._world.trace.note(f"{self.name} {event}")
        self.call(self.node.zookeeper_event, event, self._begin_step())
        self.after_step()

    def _handle(self, connection: SimulatedConnection, frame: bytearray) -> None:
        """A request is handed to the node; its bytes are valid in this call alone, as in the runtime."""
        self.call(self.node.receive, connection.id, frame, self._begin_step())
        frame[:] = bytes(len(frame))
        self.after_step()

    # ---- steps

    def _begin_step(self) -> TimestampMs:
        """The time of a step that begins; the controller learns of a timer that is late, as from the runtime."""
        now = self._machine.look_at_clock()
        if late_ms := self._lateness.begin_step(now):
            self.call(self.node.controller.was_busy, late_ms, now)
        return now

    def call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call the node; whatever escapes from it would have ended its process. Errors: Violation."""
        try:
            return call(*arguments)
        except Violation:
            raise
        except Exception as error:
            raise Violation("node-failure", f"{self.name} failed in {call.__name__}: {where(error)}") from error

    def after_step(self, has_ticked: bool = False) -> None:
        """Check what must hold, carry out what the node wants, set the timer, go on with requests that waited."""
        self._machine.look_at(self.node)
        for effect in self.node.take_effects():
            self._carry_out(effect)
        if self.node.is_broken:
            self._machine.fail(self)
            return
        if self.is_leaving and self.node.may_stop:
            self.is_leaving = False
            self._world.after(0, self._machine.shut_down, self)
        self._set_timer(has_ticked)
        self._reception.work()

    def send_what_is_late(self) -> None:
        """Answers may leave whose slices were to be late; a file that has become too short for its slice ends the connection."""
        self.when_awake(self._send_what_is_late)

    def _send_what_is_late(self) -> None:
        cut_short = self._reception.send_late()
        if cut_short:
            self._machine.look_at_clock()
            for connection in cut_short:
                self._close(Close(connection, "the file is shorter than the slice"))
            self.after_step()

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Respond):
            self._reception.respond(effect)
        elif isinstance(effect, Send):
            self._channels.send(effect)
        elif isinstance(effect, HangUp):
            self._channels.hang_up((effect.peer, effect.purpose))
        elif isinstance(effect, Close):
            self._close(effect)
        elif isinstance(effect, ZooKeeperEffect) and self._zookeeper is not None:
            self._zookeeper.carry_out(effect)

    def _close(self, effect: Close) -> None:
        connection = self._reception.close(effect.connection)
        if connection is not None:
            self._world.trace.note(f"{self.name} closes {effect.connection}: {effect.reason}")
            self._world.counts["connections closed by the node"] += 1
            connection.close_by_machine(effect.reason)
            self.call(self.node.disconnected, effect.connection)

    def look_at_failure(self) -> None:
        """A log directory has failed: the node finds out at its next step, which is now."""
        self.when_awake(self._tick)

    def _tick(self) -> None:
        self.call(self.node.tick, self._begin_step())
        self.after_step()

    # ---- time

    def look_at_timer(self) -> None:
        """Set the timer again: the machine's time has jumped ahead."""
        self._machine.look_at_clock()
        self._set_timer()

    def _set_timer(self, has_ticked: bool = False) -> None:
        """Wake at the node's next deadline; a timer that is early enough stays. Errors: Violation, for one who spins."""
        now, deadline = self._machine.disk.now, self.call(self.node.next_deadline)
        delay_ms = max(0, deadline - now)
        if has_ticked:
            self._count_idle_ticks(delay_ms == 0)
        if delay_ms == 0 and self._idle_ticks:
            delay_ms = 1
        at_us = self._world.now_us + delay_ms * MICROSECONDS_A_MS
        if self._timer_at_us is None or at_us < self._timer_at_us:
            self._timer += 1
            self._timer_at_us = at_us
            self._lateness.timer_set(deadline)
            self._world.at(at_us, self._on_timer, self._timer)

    def _count_idle_ticks(self, is_idle: bool) -> None:
        self._idle_ticks = self._idle_ticks + 1 if is_idle else 0
        if self._idle_ticks > MAX_IDLE_TICKS and not self._machine.disk_refuses:
            raise Violation("spinning", f"{self.name} ticked {self._idle_ticks} times and its deadline is still over")

    def _on_timer(self, timer: int) -> None:
        if timer != self._timer or not self.is_alive:
            return
        self._timer_at_us = None
        if not self._stands_still:
            now = self._begin_step()
            self._lateness.timer_fired()
            self.call(self.node.tick, now)
            self.after_step(has_ticked=True)


def where(error: BaseException) -> str:
    """Return an error with the innermost lines that it passed, as one text."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " <- ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__}: {error} [{places}]"
