"""The cluster's metadata as one value: what replaying the records of `__cluster_metadata` makes of them.

Every node holds an image; nothing changes it but `apply`, one record at a time, in the order of the log. So two nodes
that replayed the same offset hold the same image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.fence_broker_record import FenceBrokerRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.producer_ids_record import ProducerIdsRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
from reference.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from reference.protocol.primitives import Epoch, NodeId, ProducerId, TopicId, TopicName
from reference.protocol.schema import Message

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
"""Types of configuration resources, as the wire numbers them (org.apache.kafka.common.config.ConfigResource)."""

NO_LEADER: NodeId = -1
NO_LEADER_CHANGE: NodeId = -2


@dataclass(slots=True)
class PartitionImage:
    """One partition as the controller knows it."""

    replicas: list[NodeId]
    isr: list[NodeId]
    leader: NodeId
    leader_epoch: Epoch
    partition_epoch: Epoch
    removing_replicas: list[NodeId]
    adding_replicas: list[NodeId]
    eligible_leader_replicas: list[NodeId]
    last_known_elr: list[NodeId]


@dataclass(slots=True)
class TopicImage:
    name: TopicName
    id: TopicId
    partitions: dict[int, PartitionImage] = field(default_factory=dict[int, PartitionImage])


@dataclass(slots=True)
class Endpoint:
    listener: str
    host: str
    port: int


@dataclass(slots=True)
class BrokerImage:
    """One registered broker; `epoch` is the offset of its registration (KIP-841: broker epoch)."""

    id: NodeId
    epoch: int
    endpoints: list[Endpoint]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    registration: RegisterBrokerRecord


@dataclass(slots=True)
class MetadataImage:
    """The state after all records below `end_offset`."""

    end_offset: int = 0
    topics: dict[TopicName, TopicImage] = field(default_factory=dict[TopicName, TopicImage])
    topics_by_id: dict[TopicId, TopicImage] = field(default_factory=dict[TopicId, TopicImage])
    brokers: dict[NodeId, BrokerImage] = field(default_factory=dict[NodeId, BrokerImage])
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict[tuple[int, str], dict[str, str]])
    features: dict[str, int] = field(default_factory=dict[str, int])
    next_producer_id: ProducerId = 0

    def apply(self, record: Message) -> None:
        """Replay one record. Records that carry no state here (no-op, transactions' bounds) change nothing."""
        replay = _REPLAY.get(type(record))
        if replay is not None:
            replay(self, record)

    def partition(self, topic: TopicName, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return found.partitions.get(index) if found else None

    def live_brokers(self) -> list[BrokerImage]:
        """Registered brokers that are not fenced, in the order of their ids."""
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.fenced]

    def topic_config(self, topic: TopicName) -> dict[str, str]:
        """What was set for the topic itself; defaults are not among it."""
        return self.configs.get((TOPIC_RESOURCE, topic), {})


def _topic(image: MetadataImage, record: TopicRecord) -> None:
    image.topics[record.name] = image.topics_by_id[record.topic_id] = TopicImage(record.name, record.topic_id)


def _remove_topic(image: MetadataImage, record: RemoveTopicRecord) -> None:
    topic = image.topics_by_id.pop(record.topic_id)
    del image.topics[topic.name]
    image.configs.pop((TOPIC_RESOURCE, topic.name), None)


def _partition(image: MetadataImage, record: PartitionRecord) -> None:
    image.topics_by_id[record.topic_id].partitions[record.partition_id] = PartitionImage(
        replicas=record.replicas,
        isr=record.isr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        eligible_leader_replicas=record.eligible_leader_replicas or [],
        last_known_elr=record.last_known_elr or [],
    )


def _partition_change(image: MetadataImage, record: PartitionChangeRecord) -> None:
    """Null means unchanged; any change of the leader or of the replicas' roles is a new epoch."""
    partition = image.topics_by_id[record.topic_id].partitions[record.partition_id]
    partition.partition_epoch += 1
    if record.isr is not None:
        partition.isr = record.isr
    if record.replicas is not None:
        partition.replicas = record.replicas
    if record.removing_replicas is not None:
        partition.removing_replicas = record.removing_replicas
    if record.adding_replicas is not None:
        partition.adding_replicas = record.adding_replicas
    if record.eligible_leader_replicas is not None:
        partition.eligible_leader_replicas = record.eligible_leader_replicas
    if record.last_known_elr is not None:
        partition.last_known_elr = record.last_known_elr
    if record.leader != NO_LEADER_CHANGE:
        partition.leader = record.leader
        partition.leader_epoch += 1


def _config(image: MetadataImage, record: ConfigRecord) -> None:
    values = image.configs.setdefault((record.resource_type, record.resource_name), {})
    if record.value is None:
        values.pop(record.name, None)
    else:
        values[record.name] = record.value


def _register_broker(image: MetadataImage, record: RegisterBrokerRecord) -> None:
    image.brokers[record.broker_id] = BrokerImage(
        id=record.broker_id,
        epoch=record.broker_epoch,
        endpoints=[Endpoint(end.name, end.host, end.port) for end in record.end_points],
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        registration=record,
    )


def _unregister_broker(image: MetadataImage, record: UnregisterBrokerRecord) -> None:
    image.brokers.pop(record.broker_id, None)


def _fence_broker(image: MetadataImage, record: FenceBrokerRecord) -> None:
    image.brokers[record.id].fenced = True


def _unfence_broker(image: MetadataImage, record: UnfenceBrokerRecord) -> None:
    image.brokers[record.id].fenced = False


def _broker_registration_change(image: MetadataImage, record: BrokerRegistrationChangeRecord) -> None:
    """`fenced` is 1 to fence, -1 to unfence, 0 to leave; `in_controlled_shutdown` is 1 to begin."""
    broker = image.brokers[record.broker_id]
    if record.fenced != 0:
        broker.fenced = record.fenced > 0
    if record.in_controlled_shutdown > 0:
        broker.in_controlled_shutdown = True


def _feature_level(image: MetadataImage, record: FeatureLevelRecord) -> None:
    image.features[record.name] = record.feature_level


def _producer_ids(image: MetadataImage, record: ProducerIdsRecord) -> None:
    image.next_producer_id = record.next_producer_id


_REPLAY: dict[type[Message], Callable[[MetadataImage, Any], None]] = cast(
    "dict[type[Message], Callable[[MetadataImage, Any], None]]",
    {
        TopicRecord: _topic,
        RemoveTopicRecord: _remove_topic,
        PartitionRecord: _partition,
        PartitionChangeRecord: _partition_change,
        ConfigRecord: _config,
        RegisterBrokerRecord: _register_broker,
        UnregisterBrokerRecord: _unregister_broker,
        FenceBrokerRecord: _fence_broker,
        UnfenceBrokerRecord: _unfence_broker,
        BrokerRegistrationChangeRecord: _broker_registration_change,
        FeatureLevelRecord: _feature_level,
        ProducerIdsRecord: _producer_ids,
    },
)
"""What each record changes; the table is also the list of the records that carry state here."""
