"""What the logs of one machine must still hold in its next process."""

from __future__ import annotations

from collections.abc import Collection

from linearizability.simulation.invariants import LogRecord, contents, require_prefix
from linearizability.simulation.world import World
from reference.node.node import Node
from reference.storage.disk import SimulatedDisk

Key = tuple[str, int]


class Survival:
    """Every log as it was when the last process ended, until it is seen again.

    After a crash every log holds what it held; after a power failure a prefix of it, at least what was flushed.
    """

    def __init__(self, name: str, world: World, retained: Collection[str] = ()) -> None:
        """`retained` are the topics whose retention may move a log's start before it is seen again."""
        self._name = name
        self._retained = retained
        self._world = world
        self._before: dict[Key, tuple[LogRecord, int]] = {}
        """What each log held, and up to where it must still."""
        self._restart_ends: dict[str, int] = {}
        """Where each log ended when it was recovered."""

    def __bool__(self) -> bool:
        """Whether some log was not seen again."""
        return bool(self._before)

    @property
    def first(self) -> Key:
        """A log that was not seen again."""
        return next(iter(self._before))

    def remember(self, node: Node, disk: SimulatedDisk | None = None) -> None:
        """A process ends, or the contents of one of its disks are gone."""
        for key, partition in node.partitions.items():
            if disk is not None and partition.log._disk is not disk:
                continue
            log = contents(partition.log)
            self._before[key] = (log, log.end)

    def power_was_lost(self) -> None:
        """Only what was flushed must be there."""
        self._before = {key: (log, min(least, log.flushed)) for key, (log, least) in self._before.items()}

    def all_was_flushed(self, node: Node) -> None:
        """The node has stopped cleanly."""
        for key, (log, least) in self._before.items():
            if key in node.partitions:
                self._before[key] = (log._replace(flushed=log.end), least)

    def recovered(self, partition: str, end: int) -> None:
        """A log was taken up again, and ended there: after that a follower may cut it, and a leader write to it."""
        self._restart_ends[partition] = end

    def compare(self, node: Node) -> None:
        """Hold the logs that are there now against what they held; one that a full disk keeps from being taken up is
        compared when it is there again. Errors: Violation."""
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
                least = 0
            after = after.up_to(recovered_end)
            if key[0] in self._retained:
                before = before._replace(start=max(before.start, after.start))
            require_prefix(f"{key[0]}-{key[1]} on {self._name}", before, after, least)
            if after.end < before.end:
                self._world.counts["records lost in power failures"] += before.end - after.end
