"""ELE: reassignments of partitions to other nodes, which must not lose records."""

from typing import Any

from conformance.answers import error_name
from conformance.broker import Broker
from conformance.cluster import QUICK, STATE_WITHIN_S, JudgedCluster, cluster
from conformance.cluster_state import Writes
from conformance.moments import ATTEMPTS
from conformance.requirement import WITHOUT_ZOOKEEPER, requirement
from conformance.wire import Failed
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

DEADLINE_S = 180.0
FREEZES = ("pause", "resume")
ENDS = ("kill", "restart")


def ongoing(broker: Broker, topic: Topic) -> Any:
    """The ongoing reassignment of partition 0, as ListPartitionReassignments reports it, or None. Errors: Failed."""
    table = ListPartitionReassignmentsRequest
    asked = table.ListPartitionReassignmentsTopics(name=topic.name, partition_indexes=[0])
    answer = broker.call(table(topics=[asked], timeout_ms=30_000), timeout_s=30)
    if answer.error_code != ErrorCode.NONE:
        raise Failed(f"ListPartitionReassignments was answered with {error_name(answer.error_code)}")
    return next((one for found in answer.topics for one in found.partitions), None)


def expect_ongoing(broker: Broker, topic: Topic, *, all_: set[int], adding: list[int], removing: list[int]) -> None:
    """Expect that a reassignment is ongoing, with these replicas in all, these to add and these to remove."""
    found = ongoing(broker, topic)
    broker.expect(found is not None, "ListPartitionReassignments reports it")
    broker.expect_equal("all replicas", set(found.replicas), all_)
    broker.expect_equal("adding replicas", list(found.adding_replicas), adding)
    broker.expect_equal("removing replicas", list(found.removing_replicas), removing)


def expect_done(nodes: JudgedCluster, topic: Topic, *replicas: int) -> None:
    """Wait until the partition is on these nodes, all in sync, and no reassignment is ongoing. Another order is tolerated: ELE-14
    judges it."""
    nodes.await_state(
        topic,
        lambda state: frozenset(state.replicas) == frozenset(replicas) == state.isr and state.leader in replicas,
        f"the partition is on {list(replicas)}",
    )
    broker = nodes.broker
    broker.eventually(lambda: ongoing(broker, topic) is None, "no reassignment is ongoing", within_s=STATE_WITHIN_S)
    order = nodes.state(topic).replicas
    if order != replicas:
        broker.tolerate(f"the replicas are in the order {order}, and not {replicas}")


