"""Replicas that move from one log directory of this node to another (AlterReplicaLogDirs, KIP-113, KIP-858).

    copying --has all--> caught up --the metadata name the new directory--> replaced

A copy grows in the new directory while the replica goes on in the old one. Once it has all, the controller learns of the new
directory; when the metadata name it, and the copy has all at that moment, the copy takes the log's place. A copy that an
earlier run left is found in its folder and goes on. What moves is not compacted.
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
"""How often a copy that has caught up is brought up to date, while the controller is asked."""


class Moves:
    """The moves of this node's replicas."""

    def __init__(self, context: Context, logs: LogManager) -> None:
        self.logs = logs
        self.caught_up: dict[Key, LogDirectory] = {}
        """Replicas whose copies had all once, and where these are."""
        self._context = context
        self._next = NEVER

    def begin(self, partition: Partition, target: LogDirectory, now: TimestampMs) -> None:
        """Move a replica, or leave it where it is. A move that is under way to another directory ends.

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
        """A log directory has failed: replicas that were moving into it stay where they are."""
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
        """One step of a move; whether the next may wait."""
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
            context.log("error", f"{partition.name} does not move to {directory.folder}: {error}")
        return True
