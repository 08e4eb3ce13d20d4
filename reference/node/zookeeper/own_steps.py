"""Steps and answers of the controller that depend only on its image."""

from collections.abc import Mapping, Sequence

from reference.controller.configs import Configuration
from reference.controller.elections import BrokerChange, move_leaders, places
from reference.controller.image import NO_LEADER, MetadataImage, TopicImage
from reference.controller.isr_proposals import Answer, Proposal, accepted, members
from reference.controller.topics import partition_record
from reference.node.requests import Key
from reference.protocol.primitives import NodeId, TopicId
from reference.protocol.schema import Message

Step = tuple[Sequence[Message], str]
"""The records of the controller's own decision, and its cause."""


def without(image: MetadataImage, configuration: Configuration, broker: NodeId) -> list[Message]:
    """Remove a broker from every ISR, and from leadership."""
    concerned = places(image, lambda each: broker in each.isr)
    return move_leaders(image, configuration, concerned, BrokerChange(leaving=broker))


def dead_member(image: MetadataImage, configuration: Configuration) -> Step | None:
    """The step for an unregistered broker that a former controller left in an ISR."""
    for _, _, partition in places(image, lambda each: any(member not in image.brokers for member in each.isr)):
        for member in partition.isr:
            if member not in image.brokers and (records := without(image, configuration, member)):
                return records, "BrokerFailure"
    return None


def leaderless(image: MetadataImage, configuration: Configuration) -> Step | None:
    """The step for partitions without a leader, if a replica can lead now."""
    records = move_leaders(image, configuration, places(image, lambda each: each.leader == NO_LEADER))
    return (records, "ElectLeader") if records else None


def unled(image: MetadataImage, stateless: Mapping[Key, Sequence[NodeId]]) -> Step | None:
    """The step for partitions without a state, if one of their replicas is registered."""
    records: list[Message] = []
    for (name, index), replicas in stateless.items():
        topic = image.topics.get(name)
        if topic is not None and index not in topic.partitions and any(map(image.is_active, replicas)):
            records.append(partition_record(image, topic.id, index, [*replicas]))
    return (records, "CreateTopic") if records else None


def replicas_of(topic: TopicImage) -> list[tuple[Key, NodeId]]:
    return [((topic.name, index), replica) for index, each in topic.partitions.items() for replica in each.replicas]


def repeated(image: MetadataImage, topic_id: TopicId, proposal: Proposal, refused: Answer) -> Answer:
    """Accept a written proposal again, if its response did not arrive: the leader learns of it in no other way.

    Source: LeaderAndIsr.equalsAllowStalePartitionEpoch of Apache Kafka 3.9.2.
    """
    partition = image.topics_by_id[topic_id].partitions[proposal.partition_index]
    is_written = {each.broker_id for each in members(proposal)} == {*partition.isr}
    if not is_written or proposal.leader_recovery_state != partition.leader_recovery_state:
        return refused
    return accepted(proposal.partition_index, partition)
