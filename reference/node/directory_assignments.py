"""Reports to the controller in which directory this broker's replicas lie, where the metadata name another one (KIP-858).

A disk that was replaced has a folder with another directory id. The controller takes the replicas to be in a directory that is
offline, and does not elect them, until their broker has reported where they are. The directory's id stays for as long as the
process runs, and the controller places new replicas in it: once nothing is misplaced after the start, nothing is looked at again.
Source: org.apache.kafka.server.AssignmentsManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from reference.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message

if TYPE_CHECKING:
    from reference.node.node import Node

LANE = "directories"
RETRY_MS = 1_000
MOST_PARTITIONS = 2_250
"""In one request (AssignReplicasToDirsRequest.MAX_ASSIGNMENTS_PER_REQUEST)."""


class DirectoryAssignments:
    """Asks until the metadata name the right directory."""

    def __init__(self, node: Node, directory: UUID) -> None:
        self._node = node
        self._directory = directory
        self._seen_offset = -1
        """The end of the metadata when the replicas were last looked at."""
        self._is_settled = False
        """Nothing was misplaced when this broker had replayed the metadata and was unfenced."""
        self._retry_at: TimestampMs | None = None
        self._is_asking = False

    def advance(self, now: TimestampMs) -> None:
        """Ask, where the metadata have changed since the last look, or after a while where a request was not granted."""
        node = self._node
        if self._is_settled:
            return
        is_due = self._retry_at is not None and now >= self._retry_at
        if self._is_asking or not (is_due or node.image.end_offset != self._seen_offset):
            return
        self._seen_offset, self._retry_at = node.image.end_offset, None
        topics = self._misplaced()
        self._is_settled = not topics and not node.membership.is_fenced
        if topics:
            self._is_asking = True
            directory = AssignReplicasToDirsRequest.DirectoryData(id=self._directory, topics=topics)
            body = AssignReplicasToDirsRequest(
                broker_id=node.id, broker_epoch=node.broker_epoch, directories=[directory]
            )
            node.ask_controller(LANE, body, self._answered, now)

    def next_deadline(self) -> TimestampMs | None:
        return self._retry_at

    def _misplaced(self) -> list[AssignReplicasToDirsRequest.TopicData]:
        node, found, count = self._node, list[AssignReplicasToDirsRequest.TopicData](), 0
        for topic in node.image.topics.values():
            indexes = [
                index
                for index, partition in topic.partitions.items()
                if (topic.name, index) in node.partitions and partition.directory_of(node.id) != self._directory
            ][: MOST_PARTITIONS - count]
            if indexes:
                partitions = [AssignReplicasToDirsRequest.PartitionData(partition_index=index) for index in indexes]
                found.append(AssignReplicasToDirsRequest.TopicData(topic_id=topic.id, partitions=partitions))
                count += len(indexes)
        return found

    def _answered(self, answer: Message | None, now: TimestampMs) -> None:
        """What was granted is in the metadata now or soon; what was not is asked for again after a while."""
        self._is_asking = False
        self._retry_at = now + RETRY_MS
        self._node.stir()
