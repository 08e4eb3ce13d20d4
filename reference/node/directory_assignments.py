"""Reports to the controller the directories of this broker's replicas that differ from the metadata (KIP-858).

The metadata have no directory for a new replica on a broker with several, a wrong one after a disk was replaced, and the
former one while a replica moves. Before the report the controller does not elect a replica whose directory is offline in the
metadata. A replica whose log cannot be opened is reported in the directory LOST: then others lead.
Source: org.apache.kafka.server.AssignmentsManager.
"""

from __future__ import annotations

from uuid import UUID

from reference.controller.directory_ids import LOST, is_online
from reference.node.context import Context
from reference.node.membership import Membership
from reference.node.moves import Moves
from reference.node.peers import AskController
from reference.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from reference.protocol.primitives import TimestampMs, TopicName
from reference.protocol.schema import Message

PURPOSE = "directories"
RETRY_MS = 1_000
MOST_PARTITIONS = 2_250
"""The most partitions in one request (AssignReplicasToDirsRequest.MAX_ASSIGNMENTS_PER_REQUEST)."""


class DirectoryAssignments:
    """Sends reports until the metadata have the right directories."""

    def __init__(self, context: Context, moves: Moves, membership: Membership, ask: AskController) -> None:
        self._context = context
        self._moves = moves
        self._membership = membership
        self._ask_controller = ask
        self._seen: object = None
        """The metadata's end, the moves and the offline replicas at the last comparison."""
        self._is_settled = False
        """Whether no replica was misplaced once this broker had replayed the metadata and was unfenced, and it has one
        directory only, in which the controller places new replicas."""
        self._retry_at: TimestampMs | None = None
        self._is_asking = False

    def advance(self, now: TimestampMs) -> None:
        """Report misplaced replicas after a change, or RETRY_MS after the last report."""
        context, logs = self._context, self._moves.logs
        if self._is_settled and not context.replicas.offline:
            return
        is_due = self._retry_at is not None and now >= self._retry_at
        seen = context.image.end_offset, frozenset(context.replicas.offline), frozenset(self._moves.caught_up)
        if self._is_asking or not (is_due or seen != self._seen):
            return
        self._seen, self._retry_at = seen, None
        misplaced = self._misplaced()
        self._is_settled = not misplaced and not self._membership.is_fenced and len(logs.directories) == 1
        if misplaced:
            self._is_asking = True
            body = AssignReplicasToDirsRequest(
                broker_id=context.node,
                broker_epoch=self._membership.broker_epoch,
                directories=[
                    AssignReplicasToDirsRequest.DirectoryData(id=directory, topics=topics)
                    for directory, topics in misplaced.items()
                ],
            )
            self._ask_controller(PURPOSE, body, self._answered, now)

    def next_deadline(self) -> TimestampMs | None:
        return self._retry_at

    def _misplaced(self) -> dict[UUID, list[AssignReplicasToDirsRequest.TopicData]]:
        context, found, count = self._context, dict[UUID, list[AssignReplicasToDirsRequest.TopicData]](), 0
        for topic in context.image.topics.values():
            by_directory: dict[UUID, list[AssignReplicasToDirsRequest.PartitionData]] = {}
            for index, partition in topic.partitions.items():
                known = partition.directory_of(context.node)
                if known is None or count >= MOST_PARTITIONS:
                    continue
                actual = self._directory_of((topic.name, index), known)
                if actual not in (None, known):
                    count += 1
                    by_directory.setdefault(actual, []).append(
                        AssignReplicasToDirsRequest.PartitionData(partition_index=index)
                    )
            for directory, partitions in by_directory.items():
                found.setdefault(directory, []).append(
                    AssignReplicasToDirsRequest.TopicData(topic_id=topic.id, partitions=partitions)
                )
        return found

    def _directory_of(self, key: tuple[TopicName, int], known: UUID) -> UUID | None:
        """The directory of a replica, or of its copy once that has caught up; None without a log."""
        replicas, logs = self._context.replicas, self._moves.logs
        if key in replicas.offline:
            return LOST if is_online(known, [each.id for each in logs.live]) else known
        holder = self._moves.caught_up.get(key) or logs.holder(key)
        return holder.id if holder is not None and key in replicas.partitions else None

    def _answered(self, answer: Message | None, now: TimestampMs) -> None:
        """Compare again after RETRY_MS: accepted assignments are then in the metadata, and others are reported again."""
        self._is_asking = False
        self._retry_at = now + RETRY_MS
