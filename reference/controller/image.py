"""The cluster's metadata as one value: the result of replaying the records of `__cluster_metadata`.

Every node has an image. Only `apply` changes it, one record at a time, in the order of the log. So two nodes that have replayed
the same offset have the same image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from reference.authorizer.acl import AclTable, acl_of
from reference.controller.carried import Carried, carry
from reference.controller.directory_ids import MIGRATING, UNASSIGNED, DirectoryId, is_online
from reference.controller.metadata_records import NEWEST_LEVEL
from reference.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.messages.clear_elr_record import ClearElrRecord
from reference.protocol.messages.client_quota_record import ClientQuotaRecord
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.fence_broker_record import FenceBrokerRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.producer_ids_record import ProducerIdsRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from reference.protocol.messages.remove_topic_record import RemoveTopicRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.unfence_broker_record import UnfenceBrokerRecord
from reference.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from reference.protocol.primitives import (
    FIRST_OFFSET,
    NO_NODE,
    NO_UUID,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    ProducerId,
    TopicId,
    TopicName,
)
from reference.protocol.schema import Message
from reference.quotas.table import QuotaTable

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
"""Types of configuration resources, by their numbers in the protocol (org.apache.kafka.common.config.ConfigResource)."""

FIRST_PRODUCER_ID = ProducerId(0)
NO_LEADER = NO_NODE
NO_LEADER_CHANGE = NodeId(-2)

RECOVERED, RECOVERING = range(2)
"""Leader recovery states: an uncleanly elected leader is recovering until it reports that it has recovered (KIP-704)."""

NO_RECOVERY_CHANGE = -1

ELR_FEATURE = "eligible.leader.replicas.version"
"""Since its level 1 the controller keeps eligible leader replicas (KIP-966)."""


@dataclass(slots=True)
class PartitionImage:
    """One partition in the metadata; `directories` has one entry per entry of `replicas`."""

    replicas: list[NodeId]
    isr: list[NodeId]
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    removing_replicas: list[NodeId]
    adding_replicas: list[NodeId]
    eligible_leader_replicas: list[NodeId]
    last_known_elr: list[NodeId]
    directories: list[DirectoryId] = field(default_factory=list[DirectoryId])
    leader_recovery_state: int = RECOVERED

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.replicas[0]

    def directory_of(self, replica: NodeId) -> DirectoryId | None:
        """The directory of a replica on its broker; None for a broker without a replica."""
        for id, directory in zip(self.replicas, self.directories, strict=True):
            if id == replica:
                return directory
        return None

    def after(self, record: PartitionChangeRecord) -> PartitionImage:
        """The partition after a change.

        In the record null means unchanged. Every change has a new partition epoch, and a new leader epoch if it names a leader,
        also
        the same one (org.apache.kafka.metadata.PartitionRegistration.merge).
        """
        changed = {name: value for name, value in _changes(record).items() if value is not None}
        later = replace(self, partition_epoch=self.partition_epoch + 1, **changed)
        if record.leader != NO_LEADER_CHANGE:
            later.leader = record.leader
            later.leader_epoch += 1
        if record.leader_recovery_state != NO_RECOVERY_CHANGE:
            later.leader_recovery_state = record.leader_recovery_state
        later.directories = _directories(later.directories, later.replicas)
        return later


def _changes(record: PartitionChangeRecord) -> dict[str, Any]:
    return {
        "isr": record.isr,
        "replicas": record.replicas,
        "removing_replicas": record.removing_replicas,
        "adding_replicas": record.adding_replicas,
        "eligible_leader_replicas": record.eligible_leader_replicas,
        "last_known_elr": record.last_known_elr,
        "directories": record.directories,
    }


def _directories(directories: list[DirectoryId], replicas: list[NodeId]) -> list[DirectoryId]:
    """The directories of the replicas; MIGRATING for all of them if the record has no ids."""
    return directories if any(each != MIGRATING for each in directories) else [MIGRATING] * len(replicas)


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
    protocol: int = 0
    """The security protocol; 0 is PLAINTEXT (org.apache.kafka.common.security.auth.SecurityProtocol)."""


@dataclass(slots=True)
class BrokerImage:
    """One registered broker; `epoch` is the offset of its registration (KIP-841: broker epoch)."""

    id: NodeId
    epoch: BrokerEpoch
    endpoints: list[Endpoint]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    registration: RegisterBrokerRecord
    registered_at: Offset = FIRST_OFFSET
    """Offset of the newest registration record: an updated registration of the same incarnation keeps its epoch."""
    directories: list[DirectoryId] = field(default_factory=list[DirectoryId])
    """Its online directories."""
    cordoned_directories: list[DirectoryId] | None = None
    """Its directories that take no new replicas (KIP-1066); None if it has never reported them."""

    @property
    def is_active(self) -> bool:
        """Neither fenced nor in controlled shutdown: the broker may lead and be in an ISR."""
        return not (self.fenced or self.in_controlled_shutdown)

    def has_online(self, directory: DirectoryId) -> bool:
        return is_online(directory, self.directories)

    def directory_for_new_replica(self) -> DirectoryId:
        """The directory for a new replica: the only one, or UNASSIGNED if the broker will choose; MIGRATING without
        directories."""
        if not self.directories:
            return MIGRATING
        return self.directories[0] if len(self.directories) == 1 else UNASSIGNED


@dataclass(slots=True)
class MetadataImage:
    """The state after all records below `end_offset`."""

    end_offset: Offset = FIRST_OFFSET
    topics: dict[TopicName, TopicImage] = field(default_factory=dict[TopicName, TopicImage])
    topics_by_id: dict[TopicId, TopicImage] = field(default_factory=dict[TopicId, TopicImage])
    brokers: dict[NodeId, BrokerImage] = field(default_factory=dict[NodeId, BrokerImage])
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict[tuple[int, str], dict[str, str]])
    features: dict[str, int] = field(default_factory=dict[str, int])
    next_producer_id: ProducerId = FIRST_PRODUCER_ID
    acls: AclTable = field(default_factory=AclTable)
    quotas: QuotaTable = field(default_factory=QuotaTable)
    carried: Carried = field(default_factory=Carried)
    """Records that are kept as records, for this node and for its snapshots; see `reference.controller.carried`."""
    open_transaction: Offset | None = None
    """The start of an open transaction in the metadata log; records from there on are not in the image."""

    is_beside_zookeeper: bool = False
    """Whether ZooKeeper coordinates the cluster. There a broker that is down is not registered, but may get replicas of a new
    topic. A reassignment ends when all target replicas are in sync; in KRaft when the added ones are."""

    def apply(self, record: Message, offset: Offset | None = None) -> None:
        """Replay one record. Records that carry no state (no-op) change nothing.

        `offset` is the record's own; without it `registered_at` is set to the broker's epoch.
        """
        replay = _REPLAY.get(type(record))
        if replay is not None:
            replay(self, record)
        else:
            carry(self.carried, record)
        if isinstance(record, RegisterBrokerRecord):
            self.brokers[record.broker_id].registered_at = Offset(record.broker_epoch) if offset is None else offset

    def clear(self) -> None:
        """Reset the image, before a snapshot replaces it."""
        for table in (
            self.topics,
            self.topics_by_id,
            self.brokers,
            self.configs,
            self.features,
            self.acls,
            self.quotas,
            self.carried,
        ):
            table.clear()
        self.end_offset, self.next_producer_id, self.open_transaction = FIRST_OFFSET, FIRST_PRODUCER_ID, None

    def partition(self, topic: TopicName, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return found.partitions.get(index) if found else None

    def topic_name(self, topic_id: TopicId) -> TopicName | None:
        topic = self.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def topic_id(self, name: TopicName) -> TopicId:
        topic = self.topics.get(name)
        return topic.id if topic is not None else NO_UUID

    def is_alive(self, broker: NodeId) -> bool:
        """Whether a broker is registered and not fenced."""
        found = self.brokers.get(broker)
        return found is not None and not found.fenced

    def live_brokers(self) -> list[BrokerImage]:
        """Registered brokers that are not fenced, in the order of their ids."""
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.fenced]

    def is_active(self, broker: NodeId) -> bool:
        """Whether a broker is registered and neither fenced nor about to stop."""
        found = self.brokers.get(broker)
        return found is not None and found.is_active

    @property
    def metadata_level(self) -> int:
        """The finalized metadata.version; before its first record, with which a new cluster begins, the newest."""
        return self.features.get("metadata.version", NEWEST_LEVEL)

    @property
    def has_elr(self) -> bool:
        """Whether eligible leader replicas are kept (KIP-966)."""
        return self.features.get(ELR_FEATURE, 0) >= 1

    def topic_config(self, topic: TopicName) -> dict[str, str]:
        """The topic's own settings, without defaults."""
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
        directories=_directories(record.directories, record.replicas),
        leader_recovery_state=record.leader_recovery_state,
    )


