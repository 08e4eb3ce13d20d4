"""Steps that the controller takes by itself, and answers, that follow from its image alone."""

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
"""Records that the controller decides by itself, and what brought them about."""


def without(image: MetadataImage, configuration: Configuration, broker: NodeId) -> list[Message]:
    """A broker leaves every ISR, and leads no longer."""
    concerned = places(image, lambda each: broker in each.isr)
    return move_leaders(image, configuration, concerned, BrokerChange(leaving=broker))


def dead_member(image: MetadataImage, configuration: Configuration) -> Step | None:
    """A broker that a former controller left in an ISR though it is not registered."""
    for _, _, partition in places(image, lambda each: any(member not in image.brokers for member in each.isr)):
        for member in partition.isr:
            if member not in image.brokers and (records := without(image, configuration, member)):
                return records, "BrokerFailure"
    return None


def leaderless(image: MetadataImage, configuration: Configuration) -> Step | None:
    """Partitions without a leader of which some replica can lead now."""
    records = move_leaders(image, configuration, places(image, lambda each: each.leader == NO_LEADER))
    return (records, "ElectLeader") if records else None


def unled(image: MetadataImage, stateless: Mapping[Key, Sequence[NodeId]]) -> Step | None:
    """Partitions without a state of which some replica is registered."""
    records: list[Message] = []
    for (name, index), replicas in stateless.items():
        topic = image.topics.get(name)
        if topic is not None and index not in topic.partitions and any(map(image.is_active, replicas)):
            records.append(partition_record(image, topic.id, index, [*replicas]))
    return (records, "CreateTopic") if records else None


def replicas_of(topic: TopicImage) -> list[tuple[Key, NodeId]]:
    return [((topic.name, index), replica) for index, each in topic.partitions.items() for replica in each.replicas]


def repeated(image: MetadataImage, topic_id: TopicId, proposal: Proposal, refused: Answer) -> Answer:
    """A proposal that was written, and whose answer did not arrive, is accepted again: its leader learns it in no other way.

    Source: LeaderAndIsr.equalsAllowStalePartitionEpoch of Apache Kafka 3.9.2.
    """
    partition = image.topics_by_id[topic_id].partitions[proposal.partition_index]
    is_written = {each.broker_id for each in members(proposal)} == {*partition.isr}
    if not is_written or proposal.leader_recovery_state != partition.leader_recovery_state:
        return refused
    return accepted(proposal.partition_index, partition)
