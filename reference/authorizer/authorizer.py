"""The rule that decides whether a principal may do an operation on a resource.

1. A super user may do everything.
2. Of the ACLs whose pattern matches the resource, those apply that name the principal (or `User:*`), the client's host
(or `*`), and the operation (or ALL). If one of them denies, the operation is denied.
3. Otherwise, if one of them allows, it is allowed. An ALLOW also implies other operations: Read, Write, Delete and
Alter imply Describe; AlterConfigs implies DescribeConfigs. A DENY implies nothing.
4. Without a matching ACL, `allow.everyone.if.no.acl.found` decides. Everything else is denied.

Source: org.apache.kafka.metadata.authorizer.StandardAuthorizerData; org.apache.kafka.server.authorizer.Authorizer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from reference.authorizer.acl import WILDCARD, WILDCARD_PRINCIPAL, Acl, AclTable
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType

IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operation -> the operations whose permission includes it."""

MAX_REMEMBERED = 10_000
"""The size of the cache of results, which is valid until the ACLs change: a client requests the same resources repeatedly."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The requester: its principal as `TYPE:NAME`, and the address of its host."""

    principal: str
    host: str

    def is_named_by(self, acl: Acl) -> bool:
        return acl.principal in (self.principal, WILDCARD_PRINCIPAL) and acl.host in (self.host, WILDCARD)


class Authorizer:
    """Decides by the ACLs of a table, which its owner may change."""

    def __init__(self, acls: AclTable, super_users: Collection[str] = (), allow_if_no_acl: bool = False) -> None:
        self.acls = acls
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._remembered: dict[tuple[Asker, Operation, ResourceType, str], bool] = {}
        self._remembered_at = acls.changes

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def authorize(self, asker: Asker, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the operation is allowed."""
        if self._remembered_at != self.acls.changes or len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
            self._remembered_at = self.acls.changes
        key = asker, operation, resource_type, name
        allowed = self._remembered.get(key)
        if allowed is None:
            allowed = self._remembered[key] = self._decide(asker, operation, resource_type, name)
        return allowed

    def _decide(self, asker: Asker, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if self.is_super_user(asker.principal):
            return True
        is_allowed, has_acls = False, False
        for acl in self.acls.of(resource_type, name):
            has_acls = True
            if asker.is_named_by(acl) and _is_of(acl, operation):
                if acl.permission != Permission.ALLOW:
                    return False
                is_allowed = True
        return is_allowed if has_acls else self._allow_if_no_acl

    def authorize_any(self, asker: Asker, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on some resource of a type, which need not exist.

        Kafka first checks a resource named `hardcode`, so that super users and `allow.everyone` apply.
        """
        if self.authorize(asker, operation, resource_type, "hardcode"):
            return True
        counting = [
            acl
            for acl in self.acls.by_id.values()
            if acl.resource_type == resource_type
            and asker.is_named_by(acl)
            and acl.operation in (operation, Operation.ALL)
        ]
        denials = [acl for acl in counting if acl.permission != Permission.ALLOW]
        if any(_is_wildcard(acl) for acl in denials):
            return False
        return any(_is_wildcard(acl) or not _is_dominated(acl, denials) for acl in counting if acl not in denials)


def _is_of(acl: Acl, operation: Operation) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission == Permission.ALLOW and acl.operation in IMPLIED_BY.get(operation, ())


def _is_wildcard(acl: Acl) -> bool:
    return acl.pattern_type == PatternType.LITERAL and acl.name == WILDCARD


def _is_dominated(allowance: Acl, denials: Iterable[Acl]) -> bool:
    """Whether a denial covers all resources of an ALLOW: a prefix of its name, or for a literal name the same name.

    An empty prefix is ignored, as in Kafka's `authorizeByResourceType`, although it matches every name. No client can
    create one.
    """
    is_literal = allowance.pattern_type == PatternType.LITERAL
    return any(
        denial.name != "" and allowance.name.startswith(denial.name)
        if denial.pattern_type == PatternType.PREFIXED
        else is_literal and denial.name == allowance.name
        for denial in denials
    )


def super_users_of(properties: Mapping[str, str]) -> list[str]:
    """The principals of super.users, separated by semicolons, because a name may have commas."""
    return [user.strip() for user in properties.get("super.users", "").split(";") if user.strip()]
