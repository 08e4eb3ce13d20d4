"""Reassignments: begun, completed by the ISR, called off, listed."""

import pytest

from reference.controller.reassignments import list_partition_reassignments
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from tests.controller.cluster import TOPIC, ControlledCluster, directory_of, topic_id_of

Topic = AlterPartitionReassignmentsRequest.ReassignableTopic
Wanted = AlterPartitionReassignmentsRequest.ReassignablePartition
Asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics


def five_brokers(**settings: str) -> ControlledCluster:
    cluster = ControlledCluster(settings={"min.insync.replicas": "2", **settings})
    cluster.start(0, 1, 2, 3, 4)
    cluster.create(TOPIC, [0, 1, 2])
    return cluster


def move(
    cluster: ControlledCluster, replicas: list[int] | None, *, index: int = 0, name: str = TOPIC, factor: bool = True
) -> int:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=factor,
        topics=[Topic(name=name, partitions=[Wanted(partition_index=index, replicas=replicas)])],
    )
    return cluster.reassign(request).responses[0].partitions[0].error_code


@pytest.mark.step("replication", "Reassign")
def test_new_replicas_are_added_first_and_old_ones_dropped_when_all_are_in_sync() -> None:
    cluster = five_brokers()
    assert move(cluster, [0, 3, 4]) == 0
    partition = cluster.partition()
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == (
        [0, 3, 4, 1, 2],
        [3, 4],
        [1, 2],
    )
    assert (partition.isr, partition.leader, partition.leader_epoch) == ([0, 1, 2], 0, 0)
    assert partition.directories == [directory_of(each) for each in partition.replicas]
    assert cluster.alter_isr([0, 1, 2, 3]) == 0
    assert cluster.partition().is_reassigning
    assert cluster.alter_isr([0, 1, 2, 3, 4]) == 0
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.is_reassigning) == ([0, 3, 4], [0, 3, 4], False)
    assert partition.leader_epoch == 1
    assert partition.directories == [directory_of(each) for each in partition.replicas]


def test_another_order_is_done_at_once() -> None:
    cluster = five_brokers()
    assert move(cluster, [2, 1, 0]) == 0
    assert (cluster.partition().replicas, cluster.partition().is_reassigning) == ([2, 1, 0], False)


@pytest.mark.step("replication", "Reassign")
def test_fewer_replicas_are_done_at_once() -> None:
    cluster = five_brokers()
    assert move(cluster, [1, 2]) == 0
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ([1, 2], [1, 2], 1, 1)


@pytest.mark.step("replication", "CallOffReassignment")
def test_a_reassignment_is_called_off() -> None:
    cluster = five_brokers()
    assert move(cluster, [3, 4]) == 0
    assert cluster.alter_isr([0, 1, 2, 3]) == 0
    assert move(cluster, None) == 0
    partition = cluster.partition()
    assert ({*partition.replicas}, partition.isr, partition.is_reassigning) == ({0, 1, 2}, [0, 1, 2], False)


def test_a_new_wish_replaces_the_one_under_way() -> None:
    cluster = five_brokers()
    assert move(cluster, [0, 1, 3]) == 0
    assert move(cluster, [0, 1, 4]) == 0
    partition = cluster.partition()
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == (
        [0, 1, 4, 2, 3],
        [4],
        [2, 3],
    )


def test_nothing_to_call_off() -> None:
    assert move(five_brokers(), None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("allowed", [True, False])
def test_calling_off_what_only_new_replicas_are_in_sync_of_is_an_unclean_election(allowed: bool) -> None:
    cluster = five_brokers(**{"unclean.leader.election.enable": "true" if allowed else "false"})
    assert move(cluster, [3, 4]) == 0
    change = PartitionChangeRecord(topic_id=topic_id_of(TOPIC), partition_id=0, isr=[3], leader=3)
    cluster.write([change])
    code = move(cluster, None)
    assert code == (0 if allowed else ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert (cluster.partition().leader, cluster.partition().isr) == ((0, [0]) if allowed else (3, [3]))


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_replicas_that_cannot_be(replicas: list[int], code: ErrorCode) -> None:
    assert move(five_brokers(), replicas) == code


def test_the_replication_factor_changes_only_where_that_is_allowed() -> None:
    cluster = five_brokers()
    assert move(cluster, [0, 1], factor=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(cluster, [0, 1, 4], factor=False) == 0
    assert move(cluster, [0, 1, 3, 4], factor=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(cluster, [0, 1, 3], factor=False) == 0


def test_unknown_topics_and_partitions() -> None:
    cluster = five_brokers()
    assert move(cluster, [0], name="another") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(cluster, [0], index=4) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_is_under_way_is_listed() -> None:
    cluster = five_brokers()
    cluster.create("still", [0, 1])
    assert move(cluster, [0, 1, 4]) == 0
    (topic,) = list_partition_reassignments(cluster.image, ListPartitionReassignmentsRequest()).topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index) == (TOPIC, 0)
    assert (partition.replicas, partition.adding_replicas, partition.removing_replicas) == ([0, 1, 4, 2], [4], [2])
    asked = [Asked(name=name, partition_indexes=[0, 1]) for name in (TOPIC, "still", "another")]
    named = list_partition_reassignments(cluster.image, ListPartitionReassignmentsRequest(topics=asked))
    assert named.topics == [topic]
