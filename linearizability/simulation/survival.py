# pyright: reportPrivateUsage=false
"""Checks what the logs of one machine still hold in its next process."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import cast
from uuid import UUID

from linearizability.simulation.batches import batches_in, header_of
from linearizability.simulation.invariants import LogRecord, contents, require_prefix
from linearizability.simulation.watched_disk import BOUNDS
from linearizability.simulation.world import Violation, World
from reference.node.node import Node
from reference.replication.partition import Partition
from reference.storage.checkpoints import HIGH_WATERMARKS
from reference.storage.log import Log
from reference.storage.simulated_disk import SimulatedDisk

Key = tuple[str, int]


class Survival:
    """Every log as it was when the last process ended, until it is seen again.

    After a crash every log holds what it held; after a power failure a prefix of it, at least what was flushed.
    """

    def __init__(
        self, name: str, world: World, retained: Collection[str] = (), compacted: Collection[str] = ()
    ) -> None:
        """`retained` are the topics whose retention may move a log's start before it is seen again. Of those that are
        `compacted` no batch stays for ever: what they must still say, their updaters know."""
        self._name = name
        self._retained = retained
        self._compacted = compacted
        self._world = world
        self._before: dict[Key, tuple[LogRecord, int]] = {}
        """What each log held, and up to where it must still."""
        self._may_have_grown: set[Key] = set()
        """Logs whose process ended after it wrote a batch and before it counted it, or before the disk had made a cut durable."""
        self._restarts: dict[str, tuple[int, int]] = {}
        """Where each log ended when it was recovered, and the high watermark that it began with."""
        self._written: dict[tuple[int, str], Collection[str]] = {}
        """The lines of each checkpoint of offsets, by disk and name, as they were last written."""
        self._committed: dict[str, tuple[UUID, int]] = {}
        """The high watermark of each log that was last stored."""
        self._highest: dict[tuple[UUID, int], int] = {}
        """The highest that was ever stored, by topic id and partition."""

    def __bool__(self) -> bool:
        """Whether some log was not seen again."""
        return bool(self._before)

    @property
    def first(self) -> Key:
        """A log that was not seen again."""
        return next(iter(self._before))

    def remember(self, node: Node, disk: SimulatedDisk | None = None, in_step: bool = False) -> None:
        """A process ends, maybe in the middle of a step, or the contents of one of its disks are gone."""
        for key, partition in node.partitions.items():
            if disk is not None and partition.log._disk is not cast(object, disk):
                continue
            cut, swap = partition.log._cut, partition.log._swap
            # Where a log starts over below its first segment, its checkpoints are lowered first.
            begins_cut = partition.log.log_start_offset < partition.log._bases[0]
            if in_step or cut is not None:
                self._may_have_grown.add(key)
            if (in_step and ((cut or swap) is not None or begins_cut)) or (cut is not None and cut.starts_over):
                continue  # its files are between two states
            log = self._contents(partition).up_to(partition.log.log_end_offset)
            least = log.end if key[0] not in self._compacted else min(log.end, _written_end(partition))
            self._before[key] = (log, least)

    def _contents(self, partition: Partition) -> LogRecord:
        log = partition.log
        if partition.topic in self._compacted:
            return LogRecord(log.log_start_offset, log.log_end_offset, log.recovery_point, [], log.topic_id)
        return contents(log)

    def power_was_lost(self) -> None:
        """From now on require only what was flushed."""
        self._before = {key: (log, min(least, log.flushed)) for key, (log, least) in self._before.items()}

    def all_was_flushed(self, node: Node) -> None:
        """The node has stopped cleanly."""
        for key, (log, least) in self._before.items():
            if key in node.partitions:
                self._before[key] = (log._replace(flushed=log.end), least)

    def committed(self, partition: Partition, high_watermark: int) -> None:
        """A high watermark is written to a checkpoint."""
        self._committed[partition.name] = partition.topic_id, high_watermark
        self._note_highest(partition, high_watermark)

    def _note_highest(self, partition: Partition, high_watermark: int) -> None:
        """A log that is being moved may have its line in the other directory."""
        place = partition.topic_id, partition.index
        self._highest[place] = max(high_watermark, self._highest.get(place, 0))

    def checkpoint_written(self, node: Node, disk: SimulatedDisk, name: str, data: bytes) -> None:
        """A node writes a checkpoint of offsets. Lines of logs that have moved to another directory stay until the next start
        there, and are not read. One that is written for one log alone, which is moved here or was deleted, repeats the others'
        lines: they say what the file said. Errors: Violation."""
        rule, bound_of = BOUNDS[name]
        rows = data.decode().splitlines()[2:]
        known, self._written[id(disk), name] = self._written.get((id(disk), name), ()), rows
        repeated = {*known} if len({*rows} - {*known}) == 1 or {*rows} < {*known} else set[str]()
        lines = [line.split(" ") for line in rows]
        if name == HIGH_WATERMARKS:
            stored = {f"{topic}-{index}" for topic, index, _ in lines}
            self.given_up({*self.strangers(node)} - stored)
        for topic, index, offset in lines:
            key = topic, int(index)
            partition = node.partitions.get(key)
            if partition is None and name == HIGH_WATERMARKS:
                holder = node.logs.holder(key)
                if holder is not None and holder.disk is cast(object, disk):
                    self.carried_over(holder.logs[key], int(offset))
            if partition is None:
                continue
            if partition.log._disk is not cast(object, disk):
                if name == HIGH_WATERMARKS:
                    self._note_highest(partition, int(offset))
            elif int(offset) <= bound_of(partition):
                if name == HIGH_WATERMARKS:
                    self.committed(partition, int(offset))
            elif f"{topic} {index} {offset}" not in repeated:
                text = (
                    f"{name} of {self._name} says {offset} of {partition.name}, where {bound_of(partition)} is the most"
                )
                self._world.broken(rule, text)

    def carried_over(self, log: Log, high_watermark: int) -> None:
        """A high watermark is written again by a node that has no replica for the log yet, as one that stops before it was given
        its partitions. Errors: Violation where it goes down further than to the log's end."""
        name = f"{log.topic}-{log.partition}"
        topic_id, stored = self._committed.get(name, (None, 0))
        if topic_id is None or topic_id != log.topic_id:
            return
        if high_watermark < min(stored, log.log_end_offset):
            text = f"{name} on {self._name}: {high_watermark} is written, where {stored} was stored"
            self._world.broken("high-watermark-forgotten", f"{text} and the log ends at {log.log_end_offset}")
        self._committed[name] = topic_id, high_watermark

    def given_up(self, names: Iterable[str]) -> None:
        """Replicas that are no more, by partition; they may come again with new logs."""
        for name in names:
            self._committed.pop(name, None)

    def strangers(self, node: Node) -> list[str]:
        """The partitions of which a high watermark was stored, and of which the node has no replica now."""
        return [name for name in self._committed if _key_of(name) not in node.partitions]

    def recovered(self, partition: str, end: int, high_watermark: int) -> None:
        """A log was taken up again, and ended there: after that a follower may cut it, and a leader write to it."""
        self._restarts[partition] = end, high_watermark

    def compare(self, node: Node) -> None:
        """Hold the logs that are there now against what they held; one that a full disk keeps from being taken up is
        compared when it is there again. Errors: Violation."""
        for key, (before, least) in [*self._before.items()]:
            partition = node.partitions.get(key)
            if partition is None:
                continue
            del self._before[key]
            after = self._contents(partition)
            recovered_end, high_watermark = self._restarts.pop(partition.name, (after.end, None))
            self._require_committed(partition, recovered_end, high_watermark)
            if partition.topic_id != before.topic_id:
                continue
            if recovered_end >= least:
                least = 0
            after = after.up_to(min(recovered_end, before.end) if key in self._may_have_grown else recovered_end)
            self._may_have_grown.discard(key)
            if key[0] in self._retained:
                before = before._replace(start=max(before.start, after.start))
            require_prefix(f"{key[0]}-{key[1]} on {self._name}", before, after, least)
            if after.end < before.end:
                self._world.counts["records lost in power failures"] += before.end - after.end

    def _require_committed(self, partition: Partition, end: int, high_watermark: int | None) -> None:
        """A replica begins with the high watermark that was last stored, as far as its log goes; in no case beyond any that was
        stored for its topic, for one of a deleted topic of its name says nothing about it. Errors: Violation."""
        if high_watermark is None:
            return
        topic_id, stored = self._committed.get(partition.name, (None, 0))
        least = min(stored, end) if topic_id == partition.topic_id else 0
        text = f"{partition.name} on {self._name} begins with the high watermark {high_watermark}, where"
        if high_watermark < least:
            raise Violation("high-watermark-forgotten", f"{text} {least} was stored")
        most = max(self._highest.get((partition.topic_id, partition.index), 0), partition.log.log_start_offset)
        if high_watermark > most:
            raise Violation("high-watermark-not-stored", f"{text} {most} is the most that was stored for its topic")


def _written_end(partition: Partition) -> int:
    """Where the last batch of a log ends, or its last segment begins.

    A log that is cut to an offset in a gap of compaction ends there until its next start, which knows the last batch alone; so
    does Apache Kafka's, by its source (LogSegment.readNextOffset; not run). A gap at the end is left only where a committed
    record was lost: what superseded the removed ones.
    """
    last = partition.log._segments[-1]
    batches = [header_of(batch) for batch in batches_in(last.file.read(0, last.file.size))]
    return batches[-1].next_offset if batches else last.base_offset


def _key_of(name: str) -> Key:
    topic, _, index = name.rpartition("-")
    return topic, int(index)
