"""The cluster's topics, as coordinators ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reference.controller.image import MetadataImage
from reference.protocol.primitives import TopicId, TopicName


class KnownTopics:
    """What the node's image tells of topics now (`reference.coordinator.topics.Topics`)."""

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
