"""A cluster with more partitions than one metadata batch holds, and the cost of one event while most partitions are idle."""

from __future__ import annotations

import pytest

from reference.controller import metadata_log
from reference.node import active_controller
from reference.node.node import Node
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.primitives import NodeId
from tests.node.three_nodes import IDS, NOW, ThreeNodes, calls_of

SMALL_BATCH = 10
"""Records that a batch of metadata holds in these tests."""


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (metadata_log, active_controller):
        monkeypatch.setattr(module, "MAX_RECORDS_IN_BATCH", SMALL_BATCH)
    monkeypatch.setattr(active_controller, "RECORDS_IN_A_PART", SMALL_BATCH)


def leaders(node: Node) -> set[int]:
    return {each.state.leader for each in node.partitions.values()}


@pytest.mark.usefixtures("small_batches")
def test_a_broker_is_fenced_that_has_more_partitions_than_a_batch_holds() -> None:
    cluster = ThreeNodes()
    for name in "abcd":
        cluster.create(name, SMALL_BATCH - 2)
    partitions = 4 * (SMALL_BATCH - 2)
    cluster.run_until(lambda: all(len(node.partitions) == partitions for node in cluster.nodes.values()))
    victim = next(id for id in reversed(IDS) if not cluster.nodes[id].controller.is_active)
    cluster.kill(victim)
    cluster.run_until(lambda: all(victim not in leaders(node) for node in cluster.nodes.values()))
    for node in cluster.nodes.values():
        assert node.image.brokers[victim].fenced
        assert all(victim not in each.state.isr for each in node.partitions.values())
    cluster.start(victim)
    cluster.run_until(lambda: all(cluster.is_in_sync(name) for name in "abcd"))


@pytest.mark.usefixtures("small_batches")
def test_a_topic_that_no_batch_holds_is_refused() -> None:
    cluster = ThreeNodes()
    topic = CreateTopicsRequest.CreatableTopic(name="large", num_partitions=SMALL_BATCH, replication_factor=3)
    response = cluster.call(NODE, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.POLICY_VIOLATION
    assert not cluster.nodes[NODE].image.topics


def test_assignments_count_and_not_the_number_beside_them() -> None:
    """Both together are invalid, also where the number alone would be too large (ReplicationControlManager of Kafka 4.3.1)."""
    cluster = ThreeNodes()
    place = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[NodeId(1)])
    for assignments, code in ([], ErrorCode.POLICY_VIOLATION), ([place], ErrorCode.INVALID_REQUEST):
        topic = CreateTopicsRequest.CreatableTopic(
            name="large", num_partitions=1 << 24, replication_factor=1, assignments=assignments
        )
        response = cluster.call(NODE, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        assert isinstance(response, CreateTopicsResponse)
        assert response.topics[0].error_code == code


NODE = NodeId(1)
FEW, MANY = 40, 400


def in_sync(partitions: int) -> ThreeNodes:
    cluster = ThreeNodes()
    cluster.create("t", partitions)
    cluster.run_until(lambda: cluster.is_in_sync("t"))
    return cluster


def cost_of_one_record(partitions: int) -> int:
    cluster = in_sync(partitions)
    index = cluster.led(NODE, "t")[0]
    for _ in range(3):
        cluster.produce(NODE, "t", [index])
    cluster.come_to_rest()
    return calls_of(lambda: cluster.produce(NODE, "t", [index]))


def test_an_acknowledged_record_costs_the_same_however_many_other_partitions_there_are() -> None:
    assert cost_of_one_record(MANY) <= 1.02 * cost_of_one_record(FEW)


def cost_of_a_quiet_minute(partitions: int) -> int:
    cluster = in_sync(partitions)
    cluster.run_until(lambda: cluster.now >= NOW + 120_000)  # what was written at first is checkpointed
    end = cluster.now + 60_000
    return calls_of(lambda: cluster.run_until(lambda: cluster.now >= end))


def test_partitions_without_news_cost_next_to_nothing() -> None:
    """Each is examined when it may lag and when checkpoints are written, not each second."""
    assert cost_of_a_quiet_minute(MANY) <= 1.2 * cost_of_a_quiet_minute(FEW)


def cost_of_requests_while_a_leader_is_gone(partitions: int) -> int:
    cluster = in_sync(partitions)
    cluster.kill(next(id for id in reversed(IDS) if not cluster.nodes[id].controller.is_active))
    cluster.come_to_rest()
    asked = next(iter(cluster.nodes))
    cluster.call(asked, MetadataRequest(topics=[]))
    return calls_of(lambda: [cluster.call(asked, MetadataRequest(topics=[])) for _ in range(20)])


def test_while_a_leader_is_gone_a_request_does_not_look_at_all_that_was_fetched_from_it() -> None:
    assert cost_of_requests_while_a_leader_is_gone(MANY) <= 1.5 * cost_of_requests_while_a_leader_is_gone(FEW)


def cost_of_creation(partitions: int) -> float:
    """Calls for each partition of a topic, from the request until all its replicas are in sync."""
    cluster = in_sync(FEW)

    def create() -> None:
        cluster.create("new", partitions)
        cluster.run_until(lambda: cluster.is_in_sync("new"))

    return calls_of(create) / partitions


def test_a_new_partition_costs_the_same_in_a_large_topic() -> None:
    assert cost_of_creation(MANY) <= cost_of_creation(FEW)
