"""Bugs in access control: operations that are allowed or denied wrongly, and resources that are not hidden."""

from __future__ import annotations

from typing import Any

from linearizability.mutants.registry import mutant
from reference.authorizer.acl import WILDCARD
from reference.authorizer.authorizer import Asker
from reference.node.access import Admission
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType

LEAVE_GROUP = 13


@mutant(
    "reference.node.access:Access.admit",
    "LeaveGroup is carried out whatever the ACLs of the group say.",
    caught_by=("ACL-14",),
)
def leave_group_unchecked(original: Any, access: Any, request: Any, body: Any, *kind: Any) -> Any:
    return Admission(body) if request.key == LEAVE_GROUP else original(access, request, body, *kind)


@mutant(
    "reference.authorizer.acl:AclTable.of",
    "A prefixed ACL counts for the one name that it has, and for no longer one.",
    caught_by=("ACL-50",),
)
def prefixed_acl_as_literal(original: Any, table: Any, resource_type: int, name: str) -> Any:
    return (
        acl
        for acl in original(table, resource_type, name)
        if acl.pattern_type == PatternType.LITERAL or acl.name == name
    )


@mutant(
    "reference.authorizer.authorizer:Authorizer._decide",
    "An ACL that allows decides before one that denies.",
    caught_by=("ACL-51",),
)
def allowed_before_denied(
    original: Any, authorizer: Any, asker: Asker, operation: Operation, type_: ResourceType, name: str
) -> bool:
    allowing = (
        acl
        for acl in authorizer.acls.of(type_, name)
        if asker.is_named_by(acl) and acl.permission == Permission.ALLOW and acl.operation in (operation, Operation.ALL)
    )
    return next(allowing, None) is not None or original(authorizer, asker, operation, type_, name)


@mutant(
    "reference.node.access:Access.hide",
    "What a client may not see is not left out of responses.",
    caught_by=("ACL-60",),
)
def metadata_shows_all_topics(original: Any, access: Any, need: Any, request: Any, response: Any) -> None:
    return None


@mutant(
    "reference.authorizer.acl:AclTable.of",
    "An ACL for all names counts for none of them.",
    caught_by=("ACL-87",),
)
def wildcard_acl_ignored(original: Any, table: Any, resource_type: int, name: str) -> Any:
    return (acl for acl in original(table, resource_type, name) if acl.name != WILDCARD)


@mutant(
    "reference.authorizer.authorizer:Authorizer._decide",
    "An ACL that denies ALL is passed over: operations are denied one by one alone.",
    caught_by=("ACL-83",),
)
def wide_denial_narrowed(
    original: Any, authorizer: Any, asker: Asker, operation: Operation, type_: ResourceType, name: str
) -> bool:
    acls = [acl for acl in authorizer.acls.of(type_, name) if asker.is_named_by(acl)]
    if any(acl.permission == Permission.DENY and acl.operation == operation for acl in acls):
        return False
    allowed = any(acl.permission == Permission.ALLOW and acl.operation == operation for acl in acls)
    return allowed or original(authorizer, asker, operation, type_, name)
