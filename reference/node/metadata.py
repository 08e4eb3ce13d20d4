"""ApiVersions and Metadata: a client's first requests. (API-*, MET-*)"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

from reference.controller.image import MetadataImage, PartitionImage, TopicImage
from reference.controller.topic_names import validate_topic_name
from reference.controller.topics import INTERNAL_TOPICS
from reference.node.active_controller import VoterEndpoints
from reference.node.context import Context
from reference.node.internal_topics import AutoTopicCreation, is_created_on_demand
from reference.node.release import SUPPORTED_FEATURES, VOTERS_FEATURE
from reference.node.requests import AUTHORIZED_OPERATIONS, Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from reference.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.primitives import NO_NODE, NO_UUID, NodeId, TimestampMs

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The characters allowed in a client's software name and version (KIP-511)."""

BROKER_ENDPOINT, CONTROLLER_ENDPOINT = 1, 2
"""DescribeCluster's endpoint types: 1 brokers, 2 controllers."""

FIRST_BY_ID = 12
"""The first version of Metadata in which a topic may be named by its id."""

TopicResponse = MetadataResponse.MetadataResponseTopic


class Api(Protocol):
    """An API's entry in ApiVersions."""

    @property
    def advertised_from(self) -> int: ...

    @property
    def highest(self) -> int: ...


def api_versions(
    context: Context, apis: Mapping[int, Api], request: Request, body: ApiVersionsRequest, now: TimestampMs
) -> ApiVersionsResponse:
    """List the APIs that this listener serves (API-01, API-03, API-08)."""
    if request.version >= 3:
        names = (body.client_software_name, body.client_software_version)
        if not all(SOFTWARE_NAME.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        request.client.software = " ".join(names)
    return api_versions_response(context, apis, request, ErrorCode.NONE)


def api_versions_response(
    context: Context, apis: Mapping[int, Api], request: Request, error: ErrorCode
) -> ApiVersionsResponse:
    """The response to ApiVersions. Features with lowest level 0 are reported since version 4 (API-10); with ZooKeeper there
    are none."""
    image = context.image
    supported = SUPPORTED_FEATURES if context.controller is None else {}
    finalized = {**image.features, VOTERS_FEATURE: context.kraft_version()}
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=api.advertised_from, max_version=api.highest)
            for key, api in apis.items()
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in supported.items()
            if lowest > 0 or request.version >= 4
        ],
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(finalized.items())
            if level > 0
        ],
        finalized_features_epoch=image.end_offset - 1,
    )


# ---- brokers


def broker_endpoints(image: MetadataImage, request: Request) -> list[tuple[NodeId, str, int, str | None, bool]]:
    """Each broker's endpoint on the listener of the request (MET-02): id, host, port, rack, fenced."""
    found: list[tuple[NodeId, str, int, str | None, bool]] = []
    for _, broker in sorted(image.brokers.items()):
        for endpoint in broker.endpoints:
            if endpoint.listener == request.client.listener:
                found.append((broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced))
    return found


def describe_cluster(
    context: Context, request: Request, body: DescribeClusterRequest, now: TimestampMs
) -> DescribeClusterResponse:
    """The brokers and the controller (MET-14)."""
    if body.endpoint_type != BROKER_ENDPOINT:
        known = body.endpoint_type == CONTROLLER_ENDPOINT
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of the wrong type."
            if known
            else f"Unsupported endpoint type {body.endpoint_type}",
        )
    return DescribeClusterResponse(
        endpoint_type=BROKER_ENDPOINT,
        cluster_id=context.cluster_id,
        controller_id=_controller_for_clients(context),
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=id, host=host, port=port, rack=rack, is_fenced=fenced
            )
            for id, host, port, rack, fenced in broker_endpoints(context.image, request)
            if not fenced or body.include_fenced_brokers
        ],
        cluster_authorized_operations=AUTHORIZED_OPERATIONS["cluster"]
        if body.include_cluster_authorized_operations
        else -(1 << 31),
    )


