"""A small world of quorum members: one clock, one queue, disks that forget, a network that does what networks do.

A incarnation is drawn from a seed: members append, fetch, vote, write snapshots; they crash (with and without loss of power, also
in the middle of a step), stop for a while and go on, lose and double and delay messages, and are cut off in one direction or
both. After every step what Raft promises is checked. At the end all heals, and within a bound a new record is everywhere.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from reference.controller.quorum import Quorum
from reference.controller.quorum_settings import QuorumSettings
from reference.controller.quorum_state import QuorumState
from reference.protocol.codec import decode, encode
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.vote import VoteRequest
from reference.protocol.records.batch import read_batches, records_of
from reference.protocol.schema import Message
from reference.storage.config import LogConfig
from reference.storage.disk import SimulatedDisk
from reference.storage.log_directory import METADATA_TOPIC, METADATA_TOPIC_ID, LogDirectory

CLUSTER = "a-cluster"
FOLDER = Path("/data")
LOG_CONFIG = LogConfig(retention_ms=-1, max_message_bytes=1 << 20, segment_bytes=1500, segment_index_bytes=240)
RUN_MS = 2500
"""How long faults go on."""
STORM_MS = 700
HEALING_MS = 10_000
"""How long a healed world may need to commit a record everywhere."""

Key = tuple[int, int]
"""Offset and epoch of a record: what Raft knows it by."""


class Violation(AssertionError):
    """A promise that was broken."""


class PowerLost(BaseException):
    """The power goes in the middle of a step."""


class FusedDisk(SimulatedDisk):
    """A disk whose power may go between two of its operations."""

    def __init__(self) -> None:
        super().__init__()
        self.fuse: int | None = None

    def _burn(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                self.fuse = None
                raise PowerLost

    def change(self, inode: Any, change: Any) -> None:
        self._burn()
        super().change(inode, change)

    def flush(self, inode: Any) -> None:
        self._burn()
        super().flush(inode)

    def rename(self, path: Path, to: Path) -> None:
        self._burn()
        super().rename(path, to)

    def sync_folder(self, path: Path) -> None:
        self._burn()
        super().sync_folder(path)


class Member:
    """One process and its disk."""

    def __init__(self, world: World, id: int) -> None:
        self.world = world
        self.id = id
        self.disk = FusedDisk()
        self.disk.make_folder(FOLDER)
        self.disk.sync_folder(FOLDER.parent)
        self.quorum: Quorum | None = None
        self.incarnation = 0
        self.paused_until = 0
        self.epoch = 0
        """The largest epoch that it ever had, in any of its lives."""
        self.was_leader_of = -1
        self.promised = (QuorumState(), 0)
        self.sayings: list[str] = []
        self._wake_at = -1
        self._forget()

    def _forget(self) -> None:
        self.applied = 0
        self.names: list[str] = []
        self.high_watermark = 0
        self.verified: Key = (0, -1)
        """Up to where the log was walked, and the epoch of the record before."""

    @property
    def is_up(self) -> bool:
        return self.quorum is not None

    def start(self) -> None:
        """Start on what the disk has."""
        self.incarnation += 1
        self.disk.read_only = False
        self._wake_at = -1
        self._forget()
        world = self.world
        logs = LogDirectory(self.disk, FOLDER)
        logs.load(world.now)
        log = logs.get_or_create(METADATA_TOPIC, 0, METADATA_TOPIC_ID, LOG_CONFIG, world.now)
        self.logs = logs
        self.quorum = Quorum(
            self.id, CLUSTER, world.settings, self.disk, log, world.chance, world.now,
            say=lambda level, message: self.sayings.append(f"{world.now} {level}: {message}"),
        )  # fmt: skip

    def stop(self, *, power: bool) -> None:
        """The process is gone; with the power, also what was not flushed."""
        self.quorum = None
        self.disk.fuse = None
        self.disk.read_only = False
        if power:
            self.disk.lose_power(self.world.chance)


class World:
    """Members, time, messages, and what is known of all of them together."""

    def __init__(self, seed: int, voters: int = 3, observers: int = 1, *, storm: bool = False) -> None:
        """With `storm` an incarnation is short and all elections: members crash when they have just promised something."""
        self.chance = Random(seed)
        self.now = 1_000_000
        chance = self.chance
        self.storm = storm
        self.settings = QuorumSettings(
            tuple(range(voters)), election_timeout_ms=25 if storm else chance.choice((25, 100)), fetch_timeout_ms=50 if storm else 200,
            request_timeout_ms=60 if storm else 150, retry_backoff_ms=10, election_backoff_max_ms=100, fetch_max_wait_ms=60,
            fetch_max_bytes=1 if storm else chance.choice((1, 400)), snapshot_chunk_bytes=300, retention_bytes=1500,
        )  # fmt: skip
        self.most_latency_ms = chance.choice((10, 30)) if storm else chance.choice((4, 12, 40))
        self.promise_crashes = 0.4 if storm else chance.choice((0, 0.1))
        """How often a member crashes right after it has stored an epoch, a vote or a leader."""
        self.members = [Member(self, id) for id in range(voters + observers)]
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.02
        self.leaders: dict[int, int] = {}
        self.entries: dict[Key, tuple[str | None, Key | None]] = {}
        """Of each record ever seen: its content, and the record before it."""
        self.truth: list[tuple[int, str | None]] = []
        """Epoch and content of each committed record, by offset."""
        self.committed_in: list[int] = []
        """The epoch of the leader that committed it, by offset."""
        self.is_hurting = False
        self.snapshots = 0
        self.installed = 0
        self.steps = 0
        self._names = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        for member in self.members:
            self.start(member)

    # ---- time

    def at(self, time: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (time, self._number, action))

    def run_until(self, end: int, done: Callable[[], bool] = lambda: False) -> None:
        while self._queue and self._queue[0][0] <= end and not done():
            time, _, action = heapq.heappop(self._queue)
            self.now = max(self.now, time)
            self.steps += 1
            action()
        self.now = max(self.now, end) if not done() else self.now

    # ---- members

    def start(self, member: Member) -> None:
        if not member.is_up:
            self.step(member, lambda quorum: None, starting=True)

    def crash(self, member: Member, *, power: bool) -> None:
        if member.is_up:
            member.stop(power=power)
            self._come_back(member)

    def _come_back(self, member: Member) -> None:
        """Sooner or later: soon enough to meet the election in which it went, or too late for it."""
        most = 8 if self.storm else 30 if self.chance.random() < 0.5 else 400
        self.at(self.now + self.chance.randrange(2, most), lambda: self.start(member))

    def step(self, member: Member, action: Callable[[Quorum], None], *, starting: bool = False) -> None:
        """One step of a member: it may end its incarnation; its messages go out; what it shows is checked."""
        try:
            if starting:
                member.start()
            if member.quorum is None:
                return
            action(member.quorum)
            self._check(member)
        except PowerLost:
            member.stop(power=True)
            self._come_back(member)
            return
        quorum = member.quorum
        for peer, request in quorum.take_sends():
            self._send(member, peer, request)
        for token, answer in quorum.take_answers():
            assert callable(token)
            token(answer)
        if quorum.is_broken:
            self.crash(member, power=False)
            return
        if self._has_promised(member, quorum) and self.chance.random() < self.promise_crashes:
            self.crash(member, power=True)
            return
        deadline = quorum.next_deadline()
        if deadline is not None and deadline != member._wake_at:
            member._wake_at = deadline
            incarnation = member.incarnation
            self.at(max(deadline, self.now + 1), lambda: self._wake(member, incarnation, deadline))

    def _has_promised(self, member: Member, quorum: Quorum) -> bool:
        """Whether the step has stored an epoch or vote, or (in a storm) committed: a crash now shows if that is kept."""
        promised = (quorum._stored, quorum.high_watermark if self.storm and quorum.is_leader else 0)
        before, member.promised = member.promised, promised
        return self.is_hurting and promised != before

    def _wake(self, member: Member, incarnation: int, deadline: int) -> None:
        if member.incarnation != incarnation or member._wake_at != deadline:
            return
        member._wake_at = -1
        if member.paused_until > self.now:
            self.at(member.paused_until, lambda: self._tick(member, incarnation))
        else:
            self._tick(member, incarnation)

    def _tick(self, member: Member, incarnation: int) -> None:
        if member.incarnation == incarnation and member.is_up:
            self.step(member, lambda quorum: quorum.tick(self.now))

    # ---- messages

    def _arrivals(self, sender: int, receiver: int) -> list[int]:
        """When a message arrives: never, once, or twice."""
        if (sender, receiver) in self.cut or self.chance.random() < self.loss:
            return []
        copies = 2 if self.chance.random() < self.loss else 1
        late = 150 if self.chance.random() < self.loss else self.most_latency_ms
        return [self.now + self.chance.randrange(1, late) for _ in range(copies)]

    def _send(self, member: Member, peer: int, request: Message) -> None:
        incarnation = member.incarnation
        arrivals = self._arrivals(member.id, peer)
        for time in arrivals:
            self.at(time, lambda: self._arrive(member, incarnation, self.members[peer], request))
        if not arrivals and self.chance.random() < 0.5:
            self.at(self.now + 15, lambda: self._fail(member, incarnation, peer, request))

    def _fail(self, member: Member, incarnation: int, peer: int, request: Message) -> None:
        if member.incarnation == incarnation and member.is_up:
            self.step(member, lambda quorum: quorum.unreachable(peer, request, self.now))

    def _arrive(self, sender: Member, incarnation: int, member: Member, request: Message) -> None:
        if member.paused_until > self.now:
            self.at(member.paused_until, lambda: self._arrive(sender, incarnation, member, request))
            return
        if not member.is_up:
            self.at(self.now + 2, lambda: self._fail(sender, incarnation, member.id, request))
            return
        body = copied(request)

        def answer(response: Message) -> None:
            for time in self._arrivals(member.id, sender.id):
                self.at(time, lambda: self._arrive_back(sender, incarnation, member.id, request, response))

        def handle(quorum: Quorum) -> None:
            match body:
                case VoteRequest():
                    answer(quorum.handle_vote(body, self.now))
                case BeginQuorumEpochRequest():
                    answer(quorum.handle_begin_quorum_epoch(body, self.now))
                case EndQuorumEpochRequest():
                    answer(quorum.handle_end_quorum_epoch(body, self.now))
                case FetchRequest():
                    quorum.handle_fetch(body, answer, self.now)
                case FetchSnapshotRequest():
                    answer(quorum.handle_fetch_snapshot(body, self.now))
                case _:
                    raise AssertionError(body)

        self.step(member, handle)

    def _arrive_back(self, member: Member, incarnation: int, peer: int, request: Message, response: Message) -> None:
        if member.incarnation != incarnation or not member.is_up:
            return
        if member.paused_until > self.now:
            self.at(member.paused_until, lambda: self._arrive_back(member, incarnation, peer, request, response))
            return
        self.step(member, lambda quorum: quorum.receive(peer, request, copied(response), self.now))

    # ---- work

    def append(self) -> None:
        """Whoever takes itself for the ready leader appends a decision of one to three records."""
        ready = [member for member in self.members if member.quorum is not None and member.quorum.is_ready]
        if not ready:
            return
        member = self.chance.choice(ready)
        if member.paused_until > self.now:
            return
        records: list[Message] = []
        for _ in range(self.chance.randrange(1, 4)):
            self._names += 1
            records.append(TopicRecord(name=f"t{self._names}", topic_id=UUID(int=self._names)))

        def act(quorum: Quorum) -> None:
            if not member.disk.read_only:
                quorum.append(records, self.now)

        self.step(member, act)

    def write_snapshot(self, member: Member) -> None:
        """A member replaces what it has applied by a snapshot."""

        def act(quorum: Quorum) -> None:
            end, names = self.snapshot_point(member, quorum)
            records = [TopicRecord(name=name, topic_id=UUID(int=int(name[1:]))) for name in names]
            if not member.disk.read_only and quorum.write_snapshot(end, records, self.now) is not None:
                self.snapshots += 1

        if member.is_up and member.paused_until <= self.now:
            self.step(member, act)

    def snapshot_point(self, member: Member, quorum: Quorum) -> tuple[int, list[str]]:
        """Up to where a member writes a snapshot, and of what."""
        return member.applied, member.names

    # ---- faults

    def hurt(self) -> None:
        """One fault, or a bit of luck."""
        chance = self.chance
        member = chance.choice(self.members)
        match chance.choice((0, 5, 6)) if self.storm else chance.randrange(0, 9):
            case 0:
                self.crash(member, power=True)
            case 1:
                self.crash(member, power=False)
            case 2:
                member.disk.fuse = chance.randrange(1, 40)
            case 3:
                member.paused_until = self.now + chance.randrange(50, 500)
            case 4:
                self.cut = {(member.id, other.id) for other in self.members}
            case 5:
                self.cut = {pair for o in self.members for pair in ((member.id, o.id), (o.id, member.id))}
            case 6:
                self.cut = set()
            case 7:
                self.loss = chance.choice((0.0, 0.02, 0.1, 0.3))
            case _:
                self._stop_writes(member)

    def _stop_writes(self, member: Member) -> None:
        member.disk.read_only = True
        self.at(self.now + self.chance.randrange(20, 200), lambda: setattr(member.disk, "read_only", False))

    def heal(self) -> None:
        self.cut, self.loss, self.is_hurting = set(), 0.0, False
        for member in self.members:
            member.paused_until = 0
            member.disk.fuse = None
            member.disk.read_only = False
            self.start(member)

    def live(self) -> None:
        """A whole incarnation. Errors: Violation."""
        end = self.now + (STORM_MS if self.storm else RUN_MS)
        time = self.now
        self.is_hurting = True
        while (time := time + self.chance.randrange(5, 60)) < end:
            match self.chance.randrange(0, 8):
                case 0 | 1:
                    self.at(time, self.hurt)
                case 2:
                    self.at(time, lambda: self.write_snapshot(self.chance.choice(self.members)))
                case _:
                    self.at(time, self.append)
        self.run_until(end)
        if not self.storm:
            self._see_progress()

    def _see_progress(self) -> None:
        self.heal()
        # A process that was to come back has come back: later starts find it up.
        end = self.now + HEALING_MS
        before = len(self.truth)
        for time in range(self.now + 100, end, 100):
            self.at(time, lambda: self.append() if len(self.truth) <= before + 3 else None)

        def done() -> bool:
            return len(self.truth) > before + 3 and all(each.applied == len(self.truth) for each in self.members)

        self.run_until(end, done)
        if not done():
            raise Violation(f"no progress: {[self._described(member) for member in self.members]}")

    def _described(self, member: Member) -> str:
        quorum = member.quorum
        if quorum is None:
            return f"{member.id} down"
        return (
            f"{member.id} {quorum.role.value} epoch {quorum.epoch} leader {quorum.leader} "
            f"log {quorum.log_start_offset}-{quorum.log_end_offset} hw {quorum.high_watermark} {member.sayings[-1:]}"
        )

    # ---- promises

    def _check(self, member: Member) -> None:
        quorum = member.quorum
        assert quorum is not None
        if quorum.is_broken:
            return
        self._check_epoch(member, quorum)
        self._check_log(member, quorum)
        self._check_committed(member, quorum)
        if quorum.is_leader and member.was_leader_of != quorum.epoch:
            member.was_leader_of = quorum.epoch
            self._check_completeness(member, quorum)

    def _check_epoch(self, member: Member, quorum: Quorum) -> None:
        if quorum.epoch < member.epoch:
            raise Violation(f"member {member.id} goes back from epoch {member.epoch} to {quorum.epoch}")
        member.epoch = quorum.epoch
        if quorum.is_leader and self.leaders.setdefault(quorum.epoch, member.id) != member.id:
            raise Violation(f"members {self.leaders[quorum.epoch]} and {member.id} both lead epoch {quorum.epoch}")
        if not quorum.log_start_offset <= quorum.high_watermark <= quorum.log_end_offset:
            raise Violation(f"the high watermark is not in the log: {self._described(member)}")

    def _check_log(self, member: Member, quorum: Quorum) -> None:
        """Log matching: one content and one predecessor for each (offset, epoch)."""
        log = quorum._log.log
        end, epoch = member.verified
        if not (log.log_start_offset <= end <= log.log_end_offset and (end == 0 or log.epoch_at(end - 1) == epoch)):
            end, epoch = log.log_start_offset, -1
        while end < log.log_end_offset:
            data = quorum._log.read(end, 1 << 20)
            for batch in read_batches(data):
                for record in records_of(batch.data):
                    if record.offset < end:
                        continue
                    key = (record.offset, batch.header.leader_epoch)
                    content = None if batch.header.is_control else name_of(record.value or b"")
                    before = (end - 1, epoch) if epoch >= 0 else None
                    self._enter(member, key, content, before)
                    if log.epoch_at(record.offset) != key[1]:
                        raise Violation(f"member {member.id} takes the epoch of record {key} for another")
                    end, epoch = record.offset + 1, key[1]
        member.verified = (end, epoch)

    def _enter(self, member: Member, key: Key, content: str | None, before: Key | None) -> None:
        known = self.entries.get(key)
        if known is None:
            self.entries[key] = (content, before)
            return
        if known[0] != content or (before is not None and known[1] is not None and known[1] != before):
            raise Violation(f"member {member.id} has {content} after {before} as {key}, where {known} was")
        if known[1] is None:
            self.entries[key] = (content, before)

    def _check_committed(self, member: Member, quorum: Quorum) -> None:
        """What a member calls committed is what all others call so; its image is made of that alone."""
        if quorum.high_watermark < member.high_watermark:
            raise Violation(f"the high watermark goes back: {self._described(member)}")
        log = quorum._log.log
        if quorum.take_snapshot_notice():
            latest = quorum.latest_snapshot
            assert latest is not None
            self.installed += 1
            member.names = [record.name for record in quorum.snapshot_records() if isinstance(record, TopicRecord)]
            member.applied = latest.end_offset
            expected = [content for _, content in self.truth[: latest.end_offset] if content is not None]
            if latest.end_offset > len(self.truth) or member.names != expected:
                raise Violation(f"member {member.id} has a snapshot of what is not committed: {latest}")
        for offset in range(member.applied, quorum.high_watermark):
            epoch = log.epoch_at(offset)
            content = self.entries[offset, epoch][0]
            if offset == len(self.truth):
                self.truth.append((epoch, content))
                self.committed_in.append(quorum.epoch)
            elif self.truth[offset] != (epoch, content):
                raise Violation(
                    f"member {member.id} takes {content} of epoch {epoch} for committed at {offset}, "
                    f"where {self.truth[offset]} was"
                )
        applied = [record.name for _, record in quorum.committed(member.applied) if isinstance(record, TopicRecord)]
        expected = [name for _, name in self.truth[member.applied : quorum.high_watermark] if name is not None]
        if applied != expected:
            raise Violation(f"member {member.id} replays {applied} where {expected} is committed")
        member.names = [*member.names, *applied]
        member.applied = member.high_watermark = quorum.high_watermark

    def _check_completeness(self, member: Member, quorum: Quorum) -> None:
        """A leader has all that leaders of earlier epochs committed. (One of an old epoch may win too late to matter.)"""
        end = bisect_left(self.committed_in, quorum.epoch)
        log = quorum._log.log
        has = (
            end == 0
            or end <= log.log_start_offset
            or (end <= log.log_end_offset and log.epoch_at(end - 1) == self.truth[end - 1][0])
        )
        if not has:
            raise Violation(f"leader {self._described(member)} lacks committed record {end - 1}")


def name_of(value: bytes) -> str:
    """The topic's name in a record, as this world writes them."""
    return bytes(value[4 : 4 + value[3] - 1]).decode()


def copied(message: Message) -> Message:
    """The message as it comes out of the wire."""
    table = type(message)
    version = table.VERSIONS.highest
    return decode(table, version, encode(message, version))
