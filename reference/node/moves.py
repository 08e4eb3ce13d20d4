"""Replicas that move from one log directory of this node to another (AlterReplicaLogDirs, KIP-113, KIP-858).

    copying --has all--> caught up --the metadata name the new directory--> replaced

A copy grows in the new directory while the replica continues in the old one. When the copy has caught up, the broker reports
the new directory to the controller. When the metadata have it, and the copy has all records at that moment, it replaces the
log. A copy of an earlier run is found in its folder and continues. A moving log is not compacted.
Source: kafka.server.ReplicaAlterLogDirsThread.
"""

from __future__ import annotations

from reference.node.context import Context
from reference.node.requests import Key
from reference.protocol.primitives import NEVER, TimestampMs
from reference.replication.partition import Partition
from reference.storage.copying import copy_step
from reference.storage.errors import CorruptFile, LogError, RecordsError
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager

LOOK_AGAIN_MS = 100
"""The interval at which a copy that has caught up is extended, until the metadata have the new directory."""


class Moves:
    """The moves of this node's replicas."""

    def __init__(self, context: Context, logs: LogManager) -> None:
        self.logs = logs
        self.caught_up: dict[Key, LogDirectory] = {}
        """Replicas whose copies have caught up once, with the copies' directories."""
        self._context = context
        self._next = NEVER

    def begin(self, partition: Partition, target: LogDirectory, now: TimestampMs) -> None:
        """Begin to move a replica, or keep it where it is. A move to another directory is cancelled.

        Errors: StorageError, CorruptFile.
        """
        logs, key = self.logs, partition.key
        if logs.future_holder(key) not in (None, target):
            logs.drop_future(key, now)
            self.caught_up.pop(key, None)
        holder = logs.holder(key)
        if holder not in (None, target):
            holder.cleaner.forget(key)
            target.open_future(key, partition.topic_id, partition.log.config, now)
        self._next = now

    def lose_directory(self, directory: LogDirectory) -> None:
        """Cancel moves into a failed log directory: the replicas stay where they are."""
        self.caught_up = {key: each for key, each in self.caught_up.items() if each is not directory}

    def tick(self, now: TimestampMs) -> None:
        """Copy records of moving replicas, and replace those whose copies have caught up."""
        if now < self._next != NEVER:
            return
        moving = [(key, each) for each in self.logs.live for key in each.futures]
        self._next = now + LOOK_AGAIN_MS if moving else NEVER  # an idle node is not woken for nothing
        for key, directory in moving:
            partition = self._context.replicas.partitions.get(key)
            if partition is not None and not self._advance(key, partition, directory, now):
                self._next = now

    def next_deadline(self) -> TimestampMs:
        return self._next

    def _advance(self, key: Key, partition: Partition, directory: LogDirectory, now: TimestampMs) -> bool:
        """Do one step of a move; return whether the next step may wait."""
        context = self._context
        try:
            copy = directory.open_future(key, partition.topic_id, partition.log.config, now)
            copy.config = partition.log.config  # the topic's settings may have changed since it was opened
            copy.changed()
            if not copy_step(partition.log, copy, now):
                return False
            self.caught_up[key] = directory
            image = context.image.topics_by_id[partition.topic_id].partitions[partition.index]
            if image.directory_of(context.node) == directory.id:
                partition.replace_log(self.logs.replace_with_future(key, partition.high_watermark, now))
                del self.caught_up[key]
                context.log("info", f"{partition.name} has moved to {directory.folder}")
        except (LogError, RecordsError, CorruptFile, OSError) as error:
            context.log("error", f"{partition.name} cannot be moved to {directory.folder}: {error}")
        return True
