"""Decisions as writes: the operations on znodes that make the controller's records true.

The decisions are those of `reference.controller`, whose records a quorum appends to the metadata log. Here the same records
become conditional writes: a partition's state is written on condition that its version is the partition epoch that the
decision was made on, and everything on condition that no later controller has counted the controller epoch (KAFKA-6082).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from reference.controller.image import MetadataImage, PartitionImage, TopicImage
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.producer_ids_record import ProducerIdsRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from reference.protocol.primitives import LeaderEpoch, ProducerId, TopicId
from reference.protocol.schema import Message
from reference.zookeeper import znodes
from reference.zookeeper.operations import Check, Create, Delete, Multi, SetData, Write, ZnodeVersion

MAX_WRITES = 1_000
"""Operations of one multi: ZooKeeper takes a request of a megabyte (jute.maxbuffer)."""

BLOCK = 1_000
"""Producer ids of a block."""

UNWRITTEN = (
    RegisterBrokerRecord, UnregisterBrokerRecord, BrokerRegistrationChangeRecord, FeatureLevelRecord,
)  # fmt: skip
"""Records of what brokers write themselves, or what the controller alone remembers."""


@dataclass(frozen=True, slots=True)
class Condition:
    """The controller epoch in which a decision is written, and the version that its znode has in this epoch."""

    controller_epoch: LeaderEpoch
    version: ZnodeVersion

    @property
    def check(self) -> Check:
        return Check(znodes.CONTROLLER_EPOCH, self.version)


def multis(writes: Sequence[Write], condition: Condition) -> list[Multi]:
    """The writes in their order, each multi with the condition in front; one at least, so that each decision is checked."""
    pieces = [writes[at : at + MAX_WRITES] for at in range(0, max(1, len(writes)), MAX_WRITES)]
    return [Multi((condition.check, *piece)) for piece in pieces]


def writes_of(
    image: MetadataImage, records: Sequence[Message], epoch: LeaderEpoch, exists: Callable[[str], bool]
) -> list[Write]:
    """What makes these records true, on the image before them; `exists` is asked for settings' znodes, and topics'.

    Errors: KafkaError UNSUPPORTED_VERSION for a type of record that ZooKeeper does not store.
    """
    planned = _Planned(image, epoch, exists)
    for record in records:
        planned.take(record)
    return planned.writes()


class _Planned:
    """The topics and partitions as the records leave them, and the writes so far."""

    def __init__(self, image: MetadataImage, epoch: LeaderEpoch, exists: Callable[[str], bool]) -> None:
        self._image = image
        self._epoch = epoch
        self._exists = exists
        self._topics: dict[TopicId, TopicImage] = {}
        self._assigned: dict[TopicId, None] = {}
        """Topics whose assignment is to be written."""
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._new: dict[TopicId, None] = {}
        self._states: list[Write] = []
        self._rest: list[Write] = []

    def take(self, record: Message) -> None:
        match record:
            case TopicRecord():
                self._topics[record.topic_id] = TopicImage(record.name, record.topic_id)
                self._new[record.topic_id] = self._assigned[record.topic_id] = None
                self._configs.setdefault((znodes.TOPIC_RESOURCE, record.name), {})
            case PartitionRecord():
                self._create_partition(record)
            case PartitionChangeRecord():
                self._change_partition(record)
            case ConfigRecord():
                self._configure(record)
            case RemoveTopicRecord():
                self._rest += removal(self._topic(record.topic_id), self._exists)
            case ProducerIdsRecord():
                first = ProducerId(record.next_producer_id - BLOCK)
                last = ProducerId(record.next_producer_id - 1)
                data = znodes.encode_producer_block(record.broker_id, first, last)
                self._rest.append(SetData(znodes.PRODUCER_IDS, data))
            case _ if isinstance(record, UNWRITTEN):
                pass
            case _:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, f"{type(record).__name__} cannot be stored in ZooKeeper"
                )

    def writes(self) -> list[Write]:
        """Topics and settings first: a later controller makes the partitions that are missing."""
        return [*self._assignments(), *self._settings(), *self._states, *self._rest]

    def _topic(self, topic_id: TopicId) -> TopicImage:
        """The topic to be altered: a copy, for the image is not changed before it is written."""
        if topic_id not in self._topics:
            found = self._image.topics_by_id[topic_id]
            self._topics[topic_id] = replace(found, partitions=dict(found.partitions))
        return self._topics[topic_id]

    def _create_partition(self, record: PartitionRecord) -> None:
        topic, index = self._topic(record.topic_id), record.partition_id
        scratch = MetadataImage(topics_by_id={record.topic_id: topic})
        scratch.apply(record)
        if record.topic_id not in self._assigned and not self._exists(znodes.partitions_path(topic.name)):
            self._states.append(Create(znodes.partitions_path(topic.name), b""))
        self._assigned[record.topic_id] = None
        self._states.append(Create(znodes.partition_path(topic.name, index), b""))
        self._states.append(Create(znodes.state_path(topic.name, index), self._state(topic.partitions[index])))

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic, index = self._topic(record.topic_id), record.partition_id
        before = topic.partitions[index]
        after = topic.partitions[index] = before.after(record)
        version = ZnodeVersion(before.partition_epoch)
        self._states.append(SetData(znodes.state_path(topic.name, index), self._state(after), version))
        if any(each is not None for each in (record.replicas, record.adding_replicas, record.removing_replicas)):
            self._assigned[record.topic_id] = None

    def _state(self, partition: PartitionImage) -> bytes:
        return znodes.encode_state(partition, self._epoch)

    def _configure(self, record: ConfigRecord) -> None:
        resource = record.resource_type, record.resource_name
        if resource[0] not in znodes.CONFIG_FOLDERS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Configurations of groups cannot be stored in ZooKeeper.")
        values = self._configs.setdefault(resource, dict(self._image.configs.get(resource, {})))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value

    def _assignments(self) -> Iterator[Write]:
        for topic_id in self._assigned:
            topic = self._topics[topic_id]
            data, path = znodes.encode_assignment(assignment_of(topic)), znodes.topic_path(topic.name)
            if topic_id in self._new and not self._exists(path):
                yield Create(path, data)
            else:
                yield SetData(path, data)
            if topic_id in self._new:
                yield Create(znodes.partitions_path(topic.name), b"")

    def _settings(self) -> Iterator[Write]:
        new = {self._topics[each].name for each in self._new}
        for (kind, name), values in self._configs.items():
            path, data = znodes.config_path(kind, name), znodes.encode_config(values)
            yield SetData(path, data) if self._exists(path) else Create(path, data)
            if kind != znodes.TOPIC_RESOURCE or name not in new:
                entity = path.removeprefix("/config/")
                yield Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(entity), sequential=True)


def assignment_of(topic: TopicImage) -> znodes.Assignment:
    """A topic's assignment, as its znode has it."""
    partitions = dict(sorted(topic.partitions.items()))
    return znodes.Assignment(
        {index: each.replicas for index, each in partitions.items()},
        topic.id,
        {index: each.adding_replicas for index, each in partitions.items()},
        {index: each.removing_replicas for index, each in partitions.items()},
    )


def removal(topic: TopicImage, exists: Callable[[str], bool]) -> list[Write]:
    """What takes a topic away, with its settings and, last, the order to delete it."""
    found: list[Write] = []
    for index in topic.partitions:
        found.append(Delete(znodes.state_path(topic.name, index)))
        found.append(Delete(znodes.partition_path(topic.name, index)))
    found.append(Delete(znodes.partitions_path(topic.name)))
    found.append(Delete(znodes.topic_path(topic.name)))
    more = znodes.config_path(znodes.TOPIC_RESOURCE, topic.name), f"{znodes.DELETE_TOPICS}/{topic.name}"
    return [*found, *(Delete(path) for path in more if exists(path))]
