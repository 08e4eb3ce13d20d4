"""A minimal valid request for every API, sent once in every advertised version."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from conformance.batches import batch, message_set
from conformance.broker import EARLIEST, Broker
from conformance.target_profile import BY_TOPIC_ID
from linearizability.client.group_member import ClassicMember, encode_subscription
from linearizability.client.requests import (
    Topic,
    delete_records_request,
    delete_topics_request,
    fetch_offsets_of_one,
    fetch_offsets_request,
    fetch_request,
    list_offsets_request,
    new_topic,
)
from linearizability.client.requests import produce_request as produce_to
from reference.protocol.apis import APIS
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_acls import DescribeAclsRequest
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.describe_producers import DescribeProducersRequest
from reference.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.heartbeat import HeartbeatRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.leave_group import LeaveGroupRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from reference.protocol.messages.sync_group import SyncGroupRequest
from reference.protocol.messages.unregister_broker import UnregisterBrokerRequest
from reference.protocol.primitives import NO_UUID
from reference.protocol.schema import Message

FIRST_WITH_VALIDATE_ONLY = 1
"""The first version of CreateTopics with `validate_only`."""
NO_ID = 2147483647
"""A node id that no cluster uses."""

CORE = {
    "Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "DeleteRecords", "InitProducerId", "DescribeConfigs",
    "OffsetForLeaderEpoch", "DescribeTopicPartitions", "DescribeProducers",
}  # fmt: skip
"""APIs whose minimal request names existing topics and nodes: no part of the response may have an error."""


def minimal_request(broker: Broker, name: str, version: int, topic: Topic) -> Message:
    """A request with no lasting effect. Its fields have their defaults, except where a broker would refuse those outright."""
    if name in SPECIAL:
        return SPECIAL[name](broker, version, topic)
    return next(api for api in APIS.values() if api.name == name).request()


def _produce(_: Broker, version: int, topic: Topic) -> Message:
    """Message format 0 up to v1, 1 in v2, record batches from v3 on."""
    return produce_to({(topic, 0): batch(b"x") if version >= 3 else message_set(b"x", 0 if version < 2 else 1)})


def _add_partitions(broker: Broker, version: int, _: Topic) -> Message:
    """From v4 on it names one unknown transaction: brokers never answer a request without transactions."""
    if version < 4:
        return AddPartitionsToTxnRequest(v3_and_below_transactional_id=broker.unused_name("txn"))
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    return AddPartitionsToTxnRequest(transactions=[transaction(transactional_id=broker.unused_name("txn"))])


def _api_versions(_: Broker, version: int, __: Topic) -> Message:
    if version < 3:
        return ApiVersionsRequest()
    return ApiVersionsRequest(client_software_name="tidegauge", client_software_version="1")


def _create_topics(broker: Broker, version: int, _: Topic) -> Message:
    """Name one topic, so that the response has a result. Uses `validate_only` where the version has it."""
    name = broker.unused_name()
    if version < FIRST_WITH_VALIDATE_ONLY:
        broker.subject.topics.append(name)
    return CreateTopicsRequest(
        topics=[new_topic(name)], timeout_ms=10_000, validate_only=version >= FIRST_WITH_VALIDATE_ONLY
    )


def _commit(broker: Broker, version: int, _: Topic) -> Message:
    """Name a topic that does not exist: nothing is committed, and the response has an error code."""
    nowhere = OffsetCommitRequest.OffsetCommitRequestTopic(
        name=broker.unused_name() if version < BY_TOPIC_ID["OffsetCommit"] else "",
        topic_id=NO_UUID if version < BY_TOPIC_ID["OffsetCommit"] else uuid4(),
        partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)],
    )
    return OffsetCommitRequest(group_id=broker.unused_name("group"), topics=[nowhere])


def _acls(_: Broker, version: int, __: Topic) -> Message:
    """Match every ACL: brokers refuse the fields' defaults, which are UNKNOWN."""
    return DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1 if version >= 1 else 3, operation=1, permission_type=1
    )


def _coordinator(broker: Broker, version: int, _: Topic) -> Message:
    group = broker.unused_name("group")
    return FindCoordinatorRequest(coordinator_keys=[group]) if version >= 4 else FindCoordinatorRequest(key=group)


def _join(broker: Broker, _: int, __: Topic) -> Message:
    return ClassicMember(
        broker.unused_name("group"),
        {"range": encode_subscription((), version=0, apart=False)},
        rebalance_timeout_ms=10_000,
    ).join()


def _offset_fetch(broker: Broker, version: int, topic: Topic) -> Message:
    group = broker.unused_name("group")
    if version >= 8:
        return fetch_offsets_request({group: ()})
    return fetch_offsets_of_one(group, [(topic, 0)])


def _configs(_: Broker, __: int, topic: Topic) -> Message:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=topic.name, configuration_keys=["cleanup.policy"]
    )
    return DescribeConfigsRequest(resources=[resource])


def _leader_epoch(_: Broker, __: int, topic: Topic) -> Message:
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic.name, partitions=[partition])
    return OffsetForLeaderEpochRequest(topics=[asked], replica_id=-1)


def _delete_records(_: Broker, __: int, topic: Topic) -> Message:
    return delete_records_request({(topic.name, 0): 0}, 5_000)


def _envelope(broker: Broker, _: int, __: Topic) -> Message:
    """Skip: brokers with ZooKeeper advertise Envelope to clients, but serve it only to other brokers."""
    broker.skip("a broker's own: a client's connection is closed (KafkaApis.handleEnvelope)")


SPECIAL: dict[str, Callable[[Broker, int, Topic], Message]] = {
    "Produce": _produce,
    "Fetch": lambda _, __, topic: fetch_request({(topic, 0): 0}),
    "ListOffsets": lambda _, __, topic: list_offsets_request({(topic.name, 0): EARLIEST}),
    "Metadata": lambda _, __, topic: MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=True
    ),
    "OffsetCommit": _commit,
    "OffsetFetch": _offset_fetch,
    "FindCoordinator": _coordinator,
    "JoinGroup": _join,
    "Heartbeat": lambda broker, _, __: HeartbeatRequest(group_id=broker.unused_name("group"), member_id="nobody"),
    "LeaveGroup": lambda broker, _, __: LeaveGroupRequest(group_id=broker.unused_name("group")),
    "SyncGroup": lambda broker, _, __: SyncGroupRequest(group_id=broker.unused_name("group"), member_id="nobody"),
    "ApiVersions": _api_versions,
    "CreateTopics": _create_topics,
    "DeleteTopics": lambda broker, version, __: delete_topics_request([broker.unused_name()], version),
    "DeleteRecords": _delete_records,
    "InitProducerId": lambda _, __, ___: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
    "OffsetForLeaderEpoch": _leader_epoch,
    "AddPartitionsToTxn": _add_partitions,
    "DescribeAcls": _acls,
    "DescribeConfigs": _configs,
    "DescribeProducers": lambda _, __, topic: DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic.name, partition_indexes=[0])]
    ),
    "DescribeTopicPartitions": lambda _, __, topic: DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic.name)]
    ),
    "Envelope": _envelope,
    "UnregisterBroker": lambda _, __, ___: UnregisterBrokerRequest(broker_id=NO_ID),
}  # fmt: skip
