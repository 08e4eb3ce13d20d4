"""Log directories that take no new replicas (KIP-1066): the same is seen of Apache Kafka 4.3.1 and of the reference."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.kafka import KafkaCluster
from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.wire import Wire
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.primitives import NodeId
from reference.storage.checkpoints import MetaProperties, write_meta_properties
from reference.storage.posix_disk import PosixDisk

pytestmark = [pytest.mark.process, pytest.mark.kafka]
BROKER, SET, DELETE = 4, 0, 1
WITHIN_S = 30.0
CORDONED = "cordoned.log.dirs"


def second_of(member: Member) -> Path:
    return member.folder / "second"


class TwoDirectories(ClusterTarget):
    """A node with two log directories; `is_cordoned`: whether its properties file cordons the second."""

    is_cordoned = False

    def properties(self, member: Member) -> dict[str, str]:
        cordoned = {CORDONED: str(second_of(member))} if self.is_cordoned else {}
        return super().properties(member) | {"log.dirs": f"{member.data},{second_of(member)}"} | cordoned

    def format(self, member: Member) -> None:
        super().format(member)
        second_of(member).mkdir(exist_ok=True)
        id = MetaProperties(self.cluster_id, NodeId(member.node.id), uuid.uuid4())
        write_meta_properties(PosixDisk(), second_of(member), id)


class Kafka(TwoDirectories, KafkaCluster):
    pass


class Reference(TwoDirectories, ReferenceCluster):
    pass


def opened(kind: type[TwoDirectories], folder: Path, is_cordoned: bool) -> TwoDirectories:
    version: dict[str, Any] = {"version": "4.3.1"} if issubclass(kind, Kafka) else {}
    target = kind(kind.__name__.lower(), nodes=1, folder=folder, **version)
    target.is_cordoned = is_cordoned
    return target


def cordon(wire: Wire, value: str | None) -> int:
    """The answer to a change of the broker's setting."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name=CORDONED, config_operation=DELETE if value is None else SET, value=value
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name="1", configs=[config]
    )
    return wire.call(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code


def create(wire: Wire, name: str) -> int:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=4, replication_factor=1)
    return wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code


def move(wire: Wire, name: str, path: Path) -> int:
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=[0])
    there = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(path), topics=[topic])
    return wire.call(AlterReplicaLogDirsRequest(dirs=[there])).results[0].partitions[0].error_code


def described(wire: Wire, name: str) -> list[tuple[int, bool]]:
    """Of each directory, how many partitions of a topic it has, and whether it is cordoned; the second last."""
    results = wire.call(DescribeLogDirsRequest(topics=None)).results
    found = {
        each.log_dir: (sum(len(topic.partitions) for topic in each.topics if topic.name == name), each.is_cordoned)
        for each in results
    }
    return [found[path] for path in sorted(found, key=lambda path: path.endswith("second"))]


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + WITHIN_S
    while not (held := holds()) and time.monotonic() < until:
        time.sleep(0.1)
    return held


KINDS = [Kafka, Reference]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cordoned_directory_takes_no_new_replicas(kind: type[TwoDirectories], tmp_path: Path) -> None:
    with opened(kind, tmp_path, False) as target:
        (member,) = target.members
        wire = Wire.connect(member.node.host, member.node.port)
        controller = Wire.connect(member.node.host, member.controller_port)
        first, second = member.data, second_of(member)
        assert create(wire, "before") == 0
        assert eventually(lambda: described(wire, "before") == [(2, False), (2, False)])
        assert cordon(wire, f"{second},/other") == ErrorCode.INVALID_REQUEST
        assert cordon(wire, str(second)) == 0
        assert eventually(lambda: described(wire, "before") == [(2, False), (2, True)]), "what is there stays"
        assert create(wire, "after") == 0
        assert eventually(lambda: described(wire, "after") == [(4, False), (0, True)])
        assert move(wire, "after", second) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert cordon(controller, f"{first},{second}") == ErrorCode.INVALID_CONFIG, "it knows no paths"
        assert cordon(wire, "*") == 0
        assert eventually(lambda: create(wire, uuid.uuid4().hex) == ErrorCode.INVALID_REPLICATION_FACTOR)
        assert cordon(controller, None) == 0
        assert eventually(lambda: create(wire, "last") == 0)
        assert eventually(lambda: described(wire, "last") == [(0, False), (4, False)]), "it has fewer than the first"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cordons_a_directory(kind: type[TwoDirectories], tmp_path: Path) -> None:
    with opened(kind, tmp_path, True) as target:
        (member,) = target.members
        wire = Wire.connect(member.node.host, member.node.port)
        assert create(wire, "after") == 0
        assert eventually(lambda: described(wire, "after") == [(4, False), (0, True)])
