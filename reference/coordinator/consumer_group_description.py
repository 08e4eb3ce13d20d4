"""A consumer group as ConsumerGroupDescribe reports it. Source: ConsumerGroup.asDescribedGroup (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable

from reference.coordinator.assignment import NOTHING, TopicIdPartition, by_topic
from reference.coordinator.consumer_group import ConsumerGroup
from reference.coordinator.consumer_member import ConsumerMember
from reference.coordinator.topics import Topics
from reference.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""How the wire numbers the protocol that a member speaks."""

Described = ConsumerGroupDescribeResponse


def describe(group: ConsumerGroup, topics: Topics, default_assignor: str) -> Described.DescribedGroup:
    """The group, its epochs, and each member's current and target assignment."""
    return Described.DescribedGroup(
        group_id=group.id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(group.members.values()) or default_assignor,
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Described.Member:
    return Described.Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(member.held, topics),
        target_assignment=_assignment(group.targets.get(member.id, NOTHING), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Iterable[TopicIdPartition], topics: Topics) -> Described.Assignment:
    """Partitions by topic, without topics that no longer exist."""
    return Described.Assignment(
        topic_partitions=[
            Described.TopicPartitions(topic_id=id, topic_name=name, partitions=indexes)
            for id, indexes in by_topic(partitions).items()
            if (name := topics.name_of(id)) is not None
        ]
    )
