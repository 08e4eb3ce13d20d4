"""One cluster of Apache Kafka's nodes and the reference's: what may be named, and that it works together."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from conformance.host import Host
from conformance.results import TargetRecord
from linearizability.commands import app
from linearizability.faults.fault import World
from linearizability.targets import Node, WrongTarget, open_target
from linearizability.targets.cluster import write_properties
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.mixed import MixedCluster
from linearizability.targets.ports import free_ports
from linearizability.targets.reference import serve_command
from linearizability.targets.wire import Wire
from linearizability.workload.cluster import create_topic, find_controller
from reference.protocol.messages.alter_client_quotas import AlterClientQuotasRequest as Alter
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest as Describe
from reference.protocol.messages.metadata import MetadataRequest
from tests.waiting import await_true


def test_each_place_has_its_kind_and_role(tmp_path: Path) -> None:
    target = open_target("mixed:kafka:4.3.1,controller=reference,broker=kafka:4.4.0", folder=tmp_path)
    assert isinstance(target, MixedCluster) and (target.size, target.brokers) == (3, 2)
    described = target.describe()
    assert described["kinds"] == ["kafka:4.3.1", "reference", "kafka:4.4.0"]
    assert described["roles"] == ["broker,controller", "controller", "broker"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("mixed:reference", "2 to 9 kinds"),
        ("mixed:broker=reference,broker=reference", "at least one node must be a controller"),
        ("mixed:controller=reference,controller=kafka:4.3.1", "at least one node must be a broker"),
        ("mixed:controller=reference-zk,reference-zk", "ZooKeeper coordinates all nodes of a cluster or none"),
        ("mixed:reference,kafka:2.8.2", "ZooKeeper coordinates all nodes of a cluster or none"),
        ("mixed:reference,kafka:3.8.1", "the versions of 3.9 or of 4.3, which kafka:3.8.1 does not serve"),
        ("mixed:reference,addr:127.0.0.1:9092", "is no node"),
        ("mixed:reference:3,reference", "'reference:3' is no node"),
        ("mixed:reference,nonsense", "is no target"),
    ],
)
def test_what_cannot_stand_in_such_a_cluster_is_refused_by_name(spec: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(WrongTarget, match=said):
        open_target(spec, folder=tmp_path)


def test_it_is_judged_as_its_oldest_release(tmp_path: Path) -> None:
    host = Host(spec="mixed:kafka:4.4.0,reference,kafka:4.3.1", folder=tmp_path, record=TargetRecord(spec="mixed"))
    assert host.kafka_version == "4.3.1"


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize(
    "spec",
    [
        "mixed:kafka:4.3.1,broker=reference",
        "mixed:reference,broker=kafka:4.3.1",
        "mixed:kafka:4.4.0,broker=reference",
        "mixed:kafka:3.9.2,broker=reference",
        "mixed:reference,broker=kafka:3.9.2",
    ],
)
def test_controllers_of_one_kind_lead_brokers_of_the_other(spec: str, tmp_path: Path) -> None:
    """Kafka formats with its own defaults: share.version and streams.version are finalized; 4.4.0 with those of 4.3.1."""
    with open_target(spec, folder=tmp_path) as target:
        node = target.nodes[0]
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=4, replication_factor=2)
        with Wire.connect(node.host, node.port) as wire:
            assert wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=20_000)).topics[0].error_code == 0
            await_true(lambda: described(wire, "t") == ({1, 2}, {(1, 2)}), "both brokers, with the topic's replicas")


def described(wire: Wire, topic: str) -> tuple[set[int], set[tuple[int, ...]]]:
    """The brokers, and the replicas of the topic's partitions; a broker may report them after the controller made them."""
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    found = wire.call(asked, 9)
    replicas = {tuple(sorted(each.replica_nodes)) for each in found.topics[0].partitions}
    return {each.node_id for each in found.brokers}, replicas


@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("spec", ["mixed:controller=kafka:4.3.1,controller=reference,kafka:4.3.1,broker=reference"])
def test_controllers_that_are_no_brokers(spec: str, tmp_path: Path) -> None:
    """Clients do not see them; one is killed, comes again, and the other leads meanwhile."""
    with open_target(spec, folder=tmp_path) as target:
        assert [node.id for node in target.nodes] == [3, 4]
        assert [node.id for node in target.controllers] == [1, 2, 3]
        create_topic(target.nodes, "t", partitions=2, replication_factor=2, configs={})
        for node in (1, 2):
            target.kill(node)
            while find_controller(target.nodes, -1) not in {1, 2, 3} - {node}:
                time.sleep(0.1)
            create_topic(target.nodes, f"without-{node}", partitions=2, replication_factor=2, configs={})
            target.restart(node)