def describe_controllers(
    context: Context,
    leader: Callable[[], NodeId],
    voters: Callable[[], VoterEndpoints],
    request: Request,
    body: DescribeClusterRequest,
    now: TimestampMs,
) -> DescribeClusterResponse:
    """The voters and the active controller, for clients that connect to controllers (KIP-919)."""
    if body.endpoint_type != CONTROLLER_ENDPOINT:
        return describe_cluster(context, request, body, now)
    return DescribeClusterResponse(
        endpoint_type=CONTROLLER_ENDPOINT,
        cluster_id=context.cluster_id,
        controller_id=leader(),
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(broker_id=id, host=each.host, port=each.port)
            for id, endpoints in sorted(voters().items())
            for each in endpoints
            if each.listener == request.client.listener
        ],
    )


def _controller_for_clients(context: Context) -> NodeId:
    """The controller id for clients: an unfenced broker, which forwards (KIP-500)."""
    if context.controller is not None:
        return context.controller()
    if context.node in context.image.brokers:
        return context.node
    return next((broker.id for broker in context.image.live_brokers()), NO_NODE)


# ---- topics


def metadata(
    context: Context, creation: AutoTopicCreation, request: Request, body: MetadataRequest, now: TimestampMs
) -> MetadataResponse | None:
    """Brokers and topics; an unknown topic may be created (MET-01 to MET-13)."""
    wanted, image = body.topics, context.image
    if has_early_ids(request.version, body):
        return _refuse_ids(wanted or [])
    if wanted is None or (request.version == 0 and not wanted):
        topics = [_describe(image, topic) for _, topic in sorted(image.topics.items())]
    else:
        allow_creation = (
            body.allow_auto_topic_creation and context.configuration.broker("auto.create.topics.enable") is True
        )
        topics = [
            _named_or_identified(image, topic, creation if allow_creation else None, now)
            for topic in _once(ids_or_names(wanted))
        ]
    if body.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = AUTHORIZED_OPERATIONS["topic"]
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=id, host=host, port=port, rack=rack)
            for id, host, port, rack, fenced in broker_endpoints(context.image, request)
            if not fenced
        ],
        cluster_id=context.cluster_id,
        controller_id=_controller_for_clients(context),
        topics=topics,
        cluster_authorized_operations=AUTHORIZED_OPERATIONS["cluster"]
        if body.include_cluster_authorized_operations
        else -(1 << 31),
    )


def has_early_ids(version: int, body: MetadataRequest) -> bool:
    """Whether topic ids are in a version that has the field and does not support it; Kafka checks it before access to topics."""
    named = body.topics or ()
    return version < FIRST_BY_ID and any(each.name is None or each.topic_id != NO_UUID for each in named)


def _refuse_ids(wanted: list[MetadataRequest.MetadataRequestTopic]) -> MetadataResponse:
    """The response to topic ids where `has_early_ids`."""
    return MetadataResponse(
        topics=[
            TopicResponse(error_code=ErrorCode.INVALID_REQUEST, name=each.name or "", topic_id=each.topic_id)
            for each in wanted
        ]
    )


def ids_or_names(
    wanted: list[MetadataRequest.MetadataRequestTopic],
) -> list[MetadataRequest.MetadataRequestTopic]:
    """The topics that a request names: if any has an id, names are ignored. Java sends an empty name with an id (MET-10).
    Source: KafkaApis.handleTopicMetadataRequest.
    """
    ids = [
        MetadataRequest.MetadataRequestTopic(topic_id=topic.topic_id, name=None)
        for topic in wanted
        if topic.topic_id != NO_UUID
    ]
    return ids or wanted


def _once(wanted: list[MetadataRequest.MetadataRequestTopic]) -> list[MetadataRequest.MetadataRequestTopic]:
    """The topics without duplicates."""
    return [*{(topic.name, topic.topic_id): topic for topic in wanted}.values()]


def _named_or_identified(
    image: MetadataImage,
    wanted: MetadataRequest.MetadataRequestTopic,
    creation: AutoTopicCreation | None,
    now: TimestampMs,
) -> TopicResponse:
    if wanted.name is None:
        found = image.topics_by_id.get(wanted.topic_id)
        if found is None:
            return TopicResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id)
        return _describe(image, found)
    found = image.topics.get(wanted.name)
    if found is not None:
        return _describe(image, found)
    try:
        validate_topic_name(wanted.name)
    except KafkaError as error:
        return TopicResponse(error_code=error.code, name=wanted.name)
    if creation is not None:
        _create_automatically(creation, wanted.name, now)
    return TopicResponse(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=wanted.name, is_internal=wanted.name in INTERNAL_TOPICS
    )


