"""The handler of each API, and the advertised versions: those of Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from reference.controller.quorum import Quorum
from reference.node import (
    acls,
    client_quotas,
    configs,
    consumer_groups,
    delegation_tokens,
    fetch,
    group_administration,
    group_offsets,
    groups,
    internal_topics,
    log_dirs,
    metadata,
    offsets,
    produce,
    producers,
    scram_credentials,
    topics,
    transaction_requests,
    write_markers,
)
from reference.node.active_controller import VOTER_CHANGES, ActiveController, Decide
from reference.node.authentication import SASL_AUTHENTICATE, SASL_HANDSHAKE, illegal_state
from reference.node.context import Context
from reference.node.controllers import Controllers
from reference.node.fetch import Fetching
from reference.node.groups import Groups
from reference.node.internal_topics import AutoTopicCreation, Finding
from reference.node.loggers import Loggers
from reference.node.moves import Moves
from reference.node.producers import ProducerIds
from reference.node.release import BROKER, is_served_on, versions_of
from reference.node.requests import Request
from reference.node.transactions import Transactions
from reference.node.verification import Verification
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message
from reference.storage.log_manager import LogManager

Handler = Callable[[Request, Any, TimestampMs], Message | None]

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 8, 9, 10
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
DESCRIBE_GROUPS, LIST_GROUPS, TXN_OFFSET_COMMIT, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 28, 42, 47
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 11, 12, 13, 14, 18, 19, 20
DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS = 21, 22, 23, 32, 33
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER = 35, 37, 44, 60
DESCRIBE_PRODUCERS, LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS, ALTER_REPLICA_LOG_DIRS = 61, 74, 75, 34
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS = 24, 25, 26, 27
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
DESCRIBE_USER_SCRAM_CREDENTIALS, ALTER_USER_SCRAM_CREDENTIALS = 50, 51
ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS, UNREGISTER_BROKER = 43, 45, 46, 64
VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, DESCRIBE_QUORUM, ENVELOPE = 52, 53, 54, 55, 58
ALTER_PARTITION, UPDATE_FEATURES = 56, 57
FETCH_SNAPSHOT, BROKER_REGISTRATION, BROKER_HEARTBEAT, ALLOCATE_PRODUCER_IDS = 59, 62, 63, 67
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
CREATE_DELEGATION_TOKEN, RENEW_DELEGATION_TOKEN, EXPIRE_DELEGATION_TOKEN, DESCRIBE_DELEGATION_TOKEN = 38, 39, 40, 41
ASSIGN_REPLICAS_TO_DIRS, CONTROLLER_REGISTRATION = 73, 70
ADD_RAFT_VOTER, REMOVE_RAFT_VOTER, UPDATE_RAFT_VOTER = 80, 81, 82

DECIDED_HANDLERS: dict[int, Decide] = {
    CREATE_TOPICS: topics.create_topics,
    DELETE_TOPICS: topics.delete_topics,
    CREATE_ACLS: acls.create_acls,
    DELETE_ACLS: acls.delete_acls,
    CREATE_DELEGATION_TOKEN: delegation_tokens.create_token,
    RENEW_DELEGATION_TOKEN: delegation_tokens.renew_token,
    EXPIRE_DELEGATION_TOKEN: delegation_tokens.expire_token,
    ALTER_CONFIGS: configs.alter_configs,
    CREATE_PARTITIONS: topics.create_partitions,
    ELECT_LEADERS: ActiveController.elect_leaders,
    INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    ALTER_PARTITION_REASSIGNMENTS: ActiveController.alter_partition_reassignments,
    LIST_PARTITION_REASSIGNMENTS: ActiveController.list_partition_reassignments,
    DESCRIBE_QUORUM: ActiveController.describe_quorum,
    ALTER_PARTITION: ActiveController.alter_partition,
    UPDATE_FEATURES: ActiveController.update_features,
    ALTER_USER_SCRAM_CREDENTIALS: scram_credentials.alter_user_scram_credentials,
    ALTER_CLIENT_QUOTAS: client_quotas.alter_client_quotas,
    BROKER_REGISTRATION: ActiveController.register_broker,
    BROKER_HEARTBEAT: ActiveController.broker_heartbeat,
    UNREGISTER_BROKER: ActiveController.unregister_broker,
    ALLOCATE_PRODUCER_IDS: ActiveController.allocate_producer_ids,
    ASSIGN_REPLICAS_TO_DIRS: ActiveController.assign_replicas_to_dirs,
    CONTROLLER_REGISTRATION: ActiveController.register_controller,
}
"""APIs of the active controller; brokers forward them (KIP-590).

