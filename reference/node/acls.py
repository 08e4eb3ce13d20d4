"""CreateAcls, DeleteAcls and DescribeAcls. (ACL-*)"""

from __future__ import annotations

from reference.authorizer.acl import Acl, AclFilter, matching
from reference.controller import acls
from reference.node.active_controller import ActiveController
from reference.node.context import Context
from reference.node.requests import Request
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from reference.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from reference.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message


def create_acls(controller: ActiveController, version: int, body: CreateAclsRequest, now: TimestampMs) -> Message:
    """Add ACLs, all in one batch."""
    _require_authorizer(controller)
    wanted = [
        Acl(
            each.resource_type,
            each.resource_name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in body.creations
    ]
    plan = acls.create_acls(controller.image.acls, wanted, controller.chance)
    controller.append(plan.records, now)
    result = CreateAclsResponse.AclCreationResult
    return CreateAclsResponse(
        results=[
            result(error_code=each.code, error_message=each.message) if isinstance(each, KafkaError) else result()
            for each in plan.results
        ]
    )


def delete_acls(controller: ActiveController, version: int, body: DeleteAclsRequest, now: TimestampMs) -> Message:
    """Remove ACLs, all in one batch, and list them."""
    _require_authorizer(controller)
    plan = acls.delete_acls(controller.image.acls, [_filter_of(each) for each in body.filters])
    controller.append(plan.records, now)
    result = DeleteAclsResponse.DeleteAclsFilterResult
    return DeleteAclsResponse(
        filter_results=[
            result(error_code=each.code, error_message=each.message)
            if isinstance(each, KafkaError)
            else result(matching_acls=[_removed(acl) for acl in each])
            for each in plan.results
        ]
    )


def describe_acls(
    context: Context, request: Request, body: DescribeAclsRequest, now: TimestampMs
) -> DescribeAclsResponse:
    """The ACLs that match a filter, by their patterns."""
    if context.access.authorizer is None:
        message = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=message)
    found: dict[tuple[int, str, int], DescribeAclsResponse.DescribeAclsResource] = {}
    for acl in sorted(matching(context.image.acls.by_id.values(), _filter_of(body))):
        pattern = acl.resource_type, acl.name, acl.pattern_type
        resource = found.setdefault(
            pattern,
            DescribeAclsResponse.DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern_type
            ),
        )
        resource.acls.append(
            DescribeAclsResponse.AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
        )
    return DescribeAclsResponse(resources=[*found.values()])


UNKNOWN_KIND = 0
"""The value of an unknown resource type, pattern type, operation or permission; no ACL and no filter may have it."""


def names_unknown_kind(body: Message) -> bool:
    """Whether a request about ACLs has UNKNOWN_KIND: Kafka cannot parse such a request, and closes the connection."""
    if isinstance(body, CreateAclsRequest):
        return any(
            UNKNOWN_KIND in (each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
            for each in body.creations
        )
    filters = body.filters if isinstance(body, DeleteAclsRequest) else [body]
    return any(
        isinstance(each, DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter)
        and UNKNOWN_KIND in (each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
        for each in filters
    )


def _require_authorizer(controller: ActiveController) -> None:
    """Errors: KafkaError SECURITY_DISABLED, because without an authorizer ACLs would protect nothing."""
    if not controller.configuration.broker("authorizer.class.name"):
        raise KafkaError(ErrorCode.SECURITY_DISABLED)


def _filter_of(asked: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _removed(acl: Acl) -> DeleteAclsResponse.DeleteAclsMatchingAcl:
    return DeleteAclsResponse.DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
