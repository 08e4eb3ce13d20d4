"""Where a broker says that its replicas lie."""

from uuid import UUID

import pytest

from reference.controller.directory_assignment import assign_replicas_to_dirs
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from tests.controller.cluster import TOPIC, ControlledCluster, directory_of, topic_id_of

SECOND = UUID(int=800)
Directory = AssignReplicasToDirsRequest.DirectoryData
Topic = AssignReplicasToDirsRequest.TopicData
AssignedPartition = AssignReplicasToDirsRequest.PartitionData


def two_directories() -> ControlledCluster:
    cluster = ControlledCluster()
    cluster.start(1, 2)
    cluster.register(cluster.registration(0, log_dirs=[directory_of(0), SECOND]))
    cluster.heartbeat(0)
    cluster.create(TOPIC, [0, 1], [1, 2])
    return cluster


def assign(
    cluster: ControlledCluster, directory: UUID, index: int = 0, *, name: str = TOPIC, epoch_step: int = 0
) -> int:
    request = AssignReplicasToDirsRequest(
        broker_id=0,
        broker_epoch=cluster.image.brokers[0].epoch + epoch_step,
        directories=[
            Directory(
                id=directory,
                topics=[Topic(topic_id=topic_id_of(name), partitions=[AssignedPartition(partition_index=index)])],
            )
        ],
    )
    decision = assign_replicas_to_dirs(cluster.image, cluster.configuration, request)
    cluster.write(decision.records)
    (answer,) = decision.response.directories
    assert answer.id == directory
    return answer.topics[0].partitions[0].error_code


def test_a_replicas_directory_is_written_once() -> None:
    cluster = two_directories()
    assert assign(cluster, SECOND) == 0
    assert cluster.partition().directories == [SECOND, directory_of(1)]
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (0, 0)
    assert assign(cluster, SECOND) == 0
    assert cluster.written == []


def test_a_replica_in_a_directory_that_does_not_work_leaves_the_isr() -> None:
    cluster = two_directories()
    assert assign(cluster, UUID(int=900)) == 0
    partition = cluster.partition()
    assert (partition.leader, partition.isr) == (1, [1])
    assert partition.directory_of(0) == UUID(int=900)


def test_refusals() -> None:
    cluster = two_directories()
    assert assign(cluster, SECOND, name="another") == ErrorCode.UNKNOWN_TOPIC_ID
    assert assign(cluster, SECOND, index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assign(cluster, SECOND, index=1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as caught:
        assign(cluster, SECOND, epoch_step=1)
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
