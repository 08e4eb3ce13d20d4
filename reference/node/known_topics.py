"""The cluster's topics as coordinators use them: their present state, and the topics that records have changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reference.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from reference.node.requests import Key
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.messages.clear_elr_record import ClearElrRecord
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.fence_broker_record import FenceBrokerRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
from reference.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from reference.protocol.primitives import TopicId, TopicName
from reference.protocol.schema import Message


class KnownTopics:
    """The topics of the node's metadata image (`reference.coordinator.topics.Topics`)."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def version(self) -> int:
        return self._image.end_offset

    def names(self) -> Iterable[TopicName]:
        return self._image.topics

    def id_of(self, name: TopicName) -> TopicId | None:
        topic = self._image.topics.get(name)
        return None if topic is None else topic.id

    def name_of(self, id: TopicId) -> TopicName | None:
        topic = self._image.topics_by_id.get(id)
        return None if topic is None else topic.name

    def partition_count(self, id: TopicId) -> int:
        topic = self._image.topics_by_id.get(id)
        return 0 if topic is None else len(topic.partitions)

    def partition_racks(self, id: TopicId) -> Sequence[Sequence[str]]:
        topic = self._image.topics_by_id.get(id)
        brokers = self._image.brokers
        partitions = [] if topic is None else [partition for _, partition in sorted(topic.partitions.items())]
        return [
            [rack for each in partition.replicas if each in brokers and (rack := brokers[each].rack) is not None]
            for partition in partitions
        ]


OF_BROKERS = (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
"""The records that change which replicas a leader waits for."""


class TopicChanges:
    """Collects created, grown and deleted topics; `see` gets each record before the image applies it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.names: set[TopicName] = set()
        """Topics with new or deleted partitions."""
        self.are_new = False
        """Whether some of them were created."""
        self.deleted: dict[TopicId, TopicName] = {}
        self.partitions: dict[Key, None] = {}
        """Partitions that records have changed, also by a setting of their topic, in the records' order."""
        self.all_partitions = False
        """Whether a record may have changed any partition."""
        self.brokers = False
        """Whether brokers were fenced, unfenced, registered or removed, or began a controlled shutdown."""

    def see(self, record: Message) -> None:
        """Collect the changes of a record, before it is applied."""
        if isinstance(record, PartitionChangeRecord):
            self.partitions[self._image.topics_by_id[record.topic_id].name, record.partition_id] = None
        elif isinstance(record, PartitionRecord):
            name = self._image.topics_by_id[record.topic_id].name
            self.names.add(name)
            self.partitions[name, record.partition_id] = None
        elif isinstance(record, OF_BROKERS):
            self.brokers = True
        elif isinstance(record, TopicRecord):
            self.names.add(record.name)
            self.are_new = True
        elif isinstance(record, RemoveTopicRecord):
            name = self._image.topics_by_id[record.topic_id].name
            self.names.add(name)
            self.deleted[record.topic_id] = name
            self._see_partitions_of(name)
        elif isinstance(record, ConfigRecord) and record.resource_type == TOPIC_RESOURCE:
            self._see_partitions_of(record.resource_name)
        elif isinstance(record, ClearElrRecord) or getattr(record, "resource_type", None) == BROKER_RESOURCE:
            self.all_partitions = True

    def _see_partitions_of(self, name: TopicName) -> None:
        topic = self._image.topics.get(name)
        self.partitions |= {(name, index): None for index in (topic.partitions if topic is not None else ())}

    def see_all(self, before: dict[TopicId, TopicName]) -> None:
        """Collect the changes of a snapshot that replaced the image: every topic may have changed."""
        self.all_partitions = self.brokers = True
        self.names.update(before.values(), self._image.topics)
        self.are_new |= any(id not in before for id in self._image.topics_by_id)
        self.deleted |= {id: name for id, name in before.items() if id not in self._image.topics_by_id}
