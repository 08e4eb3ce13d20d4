"""AssignReplicasToDirs: a broker reports the directories of its replicas.

Source: KIP-858; org.apache.kafka.controller.ReplicationControlManager.handleAssignReplicasToDirs.
"""

from __future__ import annotations

from reference.controller.brokers import check_broker_epoch
from reference.controller.configs import Configuration
from reference.controller.decision import Decision
from reference.controller.directory_ids import DirectoryId
from reference.controller.elections import BrokerChange, Place, move_leaders, terms_of
from reference.controller.image import MetadataImage
from reference.controller.partition_change import Election, Target, change_partition
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.primitives import NodeId, TopicId
from reference.protocol.schema import Message

DirectoryAnswer = AssignReplicasToDirsResponse.DirectoryData
TopicAnswer = AssignReplicasToDirsResponse.TopicData
PartitionAnswer = AssignReplicasToDirsResponse.PartitionData


def assign_replicas_to_dirs(
    image: MetadataImage, configuration: Configuration, request: AssignReplicasToDirsRequest
) -> Decision[AssignReplicasToDirsResponse]:
    """Record the directories of replicas; a replica in an offline directory leaves the ISR.

    Errors: KafkaError STALE_BROKER_EPOCH. Per partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    NOT_LEADER_OR_FOLLOWER for a partition without a replica on the broker.
    """
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[Message] = []
    unreachable: list[Place] = []
    response = AssignReplicasToDirsResponse()
    for asked in request.directories:
        answer = DirectoryAnswer(id=asked.id)
        response.directories.append(answer)
        for topic in asked.topics:
            reported = TopicAnswer(topic_id=topic.topic_id)
            answer.topics.append(reported)
            for index in [each.partition_index for each in topic.partitions]:
                result = PartitionAnswer(partition_index=index)
                reported.partitions.append(result)
                try:
                    place = _find(image, broker.id, topic.topic_id, index)
                except KafkaError as error:
                    result.error_code = error.code
                    continue
                record = _assign(image, configuration, broker.id, asked.id, place)
                if record is not None:
                    records.append(record)
                if not broker.has_online(asked.id) and place not in unreachable:
                    unreachable.append(place)
    return Decision(
        [*records, *move_leaders(image, configuration, iter(unreachable), BrokerChange(leaving=broker.id))], response
    )


def _find(image: MetadataImage, broker: NodeId, topic_id: TopicId, index: int) -> Place:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return topic, index, partition


def _assign(
    image: MetadataImage, configuration: Configuration, broker: NodeId, directory: DirectoryId, place: Place
) -> PartitionChangeRecord | None:
    topic, index, partition = place
    target = Target.unchanged(partition)
    target.directories[broker] = directory
    terms = terms_of(image, configuration, topic, partition, Election.ONLINE)
    return change_partition(topic.id, index, partition, target, terms)
