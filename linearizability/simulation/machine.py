"""One simulated machine: a disk, a wall clock, and the node's process that lives and dies on it.

It does for the node what `reference.runtime` does in production: one request of a connection at a time, effects carried
out in order, a timer for the next deadline. And it is stricter: the bytes of a request are overwritten as soon as the node
has handled it, and a fetch's slices are read only when the answer leaves.
"""

from __future__ import annotations

import traceback
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

from linearizability.simulation.invariants import LogRecord, Watch, contents, require_prefix
from linearizability.simulation.network import Connection, fingerprint
from linearizability.simulation.schedule import Schedule
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation, World
from reference.controller.image import Endpoint
from reference.node.effects import Respond
from reference.node.node import Identity, Node
from reference.protocol.errors import KafkaError
from reference.protocol.primitives import TimestampMs
from reference.storage.disk import Disk, SimulatedDisk
from reference.storage.errors import StorageError

EPOCH_MS = 1_700_000_000_000
"""The wall clock at the beginning of every world."""

FOLDER = Path("/data")
MOST_ANSWER_DELAY_US = 300
MAX_IDLE_TICKS = 1_000
"""Ticks in a row at which the node's next deadline was already over; more, and it spins."""
RESTART_AGAIN_MS = 100

PROPERTIES = {
    "process.roles": "broker,controller",
    "num.partitions": "1",
    "log.index.size.max.bytes": "2048",
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "300",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "auto.create.topics.enable": "false",
}
"""The configuration of simulated nodes, below that of the schedule."""


class Inbox:
    """The machine's end of a connection."""

    __slots__ = ("busy", "connection", "data", "last_departure_us")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.data = bytearray()
        self.busy = False
        self.last_departure_us = 0


