"""When a partition's leader counts as ready: with ZooKeeper, not before its own metadata has the partition."""

from types import SimpleNamespace
from typing import Any

from conformance.levels import MUST
from conformance.observations import Observations
from conformance.readiness import SHORTEST_S, await_everywhere, error_of_leader
from conformance.requirement import Requirement
from conformance.subject import Subject
from conformance.wire import Unreachable
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.metadata import MetadataResponse
from reference.protocol.primitives import NO_UUID

TOPIC, LEADER = Topic("a-topic", NO_UUID, 2), ("leader", 9092)


def answered(partition: int, *, by_zookeeper: bool, known: int) -> int:
    """The error code of a leader that can serve both partitions, but whose own metadata has only `known` of them."""
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


class Cluster(Observations):
    """Three brokers, of which the second learns of a topic late, and the third cannot be reached."""

    def __init__(self, asks_until_known: int) -> None:
        record = Requirement(
            id="LOF-08", level=MUST, sentence="A sentence of its own.", source="a test", deadline_s=0.5
        )
        super().__init__(Subject([("one", 1)], "4.3.1"), record)
        self.left, self.hurt, self.asked = asks_until_known, set[tuple[str, int]](), list[str]()

    def metadata(self, topics: list[Any], *, to: tuple[str, int] | None = None) -> MetadataResponse:
        table = MetadataResponse
        if to is None:
            names = ("one", "two", "three")
            return table(brokers=[table.MetadataResponseBroker(node_id=n, host=h, port=1) for n, h in enumerate(names)])
        self.asked.append(to[0])
        if to[0] == "three":
            raise Unreachable("three:1 takes no connection")
        self.left -= to[0] == "two"
        known = 1 if to[0] == "two" and self.left >= 0 else 2
        partitions = [table.MetadataResponsePartition(partition_index=index, leader_id=0) for index in range(known)]
        return table(topics=[table.MetadataResponseTopic(name=TOPIC.name, partitions=partitions)])


def test_a_topic_is_waited_for_on_every_broker_that_can_be_reached() -> None:
    cluster: Any = Cluster(asks_until_known=2)
    await_everywhere(cluster, TOPIC)
    assert sorted(cluster.asked) == ["one", "three", "two", "two", "two"]


def test_a_broker_that_never_reports_the_topic_is_left_to_the_requirement() -> None:
    cluster: Any = Cluster(asks_until_known=1_000)
    await_everywhere(cluster, TOPIC)
    assert cluster.left < 1_000
    assert "one" in cluster.asked and "three" in cluster.asked


def test_a_broker_that_never_reports_topics_is_waited_for_the_less() -> None:
    cluster: Any = Cluster(asks_until_known=1_000)
    waits: list[float] = []
    for _ in range(4):
        await_everywhere(cluster, TOPIC)
        waits.append(cluster.subject.ignorant["two", 1])
    assert waits == [3.75, 0.9375, SHORTEST_S, SHORTEST_S]
    cluster.left = 0
    await_everywhere(cluster, TOPIC)
    assert not cluster.subject.ignorant
