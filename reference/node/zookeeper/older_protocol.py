"""Inter-broker protocol 2.8: requests between brokers as in Apache Kafka 2.8, with topic names where 3.9 has topic ids.

With `inter.broker.protocol.version=2.8` a broker makes its requests as usual. `OlderForm` converts them before they are sent,
and adds the ids to the responses; `with_ids` does the same for such requests to this controller.
Source: MetadataVersion, AlterPartitionManager and AlterPartitionRequest of Apache Kafka 3.9.2; the schemas of 2.8.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from reference.controller.image import MetadataImage
from reference.node.peers import Answered
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import TimestampMs, TopicId, TopicName
from reference.protocol.schema import Message

FIRST_WITH_IDS = 2
"""The first version of AlterPartition with topic ids; 2.8 has version 0 only."""

M = TypeVar("M", bound=Message)
NameOf = Callable[[TopicId], TopicName | None]
IdOf = Callable[[TopicName], TopicId]


class OlderForm:
    """Converts requests to brokers of 2.8."""

    def __init__(self, assigned: MetadataImage, image: MetadataImage) -> None:
        """`assigned` has the topics of this broker's replicas, which `image` may not have yet."""
        self._assigned = assigned
        self._image = image

    def translate(self, body: Message, answered: Answered) -> tuple[Message, Answered]:
        """The converted request, and a function that adds topic ids to its response before it is passed on."""

        def take(answer: Message | None, now: TimestampMs) -> None:
            if isinstance(answer, FetchResponse):
                for each in answer.responses:
                    each.topic_id = self._id_of(each.topic)
            elif isinstance(answer, AlterPartitionResponse):
                for topic in answer.topics:
                    topic.topic_id = self._id_of(topic.topic_name)
            answered(answer, now)

        return with_names(body, self._name_of), take

    def _name_of(self, id: TopicId) -> TopicName | None:
        return self._assigned.topic_name(id) or self._image.topic_name(id)

    def _id_of(self, name: TopicName) -> TopicId:
        return (self._assigned if name in self._assigned.topics else self._image).topic_id(name)


def with_names(body: M, name_of: NameOf) -> M:
    """A follower's Fetch or an AlterPartition in the form of 2.8; other requests unchanged.

    A topic with an unknown name is omitted: its replicas are being removed.
    """
    if isinstance(body, FetchRequest):
        body.replica_id, body.replica_state = body.replica_state.replica_id, FetchRequest.ReplicaState()
        for topic in [*body.topics, *body.forgotten_topics_data]:
            topic.topic = name_of(topic.topic_id) or TopicName("")
        body.topics = [each for each in body.topics if each.topic]
        body.forgotten_topics_data = [each for each in body.forgotten_topics_data if each.topic]
    elif isinstance(body, AlterPartitionRequest):
        for asked in body.topics:
            asked.topic_name = name_of(asked.topic_id) or TopicName("")
            for proposal in asked.partitions:
                proposal.new_isr = [each.broker_id for each in proposal.new_isr_with_epochs]
                proposal.new_isr_with_epochs = []
        body.topics = [each for each in body.topics if each.topic_name]
    return body


REFUSALS = {
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INELIGIBLE_REPLICA: ErrorCode.OPERATION_NOT_ATTEMPTED,
}
"""Error of a proposal -> the error for a broker that does not support it."""


def with_ids(version: int, body: AlterPartitionRequest, id_of: IdOf) -> None:
    """Add topic ids to an AlterPartition of 2.8; an unknown topic has none."""
    if version < FIRST_WITH_IDS:
        for topic in body.topics:
            topic.topic_id = id_of(topic.topic_name)


def name_answers(version: int, body: AlterPartitionRequest, answer: AlterPartitionResponse) -> None:
    """Add topic names to the response of an AlterPartition of 2.8, and replace errors that 2.8 does not have."""
    if version < FIRST_WITH_IDS:
        for asked, answered in zip(body.topics, answer.topics, strict=True):
            answered.topic_name = asked.topic_name
            for each in answered.partitions:
                each.error_code = REFUSALS.get(ErrorCode(each.error_code), each.error_code)