def _partition_change(image: MetadataImage, record: PartitionChangeRecord) -> None:
    partitions = image.topics_by_id[record.topic_id].partitions
    partitions[record.partition_id] = partitions[record.partition_id].after(record)


def _clear_elr(image: MetadataImage, record: ClearElrRecord) -> None:
    """Clear the ELR of one topic, or of all if the record names none: a new min.insync.replicas makes it invalid."""
    for topic in [image.topics[record.topic_name]] if record.topic_name else [*image.topics.values()]:
        for index, partition in topic.partitions.items():
            if partition.eligible_leader_replicas or partition.last_known_elr:
                cleared = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                topic.partitions[index] = partition.after(cleared)


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
        directories=record.log_dirs,
        cordoned_directories=record.cordoned_log_dirs,
    )


def _unregister_broker(image: MetadataImage, record: UnregisterBrokerRecord) -> None:
    image.brokers.pop(record.broker_id, None)


def _fence_broker(image: MetadataImage, record: FenceBrokerRecord) -> None:
    image.brokers[record.id].fenced = True


def _unfence_broker(image: MetadataImage, record: UnfenceBrokerRecord) -> None:
    image.brokers[record.id].fenced = False


def _broker_registration_change(image: MetadataImage, record: BrokerRegistrationChangeRecord) -> None:
    """Change a registration: `fenced` is 1 to fence, -1 to unfence, 0 for no change; no `log_dirs` means no change."""
    broker = image.brokers[record.broker_id]
    if record.fenced != 0:
        broker.fenced = record.fenced > 0
    if record.in_controlled_shutdown > 0:
        broker.in_controlled_shutdown = True
    if record.log_dirs:
        broker.directories = record.log_dirs
    if record.cordoned_log_dirs is not None:
        broker.cordoned_directories = record.cordoned_log_dirs


