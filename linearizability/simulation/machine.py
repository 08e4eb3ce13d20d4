# pyright: reportPrivateUsage=false
"""One simulated machine: a disk, a wall clock, power, and the node's processes that run on it, one after the other."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Protocol

from linearizability.simulation.configuration import properties_of
from linearizability.simulation.coordinator_agreement import COORDINATED, COORDINATED_SAMPLED, require_replayed
from linearizability.simulation.invariants import Watch
from linearizability.simulation.log_agreement import CUTS, EVENTS, SAMPLED, require_agreement
from linearizability.simulation.network import Addresses, Network, SimulatedConnection
from linearizability.simulation.process import STOP_WITHIN_MS, Process, where
from linearizability.simulation.replica_agreement import ReplicaAgreement
from linearizability.simulation.schedule import Schedule
from linearizability.simulation.simulated_zookeeper import SimulatedZooKeeper
from linearizability.simulation.survival import Survival
from linearizability.simulation.voting import directory_id, format_with_voters, identity_of
from linearizability.simulation.watched_disk import WatchedDisk, remove_what_is_twice
from linearizability.simulation.world import MICROSECONDS_A_MS, Killed, Violation, World
from reference.node.node import Node
from reference.node.zookeeper.node import ZooKeeperNode
from reference.protocol.errors import KafkaError
from reference.protocol.primitives import TimestampMs
from reference.replication.partition import Partition
from reference.runtime.clock import Clock
from reference.storage.errors import CorruptFile, LogError, StorageError
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk

EPOCH_MS = 1_700_000_000_000
"""The wall clock at the beginning of every world."""

FOLDER = Path("/data")
NANOSECONDS_A_US = 1_000
NANOSECONDS_A_MS = 1_000_000
RESTART_AGAIN_MS = 100


class Checker(Protocol):
    """Compares nodes with one another."""

    def on_change(self, number: int, partition: Partition) -> None:
        """Called when a step has changed a replica. Errors: Violation."""
        ...

    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """Called at each step of the specification on a node. Errors: Violation."""
        ...

    def on_step(self, number: int, node: Node) -> None:
        """Called after each step of a node. Errors: Violation."""
        ...

    def on_kill_in_step(self, node: Node) -> None: ...

    def on_process_end(self, number: int, is_clean: bool) -> None: ...

    def on_power_loss(self, number: int) -> None: ...


class Machine:
    """A machine that runs one node."""

    def __init__(
        self,
        world: World,
        number: int,
        schedule: Schedule,
        network: Network,
        addresses: Addresses,
        checker: Checker | None = None,
        zookeeper: SimulatedZooKeeper | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self.number = number
        self.name = f"node {number}"
        self.disks = [WatchedDisk(self._on_checkpoint, self._before_change) for _ in range(schedule.log_directories)]
        self.disk = self.disks[0]
        self.process: Process | None = None
        self.incarnations = 0
        self.clock_offset_ms = 0
        self._ahead_ms = 0
        """How far this machine's time is ahead of the world's."""
        self.power_losses = 0
        self._world = world
        self._network = network
        self._addresses = addresses
        self._is_alone = schedule.nodes == 1
        self._checker = checker
        self._schedule = schedule
        self._properties = properties_of(schedule, number)
        self._clock = self._new_clock()
        self._chance = world.chance(f"machine/{number}")
        retained = frozenset(topic.name for topic in (*schedule.topics, *schedule.compacted) if topic.retains)
        self._survival = Survival(self.name, world, retained, {topic.name for topic in schedule.compacted})
        self.dies_at_change = 0
        """The process ends before so many changes of its disks in one step are made; 0 for never."""
        self._changes_in_step = 0
        self._starts_again = False
        """It was to start before its clean stop was over: it starts when that is."""
        self._strangers: list[SimulatedConnection] = []
        """Connections of an earlier incarnation on which bytes came while no process ran."""
        self.watch = Watch(self.name, retained, number, self._is_alone)
        self._last_actions: dict[str, str] = {}
        self._to_compare: dict[str, bool] = {}
        """Replicas whose logs are to be compared with what they keep beside their batches, and whether they were cut."""
        self._changes = self._coordinated = 0
        self._replicas = ReplicaAgreement(self.name, follows_image=zookeeper is None)
        self._judged: Node | None = None
        """The node whose checkpoints are judged: the last that has started."""
        self._lost_directory = False
        """Its last log directory has failed since it was started."""
        for disk in self.disks:
            disk.make_folder(FOLDER)
            disk.sync_folder(FOLDER.parent)
        format_with_voters(schedule, number, self.disk, FOLDER, self.look_at_clock())

    @property
    def node(self) -> Node | None:
        """The running node, if there is one."""
        return self.process.node if self.process is not None else None

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @property
    def controller_epoch(self) -> int:
        """The epoch in which this node believes to be the active controller; -1 where it does not."""
        return self.process.node.controller_epoch if self.process is not None else -1

    # ---- the clock

    def _new_clock(self) -> Clock:
        """Return production's clock for one process, on top of this machine's."""
        return Clock(
            lambda: (EPOCH_MS + self.clock_offset_ms) * NANOSECONDS_A_MS + self._world.now_us * NANOSECONDS_A_US,
            lambda: self._ahead_ms * NANOSECONDS_A_MS + self._world.now_us * NANOSECONDS_A_US,
        )

    def look_at_clock(self) -> TimestampMs:
        """The time of the step that begins: the node's, and its disk's."""
        now = self._clock.now()
        self._changes_in_step = 0
        for disk in self.disks:
            disk.now = now
        return now

    def jump(self, amount_ms: int) -> None:
        """Move the wall clock; timers that are set run on, as an event loop's do."""
        self.clock_offset_ms += amount_ms
        self._log_event(f"has its clock moved by {amount_ms} ms")

    def run_ahead(self, amount_ms: int) -> None:
        """Move this machine's time ahead of the world's: timers fire at once."""
        self.clock_offset_ms += amount_ms
        self._ahead_ms += amount_ms
        self._log_event(f"runs ahead by {amount_ms} ms")
        if self.process is not None:
            self.process.look_at_timer()

    # ---- processes

    def start(self) -> None:
        """Start the process. With a disk that takes nothing it may fail and is tried again."""
        if self.process is not None:
            self._starts_again = self.process.is_leaving
            return
        self._starts_again = False
        self.incarnations += 1
        self._clock = self._new_clock()
        self._replicas.begin_process()
        self._judged = None
        node = self._new_node()
        if node is None:
            self._world.after(RESTART_AGAIN_MS * MICROSECONDS_A_MS, self.start)
            return
        self._world.trace.note(f"{self.name} incarnation {self.incarnations}")
        self._judged = node
        self.process = Process(self, node, self._world, self._network, self._addresses, self._chance, self._zookeeper)
        strangers, self._strangers = self._strangers, []
        for connection in strangers:
            connection.refuse_late()
        self._log_event(f"starts, incarnation {self.incarnations}")
        try:
            self._survival.compare(node)
            self._require_all()
        except Violation as violation:
            self._world.broken(violation.rule, violation.text)
        self.watch.forget()
        self.process.after_step()

    def _new_node(self) -> Node | None:
        """Return a node that has loaded the disk; None if the disk refuses. Errors: Violation."""
        now = self.look_at_clock()
        for disk in self.disks:
            disk.failure = None
        for disk in self.disks[1:]:
            disk.read_only = False
        incarnation = uuid.UUID(int=self._chance.getrandbits(128), version=4)
        identity = identity_of(self._schedule, self.number, incarnation)
        chance = self._world.chance(f"life/{self.number}/{self.incarnations}")
        directory_was_lost, self._lost_directory = self._lost_directory, False
        try:
            directories = [
                LogDirectory(disk, FOLDER, self._log, directory_id(self.number, slot))
                for slot, disk in enumerate(self.disks)
            ]
            kind = ZooKeeperNode if self._zookeeper is not None else Node
            return kind(
                identity,
                self._properties,
                LogManager(directories, say=self._log),
                chance,
                now,
                log=self._log,
                tracer=self._on_action,
            )
        except (OSError, StorageError, KafkaError) as error:
            if not self.disk_refuses:
                raise Violation("no-restart", f"{self.name} cannot start: {error!r}") from error
            self._world.trace.note(f"{self.name} cannot start: {type(error).__name__}")
            return None
        except Violation:
            raise
        except Exception as error:
            if directory_was_lost and isinstance(error, CorruptFile) and self._remove_what_is_twice():
                return self._new_node()
            raise Violation("no-restart", f"{self.name} cannot start: {where(error)}") from error

    def _remove_what_is_twice(self) -> bool:
        names = remove_what_is_twice(self.disks, FOLDER)
        for name in names:
            self._log_event(f"{name} is removed from its last log directory by an operator")
        self._world.counts["partitions in two directories"] += len(names)
        return bool(names)

    @property
    def disk_refuses(self) -> bool:
        """Whether the disk is full, read-only or does not flush, so that a node may fail."""
        return self.disk.read_only or self.disk.flushes_fail or self.disk.capacity_bytes is not None

    def _require_all(self) -> None:
        """With a sound disk, a node alone has every partition when it starts, but in small portions. Errors: Violation."""
        if self._is_alone and self._survival and not self.disk_refuses and not self._schedule.small_portions:
            topic, index = self._survival.first
            raise Violation("partition-lost", f"{topic}-{index} is gone from {self.name} after a restart")

    # ---- death

    def crash(self) -> None:
        """Kill the process: its memory and connections are gone, its disk is as it was."""
        process = self.process
        if process is not None:
            self._world.counts["action Crash"] += 1
            self._end_process(process)
            self._log_event("is killed")
            process.die(silently=False)

    def _before_change(self) -> None:
        """A disk is about to change. Errors: Killed."""
        if self.dies_at_change:
            self._changes_in_step += 1
            if self._changes_in_step >= self.dies_at_change:
                self.dies_at_change = 0
                raise Killed(self._die_in_step)

    def _die_in_step(self) -> None:
        """The process is killed in the middle of a step, perhaps as it starts or stops; its supervisor starts it again."""
        self._world.counts["process killed in a step"] += 1
        process, self.process = self.process, None
        self._log_event("is killed in the middle of a step")
        if process is not None:
            self._survival.remember(process.node, in_step=True)
            if self._checker is not None:
                self._checker.on_kill_in_step(process.node)
                self._checker.on_process_end(self.number, False)
            process.die(silently=False)
        self._world.after(RESTART_AGAIN_MS * MICROSECONDS_A_MS, self.start)

    def fail(self, process: Process) -> None:
        """The process ends by itself, for its disk has failed; its supervisor starts it again. Errors: Violation."""
        if process is not self.process:
            return
        if not self.disk_refuses:
            raise Violation("node-failure", f"{self.name} ended on a sound disk: {process.node.failure}")
        self._world.counts["action Crash"] += 1
        self._end_process(process)
        self._log_event(f"ends: {process.node.failure}")
        process.die(silently=False)
        self._world.after(RESTART_AGAIN_MS * MICROSECONDS_A_MS, self.start)

    def lose_power(self, chance: Random, in_any_order: bool = False) -> None:
        """Everything not durable may be gone; clients receive nothing."""
        process = self.process
        if process is not None:
            self._end_process(process)
        if self._checker is not None:
            self._checker.on_power_loss(self.number)
        self.power_losses += 1
        self._survival.power_was_lost()
        self._log_event("loses power")
        if process is not None:
            process.die(silently=True)
        for disk in self.disks:
            disk.lose_power(chance, in_any_order)

    def lose_directory(self) -> None:
        """Let the last log directory fail. The node goes on without it; its contents are compared at the next start."""
        if self.process is None or len(self.disks) == 1:
            return
        self._survival.remember(self.process.node, self.disks[-1])
        self.disks[-1].failure = OSError(errno.EIO, "the simulated disk is broken")
        self._lost_directory = True
        self.disks[-1].read_only = True  # a process that stands still finds out when it writes
        self._log_event("loses its last log directory")
        self.process.look_at_failure()

    def move(self, key: tuple[str, int], slot: int) -> None:
        """Move a replica to another log directory, if it is here and both work."""
        node = self.node
        partition = node.partitions.get(key) if node is not None else None
        if node is None or partition is None or len(node.logs.live) < len(self.disks):
            return
        self._log_event(f"moves {key[0]}-{key[1]} to its log directory {slot}")
        assert self.process is not None
        with suppress(LogError, CorruptFile):  # as the request is refused then
            node.moves.begin(partition, node.logs.directories[slot % len(self.disks)], self.look_at_clock())
        self.process.look_at_timer()

    def start_first(self, dies_at_change: int) -> None:
        """Start the first process, which is killed before so many changes of its disks."""
        self.dies_at_change = dies_at_change
        self.start()
        self.dies_at_change = 0

    def stop(self, within_ms: int = STOP_WITHIN_MS) -> None:
        """Stop cleanly, as by SIGTERM. One of several nodes first asks the controller, and stops anyway after `within_ms`."""
        process = self.process
        if process is None or process.stands_still or process.is_leaving:
            return
        if self._is_alone:
            self.shut_down(process)
        else:
            self._log_event("asks leave to stop")
            process.leave(within_ms)

    def shut_down(self, process: Process) -> None:
        """The end of a clean stop, if the process still runs. Errors: Violation."""
        if process is not self.process:
            return
        self._end_process(process, is_clean=not self.disk_refuses)
        self._log_event("stops cleanly")
        try:
            process.node.shut_down(self.look_at_clock())
            self._survival.all_was_flushed(process.node)
        except Killed:
            process.die(silently=False)
            raise
        except Violation:
            raise
        except Exception as error:
            if not (self.disk_refuses and isinstance(error, OSError | StorageError | KafkaError)):
                raise Violation("node-failure", f"{self.name} failed in shut_down: {where(error)}") from error
        process.say_farewell()
        process.die(silently=False)
        if self._starts_again:
            self._world.after(0, self.start)

    def _end_process(self, process: Process, is_clean: bool = False) -> None:
        """End the process, and remember the contents of its logs for the next one."""
        self.process = None
        self._survival.remember(process.node)
        if self._checker is not None:
            self._checker.on_process_end(self.number, is_clean)

    def pause(self) -> None:
        if self.process is not None:
            self.process.pause()
            self._log_event("stands still")

    def resume(self) -> None:
        if self.process is not None and self.process.stands_still:
            self._log_event("goes on")
            self.process.resume()

    def send_what_is_late(self) -> None:
        if self.process is not None:
            self.process.send_what_is_late()

    # ---- connections

    def accept(self, connection: SimulatedConnection) -> bool:
        """A client or a peer connects; without a process it is refused."""
        if self.process is None:
            return False
        self.process.accept(connection)
        return True

    def on_bytes(self, connection: SimulatedConnection, data: bytes) -> None:
        """Bytes for the present process have come."""
        if self.process is not None:
            self.process.on_bytes(connection, data)

    def on_stranger(self, connection: SimulatedConnection) -> bool:
        """Bytes have come of a connection that the present process does not know; whether the machine resets it now."""
        if not self._is_alone and self.process is not None:
            return True
        self._strangers.append(connection)
        return False

    def on_closed_by_client(self, connection: SimulatedConnection) -> None:
        """The peer has closed the connection."""
        if self.process is not None:
            self.process.on_closed_by_client(connection)

    # ---- what the node shows

    def look_at(self, node: Node) -> None:
        """Check what must hold after every step. Errors: Violation."""
        try:
            changed = self.watch.check(node)
            if self._checker is not None:
                for partition in changed:
                    self._checker.on_change(self.number, partition)
                self._checker.on_step(self.number, node)
            self._replicas.look_at(node, self.disk.now)
            if self._survival:
                self._survival.compare(node)
            self._changes += len(changed)
            self._sample_coordinators(changed)
            if self._changes >= SAMPLED:
                self._changes = 0
                self._to_compare.setdefault(changed[-1].name, False)
            if self._to_compare:
                self._compare_logs(node)
        except Violation as violation:
            self._world.broken(violation.rule, violation.text)

    def _sample_coordinators(self, changed: Iterable[Partition]) -> None:
        for partition in changed:
            if partition.topic in COORDINATED:
                self._coordinated += 1
                if self._coordinated % COORDINATED_SAMPLED == 0:
                    self._to_compare.setdefault(partition.name, False)

    def _on_checkpoint(self, disk: SimulatedDisk, name: str, data: bytes) -> None:
        if self._judged is not None:
            self._survival.checkpoint_written(self._judged, disk, name, data)

    def _compare_logs(self, node: Node) -> None:
        """Errors: Violation."""
        due, self._to_compare = self._to_compare, {}
        for name, is_cut in due.items():
            topic, _, index = name.rpartition("-")
            partition = node.partitions.get((topic, int(index)))
            if partition is not None and not node.is_broken:
                require_agreement(f"{name} on {self.name}", partition.log, is_cut, partition.log.config.compacts)
                if topic in COORDINATED:
                    require_replayed(f"{name} on {self.name}", node, partition)

    def _log(self, level: str, message: str) -> None:
        self._world.trace.note(f"{self.name} {level} {message}")
        if level != "info":
            self._log_event(f"{level}: {message}")

    def _on_action(self, action: str, row: Mapping[str, Any]) -> None:
        if self._world.rows is not None:
            self._world.rows.append({"action": action, **row})
        counts = self._world.counts
        counts[f"action {action}"] += 1
        place = str(row.get("partition", ""))
        if action in EVENTS:
            self._to_compare[place] = action in CUTS or self._to_compare.get(place, False)
        if action == "GiveUpReplica":
            self._survival.given_up([place])
        if action == "Restart":
            self._survival.recovered(place, row["leo"], row.get("hw", row["leo"]))
        if self._checker is None:
            return
        counts[f"pair {self._last_actions.get(place, 'Begin')} {action}"] += 1
        self._last_actions[place] = action
        try:
            self._checker.on_action(self.number, action, row)
        except Violation as violation:
            self._world.broken(violation.rule, violation.text)

    def _log_event(self, text: str) -> None:
        trace = self._world.trace
        if trace.keep:
            trace.log_event(self.name, self.name, text)
