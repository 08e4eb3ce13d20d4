"""Changes that operators make, on three real nodes: each is in force while the fault lasts, and undone after it."""

from collections.abc import Iterator
from typing import Literal

import pytest

from linearizability.client.requests import list_offsets_request
from linearizability.faults import all_faults
from linearizability.faults.fault import FAULTS, World, select
from linearizability.faults.injection import Injection
from linearizability.faults.operating import SHORT_SEGMENT_MS
from linearizability.targets import open_target
from linearizability.targets.target import TargetError
from linearizability.targets.wire import Wire
from linearizability.workload.cluster import Coordinated, create_topic, find_coordinator
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.metadata import MetadataRequest
from tests.waiting import await_true

TOPIC = "operated"


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    with open_target("reference:3", folder=tmp_path_factory.mktemp("operated")) as target:
        create_topic(target.nodes, TOPIC, partitions=2, replication_factor=3, configs={})
        yield World(target, TOPIC)


def call(world: World, request):
    node = world.nodes[0]
    with Wire.connect(node.host, node.port) as wire:
        return wire.call(request)


def topics(world: World) -> set[str]:
    return {topic.name for topic in call(world, MetadataRequest(topics=None)).topics}


def segment_ms(world: World) -> str:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=TOPIC, configuration_keys=["segment.ms"]
    )
    return call(world, DescribeConfigsRequest(resources=[resource])).results[0].configs[0].value


def injection(world: World, name: str, pick: float = 0.0):
    injection = Injection(at_s=0, fault=name, pick=pick)
    done = all_faults()[name].begin(world, injection)
    assert done is not None
    return done


def test_the_cluster_offers_what_operators_do(world):
    assert {"reassign", "elect", "reconfigure", "bystander"} <= set(select([], world.target, None))


def test_a_broker_without_the_api_is_not_operated_so(world, monkeypatch):
    monkeypatch.setattr("linearizability.faults.fault._served", lambda target: {19, 20})
    assert "bystander" in select([], world.target, None)
    with pytest.raises(TargetError, match="needs AlterPartitionReassignments, which reference:3 does not serve"):
        select(["reassign"], world.target, None)


def test_a_partition_does_without_a_follower_and_gets_it_back(world):
    done = injection(world, "reassign", pick=0.6)
    number, spared = done["partition"], done["spared"]
    await_true(lambda: world.look().partitions[number].replicas == tuple(done["replicas"][1:]))
    FAULTS["reassign"].end(world, done)
    await_true(lambda: world.look().partitions[number].replicas == (spared, *done["replicas"][1:]))
    await_true(lambda: len(world.look().partitions[number].in_sync) == 3)


def test_leaders_go_back_to_where_they_are_preferred(world):
    """A reassignment puts a follower first: then the leader is not the preferred one until the election."""
    done = injection(world, "reassign")
    number = done["partition"]
    await_true(lambda: world.look().partitions[number].replicas == tuple(done["replicas"][1:]))
    FAULTS["reassign"].end(world, done)
    await_true(lambda: len(world.look().partitions[number].in_sync) == 3)
    view = world.look().partitions[number]
    assert view.leader != view.replicas[0] == done["spared"]
    injection(world, "elect")
    await_true(lambda: all(view.leader == view.replicas[0] for view in world.look().partitions.values()))


def test_segments_are_short_for_a_while(world):
    before = segment_ms(world)
    done = injection(world, "reconfigure")
    await_true(lambda: segment_ms(world) == str(SHORT_SEGMENT_MS))
    FAULTS["reconfigure"].end(world, done)
    await_true(lambda: segment_ms(world) == before)


def test_another_topic_comes_and_goes(world):
    done = injection(world, "bystander")
    await_true(lambda: done["topic"] in topics(world))
    FAULTS["bystander"].end(world, done)
    await_true(lambda: done["topic"] not in topics(world))


def test_a_topic_is_deleted_while_it_is_written_to(world):
    done = injection(world, "deletion")
    await_true(lambda: any(end_offset(world, done["topic"], number) for number in range(3)))
    FAULTS["deletion"].end(world, done)
    await_true(lambda: done["topic"] not in topics(world))
    assert not world.writers[done["topic"]].is_alive


def end_offset(world: World, topic: str, number: int) -> int:
    request = list_offsets_request({(topic, number): -1})
    for node in world.nodes:
        with Wire.connect(node.host, node.port) as wire:
            reported = wire.call(request).topics[0].partitions[0]
        if reported.error_code == 0:
            return reported.offset
    return 0


@pytest.mark.parametrize("kind", ["group", "transaction"])
def test_a_coordinator_can_be_aimed_at(world: World, kind: Literal["group", "transaction"]) -> None:
    """All nodes name the same one, and it is chosen."""
    wanted = Coordinated(kind, "somebody")
    await_true(lambda: all(find_coordinator([node], wanted) > 0 for node in world.nodes))
    (found,) = {find_coordinator([node], wanted) for node in world.nodes}
    aimed = World(world.target, TOPIC, coordinated=[wanted])
    assert {aimed.choose("coordinator", pick) for pick in (0.0, 0.5, 0.9)} == {found}
