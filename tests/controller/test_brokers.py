"""Registration of brokers and controllers; fencing, unfencing and stopping of brokers, with the elections that follow.

Requests that are drawn beside Kafka have no test here (`test_kafka_decides_alike`).
"""

from __future__ import annotations

from copy import deepcopy
from uuid import UUID

import pytest

from reference.controller import brokers
from reference.controller.controllers import register_controller
from reference.controller.image import NO_LEADER
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.messages.controller_registration import ControllerRegistrationRequest
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.register_controller_record import RegisterControllerRecord
from reference.protocol.primitives import NodeId
from tests.controller.cluster import SESSION_MS, TOPIC, ControlledCluster, directory_of


def three_brokers() -> ControlledCluster:
    cluster = ControlledCluster()
    cluster.start(0, 1, 2)
    cluster.create(TOPIC, [0, 1, 2])
    return cluster


def refusal(cluster: ControlledCluster, request: BrokerRegistrationRequest) -> KafkaError:
    before = deepcopy(cluster.image)
    with pytest.raises(KafkaError) as caught:
        cluster.register(request)
    assert cluster.image == before
    return caught.value


# ---- registration


def test_the_same_incarnation_amends_its_registration() -> None:
    cluster = three_brokers()
    request = cluster.registration(
        1, incarnation_id=cluster.image.brokers[NodeId(1)].registration.incarnation_id, rack="r"
    )
    epoch = cluster.image.brokers[NodeId(1)].epoch
    assert cluster.register(request) == epoch
    broker = cluster.image.brokers[NodeId(1)]
    assert (broker.epoch, broker.fenced, broker.rack) == (epoch, False, "r")
    assert broker.registered_at == cluster.offset - 1 > epoch
    assert [type(each) for each in cluster.written] == [RegisterBrokerRecord]


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "got cluster ID another"),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED, "ZK"),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION, "No directories"),
        ({"log_dirs": [UUID(int=99)]}, ErrorCode.INVALID_REGISTRATION, "Reserved"),
        ({"log_dirs": [UUID(int=700), UUID(int=700)]}, ErrorCode.INVALID_REGISTRATION, "Duplicate"),
        ({"log_dirs": [directory_of(2)]}, ErrorCode.INVALID_REGISTRATION, "Broker 2 is already registered"),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION, "metadata.version"),
    ],
)
def test_registrations_that_cannot_be_are_refused(changes: dict[str, object], code: ErrorCode, says: str) -> None:
    cluster = three_brokers()
    request = cluster.registration(7)
    for name, value in changes.items():
        setattr(request, name, value)
    error = refusal(cluster, request)
    assert error.code == code
    assert says in str(error)


@pytest.mark.parametrize(
    ("name", "lowest", "highest", "refused"),
    [("metadata.version", 7, 29, True), ("metadata.version", 7, 40, False), ("some.feature", 1, 2, True)],
)
def test_a_broker_must_support_what_is_finalized(name: str, lowest: int, highest: int, refused: bool) -> None:
    cluster = ControlledCluster()
    request = cluster.registration(7)
    feature = BrokerRegistrationRequest.Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
    request.features = [each for each in request.features if each.name != name] + [feature]
    if refused:
        error = refusal(cluster, request)
        assert error.code == ErrorCode.UNSUPPORTED_VERSION
        assert name in str(error)
    else:
        assert cluster.register(request) == cluster.image.brokers[NodeId(7)].epoch


def test_a_broker_that_does_not_know_a_finalized_feature_is_refused() -> None:
    cluster = ControlledCluster()
    request = cluster.registration(7)
    request.features = [each for each in request.features if each.name == "metadata.version"]
    assert refusal(cluster, request).code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.step("replication", "RegisterBroker")
def test_an_unclean_end_takes_a_broker_out_of_isr_and_elr_in_the_batch_of_its_registration() -> None:
    cluster = three_brokers()
    assert cluster.alter_isr([0]) == 0
    assert cluster.partition().eligible_leader_replicas == [1, 2]
    cluster.now += SESSION_MS + 1
    cluster.register(cluster.registration(1, is_clean=False))
    assert [type(each) for each in cluster.written] == [PartitionChangeRecord, RegisterBrokerRecord]
    assert cluster.partition().eligible_leader_replicas == [2]
    cluster.register(cluster.registration(0, is_clean=False))
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (2, [2], [])