def _feature_level(image: MetadataImage, record: FeatureLevelRecord) -> None:
    image.features[record.name] = record.feature_level


def _acl(image: MetadataImage, record: AccessControlEntryRecord) -> None:
    image.acls.add(record.id, acl_of(record))


def _remove_acl(image: MetadataImage, record: RemoveAccessControlEntryRecord) -> None:
    image.acls.remove(record.id)


def _quota(image: MetadataImage, record: ClientQuotaRecord) -> None:
    carry(image.carried, record)
    image.quotas.apply(record)


def _producer_ids(image: MetadataImage, record: ProducerIdsRecord) -> None:
    image.next_producer_id = record.next_producer_id


_REPLAY: dict[type[Message], Callable[[MetadataImage, Any], None]] = cast(
    "dict[type[Message], Callable[[MetadataImage, Any], None]]",
    {
        TopicRecord: _topic,
        RemoveTopicRecord: _remove_topic,
        PartitionRecord: _partition,
        PartitionChangeRecord: _partition_change,
        ClearElrRecord: _clear_elr,
        ConfigRecord: _config,
        RegisterBrokerRecord: _register_broker,
        UnregisterBrokerRecord: _unregister_broker,
        FenceBrokerRecord: _fence_broker,
        UnfenceBrokerRecord: _unfence_broker,
        BrokerRegistrationChangeRecord: _broker_registration_change,
        FeatureLevelRecord: _feature_level,
        AccessControlEntryRecord: _acl,
        RemoveAccessControlEntryRecord: _remove_acl,
        ClientQuotaRecord: _quota,
        ProducerIdsRecord: _producer_ids,
    },
)
"""The handler of each record type; the image stores no state of any other type, except in `carried`."""
