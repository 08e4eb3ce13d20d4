"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: the groups of KIP-848 on this node. (CGH-*, GAD-05)"""

from __future__ import annotations

from functools import partial

from reference.coordinator.consumer_group_description import describe
from reference.coordinator.consumer_heartbeat_check import check_request
from reference.node.context import Context
from reference.node.groups import Fail, Groups, client_of
from reference.node.known_topics import KnownTopics
from reference.node.requests import AUTHORIZED_OPERATIONS, Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from reference.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from reference.protocol.primitives import GroupId, TimestampMs
from reference.protocol.schema import Message

GROUP_VERSION = "group.version"
"""The feature that enables consumer groups, since its level 1."""

DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup


def consumer_group_heartbeat(
    groups: Groups, request: Request, body: ConsumerGroupHeartbeatRequest, now: TimestampMs
) -> Message | None:
    """Handle a member's heartbeat; the response is sent when its records are committed."""
    try:
        _require_protocol(groups.context)
        check_request(body, request.version, groups.consumer_settings.assignors)
        index, shard = groups.coordination.shard_of(body.group_id)
        client = client_of(request)
        response = shard.consumer.heartbeat(body, client.id, client.host, now)
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    groups.answer(index, request, response, now)
    return groups.send_said(now)


def consumer_group_describe(
    groups: Groups, request: Request, body: ConsumerGroupDescribeRequest, now: TimestampMs
) -> Message | None:
    """Describe each group, or report its error."""
    response = ConsumerGroupDescribeResponse()
    parts: list[tuple[int, Fail]] = []
    for id in body.group_ids:
        try:
            _require_protocol(groups.context)
            index, described = _described(groups, id)
        except KafkaError as error:
            response.groups.append(DescribedGroup(group_id=id, error_code=error.code, error_message=error.message))
            continue
        if body.include_authorized_operations:
            described.authorized_operations = AUTHORIZED_OPERATIONS["group"]
        response.groups.append(described)
        parts.append((index, partial(_undescribe, described)))
    groups.answer_together(request, response, parts, now)
    return None


def _described(groups: Groups, id: GroupId) -> tuple[int, DescribedGroup]:
    if not id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    index, shard = groups.coordination.shard_of(id)
    default_assignor = groups.consumer_settings.assignors[0]
    return index, describe(shard.consumer.of(id), KnownTopics(groups.context.image), default_assignor)


def _undescribe(described: DescribedGroup, code: ErrorCode) -> None:
    described.error_code = code
    described.group_state = described.assignor_name = ""
    described.members = []


def _require_protocol(context: Context) -> None:
    """Errors: KafkaError UNSUPPORTED_VERSION if consumer groups are disabled in the cluster or on the broker."""
    protocols = context.configuration.broker("group.coordinator.rebalance.protocols")
    is_enabled = isinstance(protocols, tuple) and "consumer" in protocols
    if not is_enabled or context.image.features.get(GROUP_VERSION, 0) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
