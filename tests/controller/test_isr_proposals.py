"""AlterPartition: what a leader may propose.

Requests that are drawn beside Kafka have no test here (`test_kafka_decides_alike`).
"""

import pytest

from reference.controller import brokers
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition import AlterPartitionRequest
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.primitives import NodeId
from tests.controller.cluster import TOPIC, ControlledCluster, topic_id_of


def three_brokers() -> ControlledCluster:
    cluster = ControlledCluster()
    cluster.start(0, 1, 2, 3)
    cluster.create(TOPIC, [0, 1, 2])
    return cluster


def data_of(request: AlterPartitionRequest) -> AlterPartitionRequest.PartitionData:
    return request.topics[0].partitions[0]


def code_of(cluster: ControlledCluster, request: AlterPartitionRequest) -> int:
    return cluster.alter(request).topics[0].partitions[0].error_code


@pytest.mark.step("replication", "AlterPartition")
def test_an_accepted_proposal_is_written_and_answered_with_its_new_epoch() -> None:
    cluster = three_brokers()
    answer = cluster.alter(cluster.proposal([0, 2])).topics[0]
    partition = answer.partitions[0]
    assert answer.topic_id == topic_id_of(TOPIC)
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 0, 0)
    assert (partition.isr, partition.partition_epoch) == ([0, 2], 1)
    assert cluster.partition().isr == [0, 2]
    assert [type(each) for each in cluster.written] == [PartitionChangeRecord]


def test_unknown_topics_and_partitions() -> None:
    cluster = three_brokers()
    request = cluster.proposal([0])
    request.topics[0].topic_id = topic_id_of("another")
    assert code_of(cluster, request) == ErrorCode.UNKNOWN_TOPIC_ID
    request = cluster.proposal([0])
    data_of(request).partition_index = 5
    assert code_of(cluster, request) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("isr", [[], [1, 2], [0, 0], [0, 3], [0, -1]])
def test_an_isr_that_cannot_be_is_refused(isr: list[int]) -> None:
    cluster = three_brokers()
    assert cluster.alter_isr(isr) == ErrorCode.INVALID_REQUEST
    assert cluster.partition().isr == [0, 1, 2]


@pytest.mark.step("replication", "AlterPartition")
def test_a_member_that_is_fenced_or_stops_or_is_in_another_incarnation_is_not_eligible() -> None:
    cluster = three_brokers()
    cluster.fence(2)
    assert cluster.alter_isr([0, 1, 2]) == ErrorCode.INELIGIBLE_REPLICA
    cluster.heartbeat(2)
    request = cluster.proposal([0, 1, 2])
    data_of(request).new_isr_with_epochs[2].broker_epoch -= 1
    assert code_of(cluster, request) == ErrorCode.INELIGIBLE_REPLICA
    data_of(request).new_isr_with_epochs[2].broker_epoch = -1
    assert code_of(cluster, request) == ErrorCode.NONE
    cluster.write(brokers.controlled_shutdown(cluster.image, cluster.configuration, NodeId(2)))
    assert cluster.alter_isr([0, 1, 2]) == ErrorCode.INELIGIBLE_REPLICA
    cluster.write(brokers.unregister_broker(cluster.image, cluster.configuration, NodeId(2)))
    assert cluster.alter_isr([0, 1, 2]) == ErrorCode.INELIGIBLE_REPLICA


def test_before_version_3_members_have_no_epochs() -> None:
    cluster = three_brokers()
    request = cluster.proposal([])
    data_of(request).new_isr = [0, 1]
    assert code_of(cluster, request) == ErrorCode.NONE
    assert cluster.partition().isr == [0, 1]
