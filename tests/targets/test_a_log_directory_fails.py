"""One of a broker's two log directories fails, and its disk is replaced: Apache Kafka and the reference in one cluster.

Node 1 is the controller and a broker; node 2, a broker alone, has a folder that its interposer does not know, with the metadata
log, and one that it breaks. `python -m pytest -m slow -s tests/targets/test_a_log_directory_fails.py` prints what was seen.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linearizability.damage.content import Refused, make_batch, produce
from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.reference import ReferenceCluster, serve_command
from linearizability.targets.wire import Wire
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.primitives import NodeId
from reference.storage.checkpoints import MetaProperties, write_meta_properties
from reference.storage.posix_disk import PosixDisk

STABLE, FAILING = NodeId(1), NodeId(2)
PARTITIONS = 4
WITHIN_S = 60.0
SPEC = "kafka:4.3.1:2"


def first_of(member: Member) -> Path:
    """The directory of node 2 that does not fail."""
    return member.folder / "first"


class OneBreaks(ClusterTarget):
    """Two nodes, of which the second has two log directories."""

    def properties(self, member: Member) -> dict[str, str]:
        given = super().properties(member)
        if self.size < FAILING:
            return given
        controller = self.members[0]
        given["controller.quorum.voters"] = f"{STABLE}@{controller.node.host}:{controller.controller_port}"
        if member.node.id == FAILING:
            given["process.roles"] = "broker"
            given["listeners"] = given["advertised.listeners"]
            given["log.dirs"] = f"{first_of(member)},{member.data}"
        return given

    def format(self, member: Member) -> None:
        super().format(member)
        if member.node.id == FAILING:
            for folder in (first_of(member), member.data):
                format_folder(self, folder)


def format_folder(cluster: ClusterTarget, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    write_meta_properties(PosixDisk(), folder, MetaProperties(cluster.cluster_id, FAILING, uuid.uuid4()))


class AllKafka(OneBreaks, KafkaCluster):
    pass


class AllReference(OneBreaks, ReferenceCluster):
    pass


class Mixed(OneBreaks, KafkaCluster):
    """`reference_node` is the reference, the other Apache Kafka."""

    reference_node = FAILING

    def format(self, member: Member) -> None:
        """The controller finalizes no feature that the reference does not have."""
        if member.node.id == STABLE and self.reference_node == FAILING and not self.throwaway:
            tool = self.java_command(
                ["-XX:TieredStopAtLevel=1"],
                "kafka.tools.StorageTool",
                "format",
                "-t",
                self.cluster_id,
                "-c",
                member.properties_file,
                "--feature",
                "share.version=0",
                "--feature",
                "streams.version=0",
            )
            subprocess.run(tool, check=True, capture_output=True, timeout=120)
        else:
            super().format(member)

    def command(self, member: Member) -> list[str | Path]:
        if member.node.id == self.reference_node and not self.throwaway:
            return serve_command(member)
        return super().command(member)

    def environment(self, member: Member) -> dict[str, str]:
        return {} if member.node.id == self.reference_node and not self.throwaway else super().environment(member)


class KafkaBroker(Mixed):
    reference_node = STABLE


class Seen:
    """What the clients see of the cluster."""

    def __init__(self, cluster: ClusterTarget) -> None:
        self.cluster = cluster
        self._began = time.monotonic()

    def ask(self, node: int, body: Any, version: int | None = None) -> Any:
        place = self.cluster.member(node).node
        with Wire.connect(place.host, place.port) as wire:
            return wire.call(body, version)

    def create(self) -> None:
        row = CreateTopicsRequest.CreatableReplicaAssignment
        topic = CreateTopicsRequest.CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[row(partition_index=index, broker_ids=[FAILING, STABLE]) for index in range(PARTITIONS)],
        )
        assert self.ask(STABLE, CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0

    def partitions(self) -> list[tuple[int, frozenset[int]]]:
        """Leader and ISR of each."""
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
        found = sorted(self.ask(STABLE, asked, 9).topics[0].partitions, key=lambda each: each.partition_index)
        return [(each.leader_id, frozenset(each.isr_nodes)) for each in found]

    def directories(self) -> list[tuple[int, set[int]]]:
        """Error and partitions of each directory of node 2: the first, and the one that fails."""
        member = self.cluster.member(FAILING)
        found = {each.log_dir: each for each in self.ask(FAILING, DescribeLogDirsRequest(topics=None)).results}
        return [
            (each.error_code, {index.partition_index for topic in each.topics for index in topic.partitions})
            for each in (found[str(first_of(member))], found[str(member.data)])
        ]

    def write(self, index: int) -> None:
        """Write a record by the leader, if there is one. Errors: Refused."""
        leader = self.partitions()[index][0]
        if leader >= 0:
            produce(
                lambda body, version: self.ask(leader, body, version), ("t", index), make_batch(0, 0, 1_700_000_000_000)
            )

    def writes(self, index: int) -> bool:
        """Whether the partition takes a record now: a new leader may not know it yet."""
        try:
            self.write(index)
        except Refused:
            return False
        return True

    def until(self, what: str, ask: Callable[[], Any]) -> Any:
        end = time.monotonic() + WITHIN_S
        while not (found := ask()):
            assert time.monotonic() < end, f"not within {WITHIN_S:.0f} s: {what}; {self.partitions()}"
            time.sleep(0.2)
        print(f"{time.monotonic() - self._began:6.1f} s  {what}")
        return found


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("kind", [AllKafka, AllReference, Mixed, KafkaBroker])
def test_others_lead_and_a_replaced_disk_is_filled_again(kind: type[Any], tmp_path: Path) -> None:
    """Kafka's outcome is the first row's; what the reference does, alone or with Kafka, must be the same."""
    version: dict[str, Any] = {} if kind is AllReference else {"version": "4.3.1"}
    config = {"log.flush.interval.messages": "1", "auto.leader.rebalance.enable": "false"}
    cluster: ClusterTarget = kind(SPEC, nodes=2, folder=tmp_path, config=config, **version)
    cluster.interpose()
    with cluster:
        seen = Seen(cluster)
        seen.create()
        both = frozenset((STABLE, FAILING))
        seen.until("node 2 leads, both in sync", lambda: seen.partitions() == [(FAILING, both)] * PARTITIONS)
        for index in range(PARTITIONS):
            seen.until(f"a record is in t-{index}", lambda index=index: seen.writes(index))
        (_, kept), (_, lost) = seen.directories()
        assert (len(kept), len(lost), kept | lost) == (2, 2, {*range(PARTITIONS)})

        cluster.disk(FAILING, "broken")
        with pytest.raises(Refused):
            seen.write(min(lost))
        moved = [(STABLE, frozenset((STABLE,))) if index in lost else (FAILING, both) for index in range(PARTITIONS)]
        seen.until("node 1 leads what was in the directory that failed", lambda: seen.partitions() == moved)
        assert seen.directories() == [(0, kept), (ErrorCode.KAFKA_STORAGE_ERROR, set())]
        for index in range(PARTITIONS):
            seen.until(f"another is in t-{index}", lambda index=index: seen.writes(index))

        cluster.stop(FAILING)
        cluster.disk(FAILING, None)
        data = cluster.member(FAILING).data
        shutil.rmtree(data)
        format_folder(cluster, data)
        cluster.restart(FAILING)
        seen.until("the replaced disk is filled", lambda: {isr for _, isr in seen.partitions()} == {both})
        assert {*range(PARTITIONS)} == set.union(*(found for _, found in seen.directories()))
