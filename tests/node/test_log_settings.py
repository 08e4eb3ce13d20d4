"""The logs of a topic follow the strongest of the settings in the image."""

from __future__ import annotations

from reference.controller.configs import DELETE, SET
from reference.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE
from reference.node.node import Node
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.storage.simulated_disk import SimulatedDisk
from tests.node.test_metadata_snapshots import FOLDER, NOW, ask, start

DEFAULT_MS = 7 * 24 * 3_600_000


def create(node: Node) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    ask(node, CreateTopicsRequest(topics=[topic]), NOW)


def alter(node: Node, kind: int, resource: str, name: str, operation: int, value: str | None = None) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=operation, value=value)
    altered = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=resource, configs=[change]
    )
    ask(node, IncrementalAlterConfigsRequest(resources=[altered]), NOW)


def retention_ms(node: Node) -> int | None:
    return node.partitions["t", 0].log.config.retention_ms


def test_logs_follow_what_is_set_for_the_topic_for_the_broker_and_for_all() -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    node = start(disk, NOW)
    create(node)
    assert retention_ms(node) == DEFAULT_MS
    alter(node, BROKER_RESOURCE, "", "log.retention.ms", SET, "1000000")
    assert retention_ms(node) == 1_000_000
    alter(node, BROKER_RESOURCE, str(node.id), "log.retention.ms", SET, "2000000")
    assert retention_ms(node) == 2_000_000
    alter(node, TOPIC_RESOURCE, "t", "retention.ms", SET, "3000000")
    assert retention_ms(node) == 3_000_000
    alter(node, TOPIC_RESOURCE, "t", "retention.ms", SET, "4000000")
    assert retention_ms(node) == 4_000_000
    ask(node, DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=1), NOW)
    create(node)
    assert retention_ms(node) == 2_000_000
    alter(node, BROKER_RESOURCE, str(node.id), "log.retention.ms", DELETE)
    alter(node, BROKER_RESOURCE, "", "log.retention.ms", DELETE)
    assert retention_ms(node) == DEFAULT_MS
