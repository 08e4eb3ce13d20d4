"""Log directories that take no new replicas (KIP-1066): the same is seen of Apache Kafka 4.3.1 and of the reference."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from linearizability.targets.wire import Wire
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.targets.two_directories import KINDS, TwoDirectories, opened, second_of

pytestmark = [pytest.mark.process, pytest.mark.kafka]
BROKER, SET, DELETE = 4, 0, 1
WITHIN_S = 30.0
CORDONED = "cordoned.log.dirs"


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_cordoned_directory_takes_no_new_replicas(kind: type[TwoDirectories], tmp_path: Path) -> None:
    with opened(kind, tmp_path) as target:
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
    target = opened(kind, tmp_path)
    target.of_each_node = lambda member: {CORDONED: str(second_of(member))}
    with target:
        (member,) = target.members
        wire = Wire.connect(member.node.host, member.node.port)
        assert create(wire, "after") == 0
        assert eventually(lambda: described(wire, "after") == [(4, False), (0, True)])
