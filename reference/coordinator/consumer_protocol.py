"""The embedded protocol of classic consumers, as far as a mixed group must decode it: subscriptions and assignments.

Each is a 16-bit version and the fields of that version, or for a newer version the fields of the newest version here.
Source: org.apache.kafka.clients.consumer.internals.ConsumerProtocol; KIP-429, KIP-792, KIP-881.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reference.coordinator.assignment import Assignment, by_topic
from reference.coordinator.topics import Topics
from reference.protocol.codec import CodecError, decode_from, encode
from reference.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from reference.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from reference.protocol.primitives import TopicName

CONSUMER = "consumer"
"""The protocol type of groups of consumers."""

_VERSION_SIZE = 2
_NEWEST = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's subscription, and the partitions that it claims to own."""

    topics: frozenset[TopicName]
    owned: Assignment
    rack_id: str | None


def subscription_of(metadata: bytes, topics: Topics) -> Subscription:
    """Errors: CodecError."""
    said, _ = decode_from(ConsumerProtocolSubscription, version_of(metadata), memoryview(metadata), _VERSION_SIZE)
    owned = ((topics.id_of(each.topic), each.partitions) for each in said.owned_partitions)
    return Subscription(
        frozenset(said.topics),
        frozenset((id, each) for id, partitions in owned if id is not None for each in partitions),
        said.rack_id or None,
    )


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[TopicName] | None:
    """The topics of all members together; None if the metadata of one of them cannot be decoded.

    Offsets of these topics are protected (OFF-14, OFF-15); None counts as a subscription to every topic.
    """
    topics: set[TopicName] = set()
    for each in metadata:
        try:
            topics.update(_topics(each))
        except CodecError:
            return None
    return frozenset(topics)


def _topics(metadata: bytes) -> list[TopicName]:
    """The topics, which are the first field: later versions only add fields after it."""
    version_of(metadata)
    return decode_from(ConsumerProtocolSubscription, 0, memoryview(metadata), _VERSION_SIZE)[0].topics


def assignment_of(data: bytes, topics: Topics) -> Assignment:
    """The leader's assignment for a member, without deleted topics. Errors: CodecError, also for an assignor's user data."""
    if not data:
        return frozenset()
    given, _ = decode_from(ConsumerProtocolAssignment, version_of(data), memoryview(data), _VERSION_SIZE)
    if given.user_data:
        raise CodecError("an assignment has user data of a custom assignor, which a conversion would lose")
    named = ((topics.id_of(each.topic), each.partitions) for each in given.assigned_partitions)
    return frozenset((id, each) for id, partitions in named if id is not None for each in partitions)


def encode_assignment(assignment: Assignment, topics: Topics, version: int) -> bytes:
    """An assignment in the form that a member of the classic protocol decodes."""
    partitions = [
        ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=indexes)
        for id, indexes in by_topic(assignment).items()
        if (name := topics.name_of(id)) is not None
    ]
    body = encode(ConsumerProtocolAssignment(assigned_partitions=partitions), version)
    return version.to_bytes(_VERSION_SIZE, "big") + body


def version_of(data: bytes) -> int:
    """Errors: CodecError."""
    if len(data) < _VERSION_SIZE or data[0] & 0x80:
        raise CodecError("metadata or an assignment of the consumer protocol has no valid version")
    return min(int.from_bytes(data[:_VERSION_SIZE], "big"), _NEWEST)
