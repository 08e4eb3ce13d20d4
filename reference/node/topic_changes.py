"""Which topics a piece of the metadata log has changed."""

from __future__ import annotations

from reference.controller.image import MetadataImage
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import TopicId, TopicName
from reference.protocol.schema import Message


class TopicChanges:
    """Collects what is made, has grown and is gone; each record is shown to it before the image takes it up."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.names: set[TopicName] = set()
        """Topics of which partitions have come or gone."""
        self.deleted: dict[TopicId, TopicName] = {}

    def see(self, record: Message) -> None:
        """A record is about to be applied."""
        if isinstance(record, TopicRecord):
            self.names.add(record.name)
        elif isinstance(record, PartitionRecord):
            self.names.add(self._image.topics_by_id[record.topic_id].name)
        elif isinstance(record, RemoveTopicRecord):
            name = self._image.topics_by_id[record.topic_id].name
            self.names.add(name)
            self.deleted[record.topic_id] = name

    def see_all(self, before: dict[TopicId, TopicName]) -> None:
        """The image was made anew from a snapshot: every topic may have changed."""
        self.names.update(before.values(), self._image.topics)
        self.deleted |= {id: name for id, name in before.items() if id not in self._image.topics_by_id}
