"""Reassignments: start, cancel and list them.

A reassignment adds the new replicas first. When an ISR change has all of them in sync, its record also drops the old ones
(`partition_change`); this module does not wait for it.
Source: KIP-455, KIP-860; org.apache.kafka.controller.ReplicationControlManager, PartitionReassignmentReplicas and
PartitionReassignmentRevert.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from reference.controller.configs import Configuration
from reference.controller.decision import Decision
from reference.controller.elections import is_unclean_allowed, terms_of
from reference.controller.image import MetadataImage, PartitionImage, TopicImage
from reference.controller.partition_change import Election, Target, change_partition
from reference.controller.topics import validate_assignment
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from reference.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.primitives import NodeId, TopicName

Wanted = AlterPartitionReassignmentsRequest.ReassignablePartition
TopicAnswer = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionAnswer = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
OngoingPartition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


class Origin(Enum):
    """The source of a reassignment request, which Kafka's controllers treat differently."""

    QUORUM = "a client of a cluster with a metadata quorum"
    BESIDE_ZOOKEEPER = "a client of a cluster with a ZooKeeper"
    ZNODE = "a tool, which wrote it into ZooKeeper"

    def may_be_absent(self, partition: PartitionImage, replicas: Collection[NodeId]) -> Collection[NodeId]:
        """The replicas that need not be registered. With ZooKeeper a broker that is down is not registered, so only added
        replicas must be (KafkaController.validateReplicas), and none for a request that was written to ZooKeeper."""
        match self:
            case Origin.QUORUM:
                return ()
            case Origin.BESIDE_ZOOKEEPER:
                return _original(partition)
            case Origin.ZNODE:
                return replicas


def _original(partition: PartitionImage) -> list[NodeId]:
    """The replicas from before an ongoing reassignment."""
    return [each for each in partition.replicas if each not in partition.adding_replicas]


def alter_partition_reassignments(
    image: MetadataImage,
    configuration: Configuration,
    request: AlterPartitionReassignmentsRequest,
    origin: Origin = Origin.QUORUM,
) -> Decision[AlterPartitionReassignmentsResponse]:
    """Start, change or cancel reassignments; each partition has its own result."""
    response = AlterPartitionReassignmentsResponse(
        error_message=None if request.topics else "",
        allow_replication_factor_change=request.allow_replication_factor_change or not request.topics,
    )
    decision: Decision[AlterPartitionReassignmentsResponse] = Decision([], response)
    for asked in request.topics:
        answer = TopicAnswer(name=asked.name)
        response.responses.append(answer)
        for wanted in asked.partitions:
            result = PartitionAnswer(partition_index=wanted.partition_index, error_message=None)
            answer.partitions.append(result)
            try:
                topic, partition = _find(image, asked.name, wanted.partition_index)
                if wanted.replicas is not None:
                    validate_assignment(image, wanted.replicas, absent=origin.may_be_absent(partition, wanted.replicas))
                record = _alter(image, configuration, topic, wanted, request.allow_replication_factor_change, origin)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
                continue
            if record is not None:
                decision.records.append(record)
    return decision


def _find(image: MetadataImage, name: TopicName, index: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic, partition


def _alter(
    image: MetadataImage,
    configuration: Configuration,
    topic: TopicImage,
    wanted: Wanted,
    may_change_factor: bool,
    origin: Origin,
) -> PartitionChangeRecord | None:
    partition = topic.partitions[wanted.partition_index]
    if wanted.replicas is None:
        return _call_off_reassignment(image, configuration, topic, wanted.partition_index, partition)
    if not may_change_factor:
        _require_same_factor(partition, wanted.replicas)
    reassign = _reassign if origin is Origin.QUORUM else _reassign_from_original
    target = reassign(topic, wanted.partition_index, partition, wanted.replicas)
    terms = terms_of(image, configuration, topic, partition, Election.ONLINE)
    return change_partition(topic.id, wanted.partition_index, partition, target, terms)


def _require_same_factor(partition: PartitionImage, replicas: list[NodeId]) -> None:
    """Check that the replication factor equals the one after an ongoing reassignment."""
    factor = len({*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas})
    if factor != len(replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {factor} to {len(replicas)}"
        )


def _reassign(topic: TopicImage, index: int, partition: PartitionImage, replicas: list[NodeId]) -> Target:
    """The target with the wanted replicas first, then the removing ones until the others are in sync."""
    removing = sorted({*partition.replicas} - {*replicas})
    adding = sorted({*replicas} - {*partition.replicas})
    target = Target.unchanged(partition)
    target.replicas = [*replicas, *removing]
    target.removing_replicas = removing or partition.removing_replicas
    target.adding_replicas = adding or partition.adding_replicas
    return target


def _reassign_from_original(topic: TopicImage, index: int, partition: PartitionImage, replicas: list[NodeId]) -> Target:
    """As `_reassign`, but drop replicas that an ongoing reassignment was adding, unless they are wanted again.

    Source: ReplicaAssignment.reassignTo of Apache Kafka 3.9.2. Errors: KafkaError INVALID_REPLICA_ASSIGNMENT if no replica
    would be in sync.
    """
    original = _original(partition)
    target = Target.unchanged(partition)
    target.removing_replicas = [each for each in original if each not in replicas]
    target.adding_replicas = [each for each in replicas if each not in original]
    target.replicas = [*replicas, *target.removing_replicas]
    target.isr = [each for each in partition.isr if each in target.replicas]
    if partition.isr and not target.isr:
        raise _would_be_unclean(topic, index)
    return target


def _would_be_unclean(topic: TopicImage, index: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
        "leader election.",
    )


def _call_off_reassignment(
    image: MetadataImage, configuration: Configuration, topic: TopicImage, index: int, partition: PartitionImage
) -> PartitionChangeRecord | None:
    """Cancel a reassignment: return to the replicas from before it.

    If only added replicas are in sync, the first original one becomes the ISR, which is an unclean election.
    Errors: KafkaError NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT if that election is not allowed.
    """
    if not partition.is_reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    target = Target.unchanged(partition)
    target.replicas = [each for each in partition.replicas if each not in partition.adding_replicas]
    target.isr = [each for each in partition.isr if each not in partition.adding_replicas]
    target.removing_replicas, target.adding_replicas = [], []
    if not target.replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas."
        )
    if not target.isr:
        target.isr = target.replicas[:1]
        if not is_unclean_allowed(configuration, topic.name):
            raise _would_be_unclean(topic, index)
    return change_partition(topic.id, index, partition, target, terms_of(image, configuration, topic, partition))


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The ongoing reassignments of all topics or of the named ones, without topics and partitions that have none."""
    response = ListPartitionReassignmentsResponse(error_message=None)
    if request.topics is None:
        asked = [(topic, [*topic.partitions]) for topic in image.topics.values()]
    else:
        named = [(image.topics.get(each.name), each.partition_indexes) for each in request.topics]
        asked = [(topic, indexes) for topic, indexes in named if topic is not None]
    for topic, indexes in asked:
        found = [_ongoing(index, topic.partitions[index]) for index in indexes if _is_reassigning(topic, index)]
        if found:
            response.topics.append(OngoingTopic(name=topic.name, partitions=found))
    return response


def _is_reassigning(topic: TopicImage, index: int) -> bool:
    partition = topic.partitions.get(index)
    return partition is not None and partition.is_reassigning


def _ongoing(index: int, partition: PartitionImage) -> OngoingPartition:
    return OngoingPartition(
        partition_index=index,
        replicas=partition.replicas,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
    )
