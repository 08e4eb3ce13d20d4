"""One simulated machine: a disk, a wall clock, and the node's process that lives and dies on it.

It does for the node what `reference.runtime` does in production: one request of a connection at a time, effects carried
out in order, lanes to its peers, a timer for the next deadline. And it is stricter: the bytes of a request are overwritten
as soon as the node has handled it, and a fetch's slices are read only when the answer leaves.
"""

from __future__ import annotations

import traceback
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Protocol, cast

from linearizability.simulation.invariants import LogRecord, Watch, contents, require_prefix
from linearizability.simulation.lanes import Addresses, LaneName, Lanes
from linearizability.simulation.network import Connection, Network, fingerprint
from linearizability.simulation.schedule import Schedule
from linearizability.simulation.speech import answer_in_words
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation, World
from reference.controller.image import Endpoint
from reference.node.effects import Close, HangUp, Respond, Send
from reference.node.identity import Identity
from reference.node.node import Node
from reference.protocol.errors import KafkaError
from reference.protocol.primitives import TimestampMs
from reference.replication.partition import Partition
from reference.runtime.clock import Clock
from reference.storage.disk import Disk, SimulatedDisk
from reference.storage.errors import StorageError

EPOCH_MS = 1_700_000_000_000
"""The wall clock at the beginning of every world."""

FOLDER = Path("/data")
MOST_ANSWER_DELAY_US = 300
NANOSECONDS_A_US = 1_000
NANOSECONDS_A_MS = 1_000_000
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
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",  # counted by the wall clock, which faults set back: then nothing is assigned
    "auto.create.topics.enable": "false",
}
"""The configuration of simulated nodes, below that of the schedule."""

CLUSTER_PROPERTIES = {
    "broker.session.timeout.ms": "600",
    "broker.heartbeat.interval.ms": "150",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "1100",
    "controller.quorum.request.timeout.ms": "800",
    "replica.lag.time.max.ms": "400",
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "250",
    "controlled.shutdown.retry.backoff.ms": "50",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": "2",
}
"""What several nodes have besides: everything that waits waits less, for a life is short.

A voter must wait for its leader longer than twice the 500 ms for which that holds a fetch: else idle clusters elect for ever.
"""

PLAINTEXT, CONTROLLER = "PLAINTEXT", "CONTROLLER"
PORTS = {PLAINTEXT: 9092, CONTROLLER: 9093}
"""Listeners of nodes that are several."""

STOP_WITHIN_MS = 1_000
"""After this time a clean stop goes on without the controller's leave."""


def host_of(number: int) -> str:
    return f"node-{number}"


def properties_of(schedule: Schedule, number: int) -> dict[str, str]:
    """The configuration of one node."""
    own = {"node.id": str(number)}
    if schedule.nodes > 1:
        voting = schedule.voters or schedule.node_ids
        voters = [f"{each}@{host_of(each)}:{PORTS[CONTROLLER]}" for each in voting]
        listeners = PORTS if number in voting else {PLAINTEXT: PORTS[PLAINTEXT]}
        own |= CLUSTER_PROPERTIES | {
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": CONTROLLER,
            "inter.broker.listener.name": PLAINTEXT,
            "process.roles": "broker,controller" if number in voting else "broker",
            "listeners": ",".join(f"{name}://{host_of(number)}:{port}" for name, port in listeners.items()),
            "default.replication.factor": str(schedule.replication_factor),
            "offsets.topic.replication.factor": str(schedule.replication_factor),
            "transaction.state.log.replication.factor": str(schedule.replication_factor),
            "transaction.state.log.min.isr": "2",
        }
    return PROPERTIES | own | schedule.properties


class Inbox:
    """The machine's end of a connection."""

    __slots__ = ("busy", "connection", "data", "last_departure_us")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.data = bytearray()
        self.busy = False
        self.last_departure_us = 0


class Witness(Protocol):
    """Who compares nodes with one another."""

    def on_change(self, number: int, partition: Partition) -> None:
        """A replica has changed in a step of its node. Errors: Violation."""
        ...

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """A step of the specification happens on a node. Errors: Violation."""
        ...

    def on_step(self, number: int, node: Node) -> None:
        """A node has made a step. Errors: Violation."""
        ...

    def on_end_of_life(self, number: int, is_clean: bool) -> None: ...

    def on_power_loss(self, number: int) -> None: ...


