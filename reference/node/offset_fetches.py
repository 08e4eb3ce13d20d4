"""OffsetFetch: committed offsets of one group or (version 8) of several. (OFF-01, OFF-02, OFF-10, OFF-11)

The offsets may still be lost before they are committed to the log, so the response waits for that. Each group may be on
another shard, and fails by itself, in the form of the request's version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from reference.controller.image import MetadataImage
from reference.coordinator.group_shard import GroupShard
from reference.coordinator.offsets import CommittedOffset
from reference.node.groups import Groups
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from reference.protocol.primitives import NO_UUID, GroupId, TimestampMs, TopicId, TopicName
from reference.protocol.schema import Message

FIRST_FETCH_WITH_ERROR_AT_THE_TOP = 2
FIRST_FETCH_OF_SEVERAL_GROUPS = 8
FIRST_FETCH_WITH_TOPIC_IDS = 10

AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
AskedTopic = OffsetFetchRequest.OffsetFetchRequestTopics
GroupAnswer = OffsetFetchResponse.OffsetFetchResponseGroup
TopicAnswer = OffsetFetchResponse.OffsetFetchResponseTopics
PartitionAnswer = OffsetFetchResponse.OffsetFetchResponsePartitions


def offset_fetch(groups: Groups, request: Request, body: OffsetFetchRequest, now: TimestampMs) -> Message | None:
    """The offsets of each group; with require_stable, an offset that an open transaction may change is an error (KIP-447)."""
    if request.version >= FIRST_FETCH_OF_SEVERAL_GROUPS:
        answers = [GroupAnswer(group_id=group.group_id) for group in body.groups]
        response = OffsetFetchResponse(groups=answers)
        parts = [
            _fetch(groups, group, answer, request.version, body.require_stable)
            for group, answer in zip(body.groups, answers, strict=True)
        ]
        groups.answer_together(request, response, [part for part in parts if part is not None], now)
        return None
    return _fetch_of_one(groups, request, body, now)


def _fetch(
    groups: Groups, asked: AskedGroup, answer: GroupAnswer, version: int, require_stable: bool
) -> tuple[int, Callable[[ErrorCode], None]] | None:
    """Fill a group's answer; return the index of its shard and a function that fails the answer. None if it failed already."""
    fail = partial(_fail, asked, answer, version)
    try:
        index, shard = groups.coordination.shard_of(asked.group_id)
        group = shard.groups.get(asked.group_id)
        if group is not None:
            group.check_fetch(asked.member_id, asked.member_epoch)
    except KafkaError as error:
        fail(error.code)
        return None
    reading = _Reading(groups.context.image, shard, asked.group_id, version, require_stable)
    answer.topics = reading.all() if asked.topics is None else reading.of(asked.topics)
    return index, fail


def _fail(asked: AskedGroup, answer: GroupAnswer, version: int, code: ErrorCode) -> None:
    """Set the error; before version 2 only partitions have one."""
    answer.topics = []
    if version >= FIRST_FETCH_WITH_ERROR_AT_THE_TOP:
        answer.error_code = code
        return
    for topic in asked.topics or ():
        partitions = [_nothing(index, code) for index in topic.partition_indexes]
        answer.topics.append(TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=partitions))


@dataclass(frozen=True, slots=True)
class _Reading:
    """The offsets of one group, for one request."""

    image: MetadataImage
    shard: GroupShard
    group: GroupId
    version: int
    require_stable: bool

    @property
    def uses_ids(self) -> bool:
        return self.version >= FIRST_FETCH_WITH_TOPIC_IDS

    def all(self) -> list[TopicAnswer]:
        """All committed offsets (OFF-10); with topic ids, only those of existing topics."""
        indexes: dict[TopicName, list[int]] = {}
        for name, index in sorted(self.shard.offsets.of(self.group)):
            indexes.setdefault(name, []).append(index)
        found = [self._topic(name, NO_UUID, self.image.topic_id(name), each) for name, each in indexes.items()]
        return [topic for topic in found if not self.uses_ids or topic.topic_id != NO_UUID]

    def of(self, topics: Iterable[AskedTopic]) -> list[TopicAnswer]:
        """The requested partitions; a topic with an unknown id is refused."""
        if not self.uses_ids:
            return [self._topic(topic.name, NO_UUID, NO_UUID, topic.partition_indexes) for topic in topics]
        return [self._topic_by_id(topic) for topic in topics]

    def _topic_by_id(self, topic: AskedTopic) -> TopicAnswer:
        name = self.image.topic_name(topic.topic_id)
        if name is not None:
            return self._topic(name, topic.topic_id, topic.topic_id, topic.partition_indexes)
        unknown = [_nothing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes]
        return TopicAnswer(topic_id=topic.topic_id, partitions=unknown)

    def _topic(self, name: TopicName, wanted: TopicId, id: TopicId, indexes: Iterable[int]) -> TopicAnswer:
        return TopicAnswer(name=name, topic_id=id, partitions=[self._partition(name, wanted, each) for each in indexes])

    def _partition(self, name: TopicName, wanted: TopicId, index: int) -> PartitionAnswer:
        offsets, place = self.shard.offsets, (name, index)
        if self.require_stable and offsets.is_unstable(self.group, place):
            return _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = offsets.of(self.group).get(place)
        return _nothing(index) if committed is None or not committed.is_of(wanted) else _something(index, committed)


def _something(index: int, committed: CommittedOffset) -> PartitionAnswer:
    return PartitionAnswer(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _nothing(index: int, code: ErrorCode = ErrorCode.NONE) -> PartitionAnswer:
    """The entry of a partition without an offset (OFF-02), or with an error."""
    return PartitionAnswer(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
    )


# ---- before version 8


def _fetch_of_one(groups: Groups, request: Request, body: OffsetFetchRequest, now: TimestampMs) -> Message | None:
    """The response for one group, with the group's fields at its top level."""
    topics = body.topics
    asked = AskedGroup(
        group_id=body.group_id,
        topics=None
        if topics is None
        else [AskedTopic(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )
    answer = GroupAnswer(group_id=body.group_id)
    part = _fetch(groups, asked, answer, request.version, body.require_stable)
    response = OffsetFetchResponse()
    _flatten(answer, response)
    if part is None:
        return response
    index, fail = part

    def fail_and_flatten(code: ErrorCode) -> None:
        fail(code)
        _flatten(answer, response)

    groups.answer_together(request, response, [(index, fail_and_flatten)], now)
    return None


def _flatten(answer: GroupAnswer, response: OffsetFetchResponse) -> None:
    response.error_code = answer.error_code
    response.topics = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in answer.topics
    ]
