"""OffsetFetch: committed offsets of one group or (version 8) of several. (OFF-01, OFF-02, OFF-10, OFF-11)

What is read may still be lost while it is not committed: the answer waits until it is. Each group may be another shard's,
and fails by itself; how, its version says.
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
    """Each group's offsets; with require_stable, offsets that an open transaction may change are refused (KIP-447)."""
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
    """Fill a group's answer; gives the index of its shard and a function that fails the answer; None where it is refused."""
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
    """Before version 2 only partitions had errors."""
    answer.topics = []
    if version >= FIRST_FETCH_WITH_ERROR_AT_THE_TOP:
        answer.error_code = code
        return
    for topic in asked.topics or ():
        partitions = [_nothing(index, code) for index in topic.partition_indexes]
        answer.topics.append(TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=partitions))


@dataclass(frozen=True, slots=True)
class _Reading:
    """One group's offsets as one request wants them."""

    image: MetadataImage
    shard: GroupShard
    group: GroupId
    version: int
    require_stable: bool

    @property
    def uses_ids(self) -> bool:
        return self.version >= FIRST_FETCH_WITH_TOPIC_IDS

    def all(self) -> list[TopicAnswer]:
        """Everything that is committed (OFF-10); without what cannot be named, where topics go by their ids."""
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
    """Never committed (OFF-02), or refused."""
    return PartitionAnswer(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
    )


# ---- before version 8


def _fetch_of_one(groups: Groups, request: Request, body: OffsetFetchRequest, now: TimestampMs) -> Message | None:
    """The request has one group, and the answer has its fields at the top."""
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