class Machine:
    """A node and what it runs on."""

    def __init__(
        self, world: World, number: int, schedule: Schedule, network: Network, addresses: Addresses,
        witness: Witness | None = None,
    ) -> None:  # fmt: skip
        self.number = number
        self.name = f"node {number}"
        self.disk = SimulatedDisk()
        self.node: Node | None = None
        self.lives = 0
        self.paused = False
        self.clock_offset_ms = 0
        self.power_losses = 0
        self._world = world
        self._is_alone = schedule.nodes == 1
        self._witness = witness
        self._properties = properties_of(schedule, number)
        self._clock = self._new_clock()
        self._lanes = Lanes(self, world, network, addresses)
        self._is_leaving = False
        self._starts_again = False
        """It was to start before its clean stop was over: it starts when that is."""
        self._chance = world.chance(f"machine/{number}")
        self.strangers: list[Connection] = []
        """Connections of an earlier life on which bytes came while nobody was there."""
        self._inboxes: dict[int, Inbox] = {}
        self._ready: deque[Inbox] = deque()
        self._waiting: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        """What happened to the process while it stood still."""
        self._timer = 0
        self._timer_at_us: int | None = None
        self._idle_ticks = 0
        retained = frozenset(topic.name for topic in schedule.topics if topic.retains)
        self.watch = Watch(self.name, retained, number, self._is_alone)
        self._last_actions: dict[str, str] = {}
        self._before: dict[tuple[str, int], tuple[LogRecord, int]] = {}
        """What each log held when its last life ended, and up to where it must still."""
        self._restart_ends: dict[str, int] = {}
        """Where each log ended when it was recovered."""
        self.disk.make_folder(FOLDER)
        self.disk.sync_folder(FOLDER.parent)

    @property
    def now(self) -> TimestampMs:
        """The time that the node is told."""
        return self._clock.now()

    def _new_clock(self) -> Clock:
        """The production's clock for one process, over this machine's."""
        return Clock(
            lambda: (EPOCH_MS + self.clock_offset_ms) * NANOSECONDS_A_MS + self._world.now_us * NANOSECONDS_A_US,
            lambda: self._world.now_us * NANOSECONDS_A_US,
        )

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def controller_epoch(self) -> int:
        """The epoch in which this node believes to be the active controller; -1 where it does not."""
        quorum = self.node.quorum if self.node is not None else None
        return quorum.epoch if quorum is not None and quorum.is_leader else -1

    # ---- life and death

    def start(self) -> None:
        """Start the process. With a disk that takes nothing it may fail and is tried again."""
        if self.node is not None:
            self._starts_again = self._is_leaving
            return
        self._starts_again = False
        self.lives += 1
        self._is_leaving = False
        self._clock = self._new_clock()
        world = self._world
        self.disk.now = self.now
        incarnation = uuid.UUID(int=self._chance.getrandbits(128), version=4)
        host = "127.0.0.1" if self._is_alone else host_of(self.number)
        endpoints = (Endpoint(PLAINTEXT, host, PORTS[PLAINTEXT]),)
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
        strangers, self.strangers = self.strangers, []
        for connection in strangers:
            connection.refuse_late()
        self._tell(f"starts, life {self.lives}")
        try:
            self._compare_with_before(node)
            self._require_all()
        except Violation as violation:
            self._world.broken(violation.rule, violation.text)
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
            if partition.topic_id != before.topic_id:
                continue
            after = contents(partition.log)
            recovered_end = self._restart_ends.pop(partition.name, after.end)
            if recovered_end >= least:
                least = 0  # A follower may have cut it since.
            after = after.up_to(recovered_end)  # A leader may have written markers since.
            require_prefix(f"{key[0]}-{key[1]} on {self.name}", before, after, least)
            if after.end < before.end:
                self._world.counts["records lost in power failures"] += before.end - after.end

    def _require_all(self) -> None:
        """With a sound disk, every partition of a node alone is there as soon as the node is. Errors: Violation."""
        if self._is_alone and self._before and not self._disk_refuses:
            topic, index = next(iter(self._before))
            raise Violation("partition-lost", f"{topic}-{index} is gone from {self.name} after a restart")

    def crash(self) -> None:
        """Kill the process: its memory and connections are gone, its disk is as it was."""
        if self.node is None:
            return
        self._world.counts["action Crash"] += 1
        self._remember()
        self.node = None
        self._tell("is killed")
        self._drop_process(silently=False)

    def lose_power(self, chance: Random) -> None:
        """Everything not durable may be gone; clients hear nothing."""
        self._remember()
        if self._witness is not None:
            self._witness.on_power_loss(self.number)
        self.node = None
        self.power_losses += 1
        self._before = {key: (log, min(least, log.flushed)) for key, (log, least) in self._before.items()}
        self._tell("loses power")
        self._drop_process(silently=True)
        self.disk.lose_power(chance)

    def stop(self) -> None:
        """A clean stop, as by SIGTERM: of several nodes, one asks leave first."""
        if self.node is None or self.paused or self._is_leaving:
            return
        if self._is_alone:
            self._shut_down(self.lives)
            return
        self._is_leaving = True
        self._tell("asks leave to stop")
        self._guard(self.node.leave, self.now, STOP_WITHIN_MS)
        self._after_step()

    def _shut_down(self, life: int) -> None:
        """The end of a clean stop."""
        node = self.node
        if node is None or life != self.lives:
            return
        self._remember(is_clean=not self._disk_refuses)
        self._tell("stops cleanly")
        try:
            node.shut_down(self.now)
            for key, (log, least) in self._before.items():
                if key in node.partitions:
                    self._before[key] = (log._replace(flushed=log.end), least)
        except Exception as error:
            if not (self._disk_refuses and isinstance(error, OSError | StorageError | KafkaError)):
                raise Violation("node-failure", f"{self.name} failed in shut_down: {_where(error)}") from error
        for effect in node.take_effects():
            if isinstance(effect, Send):
                self._lanes.send(effect)
        self.node = None
        self._drop_process(silently=False)
        if self._starts_again:
            self._world.after(0, self.start)

    def _remember(self, is_clean: bool = False) -> None:
        """What every log holds at the end of a life: what the next life is held against."""
        if self.node is not None:
            for key, partition in self.node.partitions.items():
                log = contents(partition.log)
                self._before[key] = (log, log.end)
            if self._witness is not None:
                self._witness.on_end_of_life(self.number, is_clean)

    def _drop_process(self, silently: bool) -> None:
        self.paused = False
        self._waiting = []
        self._timer += 1
        self._timer_at_us = None
        self._lanes.drop_all(silently)
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
            self._guard(self.node.connected, connection.id, "127.0.0.1", connection.listener)

    def on_bytes(self, connection: Connection, data: bytes) -> None:
        self._do(self._read, connection, data)

    def when_awake(self, action: Callable[..., None], *arguments: Any) -> None:
        """Let something happen to this life of the process: now, or when it goes on after a pause."""
        self._do(self._in_life, self.lives, action, arguments)

    def _in_life(self, life: int, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self.node is not None and life == self.lives:
            action(*arguments)

    def on_answer(self, lane: LaneName, frame: bytearray, question: str) -> None:
        """A peer has answered; `question` is its name, while the story is kept."""
        trace = self._world.trace
        trace.note(f"{self.name} <= {lane[0]}/{lane[1]} {fingerprint(frame)}")
        if trace.keep:
            trace.tell(f"node {lane[0]}", self.name, answer_in_words(question, frame))
        assert self.node is not None
        self.disk.now = self.now
        self._guard(self.node.answered, lane[0], lane[1], bytes(frame), self.now)
        self._after_step()

    def on_unreachable(self, lane: LaneName) -> None:
        """A connection to a peer could not be made, or was lost."""
        self._world.trace.note(f"{self.name} lost {lane[0]}/{lane[1]}")
        assert self.node is not None
        self.disk.now = self.now
        self._guard(self.node.unreachable, lane[0], lane[1], self.now)
        self._after_step()

    def _read(self, connection: Connection, data: bytes) -> None:
        inbox = self._inboxes.get(connection.id)
        if inbox is not None:
            inbox.data += data
            self._ready.append(inbox)
            self._work()

    @property
    def resets_strangers(self) -> bool:
        """Whether the kernel answers bytes of a connection that this life of the machine does not know."""
        return not self._is_alone and self.node is not None

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
        self._look_at(node)
        for effect in node.take_effects():
            self._carry_out(node, effect)
        if self._is_leaving and node.may_stop:
            self._is_leaving = False
            self._world.after(0, self._shut_down, self.lives)
        self._set_timer()

    def _look_at(self, node: Node) -> None:
        """Check what must hold after every step. Errors: Violation."""
        try:
            changed = self.watch.check(node)
            if self._witness is not None:
                for partition in changed:
                    self._witness.on_change(self.number, partition)
                self._witness.on_step(self.number, node)
            if self._before:
                self._compare_with_before(node)
        except Violation as violation:
            self._world.broken(violation.rule, violation.text)

    def _carry_out(self, node: Node, effect: Respond | Close | Send | HangUp) -> None:
        if isinstance(effect, Send):
            self._lanes.send(effect)
            return
        if isinstance(effect, HangUp):
            self._lanes.hang_up((effect.peer, effect.lane))
            return
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

    def _on_action(self, action: str, row: Mapping[str, Any]) -> None:
        if self._world.rows is not None:
            self._world.rows.append({"action": action, **row})
        counts = self._world.counts
        counts[f"action {action}"] += 1
        place = str(row.get("partition", ""))
        if action == "Restart":
            self._restart_ends[place] = row["leo"]
        if self._witness is None:
            return
        counts[f"pair {self._last_actions.get(place, 'Begin')} {action}"] += 1
        self._last_actions[place] = action
        try:
            self._witness.on_action(self.number, action, row)
        except Violation as violation:
            self._world.broken(violation.rule, violation.text)

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