DescribeQuorum at a controller's listener is not among them: each voter answers for itself.
"""

QUIET = frozenset({PRODUCE, FETCH, OFFSET_COMMIT, HEARTBEAT})
"""APIs of a broker that clients call for each record. Their handlers change only logs, delayed requests, groups, and parts
whose deadlines the node reads after each request."""

ADVERTISED_BELOW_SERVED = {PRODUCE: 0}
"""Kafka 4 advertises Produce since version 0 although it serves 3 and later: otherwise old librdkafka fails (KAFKA-18659)."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API on one kind of listener. A request of another version or API closes the connection."""

    handler: Handler | None
    """None for APIs that only the active controller answers."""
    lowest: int
    highest: int
    advertised_from: int
    is_quiet: bool
    """Whether such a request is not followed by background work, unless some is due."""


class BrokerParts(Protocol):
    """The parts of a node that a broker's handlers need."""

    context: Context
    logs: LogManager
    loggers: Loggers
    moves: Moves
    fetching: Fetching
    groups: Groups
    transactions: Transactions
    verification: Verification
    producer_ids: ProducerIds
    creation: AutoTopicCreation


class Parts(BrokerParts, Protocol):
    """The parts of a node of a metadata quorum."""

    quorum: Quorum
    controller: ActiveController
    controllers: Controllers

    @property
    def open_envelope(self) -> Handler: ...


def broker_handlers(parts: BrokerParts) -> dict[int, Handler]:
    """The APIs that a broker answers itself."""
    context, replicas, image = parts.context, parts.context.replicas, parts.context.image
    return {
        PRODUCE: partial(produce.produce, context, parts.verification),
        FETCH: partial(fetch.fetch, parts.fetching),
        LIST_OFFSETS: partial(offsets.list_offsets, replicas),
        METADATA: partial(metadata.metadata, context, parts.creation),
        OFFSET_COMMIT: partial(group_offsets.offset_commit, parts.groups),
        OFFSET_FETCH: partial(group_offsets.offset_fetch, parts.groups),
        FIND_COORDINATOR: partial(
            internal_topics.find_coordinator, Finding(image, context.coordinators, parts.creation)
        ),
        JOIN_GROUP: partial(groups.join_group, parts.groups),
        HEARTBEAT: partial(groups.heartbeat, parts.groups),
        LEAVE_GROUP: partial(groups.leave_group, parts.groups),
        SYNC_GROUP: partial(groups.sync_group, parts.groups),
        CONSUMER_GROUP_HEARTBEAT: partial(consumer_groups.consumer_group_heartbeat, parts.groups),
        CONSUMER_GROUP_DESCRIBE: partial(consumer_groups.consumer_group_describe, parts.groups),
        DESCRIBE_GROUPS: partial(group_administration.describe_groups, parts.groups),
        LIST_GROUPS: partial(group_administration.list_groups, parts.groups),
        DELETE_GROUPS: partial(group_administration.delete_groups, parts.groups),
        OFFSET_DELETE: partial(group_offsets.offset_delete, parts.groups),
        TXN_OFFSET_COMMIT: partial(group_offsets.txn_offset_commit, parts.groups, parts.verification),
        DELETE_RECORDS: partial(topics.delete_records, context),
        INIT_PRODUCER_ID: partial(producers.init_producer_id, parts.transactions, parts.producer_ids),
        OFFSET_FOR_LEADER_EPOCH: partial(offsets.offset_for_leader_epoch, replicas),
        DESCRIBE_ACLS: partial(acls.describe_acls, context),
        DESCRIBE_CONFIGS: partial(configs.describe_configs, context, parts.loggers),
        DESCRIBE_LOG_DIRS: partial(log_dirs.describe_log_dirs, replicas, parts.logs),
        ALTER_REPLICA_LOG_DIRS: partial(log_dirs.alter_replica_log_dirs, context, parts.moves),
        LIST_CONFIG_RESOURCES: partial(configs.list_config_resources, image),
        DESCRIBE_CLUSTER: partial(metadata.describe_cluster, context),
        ADD_PARTITIONS_TO_TXN: partial(transaction_requests.add_partitions_to_txn, parts.transactions),
        ADD_OFFSETS_TO_TXN: partial(transaction_requests.add_offsets_to_txn, parts.transactions),
        END_TXN: partial(transaction_requests.end_txn, parts.transactions),
        WRITE_TXN_MARKERS: partial(write_markers.write_txn_markers, context, parts.groups.coordination.marker_written),
        DESCRIBE_PRODUCERS: partial(producers.describe_producers, replicas),
        DESCRIBE_TRANSACTIONS: partial(transaction_requests.describe_transactions, parts.transactions),
        LIST_TRANSACTIONS: partial(transaction_requests.list_transactions, parts.transactions),
        DESCRIBE_TOPIC_PARTITIONS: partial(metadata.describe_topic_partitions, context),
        DESCRIBE_CLIENT_QUOTAS: partial(client_quotas.describe_client_quotas, image),
        DESCRIBE_DELEGATION_TOKEN: partial(delegation_tokens.describe_tokens, context),
        DESCRIBE_USER_SCRAM_CREDENTIALS: partial(scram_credentials.describe_user_scram_credentials, image),
    }


