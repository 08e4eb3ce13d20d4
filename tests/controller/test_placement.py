"""Placement of new replicas."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.controller.placement import place_replicas
from reference.controller.topics import create_partitions, create_topic
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.primitives import NodeId
from tests.controller.cluster import TOPIC, ControlledCluster, directory_of

Topic = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment


def cluster_of(racks: list[str | None], fenced: set[int] | None = None) -> ControlledCluster:
    cluster = ControlledCluster()
    for broker, rack in enumerate(racks):
        cluster.register(cluster.registration(broker, rack=rack))
        if broker not in (fenced or set()):
            cluster.heartbeat(broker)
    return cluster


def created(cluster: ControlledCluster, topic: Topic) -> list[PartitionRecord]:
    plan = create_topic(cluster.image, topic, default_partitions=1, default_replication=1, chance=random.Random(1))
    return [each for each in plan.records if isinstance(each, PartitionRecord)]


@settings(max_examples=200, deadline=None)
@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7),
    fenced=st.sets(st.integers(0, 6)),
    partitions=st.integers(1, 20),
    replication=st.integers(1, 7),
    seed=st.integers(0, 1000),
)
def test_replicas_differ_and_the_first_serves(
    racks: list[str | None], fenced: set[int], partitions: int, replication: int, seed: int
) -> None:
    cluster = cluster_of(racks, fenced)
    chance = random.Random(seed)
    if replication > len(racks) or fenced >= {*range(len(racks))}:
        with pytest.raises(KafkaError) as caught:
            place_replicas(cluster.image, partitions, replication, chance)
        assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
        return
    placed = place_replicas(cluster.image, partitions, replication, chance)
    assert len(placed) == partitions
    for replicas in placed:
        assert len({*replicas}) == len(replicas) == replication
        assert replicas[0] not in fenced


@given(st.integers(0, 1000), st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_each_rack_has_a_replica_before_one_has_two(seed: int, replication: int) -> None:
    cluster = cluster_of(["a", "a", "b", "b", "c", "c"])
    racks = {each.id: each.rack for each in cluster.image.brokers.values()}
    placed = place_replicas(cluster.image, 12, replication, random.Random(seed))
    assert len(placed) == 12
    for replicas in placed:
        assert len({racks[each] for each in replicas}) == replication


@given(st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_a_round_gives_each_broker_as_much_as_the_others(seed: int) -> None:
    placed = place_replicas(cluster_of([None] * 5).image, 10, 3, random.Random(seed))
    assert {*Counter(replicas[0] for replicas in placed).values()} == {2}
    assert {*Counter(each for replicas in placed for each in replicas).values()} == {6}


def test_brokers_that_stop_or_are_cordoned_get_nothing() -> None:
    cluster = cluster_of([None] * 4)
    cluster.create("held", [0, 1])
    cluster.heartbeat(0, want_shut_down=True)
    assert cluster.image.brokers[NodeId(0)].in_controlled_shutdown
    cluster.heartbeat(1, cordoned_log_dirs=[directory_of(1)])
    placed = place_replicas(cluster.image, 8, 2, random.Random(3))
    assert {each for replicas in placed for each in replicas} == {2, 3}
    with pytest.raises(KafkaError, match=r"factor of 3 cannot be reached because only 2 broker\(s\)"):
        place_replicas(cluster.image, 1, 3, random.Random(3))


def test_a_broker_that_has_stopped_in_good_order_may_get_replicas_again() -> None:
    """The broker is fenced by then; with the fencing Kafka's heartbeat manager drops its shutdown state."""
    cluster = cluster_of([None] * 3)
    cluster.create("held", [0, 1])
    for broker in map(NodeId, (0, 1, 2, 0)):
        cluster.heartbeat(broker, want_shut_down=broker == 0)
    assert cluster.image.brokers[NodeId(0)].in_controlled_shutdown and cluster.image.brokers[NodeId(0)].fenced
    (replicas,) = place_replicas(cluster.image, 1, 3, random.Random(3))
    assert {*replicas} == {0, 1, 2}


def test_only_active_replicas_of_a_new_partition_are_in_sync() -> None:
    cluster = cluster_of([None] * 3, fenced={0})
    (record,) = created(cluster, Topic(name="n", num_partitions=1, replication_factor=3))
    assert {*record.replicas} == {0, 1, 2}
    assert {*record.isr} == {1, 2}
    assert record.leader == record.isr[0]
    assert record.directories == [directory_of(each) for each in record.replicas]


def test_chosen_replicas_must_have_one_that_is_active() -> None:
    cluster = cluster_of([None] * 3, fenced={0, 1})
    topic = Topic(name="n", num_partitions=-1, replication_factor=-1)
    topic.assignments = [Assignment(partition_index=0, broker_ids=[0, 1])]
    with pytest.raises(KafkaError) as caught:
        created(cluster, topic)
    assert caught.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    topic.assignments = [Assignment(partition_index=0, broker_ids=[0, 2])]
    (record,) = created(cluster, topic)
    assert (record.leader, record.isr) == (2, [2])


def test_partitions_are_added_where_brokers_serve() -> None:
    cluster = cluster_of([None] * 3)
    cluster.create(TOPIC, [0, 1])
    cluster.fence(2)
    growth = CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=4, assignments=None)
    added = create_partitions(cluster.image, growth, random.Random(5))
    assert [each.partition_id for each in added if isinstance(each, PartitionRecord)] == [1, 2, 3]
    for each in added:
        assert isinstance(each, PartitionRecord)
        assert each.leader != 2 and 2 not in each.isr
    growth.count = 2
    growth.assignments = [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=[2, 2])]
    with pytest.raises(KafkaError) as caught:
        create_partitions(cluster.image, growth, random.Random(5))
    assert caught.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_that_is_made_again_is_another_topic() -> None:
    cluster = cluster_of([None])
    chance = random.Random(8)
    topic = Topic(name="n", num_partitions=1, replication_factor=1)
    ids = [
        create_topic(cluster.image, topic, default_partitions=1, default_replication=1, chance=chance).id
        for _ in range(2)
    ]
    assert ids[0] != ids[1]
