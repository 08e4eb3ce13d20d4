"""A cluster as its active controller knows it: records are replayed at once, without a log."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from reference.controller import brokers, elections, heartbeats, isr_proposals, reassignments
from reference.controller.configs import Configuration
from reference.controller.image import ELR_FEATURE, TOPIC_RESOURCE, MetadataImage, PartitionImage
from reference.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from reference.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import AT_ONCE, FIRST_OFFSET, BrokerEpoch, NodeId
from reference.protocol.schema import Message

CLUSTER_ID = "a-cluster"
SESSION_MS = 9_000
METADATA_LEVEL = 30
TOPIC = "t"


def nodes(*numbers: int) -> list[NodeId]:
    return [NodeId(number) for number in numbers]


def directory_of(broker: int) -> UUID:
    return UUID(int=1000 + broker)


def topic_id_of(name: str) -> UUID:
    return UUID(int=5000 + sum(name.encode()))


class ControlledCluster:
    """The image and the decisions of a controller; each registration of a broker is a new incarnation."""

    def __init__(self, *, has_elr: bool = True, settings: dict[str, str] | None = None) -> None:
        self.image = MetadataImage()
        self.configuration = Configuration(NodeId(100), settings or {"min.insync.replicas": "2"}, self.image)
        self.now = AT_ONCE
        self.offset = FIRST_OFFSET
        self.incarnations = 0
        self.written: list[Message] = []
        self.write(
            [
                FeatureLevelRecord(name="metadata.version", feature_level=METADATA_LEVEL),
                FeatureLevelRecord(name=ELR_FEATURE, feature_level=int(has_elr)),
            ]
        )
        self.heartbeats = heartbeats.Heartbeats(SESSION_MS, self.image, self.now)

    def write(self, records: Sequence[Message]) -> None:
        for record in records:
            self.image.apply(record, self.offset)
            self.offset += 1
        self.written = [*records]

    # ---- brokers

    def registration(self, broker: int, *, is_clean: bool = True, **changes: object) -> BrokerRegistrationRequest:
        """A request of a new incarnation."""
        self.incarnations += 1
        known = self.image.brokers.get(NodeId(broker))
        request = BrokerRegistrationRequest(
            broker_id=NodeId(broker),
            cluster_id=CLUSTER_ID,
            incarnation_id=UUID(int=(broker << 64) + self.incarnations),
            listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="localhost", port=9000 + broker)],
            features=[
                BrokerRegistrationRequest.Feature(
                    name="metadata.version", min_supported_version=7, max_supported_version=METADATA_LEVEL
                ),
                BrokerRegistrationRequest.Feature(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1),
            ],
            rack=None,
            log_dirs=[directory_of(broker)],
            previous_broker_epoch=(known.epoch if known else -1) if is_clean else -1,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def register(self, request: BrokerRegistrationRequest) -> int:
        decision = brokers.register_broker(
            self.image,
            self.configuration,
            request,
            cluster_id=CLUSTER_ID,
            offset=self.offset,
            has_session=self.heartbeats.has_session(self.image, request.broker_id, self.now),
        )
        self.write(decision.records)
        return decision.response.broker_epoch

    def heartbeat(
        self, broker: int, *, replayed: int | None = None, epoch: int | None = None, **changes: object
    ) -> BrokerHeartbeatResponse:
        """Send a heartbeat of a broker that has replayed everything, unless `replayed` is given."""
        request = BrokerHeartbeatRequest(
            broker_id=NodeId(broker),
            broker_epoch=self.image.brokers[NodeId(broker)].epoch if epoch is None else BrokerEpoch(epoch),
            current_metadata_offset=self.offset - 1 if replayed is None else replayed,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.beat(request)

    def beat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        self.heartbeats.receive(self.image, request.broker_id, request.broker_epoch, self.now)
        decision = self.heartbeats.broker_heartbeat(self.image, self.configuration, request, self.offset)
        self.write(decision.records)
        return decision.response

    def start(self, *ids: int) -> None:
        """Register and unfence brokers, one by one."""
        for each in ids:
            self.register(self.registration(each))
            self.heartbeat(each)

    def fence(self, broker: int) -> None:
        self.write(brokers.fence_broker(self.image, self.configuration, NodeId(broker)))

    def crash(self, broker: int) -> None:
        """Fence the broker, and register a new incarnation that lost the end of its logs."""
        self.now += SESSION_MS + 1
        self.fence(broker)
        self.register(self.registration(broker, is_clean=False))

    # ---- partitions

    def create(self, name: str, *replicas: Sequence[int], **settings: str) -> None:
        """Create a topic, whose partitions have these replicas, all in sync."""
        records: list[Message] = [TopicRecord(name=name, topic_id=topic_id_of(name))]
        records += [
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ]
        records += [
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id_of(name),
                replicas=nodes(*each),
                isr=nodes(*each),
                leader=NodeId(each[0]),
                leader_epoch=0,
                partition_epoch=0,
                directories=[directory_of(broker) for broker in each],
            )
            for index, each in enumerate(replicas)
        ]
        self.write(records)

    def partition(self, name: str = TOPIC, index: int = 0) -> PartitionImage:
        found = self.image.partition(name, index)
        assert found is not None
        return found

    def proposal(self, isr: Sequence[int], name: str = TOPIC, index: int = 0) -> AlterPartitionRequest:
        """An AlterPartition request of the partition's leader."""
        partition = self.partition(name, index)
        epochs = {each.id: each.epoch for each in self.image.brokers.values()}
        data = AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[
                AlterPartitionRequest.BrokerState(broker_id=each, broker_epoch=epochs.get(each, 0))
                for each in nodes(*isr)
            ],
            leader_recovery_state=0,
            partition_epoch=partition.partition_epoch,
        )
        return AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=epochs.get(partition.leader, 0),
            topics=[AlterPartitionRequest.TopicData(topic_id=topic_id_of(name), partitions=[data])],
        )

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        decision = isr_proposals.alter_partition(self.image, self.configuration, request)
        self.write(decision.records)
        return decision.response

    def alter_isr(self, isr: Sequence[int], name: str = TOPIC, index: int = 0) -> int:
        """Propose an ISR; return the error code."""
        return self.alter(self.proposal(isr, name, index)).topics[0].partitions[0].error_code

    def reassign(self, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        decision = reassignments.alter_partition_reassignments(self.image, self.configuration, request)
        self.write(decision.records)
        return decision.response

    def elect(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        decision = elections.elect_leaders(self.image, self.configuration, request)
        self.write(decision.records)
        return decision.response


def two_brokers() -> ControlledCluster:
    """Brokers 0 and 1, unfenced, each with a replica of the topic."""
    cluster = ControlledCluster()
    cluster.start(0, 1)
    cluster.create(TOPIC, [0, 1])
    return cluster
