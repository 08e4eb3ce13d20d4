"""Writes an image as records: the content of a snapshot.

Source: KIP-630; org.apache.kafka.image.MetadataImage.write, whose order this follows.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference.controller.brokers import METADATA_FEATURE
from reference.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.producer_ids_record import ProducerIdsRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.schema import Message


def image_records(image: MetadataImage) -> Iterator[Message]:
    """The records that turn an empty image into this one, with metadata.version first."""
    for name, level in sorted(image.features.items(), key=lambda each: (each[0] != METADATA_FEATURE, each)):
        yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield _broker(broker)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for index, partition in topic.partitions.items():
            yield partition_as_record(topic, index, partition)
    for (kind, resource), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from (acl.as_record(id) for id, acl in image.acls.by_id.items())
    yield from image.carried.values()


def _broker(broker: BrokerImage) -> RegisterBrokerRecord:
    first = broker.registration
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=first.is_migrating_zk_broker,
        incarnation_id=first.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=first.end_points,
        features=first.features,
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.directories,
        cordoned_log_dirs=broker.cordoned_directories,
    )


def partition_as_record(topic: TopicImage, index: int, partition: PartitionImage) -> PartitionRecord:
    """The whole state of a partition; the ELR lists are null if they are empty."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic.id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.eligible_leader_replicas or None,
        last_known_elr=partition.last_known_elr or None,
    )
