"""Creates, grows and deletes topics: from a request and the metadata to records, or to an error.

Nothing here changes the metadata: each function returns records, which the caller appends to the metadata log.
Source: requirements TOP-*; org.apache.kafka.controller.ReplicationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from reference.controller.configs import validate_topic_configs
from reference.controller.elections import directory_for_new_replica
from reference.controller.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from reference.controller.placement import place_replicas
from reference.controller.topic_names import validate_topic_name
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import NO_UUID, Chance, NodeId, TopicId, TopicName
from reference.protocol.schema import Message

MAX_PARTITIONS = 10_000
"""The most partitions that one request may add to a topic, so that no request fills the metadata log."""

DASH = 62
"""The six bits that URL-safe base64 encodes as a dash."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
METADATA_TOPIC = "__cluster_metadata"


def collision_key(name: TopicName) -> str:
    """A key that is equal for names that collide in metrics: those that differ only in '.' and '_' (TOP-02)."""
    return name.replace(".", "_")


def new_topic_id(chance: Chance) -> TopicId:
    """A random id whose base64 form has no leading dash, as in Kafka: tools would parse such an id as an option.

    Version 4's fixed bits exclude the ids that Kafka reserves (0, 1 and the metadata topic's).
    """
    id = UUID(int=chance.getrandbits(128), version=4)
    return UUID(int=id.int ^ 1 << 127) if id.int >> 122 == DASH else id


@dataclass(slots=True)
class Created:
    """A planned topic: its records, and its part of the response."""

    name: TopicName
    id: TopicId
    assignments: list[list[NodeId]]
    configs: dict[str, str]
    records: list[Message] = field(default_factory=list[Message])


def create_topic(
    image: MetadataImage,
    topic: CreateTopicsRequest.CreatableTopic,
    *,
    default_partitions: int,
    default_replication: int,
    chance: Chance,
) -> Created:
    """Plan the creation of one topic.

    Errors: KafkaError with INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_REQUEST, INVALID_REPLICA_ASSIGNMENT,
    INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG (TOP-01 to TOP-08).
    """
    if topic.name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    validate_topic_name(topic.name)
    if topic.name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic name '{topic.name}' is reserved.")
    key = collision_key(topic.name)
    for other in image.topics if "_" in key else ():  # a name without '.' and '_' collides with itself alone
        if len(other) == len(key) and collision_key(other) == key:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' collides with existing topic: {other}"
            )
    configs: dict[str, str | None] = {}
    for config in topic.configs:
        configs[config.name] = config.value
    validate_topic_configs(configs)
    if topic.assignments:
        assignments = _manual_assignments(image, topic)
    else:
        assignments = _automatic_assignments(image, topic, default_partitions, default_replication, chance)
    values = {name: value for name, value in configs.items() if value is not None}
    created = Created(topic.name, new_topic_id(chance), assignments, values)
    created.records = [TopicRecord(name=topic.name, topic_id=created.id)]
    created.records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
        for name, value in values.items()
    ]
    created.records += [
        partition_record(image, created.id, index, replicas) for index, replicas in enumerate(assignments)
    ]
    return created


def partition_record(image: MetadataImage, topic: TopicId, index: int, replicas: list[NodeId]) -> PartitionRecord:
    """The record of a new partition: its active replicas are in sync, and the first of them leads.

    At least one replica must be active; the caller that chooses replicas guarantees it.
    """
    isr = [replica for replica in replicas if image.is_active(replica)]
    return PartitionRecord(
        partition_id=index,
        topic_id=topic,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory_for_new_replica(image, replica) for replica in replicas],
    )


def _require_active(image: MetadataImage, assignments: Sequence[list[NodeId]], first: int) -> None:
    """Refuse partitions that have no active replica; `first` is the number of the first partition.

    Errors: KafkaError INVALID_REPLICA_ASSIGNMENT.
    """
    for index, replicas in enumerate(assignments):
        if not any(image.is_active(replica) for replica in replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "All brokers specified in the manual partition assignment for partition "
                f"{first + index} are fenced or in controlled shutdown.",
            )


