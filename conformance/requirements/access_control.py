"""ACL: access control. The error of each API for a client that an ACL denies; the cases come from the table of needs."""

from collections.abc import Callable
from typing import Any

from conformance.access_rules import AUTHORIZED, Things, but, expect_refused, rules
from conformance.answers import error_name
from conformance.batches import Record, batch
from conformance.broker import Broker
from conformance.requirement import WITHOUT_ZOOKEEPER, requirement
from linearizability.client.errors import error_of
from linearizability.client.requests import (
    commit_request,
    delete_records_request,
    fetch_offsets_request,
    fetch_request,
    list_offsets_request,
    new_topic,
    produce_request,
    transactional_commit_request,
)
from reference.protocol.acls import ResourceType
from reference.protocol.apis import APIS
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.alter_configs import AlterConfigsRequest
from reference.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_groups import DeleteGroupsRequest
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.describe_groups import DescribeGroupsRequest
from reference.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from reference.protocol.messages.describe_producers import DescribeProducersRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from reference.protocol.messages.describe_transactions import DescribeTransactionsRequest
from reference.protocol.messages.end_txn import EndTxnRequest
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.heartbeat import HeartbeatRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.messages.leave_group import LeaveGroupRequest
from reference.protocol.messages.list_config_resources import ListConfigResourcesRequest
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.offset_delete import OffsetDeleteRequest
from reference.protocol.messages.sync_group import SyncGroupRequest
from reference.protocol.needs import NEEDS
from reference.protocol.schema import Message

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ID = ResourceType.TRANSACTIONAL_ID
PRODUCER = 1_000_000_007
"""A producer id that no producer uses."""
TRANSACTIONAL = 0x10
"""The attribute of a batch that belongs to a transaction."""
MEMBER = "a-member"
ENTRY = "retention.ms"
TOPIC_CONFIG, BROKER_CONFIG = 2, 4
MINUTE_MS = 60_000

Ask = Callable[[Things], Any]


# ---- requests that change nothing that matters, and name one thing


def produce(things: Things) -> Any:
    request = produce_request({(things.topic, 0): bytes(batch(b"x"))}, acks=1)
    return things.broker.call(request, to=things.leader)


def produce_in_transaction(things: Things) -> Any:
    records = batch(
        Record(value=b"x"), producer_id=PRODUCER, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    )
    request = produce_request({(things.topic, 0): bytes(records)}, acks=1, transactional_id=things.id)
    return things.broker.call(request, to=things.leader)


def fetch(things: Things) -> Any:
    return things.broker.call(fetch_request({(things.topic, 0): 0}, max_wait_ms=1), to=things.leader)


def list_offsets(things: Things) -> Any:
    return things.broker.call(list_offsets_request({(things.topic.name, 0): -1}), to=things.leader)


def metadata(things: Things) -> Any:
    return things.broker.metadata([MetadataRequest.MetadataRequestTopic(name=things.topic.name)])


def commit(things: Things) -> Any:
    return things.broker.call(commit_request(things.group, {(things.topic, 0): 1}), to=things.group_at)


def fetch_offsets(things: Things) -> Any:
    request = fetch_offsets_request({things.group: [(things.topic, 0)]})
    return things.broker.call(request, at_least(things, request, 8), to=things.group_at)


def at_least(things: Things, request: Message, version: int) -> int:
    """The version for this request, at least `version`; a target that does not serve that is not judged."""
    return max(version, things.broker.version_for(request))


def find_group(things: Things) -> Any:
    return _find(things, things.group, 0)


def find_id(things: Things) -> Any:
    return _find(things, things.id, 1)


def _find(things: Things, key: str, kind: int) -> Any:
    request = FindCoordinatorRequest(key=key, coordinator_keys=[key], key_type=kind)
    version = at_least(things, request, 4)
    return things.broker.call(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), version)


def join(things: Things) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id=things.group,
        session_timeout_ms=MINUTE_MS,
        rebalance_timeout_ms=MINUTE_MS,
        member_id=MEMBER,
        protocol_type="none",
        protocols=[protocol],
    )
    return things.broker.call(request, to=things.group_at)


def heartbeat(things: Things) -> Any:
    request = HeartbeatRequest(group_id=things.group, generation_id=1, member_id=MEMBER)
    return things.broker.call(request, to=things.group_at)


def leave(things: Things) -> Any:
    request = LeaveGroupRequest(group_id=things.group, members=[LeaveGroupRequest.MemberIdentity(member_id=MEMBER)])
    return things.broker.call(request, at_least(things, request, 3), to=things.group_at)