def _create_automatically(creation: AutoTopicCreation, name: str, now: TimestampMs) -> None:
    """Create the topic for the next request; this response still reports it as unknown, as Kafka's does (MET-05)."""
    if is_created_on_demand(name):
        creation.create_internal(name, now)
    elif name not in INTERNAL_TOPICS:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        creation.create(topic, now)


def _describe(image: MetadataImage, topic: TopicImage) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_describe_partition(image, index, each) for index, each in sorted(topic.partitions.items())],
    )


def _describe_partition(
    image: MetadataImage, index: int, partition: PartitionImage
) -> MetadataResponse.MetadataResponsePartition:
    """One partition; without a live leader the error is LEADER_NOT_AVAILABLE, and replicas are still listed (MET-07, MET-08)."""
    return MetadataResponse.MetadataResponsePartition(
        error_code=ErrorCode.NONE if image.is_alive(partition.leader) else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if image.is_alive(partition.leader) else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[replica for replica in partition.replicas if not _is_online(image, partition, replica)],
    )


def _is_online(image: MetadataImage, partition: PartitionImage, replica: NodeId) -> bool:
    """Whether a replica's broker is unfenced and its log directory is online."""
    directory, broker = partition.directory_of(replica), image.brokers.get(replica)
    return broker is not None and not broker.fenced and (directory is None or broker.has_online(directory))


def has_wrong_cursor(body: DescribeTopicPartitionsRequest) -> bool:
    """Whether the cursor is invalid; Kafka refuses it before it checks access to topics (MET-15)."""
    cursor = body.cursor
    return cursor is not None and (
        cursor.partition_index < 0
        or (bool(body.topics) and all(topic.name != cursor.topic_name for topic in body.topics))
    )


def describe_topic_partitions(
    context: Context, request: Request, body: DescribeTopicPartitionsRequest, now: TimestampMs
) -> DescribeTopicPartitionsResponse | None:
    """One page of topics, sorted by name; the cursor is the start of the next page (MET-15)."""
    image, cursor = context.image, body.cursor
    names = sorted({topic.name for topic in body.topics}) or sorted(image.topics)
    listed_all = not body.topics
    if has_wrong_cursor(body):
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.INVALID_REQUEST, name=topic.name
                )
                for topic in body.topics
            ]
        )
    first = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        first = cursor.partition_index if names[:1] == [cursor.topic_name] else 0
    most = context.configuration.integer("max.request.partition.size.limit")
    left = max(1, min(body.response_partition_limit, most))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            if not listed_all:
                response.topics.append(_missing(name))
            first = 0
            continue
        indexes = sorted(index for index in topic.partitions if index >= first)
        page = indexes[:left]
        described = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=topic.id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[_describe_page_entry(image, index, topic.partitions[index]) for index in page],
            topic_authorized_operations=AUTHORIZED_OPERATIONS["topic"],
        )
        response.topics.append(described)
        left -= len(page)
        if len(page) < len(indexes):
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name, partition_index=indexes[len(page)]
            )
            return response
        first = 0
        if left == 0:
            following = [other for other in names if other > name]
            if following:
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                    topic_name=following[0], partition_index=0
                )
            return response
    return response


def _missing(name: str) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    try:
        validate_topic_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_authorized_operations=AUTHORIZED_OPERATIONS["topic"]
    )


def _describe_page_entry(
    image: MetadataImage, index: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition:
    plain = _describe_partition(image, index, partition)
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
        error_code=plain.error_code,
        partition_index=index,
        leader_id=plain.leader_id,
        leader_epoch=plain.leader_epoch,
        replica_nodes=plain.replica_nodes,
        isr_nodes=plain.isr_nodes,
        eligible_leader_replicas=partition.eligible_leader_replicas,
        last_known_elr=partition.last_known_elr,
        offline_replicas=plain.offline_replicas,
    )
