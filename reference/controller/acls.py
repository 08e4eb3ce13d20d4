"""CreateAcls and DeleteAcls: their records, and the result of each entry.

Source: org.apache.kafka.controller.AclControlManager; kafka.server.AclApis.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from reference.authorizer.acl import Acl, AclFilter, AclTable, matching
from reference.protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from reference.protocol.primitives import Chance
from reference.protocol.schema import Message


@dataclass(frozen=True, slots=True)
class Plan:
    """The records, and the result of each entry of the request."""

    records: list[Message]
    results: list[KafkaError | list[Acl]]
    """Its error, or the ACLs that it removes; for CreateAcls an empty list."""


def create_acls(table: AclTable, wanted: Iterable[Acl], chance: Chance) -> Plan:
    """The records that add ACLs. An ACL that exists already gets no record and no error."""
    known = set(table.by_id.values())
    plan = Plan([], [])
    for acl in wanted:
        try:
            _require_valid(acl)
        except KafkaError as error:
            plan.results.append(error)
            continue
        if acl not in known:
            known.add(acl)
            plan.records.append(acl.as_record(UUID(int=chance.getrandbits(128), version=4)))
        plan.results.append([])
    return plan


def _require_valid(acl: Acl) -> None:
    """Check an ACL. Errors: KafkaError with Kafka's message."""
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise _invalid("Invalid empty resource name")
    if acl.resource_type not in [*ResourceType][1:]:
        raise _invalid(f"Invalid resourceType {_name(ResourceType, acl.resource_type)}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {_name(PatternType, acl.pattern_type)}")
    if acl.operation not in [*Operation][1:]:
        raise _invalid(f"Invalid operation {_name(Operation, acl.operation)}")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        raise _invalid(f"Invalid permissionType {_name(Permission, acl.permission)}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from the "
            "principal name)"
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _name(kind: type[ResourceType | PatternType | Operation | Permission], number: int) -> str:
    return kind(number).name if number in [*kind] else "UNKNOWN"


def delete_acls(table: AclTable, filters: Iterable[AclFilter]) -> Plan:
    """The records that remove the ACLs that match any of the filters; each filter's result lists all its matches."""
    plan = Plan([], [])
    removed: dict[UUID, None] = {}
    for wanted in filters:
        if wanted.is_unknown:
            plan.results.append(_invalid("Unknown patternFilter or entryFilter."))
            continue
        plan.results.append(matching(table.by_id.values(), wanted))
        removed |= dict.fromkeys(id for id, acl in table.by_id.items() if wanted.matches(acl))
    plan.records.extend(RemoveAccessControlEntryRecord(id=id) for id in removed)
    return plan
