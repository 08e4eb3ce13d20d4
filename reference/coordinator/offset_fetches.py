"""OffsetFetch: the committed offsets of one group. (OFF-01, OFF-02, OFF-10, OFF-11)

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager.fetchOffsets, fetchAllOffsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reference.coordinator.group import Group
from reference.coordinator.offsets import CommittedOffset, Offsets
from reference.coordinator.topics import Topics
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from reference.protocol.primitives import NO_UUID, GroupId, TopicId, TopicName

FIRST_FETCH_WITH_TOPIC_IDS = 10

AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
AskedTopic = OffsetFetchRequest.OffsetFetchRequestTopics
TopicAnswer = OffsetFetchResponse.OffsetFetchResponseTopics
PartitionAnswer = OffsetFetchResponse.OffsetFetchResponsePartitions


class OffsetFetches:
    """Reads the committed offsets of a shard's groups."""

    def __init__(self, groups: Mapping[GroupId, Group], offsets: Offsets, topics: Topics) -> None:
        self._groups = groups
        self._offsets = offsets
        self._topics = topics

    def fetch(self, asked: AskedGroup, version: int, require_stable: bool) -> list[TopicAnswer]:
        """The group's topics in the response: the requested ones, or all if the request names none (OFF-10).

        With `require_stable`, an offset that an open transaction may change is an error (KIP-447). Errors: KafkaError if the
        group has no such member, or the member another epoch.
        """
        group = self._groups.get(asked.group_id)
        if group is not None:
            group.check_fetch(asked.member_id, asked.member_epoch)
        reading = _Reading(self._topics, self._offsets, asked.group_id, version, require_stable)
        return reading.all() if asked.topics is None else reading.of(asked.topics)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The offsets of one group, for one request."""

    topics: Topics
    offsets: Offsets
    group: GroupId
    version: int
    require_stable: bool

    @property
    def uses_ids(self) -> bool:
        return self.version >= FIRST_FETCH_WITH_TOPIC_IDS

    def all(self) -> list[TopicAnswer]:
        """All committed offsets (OFF-10); with topic ids, only those of existing topics."""
        indexes: dict[TopicName, list[int]] = {}
        for name, index in sorted(self.offsets.of(self.group)):
            indexes.setdefault(name, []).append(index)
        if not self.uses_ids:
            return [self._topic(name, NO_UUID, NO_UUID, each) for name, each in indexes.items()]
        ids = {name: self.topics.id_of(name) for name in indexes}
        return [self._topic(name, NO_UUID, id, indexes[name]) for name, id in ids.items() if id is not None]

    def of(self, topics: Iterable[AskedTopic]) -> list[TopicAnswer]:
        """The requested partitions; a topic with an unknown id is refused."""
        if not self.uses_ids:
            return [self._topic(topic.name, NO_UUID, NO_UUID, topic.partition_indexes) for topic in topics]
        return [self._topic_by_id(topic) for topic in topics]

    def _topic_by_id(self, topic: AskedTopic) -> TopicAnswer:
        name = self.topics.name_of(topic.topic_id)
        if name is not None:
            return self._topic(name, topic.topic_id, topic.topic_id, topic.partition_indexes)
        unknown = [no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
        return TopicAnswer(topic_id=topic.topic_id, partitions=unknown)

    def _topic(self, name: TopicName, wanted: TopicId, id: TopicId, indexes: Iterable[int]) -> TopicAnswer:
        return TopicAnswer(name=name, topic_id=id, partitions=[self._partition(name, wanted, each) for each in indexes])

    def _partition(self, name: TopicName, wanted: TopicId, index: int) -> PartitionAnswer:
        place = (name, index)
        if self.require_stable and self.offsets.is_unstable(self.group, place):
            return no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self.offsets.of(self.group).get(place)
        return no_offset(index) if committed is None or not committed.is_of(wanted) else _offset(index, committed)


def _offset(index: int, committed: CommittedOffset) -> PartitionAnswer:
    return PartitionAnswer(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def no_offset(index: int, code: ErrorCode = ErrorCode.NONE) -> PartitionAnswer:
    """The entry of a partition without an offset (OFF-02), or with an error."""
    return PartitionAnswer(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
    )
