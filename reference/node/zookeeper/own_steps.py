"""Steps that the controller takes by itself, and that follow from its image alone."""

from collections.abc import Sequence

from reference.controller.configs import Configuration
from reference.controller.elections import move_leaders, places
from reference.controller.image import NO_LEADER, MetadataImage
from reference.protocol.primitives import NodeId
from reference.protocol.schema import Message

Step = tuple[Sequence[Message], str]
"""Records that the controller decides by itself, and what brought them about."""


def without(image: MetadataImage, configuration: Configuration, broker: NodeId) -> list[Message]:
    """A broker leaves every ISR, and leads no longer."""
    concerned = places(image, lambda each: broker in each.isr)
    return move_leaders(image, configuration, concerned, leaving=broker)


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