def controller_handlers(parts: Parts) -> dict[int, Handler]:
    """The APIs that a voter answers itself, on the controllers' listeners."""
    quorum = parts.quorum
    return {
        FETCH: lambda request, body, now: quorum.handle_fetch(body, request, now),
        DESCRIBE_ACLS: partial(acls.describe_acls, parts.context),
        DESCRIBE_CONFIGS: partial(configs.describe_configs, parts.context, parts.loggers),
        VOTE: lambda request, body, now: quorum.handle_vote(body, now),
        BEGIN_QUORUM_EPOCH: lambda request, body, now: quorum.handle_begin_quorum_epoch(body, now),
        END_QUORUM_EPOCH: lambda request, body, now: quorum.handle_end_quorum_epoch(body, now),
        FETCH_SNAPSHOT: lambda request, body, now: quorum.handle_fetch_snapshot(body, now),
        DESCRIBE_CLUSTER: partial(
            metadata.describe_controllers, parts.context, lambda: quorum.leader, parts.controllers.endpoints
        ),
        DESCRIBE_QUORUM: lambda request, body, now: parts.controller.describe_quorum(request.version, body, now),
        ADD_RAFT_VOTER: lambda request, body, now: quorum.handle_add_raft_voter(body, request, now),
        REMOVE_RAFT_VOTER: lambda request, body, now: quorum.handle_remove_raft_voter(body, request, now),
        UPDATE_RAFT_VOTER: lambda request, body, now: quorum.handle_update_raft_voter(
            body, parts.controller.listener, now
        ),
        ENVELOPE: parts.open_envelope,
        DESCRIBE_USER_SCRAM_CREDENTIALS: partial(
            scram_credentials.describe_user_scram_credentials, parts.context.image
        ),
    }


def apis_of(listener: str, parts: Parts, peers_release: str) -> dict[int, Api]:
    """The APIs of a kind of listener, by key.

    A broker advertises a forwarded API up to the version that the controllers' release serves (KIP-590).
    """
    handlers = broker_handlers(parts) if listener is BROKER else controller_handlers(parts)
    found: dict[int, Api] = {}
    handlers[API_VERSIONS] = partial(metadata.api_versions, parts.context, found)
    for key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        handlers[key] = lambda request, body, now: illegal_state(request.key)
    decided = {key: None for key in DECIDED_HANDLERS if is_served_on(key, listener)}
    if listener is BROKER:
        decided |= dict.fromkeys(VOTER_CHANGES)
    for key, handler in sorted({**decided, **handlers}.items()):
        lowest, highest = versions_of(key)
        if listener is BROKER and handler is None:
            highest = min(highest, versions_of(key, peers_release)[1])
        is_quiet = listener is BROKER and key in QUIET
        found[key] = Api(handler, lowest, highest, ADVERTISED_BELOW_SERVED.get(key, lowest), is_quiet)
    return found
