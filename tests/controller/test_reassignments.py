"""Reassignments: begun, completed by the ISR, called off, listed.

Requests that are drawn beside Kafka have no test here (`test_kafka_decides_alike`).
"""

import pytest

from reference.controller.reassignments import list_partition_reassignments
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.controller.cluster import TOPIC, ControlledCluster, directory_of, nodes

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
    wanted = None if replicas is None else nodes(*replicas)
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=factor,
        topics=[Topic(name=name, partitions=[Wanted(partition_index=index, replicas=wanted)])],
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


def test_a_request_for_nothing_is_answered_with_the_default() -> None:
    """Seen of Kafka 4.3.1."""
    request = AlterPartitionReassignmentsRequest(allow_replication_factor_change=False, topics=[])
    assert five_brokers().reassign(request).allow_replication_factor_change


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
