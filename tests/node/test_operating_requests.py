"""Requests of an operator that each broker answers for itself: loggers, configured resources, log directories.

The expectations are Apache Kafka 4.3.1's responses to the same requests; the tools are compared in `tests/tools`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.wire import Wire
from reference.controller.configs import DELETE, SET, SUBTRACT, Alteration
from reference.node.loggers import OWN, ROOT, Loggers
from reference.protocol.acls import Operation
from reference.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_groups import DeleteGroupsRequest
from reference.protocol.messages.describe_cluster import DescribeClusterRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.messages.list_config_resources import ListConfigResourcesRequest

pytestmark = pytest.mark.process
WITHIN_S = 30
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterTarget]:
    with open_target("reference:1", folder=tmp_path_factory.mktemp("operating")) as opened:
        assert isinstance(opened, ClusterTarget)
        yield opened


@pytest.fixture
def wire(target: ClusterTarget) -> Iterator[Wire]:
    with Wire.connect(target.nodes[0].host, target.nodes[0].port) as opened:
        yield opened


def alter(
    wire: Wire, kind: int, resource: str, name: str, value: str | None, operation: int = SET
) -> tuple[int, str | None]:
    setting = IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=operation, value=value)
    asked = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=resource, configs=[setting]
    )
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[asked])).responses
    return answer.error_code, answer.error_message


def test_loggers_of_this_broker_change(wire: Wire) -> None:
    assert alter(wire, LOGGER, "1", ROOT, "WARN") == (0, None)
    assert alter(wire, LOGGER, "1", ROOT, "INFO") == (0, None)
    assert alter(wire, LOGGER, "1", "no.such.Logger", "INFO") == (40, "Logger no.such.Logger does not exist!")
    assert alter(wire, LOGGER, "2", ROOT, "INFO") == (42, "Unexpected node id. Expected 1, but received 2")
    assert alter(wire, LOGGER, "", ROOT, "INFO") == (42, "Node id must be an integer, but it is: ")


@pytest.mark.parametrize(("kind", "what"), [(TOPIC, "topic"), (GROUP, "group")])
def test_an_operation_is_judged_before_the_name_of_the_resource(wire: Wire, kind: int, what: str) -> None:
    assert alter(wire, kind, "", "nothing", "1", SUBTRACT) == (
        40,
        "Can't SUBTRACT to key nothing because its type is not LIST.",
    )
    assert alter(wire, kind, "", "nothing", "1", SET) == (42, f"Default {what} resources are not allowed.")


def test_a_level_decides_what_is_logged() -> None:
    loggers = Loggers()
    assert loggers.admits("info")
    loggers.alter([Alteration(ROOT, SET, "ERROR")], validate_only=True)
    assert loggers.admits("info")
    loggers.alter([Alteration(ROOT, SET, "ERROR")], validate_only=False)
    assert loggers.admits("error") and not loggers.admits("warning")
    loggers.alter([Alteration(OWN, SET, "WARN")], validate_only=False)
    assert loggers.admits("warning") and not loggers.admits("info")
    loggers.alter([Alteration(OWN, DELETE, None)], validate_only=False)
    assert not loggers.admits("warning")


def test_what_has_settings_is_listed(wire: Wire) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="listed", num_partitions=1, replication_factor=1)
    wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert alter(wire, GROUP, "g", "consumer.session.timeout.ms", "50000") == (0, None)

    def listed(version: int, *types: int) -> tuple[int, set[tuple[int, str]]]:
        answer: Any = wire.call(ListConfigResourcesRequest(resource_types=[*types]), version)
        return answer.error_code, {(each.resource_type, each.resource_name) for each in answer.config_resources}

    everything = {(TOPIC, "listed"), (BROKER, "1"), (LOGGER, "1"), (GROUP, "g")}
    assert listed(1) == (0, everything)
    assert listed(1, GROUP, BROKER) == (0, {(GROUP, "g"), (BROKER, "1")})
    assert listed(0) == listed(1, CLIENT_METRICS) == (0, set())
    assert listed(1, 5) == (35, set())


def test_the_operations_of_a_cluster_are_those_that_it_has(wire: Wire) -> None:
    """librdkafka's own test 0081 found READ, WRITE and DELETE among them."""
    bits = wire.call(DescribeClusterRequest(include_cluster_authorized_operations=True)).cluster_authorized_operations
    assert [each.name for each in Operation if bits >> each & 1] == [
        "CREATE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
    ]


def test_replicas_lie_in_the_one_folder(target: ClusterTarget, wire: Wire) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="placed", num_partitions=1, replication_factor=1)
    wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    (data,) = (path.parent for path in Path(target.folder).rglob("meta.properties"))

    def moved(path: str, name: str, partition: int) -> int:
        asked = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=[partition])
        there = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[asked])
        (result,) = wire.call(AlterReplicaLogDirsRequest(dirs=[there])).results
        return result.partitions[0].error_code

    assert moved(str(data), "placed", 0) == 0
    assert moved(str(data), "placed", 7) == moved(str(data), "nowhere", 0) == 3
    assert moved("/no/such", "placed", 0) == moved("relative", "placed", 0) == 57


def test_a_coordinator_that_is_not_there_yet_is_said_so(target: ClusterTarget) -> None:
    """On a fresh broker the first question creates __consumer_offsets: the same codes and sentences as Kafka's."""
    sentences = {0: "NONE", 15: "The coordinator is not available."}
    with Wire.connect(target.nodes[0].host, target.nodes[0].port) as wire:
        assert wire.call(DeleteGroupsRequest(groups_names=["early"])).results[0].error_code == 16
        codes = [(answer := wire.call(FindCoordinatorRequest(key="early", key_type=0), 3)).error_code]
        assert answer.error_message == sentences[codes[0]]
        until = time.monotonic() + WITHIN_S
        while codes[-1] != 0:
            assert time.monotonic() < until and codes[-1] == 15
            codes.append((answer := wire.call(FindCoordinatorRequest(key="early", key_type=0), 3)).error_code)
        assert answer.error_message == "NONE"
        (found,) = wire.call(FindCoordinatorRequest(coordinator_keys=["early"], key_type=0), 6).coordinators
        assert (found.error_code, found.error_message) == (0, "")
