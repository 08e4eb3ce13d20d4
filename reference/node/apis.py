"""Which API goes to which handler, and the versions that are advertised: those of Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reference.node import (
    configs,
    consumer_groups,
    controlling,
    described_transactions,
    fetch,
    find_coordinator,
    group_administration,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    offset_fetches,
    offsets,
    produce,
    producers,
    topics,
    transaction_requests,
    write_markers,
)  # fmt: skip
from reference.node.controller import is_controllers_own
from reference.node.release import BROKER, is_served_on, versions_of
from reference.node.requests import Request
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message

if TYPE_CHECKING:
    from reference.node.node import Node

Handler = Callable[["Node", Request, Any, TimestampMs], Message | None]

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 8, 9, 10
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
DESCRIBE_GROUPS, LIST_GROUPS, TXN_OFFSET_COMMIT, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 28, 42, 47
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 11, 12, 13, 14, 18, 19, 20
DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS = 21, 22, 23, 32, 33
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER = 35, 37, 44, 60
DESCRIBE_PRODUCERS, LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS, ALTER_REPLICA_LOG_DIRS = 61, 74, 75, 34
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS = 24, 25, 26, 27
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS, UNREGISTER_BROKER = 43, 45, 46, 64
VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, DESCRIBE_QUORUM, ENVELOPE = 52, 53, 54, 55, 58
ALTER_PARTITION, UPDATE_FEATURES = 56, 57
FETCH_SNAPSHOT, BROKER_REGISTRATION, BROKER_HEARTBEAT, ALLOCATE_PRODUCER_IDS = 59, 62, 63, 67
ASSIGN_REPLICAS_TO_DIRS = 73

BROKER_HANDLERS: dict[int, Handler] = {
    PRODUCE: produce.produce,
    FETCH: fetch.fetch,
    LIST_OFFSETS: offsets.list_offsets,
    METADATA: metadata.metadata,
    OFFSET_COMMIT: group_offsets.offset_commit,
    OFFSET_FETCH: offset_fetches.offset_fetch,
    FIND_COORDINATOR: find_coordinator.find_coordinator,
    JOIN_GROUP: groups.join_group,
    HEARTBEAT: groups.heartbeat,
    LEAVE_GROUP: groups.leave_group,
    SYNC_GROUP: groups.sync_group,
    CONSUMER_GROUP_HEARTBEAT: consumer_groups.consumer_group_heartbeat,
    CONSUMER_GROUP_DESCRIBE: consumer_groups.consumer_group_describe,
    DESCRIBE_GROUPS: group_administration.describe_groups,
    LIST_GROUPS: group_administration.list_groups,
    DELETE_GROUPS: group_administration.delete_groups,
    OFFSET_DELETE: group_offsets.offset_delete,
    TXN_OFFSET_COMMIT: group_offsets.txn_offset_commit,
    API_VERSIONS: metadata.api_versions,
    DELETE_RECORDS: topics.delete_records,
    INIT_PRODUCER_ID: producers.init_producer_id,
    OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
    DESCRIBE_CONFIGS: configs.describe_configs,
    DESCRIBE_LOG_DIRS: log_dirs.describe_log_dirs,
    ALTER_REPLICA_LOG_DIRS: log_dirs.alter_replica_log_dirs,
    LIST_CONFIG_RESOURCES: configs.list_config_resources,
    DESCRIBE_CLUSTER: metadata.describe_cluster,
    ADD_PARTITIONS_TO_TXN: transaction_requests.add_partitions_to_txn,
    ADD_OFFSETS_TO_TXN: transaction_requests.add_offsets_to_txn,
    END_TXN: transaction_requests.end_txn,
    WRITE_TXN_MARKERS: write_markers.write_txn_markers,
    DESCRIBE_PRODUCERS: producers.describe_producers,
    DESCRIBE_TRANSACTIONS: described_transactions.describe_transactions,
    LIST_TRANSACTIONS: described_transactions.list_transactions,
    DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
}
"""What a broker answers itself."""

CONTROLLER_HANDLERS: dict[int, Handler] = {
    FETCH: controlling.fetch_metadata,
    API_VERSIONS: metadata.api_versions,
    DESCRIBE_CONFIGS: configs.describe_configs,
    VOTE: controlling.vote,
    BEGIN_QUORUM_EPOCH: controlling.begin_quorum_epoch,
    END_QUORUM_EPOCH: controlling.end_quorum_epoch,
    FETCH_SNAPSHOT: controlling.fetch_snapshot,
    DESCRIBE_CLUSTER: metadata.describe_cluster,
    ENVELOPE: controlling.envelope,
}
"""What a voter answers itself, on the controllers' listeners."""

DECIDED_HANDLERS: dict[int, Handler] = {
    CREATE_TOPICS: topics.create_topics,
    DELETE_TOPICS: topics.delete_topics,
    ALTER_CONFIGS: configs.alter_configs,
    CREATE_PARTITIONS: topics.create_partitions,
    ELECT_LEADERS: controlling.decide,
    INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    ALTER_PARTITION_REASSIGNMENTS: controlling.decide,
    LIST_PARTITION_REASSIGNMENTS: controlling.decide,
    DESCRIBE_QUORUM: controlling.describe_quorum,
    ALTER_PARTITION: controlling.decide,
    UPDATE_FEATURES: controlling.decide,
    BROKER_REGISTRATION: controlling.decide,
    BROKER_HEARTBEAT: controlling.decide,
    UNREGISTER_BROKER: controlling.decide,
    ALLOCATE_PRODUCER_IDS: controlling.decide,
    ASSIGN_REPLICAS_TO_DIRS: controlling.decide,
}
"""What only the active controller answers: brokers carry it there (KIP-590)."""

QUIET_HANDLERS: frozenset[Handler] = frozenset(
    {produce.produce, fetch.fetch, group_offsets.offset_commit, groups.heartbeat}
)
"""What comes with every record. Such a handler reaches nothing but logs, waiting requests, groups, and the parts whose
deadlines the node reads after each of them."""

ADVERTISED_BELOW_SERVED = {PRODUCE: 0}
"""Kafka 4 advertises Produce from version 0 on though it serves 3 and later: old librdkafka gives up otherwise (KAFKA-18659)."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API on one kind of listener. A version that is not served, or an API that is not here, closes the connection."""

    handler: Handler
    lowest: int
    highest: int
    advertised_from: int
    is_quiet: bool
    """Whether no background work follows when such a request was handled, unless some is due."""


def apis_of(listener: str) -> dict[int, Api]:
    """What a kind of listener serves, by API key."""
    own = BROKER_HANDLERS if listener is BROKER else CONTROLLER_HANDLERS
    decided = {key: handler for key, handler in DECIDED_HANDLERS.items() if is_served_on(key, listener)}
    found: dict[int, Api] = {}
    for key, handler in sorted({**own, **decided}.items()):
        lowest, highest = versions_of(key)
        found[key] = Api(handler, lowest, highest, ADVERTISED_BELOW_SERVED.get(key, lowest), handler in QUIET_HANDLERS)
    return found


def is_decided(key: int) -> bool:
    """Whether only the active controller answers it."""
    return key in DECIDED_HANDLERS


assert all(is_controllers_own(key) for key, handler in DECIDED_HANDLERS.items() if handler is controlling.decide)
