"""A group coordinator that agrees to everything: each member that joins leads a generation of its own or owns all partitions, every
commit is stored, no member is ever fenced, removed or asked to join again. A pass on this broker shows nothing about groups.
"""

from __future__ import annotations

import uuid
from typing import Any

from reference.protocol.errors import ErrorCode
from tests.conformance.parrot import Answer, Parrot

UNASKED = 5
"""The number of partitions of a topic that was not created."""


class Agreeable(Parrot):
    """Stores topics, offsets and subscriptions of consumers, but no members, generations or epochs."""

    def __init__(self) -> None:
        self.partitions: dict[str, int] = {}
        self.subscribed: dict[str, list[str]] = {}
        self.offsets: dict[tuple[str, object, int], int] = {}
        answers: dict[str, Answer] = {
            "CreateTopics": self.create, "OffsetCommit": self.commit,
            "OffsetFetch": self.report, "ConsumerGroupHeartbeat": self.beat,
        }  # fmt: skip
        super().__init__(GROUPS | answers)

    def create(self, request: Any, response: Any, version: int) -> None:
        """Topics of as many partitions as were asked for."""
        result = type(response).CreatableTopicResult
        self.partitions |= {topic.name: topic.num_partitions for topic in request.topics}
        response.topics = [result(name=topic.name) for topic in request.topics]

    def beat(self, request: Any, response: Any, version: int) -> None:
        """Each member owns all that it subscribes to."""
        response.member_id, response.member_epoch = request.member_id or "somebody", max(request.member_epoch, 1)
        response.heartbeat_interval_ms = 5_000
        if request.subscribed_topic_names is not None:
            self.subscribed[request.member_id] = request.subscribed_topic_names
        if request.topic_partitions is not None:
            table = type(response)
            names = self.subscribed.get(request.member_id, [])
            owned = [
                table.TopicPartitions(topic_id=id_of(name), partitions=list(range(self.partitions.get(name, UNASKED))))
                for name in names
            ]
            response.assignment = table.Assignment(topic_partitions=owned)

    def metadata(self, request: Any, response: Any, version: int) -> None:
        """Every topic exists."""
        super().metadata(request, response, version)
        for topic in response.topics:
            partition = type(topic.partitions[0])
            topic.partitions = [
                partition(partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1])
                for index in range(self.partitions.get(topic.name, UNASKED))
            ]

    def commit(self, request: Any, response: Any, version: int) -> None:
        """Each commit is stored."""
        table = type(response)
        response.topics = [
            table.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    table.OffsetCommitResponsePartition(partition_index=one.partition_index) for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        for topic in request.topics:
            for one in topic.partitions:
                self.offsets[request.group_id, key_of(topic, version), one.partition_index] = one.committed_offset

    def report(self, request: Any, response: Any, version: int) -> None:
        """The last offset that was committed, with no metadata."""
        table = type(response)
        if version < 8:
            response.topics = [
                self._topic(
                    table.OffsetFetchResponseTopic, table.OffsetFetchResponsePartition, request.group_id, topic, version
                )
                for topic in request.topics or ()
            ]
            return
        response.groups = [
            table.OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    self._topic(
                        table.OffsetFetchResponseTopics,
                        table.OffsetFetchResponsePartitions,
                        group.group_id,
                        topic,
                        version,
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in request.groups
        ]

    def _topic(self, topics: Any, partitions: Any, group: str, topic: Any, version: int) -> Any:
        reported = topics(
            name=topic.name,
            partitions=[
                partitions(
                    partition_index=index,
                    committed_offset=self.offsets.get((group, key_of(topic, version), index), -1),
                )
                for index in topic.partition_indexes
            ],
        )
        if version >= 8:
            reported.topic_id = topic.topic_id
        return reported


def key_of(topic: Any, version: int) -> object:
    """What names a topic in this version of OffsetCommit and OffsetFetch."""
    return topic.topic_id if version >= 10 else topic.name


def id_of(name: str) -> uuid.UUID:
    """The topic id that `Parrot` makes up for a name."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


def _joined(request: Any, response: Any, version: int) -> None:
    response.member_id = response.leader = request.member_id or f"somebody-{uuid.uuid4()}"
    if version >= 4 and not request.member_id and not request.group_instance_id:
        response.error_code = ErrorCode.MEMBER_ID_REQUIRED
        return
    response.generation_id = 1
    response.protocol_type = request.protocol_type
    response.protocol_name = request.protocols[0].name if request.protocols else ""
    member = type(response).JoinGroupResponseMember
    response.members = [
        member(member_id=response.member_id, group_instance_id=request.group_instance_id, metadata=one.metadata)
        for one in request.protocols[:1]
    ]


def _synced(request: Any, response: Any, version: int) -> None:
    response.protocol_type, response.protocol_name = request.protocol_type, request.protocol_name
    for one in request.assignments:
        if one.member_id == request.member_id:
            response.assignment = one.assignment


def _left(request: Any, response: Any, version: int) -> None:
    member = type(response).MemberResponse
    response.members = [
        member(member_id=one.member_id, group_instance_id=one.group_instance_id) for one in request.members
    ]


def _described(request: Any, response: Any, version: int) -> None:
    group = type(response).DescribedGroup
    asked = request.groups if hasattr(request, "groups") else request.group_ids
    response.groups = [group(group_id=id, group_state="Stable") for id in asked]


def _deleted(request: Any, response: Any, version: int) -> None:
    response.results = [type(response).DeletableGroupResult(group_id=id) for id in request.groups_names]


GROUPS: dict[str, Answer] = {
    "JoinGroup": _joined,
    "SyncGroup": _synced,
    "LeaveGroup": _left,
    "DescribeGroups": _described,
    "ConsumerGroupDescribe": _described,
    "DeleteGroups": _deleted,
}
