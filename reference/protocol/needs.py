"""What a client must be allowed to do for each API: the table that a broker enforces and that the documentation shows.

A need names an operation, a kind of resource, and where the request names the resources. A need of the cluster, or of a single
name, refuses the request as a whole. A need of a list's items refuses these items, and the others are processed. Items that a
client may not see are left out of the response (`hides`).

Source: kafka.server.KafkaApis, ControllerApis and AclApis of 4.0, by the methods that the rows name; the table of operations in
Apache Kafka's documentation, "Authorization and ACLs". What the area ACL judges was confirmed on 4.3.1 and 3.9.2; on 4.3.1 a
stranger is refused each row as here, on both kinds of listener (tests/targets/test_strangers_beside_kafka.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from reference.protocol.acls import Operation, ResourceType
from reference.protocol.errors import ErrorCode
from reference.protocol.schema import Versions

READ, WRITE, CREATE, DELETE, ALTER = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
)
DESCRIBE, CLUSTER_ACTION = Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID, USER = ResourceType.TRANSACTIONAL_ID, ResourceType.USER

ERRORS = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""Kind of resource -> the error for an operation on it that is not allowed."""


@dataclass(frozen=True, slots=True)
class Need:
    """One permission that an API needs."""

    operation: Operation
    resource: ResourceType
    of: str = ""
    """Where the names are: `group_id` is a field, `topics[].name` a field of a list's items, `groups[]` a list of names. A field
    that is null needs nothing. Where a version has ids of topics, the names that the ids have count."""
    on_cluster: Operation | None = None
    """An operation on the cluster that is sufficient instead."""
    versions: str = "0+"

    @property
    def error(self) -> ErrorCode:
        return ERRORS[self.resource]

    @property
    def items(self) -> str:
        """The list whose items are judged one by one; empty where the request is judged as a whole."""
        return self.of.partition("[]")[0] if "[]" in self.of else ""

    def is_of(self, version: int) -> bool:
        return version in Versions.parse(self.versions)


@dataclass(frozen=True, slots=True, init=False)
class Row:
    """The needs of one API, checked in this order; `source` is the method of Kafka that checks them."""

    source: str
    needs: tuple[Need, ...]
    hides: tuple[Need, ...]
    """Items of the response that are left out where the need is not met."""

    def __init__(self, source: str, *needs: Need, hides: tuple[Need, ...] = ()) -> None:
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "needs", needs)
        object.__setattr__(self, "hides", hides)


def on_cluster(operation: Operation) -> Need:
    return Need(operation, CLUSTER)


