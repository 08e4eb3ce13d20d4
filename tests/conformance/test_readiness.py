"""When a partition's leader counts as ready: with ZooKeeper, not before its own metadata has the partition."""

from types import SimpleNamespace
from typing import Any

from conformance.readiness import error_of_leader
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.metadata import MetadataResponse
from reference.protocol.primitives import NO_UUID

TOPIC, LEADER = Topic("a-topic", NO_UUID, 2), ("leader", 9092)


def answered(partition: int, *, by_zookeeper: bool, known: int) -> int:
    """How a leader answers that can serve both partitions, and whose metadata has only so many of them."""
    table = MetadataResponse
    partitions = [table.MetadataResponsePartition(partition_index=index) for index in range(known)]

    def metadata(_: Any, *, to: tuple[str, int]) -> MetadataResponse:
        assert to == LEADER
        return table(topics=[table.MetadataResponseTopic(name=TOPIC.name, partitions=partitions)])

    ranges = {ListOffsetsRequest.KEY: (0, 7)}
    broker: Any = SimpleNamespace(
        subject=SimpleNamespace(by_zookeeper=by_zookeeper, nodes=3, api_versions=ranges),
        metadata=metadata,
        leader=lambda topic, partition: LEADER,
        offset_of=lambda *_, partition: SimpleNamespace(error_code=ErrorCode.NONE),
    )
    return error_of_leader(broker, TOPIC, partition)


def test_a_leader_that_does_not_know_of_its_partition_yet_is_waited_for() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answered(0, by_zookeeper=True, known=0) == unknown
    assert [answered(index, by_zookeeper=True, known=1) for index in (0, 1)] == [ErrorCode.NONE, unknown]
    assert answered(1, by_zookeeper=True, known=2) == ErrorCode.NONE


def test_with_kraft_what_the_leader_serves_it_knows() -> None:
    assert answered(0, by_zookeeper=False, known=0) == ErrorCode.NONE
