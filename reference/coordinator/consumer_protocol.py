"""The one thing of members' metadata that a coordinator looks into: which topics consumers subscribe to.

It protects the offsets of topics that are consumed (OFF-14, OFF-15); a group whose metadata cannot be read is taken to
consume everything. Source: org.apache.kafka.clients.consumer.internals.ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable

from reference.protocol.codec import CodecError, decode_from
from reference.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from reference.protocol.primitives import TopicName

CONSUMER = "consumer"
"""The protocol type of groups of consumers."""

_VERSION_SIZE = 2


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[TopicName] | None:
    """The topics of all members together; None where one of them cannot be read."""
    topics: set[TopicName] = set()
    for each in metadata:
        try:
            topics.update(_topics(each))
        except CodecError:
            return None
    return frozenset(topics)


def _topics(metadata: bytes) -> list[TopicName]:
    """The first field, in the form of version 0: later versions only add fields behind it."""
    if len(metadata) < _VERSION_SIZE or metadata[0] & 0x80:
        raise CodecError("a subscription begins with its version, which is not negative")
    return decode_from(ConsumerProtocolSubscription, 0, memoryview(metadata), _VERSION_SIZE)[0].topics
