"""The APIs whose requests need more than the table, each with its step (see `access`).

They name resources in another form, choose the resource type by the request, or filter parts of the response.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from reference.controller.topic_names import validate_topic_name
from reference.coordinator.classic_groups import FIRST_SYNC_WITH_PROTOCOL
from reference.node.access import NOT_ASKED, Access, Admission, Step, add_results
from reference.node.delegation_tokens import check_tokens
from reference.node.metadata import has_early_ids, has_wrong_cursor, ids_or_names
from reference.node.refusals import refused_items, with_items
from reference.node.requests import AUTHORIZED_OPERATIONS, Request
from reference.node.transactional_produce import has_transactional_batches
from reference.protocol.acls import Operation, ResourceType
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from reference.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.describe_producers import DescribeProducersRequest
from reference.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.messages.sync_group import SyncGroupRequest
from reference.protocol.needs import NEEDS, Need
from reference.protocol.primitives import NO_UUID
from reference.protocol.schema import Message

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
DESCRIBE = Operation.DESCRIBE
REFUSED_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED

FIRST_OFFSET_FETCH_OF_GROUPS = 8
FIRST_FIND_COORDINATOR_WITH_KEYS = 4
FIRST_ADD_PARTITIONS_OF_BROKERS = 4
CONFIG_RESOURCES = {2: TOPIC, 4: CLUSTER, 8: CLUSTER, 16: CLUSTER, 32: GROUP}
"""Type of a configuration resource (topic, broker, its loggers, client metrics, group) -> the resource type to authorize."""
FIRST_FIND_COORDINATOR_OF_SHARE_GROUPS, OF_SHARE_GROUPS = 6, 2
"""The first version that knows the key type. This broker has no such coordinators, but refuses clients as Kafka does."""
COORDINATORS = {0: GROUP, 1: TRANSACTIONAL_ID}
T = TypeVar("T")
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


# ---- records


def _produce(access: Access, request: Request, body: ProduceRequest, admission: Admission) -> None:
    """Check the transactional id too if the request has transactional batches."""
    of_id, of_topics = NEEDS[request.key].needs
    if has_transactional_batches(body):
        access.check(of_id, request, admission)
    if admission.refusal is None:
        access.check(of_topics, request, admission)


def _fetch(access: Access, request: Request, body: Message, admission: Admission) -> None:
    """Admit every fetch: its handler checks each partition that it reads."""


def _init_producer_id(access: Access, request: Request, body: InitProducerIdRequest, admission: Admission) -> None:
    """Admit an idempotent producer that may write to any topic (KIP-679)."""
    of_id, of_cluster = NEEDS[request.key].needs
    if body.transactional_id is not None:
        access.check(of_id, request, admission)
    elif not access.may_with_any(request, Operation.WRITE, TOPIC):
        access.check(of_cluster, request, admission)


def _add_partitions_to_txn(
    access: Access, request: Request, body: AddPartitionsToTxnRequest, admission: Admission
) -> None:
    """Refuse all partitions if the client may not write to one topic, or one is unknown."""
    if request.version >= FIRST_ADD_PARTITIONS_OF_BROKERS:
        return access.check_all(NEEDS[request.key], request, admission)
    _, of_id, of_topics = NEEDS[request.key].needs
    access.check(of_id, request, admission)
    if admission.refusal is not None:
        return
    access.check(of_topics, request, admission)
    if admission.amendments:
        left: Any = refused_items(request.key, admission.body, ErrorCode.OPERATION_NOT_ATTEMPTED)
        for topic in left.results_by_topic_v3_and_below:
            for each in topic.results_by_partition:
                if access.image.partition(topic.name, each.partition_index) is None:
                    each.partition_error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        admission.refusal = admission.amend(left)
    return None


# ---- topics


def _metadata(access: Access, request: Request, body: MetadataRequest, admission: Admission) -> None:
    """Refuse named topics; filter a response about all topics. Auto-creation of a topic needs permission to create it."""
    if has_early_ids(request.version, body):
        return
    if not body.topics and (body.topics is None or request.version == 0):
        admission.amendments.append(lambda response: access.hide(NEEDS[request.key].hides[0], request, response))
        refused: list[MetadataRequest.MetadataRequestTopic] = []
    else:
        assert body.topics is not None
        asked = ids_or_names(body.topics) if request.version >= 12 else body.topics
        changed = admission.body = copy.copy(body)
        changed.topics, refused = _parted(asked, lambda topic: _may_see(access, request, body, topic))

    def amend(response: MetadataResponse) -> None:
        if len(refused) == len(body.topics or ()) > 0:  # version 0 takes no topics for all
            response.topics = []
        if body.include_topic_authorized_operations:
            for topic in response.topics:
                # An unknown topic id, or a request that is invalid as a whole, gets no operations.
                if topic.name is not None and topic.error_code != ErrorCode.INVALID_REQUEST:
                    topic.topic_authorized_operations = _topic_operations(access, request, topic.name)
        _amend_cluster_operations(access, request, response)
        response.topics += [_refused_topic(topic) for topic in refused]

    admission.amendments.append(amend)


def _parted(items: Iterable[T], may: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """The admitted items, and the refused ones."""
    admitted: list[T] = []
    refused: list[T] = []
    for item in items:
        (admitted if may(item) else refused).append(item)
    return admitted, refused


def _may_see(
    access: Access, request: Request, body: MetadataRequest, topic: MetadataRequest.MetadataRequestTopic
) -> bool:
    name = access.name_of(topic, "name")
    if not access.may(request, DESCRIBE, TOPIC, name):
        return False
    is_created = body.allow_auto_topic_creation and access.configuration.broker("auto.create.topics.enable") is True
    if name is None or name in access.image.topics or not is_created:
        return True
    return access.may(request, Operation.CREATE, CLUSTER, is_logged=False) or access.may(
        request, Operation.CREATE, TOPIC, name
    )


def _refused_topic(topic: MetadataRequest.MetadataRequestTopic) -> MetadataResponse.MetadataResponseTopic:
    """The error for a refused topic, with only the name or id of the request."""
    return MetadataResponse.MetadataResponseTopic(error_code=REFUSED_TOPIC, name=topic.name, topic_id=topic.topic_id)


def _topic_operations(access: Access, request: Request, name: str) -> int:
    return access.operations(request, TOPIC, AUTHORIZED_OPERATIONS["topic"], name)


def _amend_cluster_operations(access: Access, request: Request, response: Any) -> None:
    if response.cluster_authorized_operations != NOT_ASKED:
        may_ask = access.may(request, DESCRIBE, CLUSTER)
        operations = access.operations(request, CLUSTER, AUTHORIZED_OPERATIONS["cluster"]) if may_ask else 0
        response.cluster_authorized_operations = operations


def _describe_cluster(access: Access, request: Request, body: Message, admission: Admission) -> None:
    admission.amendments.append(lambda response: _amend_cluster_operations(access, request, response))


def _describe_topic_partitions(
    access: Access, request: Request, body: DescribeTopicPartitionsRequest, admission: Admission
) -> None:
    """Page through the visible topics if the request is for all topics."""
    if has_wrong_cursor(body):
        return
    changed = admission.body = copy.copy(body)
    asked = DescribeTopicPartitionsRequest.TopicRequest
    names = [topic.name for topic in body.topics] or sorted(access.image.topics)
    seen, hidden = _parted(names, lambda name: access.may(request, DESCRIBE, TOPIC, name, is_logged=bool(body.topics)))
    if body.cursor is not None and not body.topics:
        seen = [name for name in seen if name >= body.cursor.topic_name]
        if seen and seen[0] != body.cursor.topic_name:
            changed.cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=seen[0])
    changed.topics = [asked(name=name) for name in seen]
    result = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    refused = [
        result(error_code=REFUSED_TOPIC, name=name, topic_authorized_operations=NOT_ASKED)
        for name in (hidden if body.topics else ())
    ]

    def amend(response: DescribeTopicPartitionsResponse) -> None:
        for topic in response.topics:
            if topic.error_code != ErrorCode.INVALID_REQUEST and topic.name is not None:
                topic.topic_authorized_operations = _topic_operations(access, request, topic.name)
        response.topics += refused

    admission.amendments.append(amend)
    if not seen:
        admission.refusal = admission.amend(DescribeTopicPartitionsResponse())


def _create_topics(access: Access, request: Request, body: CreateTopicsRequest, admission: Admission) -> None:
    """Hide the configuration of a new topic from a client that may not describe configurations."""
    access.check_all(NEEDS[request.key], request, admission)

    def amend(response: CreateTopicsResponse) -> None:
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE and not access.may(
                request, Operation.DESCRIBE_CONFIGS, TOPIC, topic.name, is_logged=False
            ):
                topic.topic_config_error_code = REFUSED_TOPIC
                topic.num_partitions, topic.replication_factor, topic.configs = -1, -1, []

    admission.amendments.append(amend)


def _delete_topics(access: Access, request: Request, body: DeleteTopicsRequest, admission: Admission) -> None:
    """Hide the name of a refused topic id from a client that may not describe the topic. The handler refuses what is invalid."""
    is_enabled = access.configuration.broker("delete.topic.enable") is not False
    if not is_enabled or access.may(request, Operation.DELETE, CLUSTER, is_logged=False):
        return
    named = Counter(getattr(item, "name", item) for item in body.topics or body.topic_names)
    ids = Counter(item.topic_id for item in body.topics)
    result = DeleteTopicsResponse.DeletableTopicResult
    items = body.topics or body.topic_names
    left: list[Any] = []
    refused: list[DeleteTopicsResponse.DeletableTopicResult] = []
    for item in items:
        id, given = getattr(item, "topic_id", NO_UUID), getattr(item, "name", item)
        if (given is None) == (id == NO_UUID) or (named[given] if given is not None else ids[id]) > 1:
            left.append(item)
            continue
        name = access.name_of(item, "name" if isinstance(item, Message) else "")
        sees = access.may(request, DESCRIBE, TOPIC, name)
        exists = name in access.image.topics
        if sees and (not exists or access.may(request, Operation.DELETE, TOPIC, name)):
            left.append(item)
        else:
            shown = name if id == NO_UUID or sees else None
            message = "Topic authorization failed."
            refused.append(result(name=shown, topic_id=id, error_code=REFUSED_TOPIC, error_message=message))
    if not refused:
        return
    part = DeleteTopicsResponse(responses=refused)
    admission.body = with_items(request.key, body, left)
    admission.amendments.append(lambda response: add_results(request.key, part, response))
    if not left:
        admission.refusal = part


def _describe_configs(access: Access, request: Request, body: DescribeConfigsRequest, admission: Admission) -> None:
    """Admit a request that is invalid as a whole, by one unknown type: the handler refuses it."""
    if all(each.resource_type in CONFIG_RESOURCES for each in body.resources):
        _configs(access, request, body, admission)


def _describe_producers(access: Access, request: Request, body: DescribeProducersRequest, admission: Admission) -> None:
    """Admit invalid names of topics: the handler refuses them."""
    (need,) = NEEDS[request.key].needs

    def may(topic: DescribeProducersRequest.TopicRequest) -> bool:
        try:
            validate_topic_name(topic.name)
        except KafkaError:
            return True
        return access.may(request, need.operation, need.resource, topic.name)

    access.refuse_items(request, admission, may, need.error)


def _configs(access: Access, request: Request, body: Any, admission: Admission) -> None:
    """Authorize each resource by its type; the handler refuses an unknown type."""
    for need in NEEDS[request.key].needs:
        if admission.refusal is None:
            access.refuse_items(
                request, admission, lambda item, need=need: _may_configure(access, request, need, item), need.error
            )


def _may_configure(access: Access, request: Request, need: Need, item: Any) -> bool:
    if CONFIG_RESOURCES.get(item.resource_type) is not need.resource:
        return True
    if need.resource is CLUSTER:
        return access.may(request, need.operation, CLUSTER)
    return access.may(request, need.operation, need.resource, item.resource_name)


# ---- groups


def _sync_group(access: Access, request: Request, body: SyncGroupRequest, admission: Admission) -> None:
    """Admit a request without the protocol that its version must have: the handler refuses it."""
    if request.version < FIRST_SYNC_WITH_PROTOCOL or None not in (body.protocol_type, body.protocol_name):
        access.check_all(NEEDS[request.key], request, admission)


def _find_coordinator(access: Access, request: Request, body: FindCoordinatorRequest, admission: Admission) -> None:
    if body.key_type == OF_SHARE_GROUPS and request.version >= FIRST_FIND_COORDINATOR_OF_SHARE_GROUPS:
        if not access.may(request, Operation.CLUSTER_ACTION, CLUSTER):
            access.refuse(request, admission, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return
    kind = COORDINATORS.get(body.key_type)
    if kind is None:
        return
    need = next(need for need in NEEDS[request.key].needs if need.resource is kind)
    if request.version >= FIRST_FIND_COORDINATOR_WITH_KEYS:
        access.check(need, request, admission)
    elif not access.may(request, need.operation, kind, body.key):
        access.refuse(request, admission, need.error)


def _offset_fetch(access: Access, request: Request, body: OffsetFetchRequest, admission: Admission) -> None:
    """Check the groups, and the topics of each; filter the topics of a request for all offsets."""
    if request.version < FIRST_OFFSET_FETCH_OF_GROUPS:
        return _offset_fetch_of_one(access, request, body, admission)
    changed = admission.body = copy.copy(body)
    changed.groups = []
    refused: list[OffsetFetchResponse.OffsetFetchResponseGroup] = []
    unseen: dict[str, list[Any]] = {}
    for group in body.groups:
        if not access.may(request, DESCRIBE, GROUP, group.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refused.append(OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
            continue
        shown = copy.copy(group)
        changed.groups.append(shown)
        if group.topics is not None:
            shown.topics, unseen[group.group_id] = _parted(
                group.topics, lambda topic: _is_shown(access, request, topic)
            )

    def amend(response: OffsetFetchResponse) -> None:
        for group in response.groups:
            if group.group_id not in unseen:
                group.topics = [each for each in group.topics if _is_shown(access, request, each)]
            elif group.error_code == ErrorCode.NONE:
                group.topics += [_refused_offsets(topic) for topic in unseen[group.group_id]]
        response.groups += refused

    admission.amendments.append(amend)
    if not changed.groups:
        admission.refusal = admission.amend(OffsetFetchResponse())
    return None


def _offset_fetch_of_one(access: Access, request: Request, body: OffsetFetchRequest, admission: Admission) -> None:
    if not access.may(request, DESCRIBE, GROUP, body.group_id):
        access.refuse(request, admission, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif body.topics is None:
        admission.amendments.append(
            lambda response: access.hide(Need(DESCRIBE, TOPIC, "topics[].name"), request, response)
        )
    else:
        access.check(Need(DESCRIBE, TOPIC, "topics[].name"), request, admission)


def _is_shown(access: Access, request: Request, topic: Any) -> bool:
    return access.may(request, DESCRIBE, TOPIC, access.name_of(topic, "name"))


def _refused_offsets(
    topic: OffsetFetchRequest.OffsetFetchRequestTopics,
) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    result = OffsetFetchResponse.OffsetFetchResponsePartitions
    return OffsetFetchResponse.OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            result(partition_index=index, committed_offset=-1, error_code=REFUSED_TOPIC)
            for index in topic.partition_indexes
        ],
    )


def _describe_groups(access: Access, request: Request, body: Any, admission: Admission) -> None:
    """Add the client's operations on each group; hide a consumer group if the client may not describe one of its topics."""
    is_consumer_group = isinstance(body, ConsumerGroupDescribeRequest)

    def amend(response: Any) -> None:
        for group in response.groups:
            if group.authorized_operations != NOT_ASKED:
                all_operations = AUTHORIZED_OPERATIONS["group"]
                group.authorized_operations = access.operations(request, GROUP, all_operations, group.group_id)
            if is_consumer_group and not _shows_its_topics(access, request, group):
                group.error_code, group.error_message, group.members = REFUSED_TOPIC, HIDDEN_TOPICS, []

    admission.amendments.append(amend)
    access.check_all(NEEDS[request.key], request, admission)


