"""One cluster of Apache Kafka's nodes and the reference's: what may be named, and that it works together."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.host import Host
from conformance.results import TargetRecord
from linearizability.targets import WrongTarget, open_target
from linearizability.targets.mixed import MixedCluster
from linearizability.targets.wire import Wire
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.metadata import MetadataRequest


def test_each_place_has_its_kind_and_role(tmp_path: Path) -> None:
    target = open_target("mixed:kafka:4.3.1,reference,broker=kafka:4.4.0", folder=tmp_path)
    assert isinstance(target, MixedCluster) and target.size == 3
    described = target.describe()
    assert described["kinds"] == ["kafka:4.3.1", "reference", "kafka:4.4.0"]
    assert described["controllers"] == [True, True, False]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("mixed:reference", "2 to 9 kinds"),
        ("mixed:broker=reference,broker=reference", "at least one node must be a controller"),
        ("mixed:reference,kafka:2.8.2", "'kafka:2.8.2' is no node"),
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


@pytest.mark.parametrize("spec", ["mixed:kafka:4.3.1,broker=reference", "mixed:reference,broker=kafka:4.3.1"])
def test_controllers_of_one_kind_lead_brokers_of_the_other(spec: str, tmp_path: Path) -> None:
    """Kafka formats with its own defaults: share.version and streams.version are finalized."""
    with open_target(spec, folder=tmp_path) as target:
        node = target.nodes[0]
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=4, replication_factor=2)
        with Wire.connect(node.host, node.port) as wire:
            assert wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=20_000)).topics[0].error_code == 0
            asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
            found = wire.call(asked, 9)
        assert {each.node_id for each in found.brokers} == {1, 2}
        assert {tuple(sorted(each.replica_nodes)) for each in found.topics[0].partitions} == {(1, 2)}