def _automatic_assignments(
    image: MetadataImage,
    topic: CreateTopicsRequest.CreatableTopic,
    default_partitions: int,
    default_replication: int,
    chance: Chance,
) -> list[list[NodeId]]:
    if topic.replication_factor == 0 or topic.replication_factor < -1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions == 0 or topic.num_partitions < -1:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    partitions = default_partitions if topic.num_partitions == -1 else topic.num_partitions
    replication = default_replication if topic.replication_factor == -1 else topic.replication_factor
    if partitions > MAX_PARTITIONS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        )
    try:
        return place_replicas(image, partitions, replication, chance)
    except KafkaError as error:
        raise KafkaError(
            error.code, f"Unable to replicate the partition {replication} time(s): {error.message}"
        ) from error


def _manual_assignments(image: MetadataImage, topic: CreateTopicsRequest.CreatableTopic) -> list[list[NodeId]]:
    if topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    by_index: dict[int, list[NodeId]] = {}
    for assignment in topic.assignments:
        if assignment.partition_index in by_index:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        by_index[assignment.partition_index] = assignment.broker_ids
    if sorted(by_index) != list(range(len(by_index))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    assignments = [by_index[index] for index in range(len(by_index))]
    for replicas in assignments:
        validate_assignment(image, replicas, len(assignments[0]), absent=replicas if image.is_beside_zookeeper else ())
    _require_active(image, assignments, 0)
    return assignments


def validate_assignment(
    image: MetadataImage, replicas: Sequence[NodeId], factor: int | None = None, absent: Collection[NodeId] = ()
) -> None:
    """Refuse invalid replicas; `factor` is the required number of replicas, if there is one.

    Those in `absent` need not be registered.

    Errors: KafkaError INVALID_REPLICA_ASSIGNMENT for an empty list, duplicate or unknown brokers, or another factor (TOP-07).
    """
    if not replicas:
        raise _wrong_assignment("includes an empty replica list.")
    for replica, times in sorted(Counter(replicas).items()):
        if replica not in image.brokers and replica not in absent:
            raise _wrong_assignment(f"includes broker {replica}, but no such broker is registered.")
        if times > 1:
            raise _wrong_assignment(f"includes the broker {replica} more than once.")
    if factor is not None and len(replicas) != factor:
        raise _wrong_assignment(
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {factor} replica(s)."
        )


def _wrong_assignment(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {problem}")


def create_partitions(
    image: MetadataImage, topic: CreatePartitionsRequest.CreatePartitionsTopic, chance: Chance
) -> list[Message]:
    """Plan the growth of one topic.

    Errors: KafkaError with UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR (TOP-17).
    """
    found = image.topics.get(topic.name)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(found.partitions)
    if topic.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if topic.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {topic.count} would not be an increase.",
        )
    added = topic.count - present
    if added > MAX_PARTITIONS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of additional partitions per request.",  # as 4.4.0; 4.3.1 adds a part of them
        )
    factor = len(found.partitions[0].replicas)
    if topic.assignments is None:
        assignments = place_replicas(image, added, factor, chance)
    else:
        if len(topic.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(topic.assignments)} assignment(s) were "
                "specified.",
            )
        assignments = [assignment.broker_ids for assignment in topic.assignments]
        for replicas in assignments:
            validate_assignment(image, replicas, factor)
        _require_active(image, assignments, present)
    return [partition_record(image, found.id, present + index, replicas) for index, replicas in enumerate(assignments)]


def find_topic_to_delete(image: MetadataImage, name: TopicName | None, topic_id: TopicId) -> TopicImage:
    """The topic with a name or an id.

    Errors: KafkaError INVALID_REQUEST for both or neither, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (TOP-14).
    """
    if name is not None and topic_id != NO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == NO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    found = image.topics.get(name) if name is not None else image.topics_by_id.get(topic_id)
    if found is not None:
        return found
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def delete_topic(topic: TopicImage) -> list[Message]:
    """The record that removes a topic with its partitions and settings."""
    return [RemoveTopicRecord(topic_id=topic.id)]