class Machine:
    """A node and what it runs on."""

    def __init__(self, world: World, number: int, schedule: Schedule) -> None:
        self.number = number
        self.name = f"node {number}"
        self.disk = SimulatedDisk()
        self.node: Node | None = None
        self.lives = 0
        self.paused = False
        self.clock_offset_ms = 0
        self.power_losses = 0
        self._world = world
        self._properties = PROPERTIES | {"node.id": str(number)} | schedule.properties
        self._chance = world.chance(f"machine/{number}")
        self._inboxes: dict[int, Inbox] = {}
        self._ready: deque[Inbox] = deque()
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What happened to the process while it stood still."""
        self._timer = 0
        self._timer_at_us: int | None = None
        self._idle_ticks = 0
        self.watch = Watch(self.name, frozenset(topic.name for topic in schedule.topics if topic.retains))
        self._before: dict[tuple[str, int], tuple[LogRecord, int]] = {}
        """What each log held when its last life ended, and up to where it must still."""
        self.disk.make_folder(FOLDER)
        self.disk.sync_folder(FOLDER.parent)

    @property
    def now(self) -> TimestampMs:
        """The machine's wall clock."""
        return EPOCH_MS + self._world.now_ms + self.clock_offset_ms

    @property
    def is_up(self) -> bool:
        return self.node is not None

    # ---- life and death

    def start(self) -> None:
        """Start the process. With a disk that takes nothing it may fail and is tried again."""
        if self.node is not None:
            return
        self.lives += 1
        world = self._world
        self.disk.now = self.now
        incarnation = uuid.UUID(int=self._chance.getrandbits(128), version=4)
        endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092 + self.number),)
        identity = Identity(self.number, "simulated-cluster-id00", incarnation, endpoints)
        chance = cast(Any, world.chance(f"life/{self.number}/{self.lives}"))
        try:
            node = Node(
                identity, self._properties, cast(Disk, self.disk), FOLDER, chance, self.now, log=self._log,
                tracer=self._on_action,
            )  # fmt: skip
        except (OSError, StorageError, KafkaError) as error:
            if not self._disk_refuses:
                raise Violation("no-restart", f"{self.name} cannot start: {error!r}") from error
            world.trace.note(f"{self.name} cannot start: {type(error).__name__}")
            world.after(RESTART_AGAIN_MS * MICROSECONDS_A_MS, self.start)
            return
        except Violation:
            raise
        except Exception as error:
            raise Violation("no-restart", f"{self.name} cannot start: {_where(error)}") from error
        self.node = node
        world.trace.note(f"{self.name} life {self.lives}")
        self._tell(f"starts, life {self.lives}")
        self._compare_with_before(node)
        self._require_all()
        self.watch.forget()
        self._after_step()

    @property
    def _disk_refuses(self) -> bool:
        return self.disk.read_only or self.disk.capacity_bytes is not None

    def _compare_with_before(self, node: Node) -> None:
        """After a crash every log holds what it held; after a power failure a prefix of it, at least what was flushed.

        A log that a full disk keeps from being taken up is compared when it is there again.
        """
        for key, (before, least) in [*self._before.items()]:
            partition = node.partitions.get(key)
            if partition is None:
                continue
            del self._before[key]
            after = contents(partition.log)
            require_prefix(f"{key[0]}-{key[1]} on {self.name}", before, after, least)
            if after.end < before.end:
                self._world.counts["records lost in power failures"] += before.end - after.end

    def _require_all(self) -> None:
        """With a sound disk, every partition is there as soon as the node is. Errors: Violation."""
        if self._before and not self._disk_refuses:
            topic, index = next(iter(self._before))
            raise Violation("partition-lost", f"{topic}-{index} is gone from {self.name} after a restart")

    def crash(self) -> None:
        """Kill the process: its memory and connections are gone, its disk is as it was."""
        if self.node is None:
            return
        self._remember()
        self.node = None
        self._tell("is killed")
        self._drop_process(silently=False)

    def lose_power(self, chance: Random) -> None:
        """Everything not durable may be gone; clients hear nothing."""
        self._remember()
        self.node = None
        self.power_losses += 1
        self._before = {key: (log, min(least, log.flushed)) for key, (log, least) in self._before.items()}
        self._tell("loses power")
        self._drop_process(silently=True)
        self.disk.lose_power(chance)

    def stop(self) -> None:
        """A clean stop, as by SIGTERM."""
        if self.node is None or self.paused:
            return
        node = self.node
        self._remember()
        self._tell("stops cleanly")
        try:
            node.shut_down(self.now)
            for key in node.partitions:
                log, least = self._before[key]
                self._before[key] = (log._replace(flushed=log.end), least)
        except Exception as error:
            if not (self._disk_refuses and isinstance(error, OSError | StorageError | KafkaError)):
                raise Violation("node-failure", f"{self.name} failed in shut_down: {_where(error)}") from error
        self.node = None
        self._drop_process(silently=False)

    def _remember(self) -> None:
        """What every log holds at the end of a life: what the next life is held against."""
        if self.node is not None:
            for key, partition in self.node.partitions.items():
                log = contents(partition.log)
                self._before[key] = (log, log.end)

    def _drop_process(self, silently: bool) -> None:
        self.paused = False
        self._waiting = []
        self._timer += 1
        self._timer_at_us = None
        inboxes, self._inboxes = self._inboxes, {}
        self._ready.clear()
        for inbox in inboxes.values():
            if self._chance.random() < 0.5:
                inbox.connection.lose_what_is_under_way()
            inbox.connection.close_by_machine("the peer is gone", silently)

    def pause(self) -> None:
        if self.node is not None:
            self.paused = True
            self._tell("stands still")

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self._tell("goes on")
            waiting, self._waiting = self._waiting, []
            for action, arguments in waiting:
                action(*arguments)
            self._set_timer()

    def jump(self, amount_ms: int) -> None:
        """Move the wall clock; timers that are set run on, as an event loop's do."""
        self.clock_offset_ms += amount_ms
        self._tell(f"has its clock moved by {amount_ms} ms")

    # ---- connections

    def accept(self, connection: Connection) -> bool:
        """The kernel accepts for a process that stands still, too; without a process nobody does."""
        if self.node is None:
            return False
        self._inboxes[connection.id] = Inbox(connection)
        self._do(self._accepted, connection)
        return True

    def _accepted(self, connection: Connection) -> None:
        if self.node is not None and connection.id in self._inboxes:
            self._guard(self.node.connected, connection.id, "127.0.0.1", "PLAINTEXT")

    def on_bytes(self, connection: Connection, data: bytes) -> None:
        self._do(self._read, connection, data)

    def _read(self, connection: Connection, data: bytes) -> None:
        inbox = self._inboxes.get(connection.id)
        if inbox is not None:
            inbox.data += data
            self._ready.append(inbox)
            self._work()

    def on_closed_by_client(self, connection: Connection) -> None:
        self._do(self._closed, connection)

    def _closed(self, connection: Connection) -> None:
        if self._inboxes.pop(connection.id, None) is not None and self.node is not None:
            self._world.trace.note(f"{self.name} closed {connection.id}")
            self._guard(self.node.disconnected, connection.id)
            self._after_step()

    def _do(self, action: Callable[..., None], *arguments: Any) -> None:
        if self.paused:
            self._waiting.append((action, arguments))
        else:
            action(*arguments)

    # ---- requests and effects

    def _work(self) -> None:
        """Feed whole frames to the node, one of a connection at a time, until none is left that may be fed."""
        while self._ready:
            inbox = self._ready.popleft()
            frame = self._next_frame(inbox)
            if frame is None:
                continue
            inbox.busy = True
            self._world.counts["messages"] += 1
            node = self.node
            assert node is not None
            self.disk.now = self.now
            self._guard(node.receive, inbox.connection.id, frame, self.now)
            frame[:] = b"\xaa" * len(frame)
            self._after_step()

    def _next_frame(self, inbox: Inbox) -> bytearray | None:
        data = inbox.data
        if inbox.busy or len(data) < 4 or inbox.connection.id not in self._inboxes:
            return None
        end = 4 + int.from_bytes(data[:4], "big", signed=True)
        if len(data) < end:
            return None
        frame = data[4:end]
        del data[:end]
        trace = self._world.trace
        trace.note(f"{self.name} <- {inbox.connection.id} {fingerprint(frame)}")
        return frame

    def _after_step(self) -> None:
        """Carry out what the node wants, check what must hold, set the timer."""
        node = self.node
        if node is None:
            return
        self.watch.check(node)
        if self._before:
            self._compare_with_before(node)
        for effect in node.take_effects():
            inbox = self._inboxes.get(effect.connection)
            if isinstance(effect, Respond):
                if inbox is not None:
                    self._respond(inbox, effect)
                else:
                    _release(effect.parts)
            elif inbox is not None:
                del self._inboxes[effect.connection]
                self._world.trace.note(f"{self.name} closes {effect.connection}: {effect.reason}")
                self._world.counts["connections closed by the node"] += 1
                inbox.connection.close_by_machine(effect.reason)
                self._guard(node.disconnected, effect.connection)
        self._set_timer()

    def _respond(self, inbox: Inbox, effect: Respond) -> None:
        inbox.busy = False
        self._ready.append(inbox)
        if effect.parts is None:
            self._world.after(0, self._continue, self.lives)
            return
        delay = self._chance.randrange(10, MOST_ANSWER_DELAY_US)
        inbox.last_departure_us = max(inbox.last_departure_us + 1, self._world.now_us + delay)
        self._world.at(inbox.last_departure_us, self._depart, inbox, effect.parts, self.lives)
        self._world.after(0, self._continue, self.lives)

    def _continue(self, life: int) -> None:
        if life == self.lives and self.node is not None and not self.paused:
            self._work()

    def _depart(self, inbox: Inbox, parts: list[Any], life: int) -> None:
        """An answer leaves: only now the slices of files are read."""
        if life != self.lives or self.node is None:
            return
        if inbox.connection.id not in self._inboxes:
            _release(parts)
            return
        data = b"".join(part.read() if hasattr(part, "read") else bytes(part) for part in parts)
        _release(parts)
        self._world.trace.note(f"{self.name} -> {inbox.connection.id} {fingerprint(data)}")
        self._world.counts["messages"] += 1
        inbox.connection.answer(data)

    # ---- time

    def _set_timer(self) -> None:
        """Wake at the node's next deadline; a timer that is early enough stays."""
        node = self.node
        if node is None or self.paused:
            return
        delay_ms = max(0, self._guard(node.next_deadline) - self.now)
        if delay_ms == 0 and self._idle_ticks:
            delay_ms = 1
        at_us = self._world.now_us + delay_ms * MICROSECONDS_A_MS
        if self._timer_at_us is not None and self._timer_at_us <= at_us:
            return
        self._timer += 1
        self._timer_at_us = at_us
        self._world.at(at_us, self._on_timer, self._timer)

    def _on_timer(self, timer: int) -> None:
        if timer != self._timer or self.node is None:
            return
        self._timer_at_us = None
        if self.paused:
            return
        self.disk.now = self.now
        self._guard(self.node.tick, self.now)
        late = self._guard(self.node.next_deadline) <= self.now
        self._idle_ticks = self._idle_ticks + 1 if late else 0
        if self._idle_ticks > MAX_IDLE_TICKS and not self._disk_refuses:
            raise Violation("spinning", f"{self.name} ticked {self._idle_ticks} times and its deadline is still over")
        self._after_step()

    # ---- what is heard of the node

    def _guard(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call the node; whatever escapes from it would have ended its process."""
        try:
            return call(*arguments)
        except Violation:
            raise
        except Exception as error:
            raise Violation("node-failure", f"{self.name} failed in {call.__name__}: {_where(error)}") from error

    def _log(self, level: str, message: str) -> None:
        self._world.trace.note(f"{self.name} {level} {message}")
        if level != "info":
            self._tell(f"{level}: {message}")

    def _on_action(self, action: str, arguments: Any) -> None:
        self._world.counts[f"action {action}"] += 1

    def _tell(self, text: str) -> None:
        trace = self._world.trace
        if trace.keep:
            trace.tell(self.name, self.name, text)


def _release(parts: list[Any] | None) -> None:
    for part in parts or ():
        if not isinstance(part, memoryview) and hasattr(part, "release"):
            part.release()


def _where(error: BaseException) -> str:
    """An error and the innermost lines that it passed, in one text."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " <- ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__}: {error} [{places}]"


__all__ = ["EPOCH_MS", "Machine"]
