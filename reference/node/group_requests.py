"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the members of classic groups. (GRP-*)"""

from __future__ import annotations

from reference.coordinator.classic_groups import check_join, check_sync
from reference.coordinator.classic_member import Client
from reference.coordinator.classic_rebalances import join_refused
from reference.node.groups import FIRST_JOIN_WITHOUT_PROTOCOL, Groups
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from reference.protocol.messages.join_group import JoinGroupRequest
from reference.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from reference.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message

FIRST_JOIN_WITH_REBALANCE_TIMEOUT = 1
"""JoinGroup: before, the session timeout is meant."""


def join_group(groups: Groups, request: Request, body: JoinGroupRequest, now: TimestampMs) -> Message | None:
    if request.version < FIRST_JOIN_WITH_REBALANCE_TIMEOUT:
        body.rebalance_timeout_ms = body.session_timeout_ms
    try:
        check_join(body, groups.settings)
        _, shard = groups.coordination.shard_of(body.group_id)
    except KafkaError as error:
        refused = join_refused(body.member_id, error.code)
        refused.protocol_name = None if request.version >= FIRST_JOIN_WITHOUT_PROTOCOL else ""
        return refused
    shard.join(body, request.version, client_of(request), request, now)
    return groups.send_said(now)


def sync_group(groups: Groups, request: Request, body: SyncGroupRequest, now: TimestampMs) -> Message | None:
    try:
        check_sync(body, request.version)
        _, shard = groups.coordination.shard_of(body.group_id)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
    shard.sync(body, request, now)
    return groups.send_said(now)


def heartbeat(groups: Groups, request: Request, body: HeartbeatRequest, now: TimestampMs) -> Message | None:
    """A member of a group that is still being loaded has done what it should: it is told that all is well."""
    try:
        index, shard = groups.shard_of_member(body.group_id)
    except KafkaError as error:
        is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
    groups.answer(index, request, shard.heartbeat(body, now), now)
    return None


def leave_group(groups: Groups, request: Request, body: LeaveGroupRequest, now: TimestampMs) -> Message | None:
    try:
        index, shard = groups.shard_of_member(body.group_id)
        left = shard.leave(body, request.version, now)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    groups.answer(index, request, left, now)
    return groups.send_said(now)


def client_of(request: Request) -> Client:
    return Client(request.client_id or "", f"/{request.client.host}")
