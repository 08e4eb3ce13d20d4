"""Drawn requests to clusters of several nodes, which must name the replicas of new partitions.

Otherwise each cluster would place them by chance, and other nodes would lead them.
"""

from __future__ import annotations

from zlib import crc32

from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message
from tests.targets.drawn_fields import Side

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
PLACED_BY_CHANCE = {"DescribeQuorum"}
"""APIs whose answers depend on which node is the active controller."""
OWN_OF_SEVERAL = {"controller_id"}
"""Fields that depend on it, or on chance."""


def replicas_of(topic: str, index: int, brokers: int) -> list[NodeId]:
    """All brokers; the preferred leader differs from partition to partition."""
    first = crc32(topic.encode()) + index
    return [NodeId((first + at) % brokers + 1) for at in range(brokers)]


def place(request: Message, side: Side) -> bool:
    """Assign the new partitions in a request. False if it may delete a topic that the cluster then creates again by itself."""
    brokers = len(side.addresses)
    if isinstance(request, CreateTopicsRequest):
        for topic in request.topics:
            if not topic.assignments:
                _place_topic(topic, brokers)
    elif isinstance(request, CreatePartitionsRequest):
        for grown in request.topics:
            if not grown.assignments:
                replicas = replicas_of(grown.name, grown.count, brokers)
                grown.assignments = [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=replicas)]
    elif isinstance(request, DeleteTopicsRequest):
        kept = {*INTERNAL_TOPICS, *side.internal_ids}
        named = [
            *request.topic_names,
            *(topic.name for topic in request.topics),
            *(topic.topic_id for topic in request.topics),
        ]
        return kept.isdisjoint(named)
    return True


def _place_topic(topic: CreateTopicsRequest.CreatableTopic, brokers: int) -> None:
    assignment = CreateTopicsRequest.CreatableReplicaAssignment
    topic.assignments = [
        assignment(partition_index=index, broker_ids=replicas_of(topic.name, index, brokers))
        for index in range(max(topic.num_partitions, 1))
    ]
    topic.num_partitions = topic.replication_factor = -1
