"""workload/cluster.py on real nodes: a topic whose replicas are named, and the leaders that it prefers."""

import time
from pathlib import Path

import pytest

from linearizability.mutants.wire.proxy import Proxy
from linearizability.mutants.wire.restricted import RESTRICTIONS, Restricted
from linearizability.targets import Target, open_target
from linearizability.targets.loop import Loop
from linearizability.targets.wire import Wire
from linearizability.workload.cluster import (
    TopicNotMade,
    TopicRefused,
    create_topic,
    elect_preferred,
    find_controller,
    look,
)
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.primitives import NodeId

TOPIC = "placed"
WITHIN_S = 60.0


def reorder(target: Target, replicas: list[int]) -> None:
    """Put the same replicas into another order: the leader stays, and another replica is preferred."""
    wanted = [
        AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=number, replicas=[NodeId(each) for each in replicas]
        )
        for number in range(2)
    ]
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=TOPIC, partitions=wanted)
    with Wire.connect(target.nodes[0].host, target.nodes[0].port) as wire:
        assert wire.call(AlterPartitionReassignmentsRequest(topics=[topic])).error_code == ErrorCode.NONE


def await_placed(target: Target, leader: int, replicas: tuple[int, ...]) -> None:
    """Wait until both partitions are seen so."""
    until = time.monotonic() + WITHIN_S
    while {(each.leader, each.replicas) for each in look(target.nodes, TOPIC).partitions.values()} != {
        (leader, replicas)
    }:
        assert time.monotonic() < until, look(target.nodes, TOPIC)
        time.sleep(0.02)


def test_replicas_are_where_they_were_named_and_preferred_leaders_are_elected(tmp_path: Path) -> None:
    with open_target("reference:2", folder=tmp_path, config={"auto.leader.rebalance.enable": "false"}) as target:
        create_topic(target.nodes, TOPIC, partitions=2, replication_factor=2, configs={}, replicas=[2, 1])
        await_placed(target, leader=2, replicas=(2, 1))
        reorder(target, [1, 2])
        await_placed(target, leader=2, replicas=(1, 2))
        elect_preferred(target.nodes, TOPIC, 2)
        await_placed(target, leader=1, replicas=(1, 2))


def test_the_controller_is_who_leads_the_quorum_and_where_there_is_none_who_is_named(tmp_path: Path) -> None:
    with open_target("reference:3", folder=tmp_path) as target:
        first = find_controller(target.nodes, named=-1)
        assert first in {1, 2, 3}
        assert {find_controller([node], named=-1) for node in target.nodes} == {first}
        target.kill(first)
        left = [node for node in target.nodes if node.id != first]
        until = time.monotonic() + WITHIN_S
        while find_controller(left, named=first) == first:
            assert time.monotonic() < until
            time.sleep(0.1)
    assert find_controller(target.nodes, named=7) == 7


def test_one_replica_needs_no_configurations_that_the_target_does_not_know(tmp_path: Path) -> None:
    few = Restricted(RESTRICTIONS["few-topic-configs"])
    unknown = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
    with open_target("reference:1", folder=tmp_path) as target, Loop() as loop, Proxy(loop, target.nodes, few) as proxy:
        create_topic(proxy.nodes, TOPIC, partitions=2, replication_factor=1, configs=unknown)
        assert look(proxy.nodes, TOPIC).complete(2)
        with pytest.raises(TopicRefused, match="INVALID_CONFIG"):
            create_topic(proxy.nodes, "other", partitions=1, replication_factor=2, configs=unknown)


def test_a_topic_that_no_node_makes_is_given_up() -> None:
    with pytest.raises(TopicNotMade, match="no node answered"):
        create_topic([], TOPIC, partitions=1, replication_factor=1, configs={}, within_s=0)
