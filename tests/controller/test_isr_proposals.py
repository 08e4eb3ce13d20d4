"""AlterPartition: what a leader may propose, and every refusal."""

import pytest

from reference.controller import brokers
from reference.controller.image import RECOVERED, RECOVERING
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.alter_partition import AlterPartitionRequest
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from tests.controller.cluster import TOPIC, ControlledCluster, topic_id_of

Reassignable = AlterPartitionReassignmentsRequest.ReassignableTopic
Wanted = AlterPartitionReassignmentsRequest.ReassignablePartition


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


def test_the_same_isr_again_writes_nothing() -> None:
    cluster = three_brokers()
    assert cluster.alter_isr([0, 1, 2]) == 0
    assert cluster.written == []
    assert cluster.partition().partition_epoch == 0


def test_below_min_isr_who_leaves_is_eligible_until_the_isr_has_grown() -> None:
    cluster = three_brokers()
    assert cluster.alter_isr([0]) == 0
    assert cluster.partition().eligible_leader_replicas == [1, 2]
    assert cluster.alter_isr([0, 2]) == 0
    assert cluster.partition().eligible_leader_replicas == []


def test_a_leader_of_another_incarnation_is_refused_as_a_whole() -> None:
    cluster = three_brokers()
    request = cluster.proposal([0])
    request.broker_epoch -= 1
    with pytest.raises(KafkaError) as caught:
        cluster.alter(request)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_unknown_topics_and_partitions() -> None:
    cluster = three_brokers()
    request = cluster.proposal([0])
    request.topics[0].topic_id = topic_id_of("another")
    assert code_of(cluster, request) == ErrorCode.UNKNOWN_TOPIC_ID
    request = cluster.proposal([0])
    data_of(request).partition_index = 5
    assert code_of(cluster, request) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("leader_step", "partition_step", "code"),
    [
        (1, 0, ErrorCode.NOT_CONTROLLER),
        (0, 1, ErrorCode.NOT_CONTROLLER),
        (-1, 1, ErrorCode.NOT_CONTROLLER),
        (-1, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (-1, -1, ErrorCode.FENCED_LEADER_EPOCH),
        (0, -1, ErrorCode.INVALID_UPDATE_VERSION),
    ],
)
def test_epochs_must_be_those_of_the_partition(leader_step: int, partition_step: int, code: ErrorCode) -> None:
    cluster = three_brokers()
    assert cluster.alter_isr([0, 1]) == 0
    request = cluster.proposal([0, 1, 2])
    data_of(request).leader_epoch += leader_step
    data_of(request).partition_epoch += partition_step
    assert code_of(cluster, request) == code
    assert cluster.partition().isr == [0, 1]


def test_a_follower_may_not_propose_and_gets_the_error_before_its_version_is_checked() -> None:
    cluster = three_brokers()
    request = cluster.proposal([0, 1])
    request.broker_id, request.broker_epoch = 1, cluster.image.brokers[1].epoch
    data_of(request).partition_epoch -= 1
    assert code_of(cluster, request) == ErrorCode.INVALID_REQUEST


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
    cluster.write(brokers.controlled_shutdown(cluster.image, cluster.configuration, 2))
    assert cluster.alter_isr([0, 1, 2]) == ErrorCode.INELIGIBLE_REPLICA
    cluster.write(brokers.unregister_broker(cluster.image, cluster.configuration, 2))
    assert cluster.alter_isr([0, 1, 2]) == ErrorCode.INELIGIBLE_REPLICA


def test_before_version_3_members_have_no_epochs() -> None:
    cluster = three_brokers()
    request = cluster.proposal([])
    data_of(request).new_isr = [0, 1]
    assert code_of(cluster, request) == ErrorCode.NONE
    assert cluster.partition().isr == [0, 1]


def test_a_recovering_leader_is_alone_and_does_not_begin_again() -> None:
    cluster = three_brokers()
    request = cluster.proposal([0])
    data_of(request).leader_recovery_state = RECOVERING
    assert code_of(cluster, request) == ErrorCode.INVALID_REQUEST
    recovering = PartitionChangeRecord(
        topic_id=topic_id_of(TOPIC), partition_id=0, isr=[0], leader_recovery_state=RECOVERING
    )
    cluster.write([recovering])
    request = cluster.proposal([0, 1])
    data_of(request).leader_recovery_state = RECOVERING
    assert code_of(cluster, request) == ErrorCode.INVALID_REQUEST
    data_of(request).leader_recovery_state = 9
    assert code_of(cluster, request) == ErrorCode.INVALID_REQUEST
    data_of(request).leader_recovery_state = RECOVERED
    assert code_of(cluster, request) == ErrorCode.NONE
    assert cluster.partition().leader_recovery_state == RECOVERED


def test_the_proposal_that_completes_a_reassignment_may_end_the_proposers_leadership() -> None:
    cluster = three_brokers()
    wanted = Wanted(partition_index=0, replicas=[3, 2])
    cluster.reassign(AlterPartitionReassignmentsRequest(topics=[Reassignable(name=TOPIC, partitions=[wanted])]))
    assert cluster.partition().replicas == [3, 2, 0, 1]
    assert cluster.alter_isr([0, 1, 2, 3]) == ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition()
    assert (partition.leader, partition.replicas, partition.isr) == (3, [3, 2], [2, 3])
    assert not partition.is_reassigning
    assert partition.leader_epoch == 1
