"""Controllers of Apache Kafka and of the reference whose voters come from the configuration, and then into the log."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from linearizability.targets import open_target
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.mixed import MixedCluster
from linearizability.targets.wire import Wire
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

WITHIN_S = 90
METADATA = "__cluster_metadata"


def tool(target: MixedCluster, name: str, *arguments: str) -> str:
    """The output of a tool of Kafka 4.3.1."""
    kafka = next(kind for kind in target.kinds if isinstance(kind, KafkaCluster))
    servers = ",".join(f"{node.host}:{node.port}" for node in target.nodes)
    command = kafka.java_command(
        ["-XX:TieredStopAtLevel=1"], f"org.apache.kafka.tools.{name}", "--bootstrap-server", servers, *arguments
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return done.stdout + done.stderr


def quorum(target: MixedCluster, node: int) -> DescribeQuorumResponse.PartitionData:
    asked = DescribeQuorumRequest.TopicData(
        topic_name=METADATA, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    at = target.member(node).node
    with Wire.connect(at.host, at.port) as wire:
        return wire.call(DescribeQuorumRequest(topics=[asked])).topics[0].partitions[0]


def kraft_version(target: MixedCluster, node: int) -> int:
    at = target.member(node).node
    with Wire.connect(at.host, at.port) as wire:
        found = wire.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    return next((each.max_version_level for each in found.finalized_features if each.name == "kraft.version"), 0)


def raise_level(target: MixedCluster, *options: str) -> str:
    """The last output of kafka-features, which is run until the leader knows the levels of all voters."""
    until = time.monotonic() + WITHIN_S
    while True:
        said = tool(target, "FeatureCommand", "upgrade", "--feature", "kraft.version=1", *options)
        if ("not all of the voters" not in said and "has not registered" not in said) or time.monotonic() > until:
            return said


def leader(target: MixedCluster) -> int:
    until = time.monotonic() + WITHIN_S
    while (found := quorum(target, 1)).leader_id not in (1, 2):
        assert time.monotonic() < until, found
    return found.leader_id


LEVELS = (
    ("downgrade", "--feature", "share.version=0", "--feature", "streams.version=0"),
    ("downgrade", "--feature", "group.version=0", "--feature", "transaction.version=1"),
    ("downgrade", "--feature", "metadata.version=29"),
    ("downgrade", "--unsafe", "--feature", "metadata.version=20"),
    ("upgrade", "--feature", "share.version=0"),
    ("upgrade", "--feature", "share.version=1", "--feature", "metadata.version=20"),
    ("upgrade", "--feature", "group.version=1", "--feature", "transaction.version=2"),
    ("upgrade", "--feature", "share.version=1", "--feature", "streams.version=1"),
)
"""kafka-features: levels go down and up again where Kafka allows it."""


def sentences(text: str) -> str:
    """The tool's own output, without the lines of its log, which begin with a time or an exception's name, or are indented."""
    return "\n".join(
        line for line in text.splitlines() if not line.startswith(("[", "\t", " ", "org.apache.kafka.")) and line
    )


@pytest.mark.kafka
@pytest.mark.slow
def test_levels_go_down_and_up_under_a_leader_of_either_kind(tmp_path: Path) -> None:
    """Formatted by Kafka, so that share.version and streams.version are finalized; the tool prints the same for both leaders."""
    with open_target("mixed:kafka:4.3.1,reference", folder=tmp_path) as target:
        assert isinstance(target, MixedCluster)
        said: dict[int, list[str]] = {}
        for first in (1, 2):
            while leader(target) != first:
                target.stop(3 - first)
                target.restart(3 - first)
            said[first] = [sentences(tool(target, "FeatureCommand", *asked)) for asked in LEVELS]
        assert said[2] == said[1]
        taken = [number for number, text in enumerate(said[1]) if "was downgraded" in text or "was upgraded" in text]
        assert taken == [0, 1, 6, 7], said[1]


@pytest.mark.sampled(days=6)
@pytest.mark.kafka
@pytest.mark.parametrize("first", [pytest.param(1, id="kafka-leads"), pytest.param(2, id="reference-leads")])
def test_a_leader_of_either_kind_raises_it(first: int, tmp_path: Path) -> None:
    with open_target("mixed:kafka:4.3.1,reference", folder=tmp_path) as target:
        assert isinstance(target, MixedCluster)
        while leader(target) != first:
            target.stop(leader(target))
            target.restart(3 - first)
        assert "kraft.version can be upgraded to 1" in raise_level(target, "--dry-run")
        assert [kraft_version(target, node) for node in (1, 2)] == [0, 0]
        assert "kraft.version was upgraded to 1" in raise_level(target)
        described = quorum(target, 1)
        assert sorted(each.replica_id for each in described.current_voters) == [1, 2]
        assert all(each.replica_directory_id.int for each in described.current_voters)
        for node in (1, 2):
            target.kill(node)
            target.restart(node)
        until = time.monotonic() + WITHIN_S
        while [kraft_version(target, node) for node in (1, 2)] != [1, 1]:
            assert time.monotonic() < until
        said = tool(target, "FeatureCommand", "downgrade", "--feature", "kraft.version=0")
        assert "Can't downgrade the version of this feature" in said, said