@pytest.mark.sampled(days=5)
def test_a_hunt_hurts_controllers_that_are_no_brokers(tmp_path: Path) -> None:
    """Faults may cut off and kill all nodes; only the brokers are asked for the cluster's state."""
    spec = "mixed:controller=reference,reference,broker=reference"
    target = open_target(spec, folder=tmp_path)
    assert isinstance(target, MixedCluster)
    target.lay_out(tmp_path)
    world = World(target, "t")
    assert [node.id for node in world.nodes] == [2, 3] and world.up == world.ids == world.places == [1, 2, 3]
    found = [target.member(node).properties for node in (1, 2, 3)]
    assert [each["process.roles"] for each in found] == ["controller", "broker,controller", "broker"]
    assert "advertised.listeners" not in found[0] and found[0]["listeners"].startswith("CONTROLLER://")
    assert {each["offsets.topic.replication.factor"] for each in found} == {"2"}


@pytest.mark.sampled(days=5)
def test_kafka_is_shown_beside_the_reference(tmp_path: Path) -> None:
    """`cluster --with`: both nodes know each other; all ends with the command."""
    port = next(port for port in free_ports(9, "127.0.0.1") if port < 60_000)
    command = [sys.executable, "-m", "tidegauge", "cluster", "--nodes", "2", "--with", "kafka:4.3.1", "--json"]
    with subprocess.Popen(
        [*command, "--port", str(port), "--folder", str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as shown:
        assert shown.stdout is not None
        assert json.loads(shown.stdout.readline())["alive"] == [1, 2]
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=2, replication_factor=2)
        assert ask(Node(2, "127.0.0.1", port + 1), CreateTopicsRequest(topics=[topic])).topics[0].error_code == 0
        while len((seen := json.loads(shown.stdout.readline()))["partitions"]) < 2:
            assert seen["ended"] == []
        shown.terminate()
        assert json.loads(shown.stdout.read().splitlines()[-1])["stopped"] is True
    assert shown.returncode == 0
    assert "shut down" in (tmp_path / "node-2" / "node.log").read_text()


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["kafka:4.3.1"] * 3, "leave none to the reference"),
        (["reference"], "kafka:VERSION is needed"),
        (["kafka:2.8.2"], "ZooKeeper coordinates all nodes of a cluster or none"),
    ],
)
def test_what_cannot_be_shown_beside_the_reference_is_named(kinds: list[str], said: str, tmp_path: Path) -> None:
    options = [part for kind in kinds for part in ("--with", kind)]
    done = CliRunner().invoke(app, ["cluster", "--folder", str(tmp_path / "c"), *options])
    assert done.exit_code == 3 and said in done.stderr and not (tmp_path / "c").exists()


@pytest.mark.slow
def test_kafka_finds_its_quota_in_a_snapshot_that_the_reference_wrote(tmp_path: Path) -> None:
    """Kafka, then the reference, then Kafka on one folder; Kafka starts from the newest snapshot."""
    with open_target("kafka:4.3.1", folder=tmp_path) as target:
        assert isinstance(target, KafkaCluster)
        (member,) = target.members
        entity = [Alter.EntityData(entity_type="client-id", entity_name="app")]
        rate = Alter.OpData(key="producer_byte_rate", value=1234.0)
        ask(member.node, Alter(entries=[Alter.EntryData(entity=entity, ops=[rate])]))
        target.stop(1)
        command, member.process.command = member.process.command, [*map(str, serve_command(member))]
        more_often = {"metadata.log.max.record.bytes.between.snapshots": "100"}
        write_properties(member.properties_file, member.properties | more_often)
        target.restart(1)
        for number in range(10):
            topic = CreateTopicsRequest.CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1)
            ask(member.node, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        target.stop(1)
        assert len([*(member.data / "__cluster_metadata-0").glob("*.checkpoint")]) > 1
        write_properties(member.properties_file, member.properties)
        member.process.command = command
        target.restart(1)
        part = Describe.ComponentData(entity_type="client-id", match_type=0, match="app")
        found = ask(member.node, Describe(components=[part])).entries
        assert [(value.key, value.value) for each in found for value in each.values] == [("producer_byte_rate", 1234.0)]


def ask(node: Node, body: Any) -> Any:
    with Wire.connect(node.host, node.port) as wire:
        return wire.call(body)