@pytest.mark.step("replication", "RegisterBroker")
def test_a_clean_end_leaves_a_broker_eligible() -> None:
    cluster = three_brokers()
    assert cluster.alter_isr([0, 1]) == 0
    cluster.now += SESSION_MS + 1
    cluster.register(cluster.registration(1, is_clean=True))
    partition = cluster.partition()
    assert (partition.isr, partition.eligible_leader_replicas) == ([0], [1])


def test_the_previous_epoch_is_ignored_in_versions_without_it() -> None:
    cluster = three_brokers()
    assert cluster.alter_isr([0, 1]) == 0
    decision = brokers.register_broker(
        cluster.image,
        cluster.configuration,
        cluster.registration(1),
        cluster_id="a-cluster",
        offset=cluster.offset,
        has_session=False,
        knows_previous_epoch=False,
    )
    cluster.write(decision.records)
    assert cluster.partition().eligible_leader_replicas == []


# ---- fencing


@pytest.mark.step("replication", "FenceBroker")
def test_a_fenced_leader_is_followed_by_a_member_of_the_isr() -> None:
    cluster = three_brokers()
    cluster.fence(0)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch, partition.partition_epoch) == (1, [1, 2], 1, 1)
    assert isinstance(cluster.written[-1], BrokerRegistrationChangeRecord)


@pytest.mark.step("replication", "FenceBroker", "UnfenceBroker")
def test_below_min_isr_fenced_replicas_stay_eligible_and_lead_when_unfenced() -> None:
    cluster = three_brokers()
    for broker in (0, 1, 2):
        cluster.fence(broker)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (NO_LEADER, [], [1, 2])
    assert partition.last_known_elr == [2]
    cluster.heartbeat(0)
    assert cluster.partition().leader == NO_LEADER
    cluster.heartbeat(1)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (1, [1], [2])
    assert partition.last_known_elr == []


@pytest.mark.step("replication", "ControlledShutdown")
def test_a_broker_that_stops_is_not_elected_while_it_still_serves() -> None:
    cluster = three_brokers()
    cluster.write(brokers.controlled_shutdown(cluster.image, cluster.configuration, NodeId(0)))
    assert (cluster.partition().leader, cluster.partition().isr) == (1, [1, 2])
    assert not cluster.image.is_active(NodeId(0))
    assert not cluster.image.brokers[NodeId(0)].fenced
    assert brokers.controlled_shutdown(cluster.image, cluster.configuration, NodeId(0)) == []


LISTENER = ControllerRegistrationRequest.Listener(name="CONTROLLER", host="h", port=9093)
FEATURE = ControllerRegistrationRequest.Feature(name="kraft.version", max_supported_version=1)


def request(incarnation: int) -> ControllerRegistrationRequest:
    return ControllerRegistrationRequest(
        controller_id=7, incarnation_id=UUID(int=incarnation), listeners=[LISTENER], features=[FEATURE]
    )


def test_the_newest_registration_of_a_controller_is_carried() -> None:
    cluster = ControlledCluster()
    for incarnation in (1, 2):
        decision = register_controller(cluster.image, request(incarnation))
        assert decision.response.error_code == ErrorCode.NONE
        cluster.write(decision.records)
    (record,) = cluster.image.carried.values()
    assert isinstance(record, RegisterControllerRecord) and record.incarnation_id == UUID(int=2)
    (endpoint,), (feature,) = record.end_points, record.features
    assert (endpoint.name, endpoint.host, endpoint.port) == ("CONTROLLER", "h", 9093)
    assert (feature.name, feature.min_supported_version, feature.max_supported_version) == ("kraft.version", 0, 1)


def test_an_older_metadata_version_knows_no_controllers() -> None:
    cluster = ControlledCluster()
    cluster.write([FeatureLevelRecord(name="metadata.version", feature_level=14)])
    with pytest.raises(KafkaError, match="too old") as refused:
        register_controller(cluster.image, request(1))
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
