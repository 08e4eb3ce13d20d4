"""ListGroups, DescribeGroups and DeleteGroups: this node's groups for administrators. (GAD-*)"""

from __future__ import annotations

from functools import partial

from reference.coordinator import group_admin
from reference.node.groups import Fail, Groups
from reference.node.requests import AUTHORIZED_OPERATIONS, Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from reference.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from reference.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from reference.protocol.primitives import GroupId, TimestampMs
from reference.protocol.schema import Message

DescribedGroup = DescribeGroupsResponse.DescribedGroup
DeletedGroup = DeleteGroupsResponse.DeletableGroupResult


def list_groups(groups: Groups, request: Request, body: ListGroupsRequest, now: TimestampMs) -> Message | None:
    """The groups that this broker coordinates (GAD-03); an error while some are loading, because the list would be incomplete."""
    coordination = groups.coordination
    if coordination.is_loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    response = ListGroupsResponse()
    parts: list[tuple[int, Fail]] = []
    for index, shard in coordination.loaded():
        listed = group_admin.list_groups(shard.groups, body)
        if listed:
            response.groups += listed
            parts.append((index, partial(_unlist, response, listed)))
    groups.answer_together(request, response, parts, now)
    return None


def _unlist(response: ListGroupsResponse, listed: list[ListGroupsResponse.ListedGroup], code: ErrorCode) -> None:
    """Remove groups from the list; groups that another broker now coordinates are in its own list."""
    response.groups = [each for each in response.groups if each not in listed]
    if code is not ErrorCode.NOT_COORDINATOR:
        response.error_code = code


def describe_groups(groups: Groups, request: Request, body: DescribeGroupsRequest, now: TimestampMs) -> Message | None:
    """Describe each group, or report its error (GAD-01, GAD-02, GAD-06)."""
    response = DescribeGroupsResponse()
    parts: list[tuple[int, Fail]] = []
    for id in body.groups:
        described, part = _describe(groups, id, request.version)
        if part is not None:
            parts.append(part)
        if body.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = AUTHORIZED_OPERATIONS["group"]
        response.groups.append(described)
    groups.answer_together(request, response, parts, now)
    return None


def _describe(groups: Groups, id: GroupId, version: int) -> tuple[DescribedGroup, tuple[int, Fail] | None]:
    try:
        index, shard = groups.coordination.shard_of(id)
    except KafkaError as error:
        return DescribedGroup(group_id=id, error_code=error.code), None
    described = group_admin.describe_group(shard.groups, id, version)
    return described, (index, partial(_undescribe, described))


def _undescribe(described: DescribedGroup, code: ErrorCode) -> None:
    described.error_code = code
    described.group_state = described.protocol_type = described.protocol_data = ""
    described.members = []


def delete_groups(groups: Groups, request: Request, body: DeleteGroupsRequest, now: TimestampMs) -> Message | None:
    """Delete each group with its offsets, or report its error (GAD-04, GAD-06)."""
    response = DeleteGroupsResponse()
    parts: list[tuple[int, Fail]] = []
    for id in dict.fromkeys(body.groups_names):
        result = DeletedGroup(group_id=id)
        response.results.append(result)
        try:
            index, shard = groups.coordination.shard_of(id)
            groups.coordination.write(index, group_admin.removal(shard.groups, shard.offsets, id), now)
        except KafkaError as error:
            result.error_code = error.code
        else:
            parts.append((index, partial(_undelete, result)))
    groups.answer_together(request, response, parts, now)
    return None


def _undelete(result: DeletedGroup, code: ErrorCode) -> None:
    result.error_code = code