@requirement(
    "ELE-11",
    notices="data: replicas are dropped before others have their records",
    source="KIP-455; ReplicationControlManager.changePartitionReassignment",
    sentence="A reassignment adds the new replicas, waits until they are in sync and then drops those that are not wanted; "
    "ListPartitionReassignments reports it meanwhile.",
    accepted="while the new replica is frozen: all three replicas, who comes and who goes; then the new ones only",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def adding_before_dropping(broker: Broker) -> None:
    with cluster(broker) as nodes:
        old, new, stays = nodes.cast()
        topic, writes = nodes.topic(old, stays), Writes()
        nodes.write_some(topic, writes, 10)
        with nodes.paused(new):
            broker.expect_error(nodes.reassign(topic, new, stays).error_code, ErrorCode.NONE, what="the reassignment")
            nodes.await_state(topic, lambda state: set(state.replicas) == {old, new, stays}, "three replicas")
            expect_ongoing(broker, topic, all_={old, new, stays}, adding=[new], removing=[old])
            nodes.write_some(topic, writes, 10)
            broker.expect(new not in nodes.state(topic).isr, f"node {new} is not in sync while it is frozen")
        expect_done(nodes, topic, new, stays)
        nodes.expect_kept(topic, writes)


@requirement(
    "ELE-12",
    notices="data: acknowledged records are lost while a partition moves",
    source="KIP-455; documentation, operations, expanding a cluster",
    sentence="While a partition moves from node to node under load, no record is lost that was acknowledged with acks=-1.",
    accepted="every acknowledged record at its offset after three moves, the first one away from every node that had it",
    nodes=3, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def moving_under_load(broker: Broker) -> None:
    with cluster(broker) as nodes:
        first, second, third = nodes.cast()
        topic, writes = nodes.topic(first), Writes()
        nodes.write_some(topic, writes, 50)
        for goal in ((second, third), (third, first), (first, second, third)):
            broker.expect_error(nodes.reassign(topic, *goal).error_code, ErrorCode.NONE, what=f"the move to {goal}")
            nodes.write_some(topic, writes, 50)
            expect_done(nodes, topic, *goal)
            nodes.write_some(topic, writes, 10)
        nodes.expect_kept(topic, writes)


@requirement(
    "ELE-13",
    notices="tool: kafka-reassign-partitions shows these codes; a partition must not be left without replicas",
    source="ReplicationControlManager.alterPartitionReassignment; KIP-455",
    sentence="A reassignment of an unknown topic, one to no replicas, to the same one twice or to an unknown broker, and a "
    "cancellation of nothing are refused, and change nothing.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3), INVALID_REPLICA_ASSIGNMENT(39) three times, NO_REASSIGNMENT_IN_PROGRESS(85)",
    nodes=3, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def reassignments_refused(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower)
        stays = any(are_refused_without_a_change(nodes, topic, leader) for _ in range(ATTEMPTS))
        broker.expect(stays, "the partition is as before")


def are_refused_without_a_change(nodes: JudgedCluster, topic: Topic, leader: int) -> bool:
    """Expect that several reassignments are refused; return whether the partition is unchanged. On a busy machine a follower may
    lag."""
    broker, before = nodes.broker, nodes.state(topic)
    error = nodes.reassign(Topic(broker.unused_name(), topic.id, 1), leader).error_code
    broker.expect_error(error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what="an unknown topic")
    for what, replicas in (("no replica", ()), ("the same one twice", (leader, leader)), ("a stranger", (leader, 99))):
        error = nodes.reassign(topic, *replicas).error_code
        broker.expect_error(error, ErrorCode.INVALID_REPLICA_ASSIGNMENT, what=f"to {what}")
    error = nodes.reassign(topic, cancel=True).error_code
    broker.expect_error(error, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, what="the cancellation of nothing")
    return nodes.state(topic) == before


@requirement(
    "ELE-14",
    notices="operator: a new order of replicas moves data or leaders, though it need not",
    source="PartitionReassignmentReplicas; KIP-455",
    sentence="A reassignment that only changes the order of replicas is done at once, and moves no leadership.",
    accepted="the new order in Metadata, nothing going on, the same leader and ISR",
    nodes=3, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def another_order(broker: Broker) -> None:
    with cluster(broker) as nodes:
        first, second, third = nodes.cast()
        topic = nodes.topic(first, second, third)
        orders = [(third, first, second), (second, third, first)] * (ATTEMPTS // 2)
        stays = any(changes_order_alone(nodes, topic, order) for order in orders)
        broker.expect(stays, "leader and ISR are the same in another order")


def changes_order_alone(nodes: JudgedCluster, topic: Topic, order: tuple[int, ...]) -> bool:
    """Change the order of the replicas; return whether leader and ISR are unchanged. On a busy machine a replica may lag."""
    before = nodes.await_isr(topic, *order)
    nodes.broker.expect_error(nodes.reassign(topic, *order).error_code, ErrorCode.NONE)
    nodes.broker.expect_equal("the ongoing reassignment", ongoing(nodes.broker, topic), None)
    after = nodes.await_state(topic, lambda state: state.replicas == order, "the replicas are in the new order")
    return (after.leader, after.isr) == (before.leader, before.isr)


@requirement(
    "ELE-15",
    notices="tool: kafka-reassign-partitions --cancel, with which a reassignment that hangs is ended",
    source="KIP-455; ReplicationControlManager.cancelPartitionReassignment",
    sentence="A reassignment to a dead broker goes on until it is cancelled; then the replicas are what they were before.",
    accepted="the partition serves meanwhile; after the cancellation the old replicas, in sync, and nothing going on",
    since=WITHOUT_ZOOKEEPER,
    kraft=True,
    draft="with ZooKeeper, Kafka refuses the reassignment (2.8.2: INVALID_REPLICA_ASSIGNMENT)",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def to_the_dead_and_back(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, dead, follower = nodes.cast()
        topic, writes = nodes.topic(leader, follower), Writes()
        nodes.write_some(topic, writes, 5)
        nodes.kill(dead)
        nodes.await_fenced(dead)
        broker.expect_error(nodes.reassign(topic, leader, dead).error_code, ErrorCode.NONE, what="the reassignment")
        expect_ongoing(broker, topic, all_={leader, dead, follower}, adding=[dead], removing=[follower])
        nodes.write_some(topic, writes, 5)
        expect_ongoing(broker, topic, all_={leader, dead, follower}, adding=[dead], removing=[follower])
        broker.expect_error(nodes.reassign(topic, cancel=True).error_code, ErrorCode.NONE, what="the cancellation")
        expect_done(nodes, topic, leader, follower)
        nodes.expect_kept(topic, writes)