NEEDS: dict[int, Row] = {
    0: Row("handleProduceRequest", Need(WRITE, TRANSACTIONAL_ID, "transactional_id"), Need(WRITE, TOPIC, "topic_data[].name")),
    1: Row("handleFetchRequest", Need(READ, TOPIC, "topics[].topic")),
    2: Row("handleListOffsetRequest", Need(DESCRIBE, TOPIC, "topics[].name")),
    3: Row("handleTopicMetadataRequest", Need(DESCRIBE, TOPIC, "topics[].name"), Need(CREATE, TOPIC, "topics[].name", CREATE),
           hides=(Need(DESCRIBE, TOPIC, "topics[].name"),)),
    8: Row("handleOffsetCommitRequest", Need(READ, GROUP, "group_id"), Need(READ, TOPIC, "topics[].name")),
    9: Row("handleOffsetFetchRequest", Need(DESCRIBE, GROUP, "groups[].group_id"),
           Need(DESCRIBE, TOPIC, "groups[].topics[].name"),
           hides=(Need(DESCRIBE, TOPIC, "groups[].topics[].name"),)),
    10: Row("getCoordinator", Need(DESCRIBE, GROUP, "coordinator_keys[]"),
            Need(DESCRIBE, TRANSACTIONAL_ID, "coordinator_keys[]")),
    11: Row("handleJoinGroupRequest", Need(READ, GROUP, "group_id")),
    12: Row("handleHeartbeatRequest", Need(READ, GROUP, "group_id")),
    13: Row("handleLeaveGroupRequest", Need(READ, GROUP, "group_id")),
    14: Row("handleSyncGroupRequest", Need(READ, GROUP, "group_id")),
    15: Row("handleDescribeGroupsRequest", Need(DESCRIBE, GROUP, "groups[]")),
    16: Row("handleListGroupsRequest", hides=(Need(DESCRIBE, GROUP, "groups[].group_id", DESCRIBE),)),
    17: Row("handleSaslHandshakeRequest"),
    18: Row("handleApiVersionsRequest"),
    19: Row("handleCreateTopics", Need(CREATE, TOPIC, "topics[].name", CREATE),
            hides=(Need(DESCRIBE_CONFIGS, TOPIC, "topics[].configs"),)),
    20: Row("handleDeleteTopics", Need(DELETE, TOPIC, "topics[].name", DELETE)),
    21: Row("handleDeleteRecordsRequest", Need(DELETE, TOPIC, "topics[].name")),
    22: Row("handleInitProducerIdRequest", Need(WRITE, TRANSACTIONAL_ID, "transactional_id"),
            Need(Operation.IDEMPOTENT_WRITE, CLUSTER)),
    23: Row("handleOffsetForLeaderEpochRequest", Need(DESCRIBE, TOPIC, "topics[].topic", CLUSTER_ACTION)),
    24: Row("handleAddPartitionsToTxnRequest", Need(CLUSTER_ACTION, CLUSTER, versions="4+"),
            Need(WRITE, TRANSACTIONAL_ID, "v3_and_below_transactional_id", versions="0-3"),
            Need(WRITE, TOPIC, "v3_and_below_topics[].name", versions="0-3")),
    25: Row("handleAddOffsetsToTxnRequest", Need(WRITE, TRANSACTIONAL_ID, "transactional_id"), Need(READ, GROUP, "group_id")),
    26: Row("handleEndTxnRequest", Need(WRITE, TRANSACTIONAL_ID, "transactional_id")),
    27: Row("handleWriteTxnMarkersRequest", Need(CLUSTER_ACTION, CLUSTER, on_cluster=ALTER)),
    28: Row("handleTxnOffsetCommitRequest", Need(WRITE, TRANSACTIONAL_ID, "transactional_id"), Need(READ, GROUP, "group_id"),
            Need(READ, TOPIC, "topics[].name")),
    29: Row("handleDescribeAcls", on_cluster(DESCRIBE)),
    30: Row("handleCreateAcls", on_cluster(ALTER)),
    31: Row("handleDeleteAcls", on_cluster(ALTER)),
    32: Row("ConfigHelper.handleDescribeConfigsRequest", Need(DESCRIBE_CONFIGS, TOPIC, "resources[].resource_name"),
            Need(DESCRIBE_CONFIGS, GROUP, "resources[].resource_name"), Need(DESCRIBE_CONFIGS, CLUSTER, "resources[]")),
    33: Row("handleLegacyAlterConfigs", Need(ALTER_CONFIGS, TOPIC, "resources[].resource_name"),
            Need(ALTER_CONFIGS, GROUP, "resources[].resource_name"), Need(ALTER_CONFIGS, CLUSTER, "resources[]")),
    34: Row("handleAlterReplicaLogDirsRequest", on_cluster(ALTER)),
    35: Row("handleDescribeLogDirsRequest", on_cluster(DESCRIBE)),
    36: Row("handleSaslAuthenticateRequest"),
    37: Row("handleCreatePartitions", Need(ALTER, TOPIC, "topics[].name")),
    38: Row("handleCreateTokenRequest", Need(Operation.CREATE_TOKENS, USER, "owner_principal_name")),
    39: Row("handleRenewTokenRequest"),
    40: Row("handleExpireTokenRequest"),
    41: Row("handleDescribeTokensRequest", hides=(Need(DESCRIBE, ResourceType.DELEGATION_TOKEN, "tokens[].token_id"),
            Need(Operation.DESCRIBE_TOKENS, USER, "tokens[].principal_name"))),
    42: Row("handleDeleteGroupsRequest", Need(DELETE, GROUP, "groups_names[]")),
    43: Row("handleElectLeaders", on_cluster(ALTER)),
    44: Row("handleIncrementalAlterConfigs", Need(ALTER_CONFIGS, TOPIC, "resources[].resource_name"),
            Need(ALTER_CONFIGS, GROUP, "resources[].resource_name"), Need(ALTER_CONFIGS, CLUSTER, "resources[]")),
    45: Row("handleAlterPartitionReassignments", on_cluster(ALTER)),
    46: Row("handleListPartitionReassignments", on_cluster(DESCRIBE)),
    47: Row("handleOffsetDeleteRequest", Need(DELETE, GROUP, "group_id"), Need(READ, TOPIC, "topics[].name")),
    48: Row("handleDescribeClientQuotasRequest", on_cluster(DESCRIBE_CONFIGS)),
    49: Row("handleAlterClientQuotas", on_cluster(ALTER_CONFIGS)),
    50: Row("handleDescribeUserScramCredentialsRequest", on_cluster(DESCRIBE)),
    51: Row("handleAlterUserScramCredentials", on_cluster(ALTER)),
    52: Row("handleVote", on_cluster(CLUSTER_ACTION)),
    53: Row("handleBeginQuorumEpoch", on_cluster(CLUSTER_ACTION)),
    54: Row("handleEndQuorumEpoch", on_cluster(CLUSTER_ACTION)),
    55: Row("handleDescribeQuorum", on_cluster(DESCRIBE)),
    56: Row("handleAlterPartitionRequest", on_cluster(CLUSTER_ACTION)),
    57: Row("handleUpdateFeatures", on_cluster(ALTER)),
    58: Row("handleEnvelopeRequest", on_cluster(CLUSTER_ACTION)),
    59: Row("handleFetchSnapshot", on_cluster(CLUSTER_ACTION)),
    60: Row("handleDescribeCluster"),
    61: Row("handleDescribeProducersRequest", Need(READ, TOPIC, "topics[].name")),
    62: Row("handleBrokerRegistration", on_cluster(CLUSTER_ACTION)),
    63: Row("handleBrokerHeartBeatRequest", on_cluster(CLUSTER_ACTION)),
    64: Row("handleUnregisterBroker", on_cluster(ALTER)),
    65: Row("handleDescribeTransactionsRequest", Need(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids[]"),
            hides=(Need(DESCRIBE, TOPIC, "transaction_states[].topics[].topic"),)),
    66: Row("handleListTransactionsRequest",
            hides=(Need(DESCRIBE, TRANSACTIONAL_ID, "transaction_states[].transactional_id"),)),
    67: Row("handleAllocateProducerIdsRequest", on_cluster(CLUSTER_ACTION)),
    68: Row("handleConsumerGroupHeartbeat", Need(READ, GROUP, "group_id"), Need(DESCRIBE, TOPIC, "subscribed_topic_names")),
    69: Row("handleConsumerGroupDescribe", Need(DESCRIBE, GROUP, "group_ids[]")),
    70: Row("handleControllerRegistration", on_cluster(CLUSTER_ACTION)),
    73: Row("handleAssignReplicasToDirs", on_cluster(CLUSTER_ACTION)),
    74: Row("handleListConfigResources", on_cluster(DESCRIBE_CONFIGS)),
    75: Row("DescribeTopicPartitionsRequestHandler", Need(DESCRIBE, TOPIC, "topics[].name"),
            hides=(Need(DESCRIBE, TOPIC, "topics[].name"),)),
    80: Row("handleAddRaftVoter", on_cluster(ALTER)),
    81: Row("handleRemoveRaftVoter", on_cluster(ALTER)),
    82: Row("handleUpdateRaftVoter", on_cluster(CLUSTER_ACTION)),
}  # fmt: skip
"""API key -> its needs on a broker's listener; on a controller's, if only controllers serve the API."""

ON_CONTROLLERS: dict[int, Row] = {
    1: Row("handleFetch", on_cluster(CLUSTER_ACTION)),
    60: Row("handleDescribeCluster", on_cluster(ALTER)),
}
"""The rows that differ on a controller's listener."""
