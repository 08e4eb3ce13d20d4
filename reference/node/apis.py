"""Which API goes to which handler, and the versions that are advertised: those of Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reference.node import configs, fetch, groups, log_dirs, metadata, offsets, produce, producers, topics
from reference.node.release import versions_of
from reference.node.requests import Request
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message

if TYPE_CHECKING:
    from reference.node.node import Node

Handler = Callable[["Node", Request, Any, TimestampMs], Message | None]

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 11, 12, 13, 14, 18, 19, 20
DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS = 21, 22, 23, 32, 33
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER = 35, 37, 44, 60
DESCRIBE_PRODUCERS, DESCRIBE_TOPIC_PARTITIONS = 61, 75

HANDLERS: dict[int, Handler] = {
    PRODUCE: produce.produce,
    FETCH: fetch.fetch,
    LIST_OFFSETS: offsets.list_offsets,
    METADATA: metadata.metadata,
    OFFSET_COMMIT: groups.offset_commit,
    OFFSET_FETCH: groups.offset_fetch,
    FIND_COORDINATOR: groups.find_coordinator,
    JOIN_GROUP: groups.join_group,
    HEARTBEAT: groups.heartbeat,
    LEAVE_GROUP: groups.leave_group,
    SYNC_GROUP: groups.sync_group,
    API_VERSIONS: metadata.api_versions,
    CREATE_TOPICS: topics.create_topics,
    DELETE_TOPICS: topics.delete_topics,
    DELETE_RECORDS: topics.delete_records,
    INIT_PRODUCER_ID: producers.init_producer_id,
    OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
    DESCRIBE_CONFIGS: configs.describe_configs,
    ALTER_CONFIGS: configs.alter_configs,
    DESCRIBE_LOG_DIRS: log_dirs.describe_log_dirs,
    CREATE_PARTITIONS: topics.create_partitions,
    INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    DESCRIBE_CLUSTER: metadata.describe_cluster,
    DESCRIBE_PRODUCERS: producers.describe_producers,
    DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
}
"""Every API that this node serves. An API that is not here is not advertised, and asking for it closes the connection."""

ADVERTISED_BELOW_SERVED = {PRODUCE: 0}
"""Kafka 4 advertises Produce from version 0 on though it serves 3 and later: old librdkafka gives up otherwise (KAFKA-18659)."""


def advertised_apis() -> dict[int, tuple[int, int]]:
    """API key -> the lowest and highest version told to clients."""
    found: dict[int, tuple[int, int]] = {}
    for key, (lowest, highest) in served_apis().items():
        found[key] = (ADVERTISED_BELOW_SERVED.get(key, lowest), highest)
    return found


def served_apis() -> dict[int, tuple[int, int]]:
    """API key -> the lowest and highest version that is answered."""
    return {key: versions_of(key) for key in sorted(HANDLERS)}