def _shows_its_topics(access: Access, request: Request, group: ConsumerGroupDescribeResponse.DescribedGroup) -> bool:
    assignments = [each for member in group.members for each in (member.assignment, member.target_assignment)]
    topics = {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}
    return all(access.may(request, DESCRIBE, TOPIC, name) for name in topics)


def _consumer_group_heartbeat(
    access: Access, request: Request, body: ConsumerGroupHeartbeatRequest, admission: Admission
) -> None:
    of_group, of_topics = NEEDS[request.key].needs
    access.check(of_group, request, admission)
    if admission.refusal is None and not all(
        access.may(request, of_topics.operation, TOPIC, name) for name in body.subscribed_topic_names or ()
    ):
        access.refuse(request, admission, of_topics.error)


STEPS: dict[int, Step] = {
    0: _produce,
    1: _fetch,
    3: _metadata,
    9: _offset_fetch,
    10: _find_coordinator,
    14: _sync_group,
    15: _describe_groups,
    19: _create_topics,
    20: _delete_topics,
    22: _init_producer_id,
    24: _add_partitions_to_txn,
    32: _describe_configs,
    33: _configs,
    38: check_tokens,
    39: check_tokens,
    40: check_tokens,
    41: check_tokens,
    44: _configs,
    60: _describe_cluster,
    61: _describe_producers,
    68: _consumer_group_heartbeat,
    69: _describe_groups,
    75: _describe_topic_partitions,
}
"""API key -> its step. APIs that are not here use `Access.apply_table`."""