def sync(things: Things) -> Any:
    request = SyncGroupRequest(
        group_id=things.group, generation_id=1, member_id=MEMBER, protocol_type="none", protocol_name="range"
    )
    return things.broker.call(request, to=things.group_at)


def describe_groups(things: Things) -> Any:
    return things.broker.call(DescribeGroupsRequest(groups=[things.group]), to=things.group_at)


def delete_groups(things: Things) -> Any:
    return things.broker.call(DeleteGroupsRequest(groups_names=[things.group]), to=things.group_at)


def delete_offsets(things: Things) -> Any:
    """OffsetDelete for an existing group and a partition that does not exist, so that the group keeps its offset."""
    commit(things)
    topic, partition = OffsetDeleteRequest.OffsetDeleteRequestTopic, OffsetDeleteRequest.OffsetDeleteRequestPartition
    named = topic(name=things.topic.name, partitions=[partition(partition_index=1)])
    return things.broker.call(OffsetDeleteRequest(group_id=things.group, topics=[named]), to=things.group_at)


def beat(things: Things) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=things.group,
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        member_epoch=0,
        rebalance_timeout_ms=MINUTE_MS,
        subscribed_topic_names=[things.topic.name],
        topic_partitions=[],
    )
    return things.broker.call(request, to=things.group_at)


def describe_consumers(things: Things) -> Any:
    return things.broker.call(ConsumerGroupDescribeRequest(group_ids=[things.group]), to=things.group_at)


def create_topics(things: Things) -> Any:
    name = things.broker.unused_name()
    return things.broker.call(CreateTopicsRequest(topics=[new_topic(name)], timeout_ms=10_000, validate_only=True))


def create_partitions(things: Things) -> Any:
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=things.topic.name, count=2)
    return things.broker.call(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=True))


def delete_records(things: Things) -> Any:
    return things.broker.call(delete_records_request({(things.topic.name, 0): 0}), to=things.leader)


def describe_configs(things: Things) -> Any:
    return _describe_config(things, TOPIC_CONFIG, things.topic.name)


def describe_broker_configs(things: Things) -> Any:
    node = things.broker.metadata([]).brokers[0]
    return _describe_config(things, BROKER_CONFIG, str(node.node_id), (node.host, node.port))


def _describe_config(things: Things, kind: int, name: str, to: tuple[str, int] | None = None) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[ENTRY]
    )
    return things.broker.call(DescribeConfigsRequest(resources=[resource]), to=to)


def alter_configs(things: Things) -> Any:
    config = AlterConfigsRequest.AlterableConfig(name=ENTRY, value="-1")
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_CONFIG, resource_name=things.topic.name, configs=[config]
    )
    return things.broker.call(AlterConfigsRequest(resources=[resource], validate_only=True))


def alter_incrementally(things: Things) -> Any:
    return _alter(things, TOPIC_CONFIG, things.topic.name, ENTRY)


def alter_broker_configs(things: Things) -> Any:
    return _alter(things, BROKER_CONFIG, "", "log.retention.ms")


def _alter(things: Things, kind: int, name: str, entry: str) -> Any:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=entry, config_operation=0, value="-1")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[config]
    )
    return things.broker.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True))


def describe_producers(things: Things) -> Any:
    topic = DescribeProducersRequest.TopicRequest(name=things.topic.name, partition_indexes=[0])
    return things.broker.call(DescribeProducersRequest(topics=[topic]), to=things.leader)


def describe_partitions(things: Things) -> Any:
    topic = DescribeTopicPartitionsRequest.TopicRequest(name=things.topic.name)
    return things.broker.call(DescribeTopicPartitionsRequest(topics=[topic]))


def init(things: Things) -> Any:
    request = InitProducerIdRequest(transactional_id=things.id, transaction_timeout_ms=MINUTE_MS)
    return things.broker.call(request, to=things.id_at)


def add_partitions(things: Things) -> Any:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=things.id,
        v3_and_below_producer_id=PRODUCER,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=things.topic.name, partitions=[0])],
    )
    return things.broker.call(request, min(3, things.broker.version_for(request)), to=things.id_at)


def add_offsets(things: Things) -> Any:
    request = AddOffsetsToTxnRequest(transactional_id=things.id, producer_id=PRODUCER, group_id=things.group)
    return things.broker.call(request, to=things.id_at)


def end(things: Things) -> Any:
    request = EndTxnRequest(transactional_id=things.id, producer_id=PRODUCER, committed=False)
    return things.broker.call(request, to=things.id_at)


def commit_in_transaction(things: Things) -> Any:
    request = transactional_commit_request(things.id, (PRODUCER, 0), things.group, {(things.topic, 0): 1})
    return things.broker.call(request, to=things.group_at)


