"""Inter-broker protocol 2.8: what brokers ask each other as Apache Kafka 2.8 does, which names topics where 3.9 has their ids.

With `inter.broker.protocol.version=2.8` a broker makes its requests as with any other. `OlderForm` gives them the older form on
their way out, and gives the answers their ids; `with_ids` does the same with what such a broker asks this controller.
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
"""The version of AlterPartition that names topics by their ids; 2.8 has version 0 alone."""

M = TypeVar("M", bound=Message)
NameOf = Callable[[TopicId], TopicName | None]
IdOf = Callable[[TopicName], TopicId]


class OlderForm:
    """The form of what is asked of brokers of 2.8."""

    def __init__(self, assigned: MetadataImage, image: MetadataImage) -> None:
        """`assigned` has the topics of this broker's replicas, of which `image` may not know yet."""
        self._assigned = assigned
        self._image = image

    def translate(self, body: Message, answered: Answered) -> tuple[Message, Answered]:
        """The request in that form, and what gives its answer the ids of topics before it is taken."""

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
    """A Fetch of a follower or an AlterPartition in the form of 2.8; any other request as it is.

    A topic whose name is not known is left out: it is being given up.
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
"""What a proposal is refused with -> what says it to a broker that does not know this."""


def with_ids(version: int, body: AlterPartitionRequest, id_of: IdOf) -> None:
    """Give an AlterPartition of 2.8 the ids of its topics; a topic that is not known has none."""
    if version < FIRST_WITH_IDS:
        for topic in body.topics:
            topic.topic_id = id_of(topic.topic_name)


def name_answers(version: int, body: AlterPartitionRequest, answer: AlterPartitionResponse) -> None:
    """Give the answer to an AlterPartition of 2.8 the names of its topics, and errors that 2.8 knows."""
    if version < FIRST_WITH_IDS:
        for asked, answered in zip(body.topics, answer.topics, strict=True):
            answered.topic_name = asked.topic_name
            for each in answered.partitions:
                each.error_code = REFUSALS.get(ErrorCode(each.error_code), each.error_code)