def describe_transactions(things: Things) -> Any:
    return things.broker.call(DescribeTransactionsRequest(transactional_ids=[things.id]), to=things.id_at)


def describe_log_dirs(things: Things) -> Any:
    return things.broker.call(DescribeLogDirsRequest(topics=[]))


def list_reassignments(things: Things) -> Any:
    return things.broker.call(ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=[]))


def describe_quorum(things: Things) -> Any:
    topic, partition = DescribeQuorumRequest.TopicData, DescribeQuorumRequest.PartitionData
    named = topic(topic_name="__cluster_metadata", partitions=[partition(partition_index=0)])
    return things.broker.call(DescribeQuorumRequest(topics=[named]))


def list_config_resources(things: Things) -> Any:
    return things.broker.call(ListConfigResourcesRequest())


CASES: tuple[tuple[int, int, ResourceType, Ask], ...] = (
    (1, 0, TOPIC, produce), (2, 0, ID, produce_in_transaction), (3, 1, TOPIC, fetch), (4, 2, TOPIC, list_offsets),
    (5, 3, TOPIC, metadata), (6, 8, TOPIC, commit), (7, 8, GROUP, commit), (8, 9, TOPIC, fetch_offsets),
    (9, 9, GROUP, fetch_offsets), (10, 10, GROUP, find_group), (11, 10, ID, find_id), (12, 11, GROUP, join),
    (13, 12, GROUP, heartbeat), (14, 13, GROUP, leave), (15, 14, GROUP, sync), (16, 15, GROUP, describe_groups),
    (17, 21, TOPIC, delete_records), (18, 22, ID, init), (19, 24, ID, add_partitions), (20, 24, TOPIC, add_partitions),
    (21, 25, ID, add_offsets), (22, 25, GROUP, add_offsets), (23, 26, ID, end), (24, 28, ID, commit_in_transaction),
    (25, 28, GROUP, commit_in_transaction), (26, 28, TOPIC, commit_in_transaction), (27, 32, TOPIC, describe_configs),
    (28, 33, TOPIC, alter_configs), (29, 37, TOPIC, create_partitions), (30, 42, GROUP, delete_groups),
    (31, 44, TOPIC, alter_incrementally), (32, 47, GROUP, delete_offsets), (33, 47, TOPIC, delete_offsets),
    (34, 61, TOPIC, describe_producers), (35, 65, ID, describe_transactions), (36, 68, GROUP, beat), (37, 68, TOPIC, beat),
    (38, 69, GROUP, describe_consumers), (39, 75, TOPIC, describe_partitions),
    (40, 35, CLUSTER, describe_log_dirs), (41, 46, CLUSTER, list_reassignments), (42, 55, CLUSTER, describe_quorum),
    (43, 74, CLUSTER, list_config_resources), (44, 32, CLUSTER, describe_broker_configs),
    (45, 44, CLUSTER, alter_broker_configs),
)  # fmt: skip
"""(number of the requirement, API key, resource type, function that sends a request for one resource of that type)."""

FIRST_RELEASES = {36: "4.0", 37: "4.0", 38: "4.0", 43: "4.1"}
"""Number of the requirement -> the first release with the check."""


def case(number: int, key: int, resource: ResourceType, ask: Ask) -> None:
    """Register the requirement of one row of the table of needs."""
    need = next(each for each in NEEDS[key].needs if each.resource is resource)
    operation, thing = need.operation.name, resource.name.lower().replace("_", " ")

    @requirement(
        f"ACL-{number:02}",
        notices=f"security: a client does by {APIS[key].name} what an ACL denies it, {operation} of a {thing}",
        source=f"KafkaApis.{NEEDS[key].source}; documentation, Authorization and ACLs",
        sentence=f"{APIS[key].name} needs {operation} of the {thing}: where an ACL denies it, the error is {need.error.name}.",
        accepted=f"{need.error.name} while it is denied, and no such error before and after",
        since=FIRST_RELEASES.get(number, WITHOUT_ZOOKEEPER),
        kraft=True,
        configs=AUTHORIZED,
        alone=True,
        apis={APIS[key].name: 0, "CreateAcls": 0, "DeleteAcls": 0, "DescribeAcls": 0},
        exclusive=resource is CLUSTER,
    )
    def refused(broker: Broker) -> None:
        things = Things.new(broker)
        before = error_of(ask(things))
        broker.expect(before != need.error, f"before the ACL: {error_name(before)}")
        with rules(broker, but(need.operation, resource, things.name_of(resource))):
            expect_refused(broker, lambda: ask(things), need.error)
        broker.eventually(
            lambda: error_of(ask(things)) != need.error, "the request is allowed again after the ACL is removed"
        )

    assert refused


for row in CASES:
    case(*row)
