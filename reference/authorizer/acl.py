"""Access control list entries (ACLs), their table, and filters over it.

Source: KIP-11, KIP-290 (prefixed patterns), KIP-801; org.apache.kafka.metadata.authorizer.StandardAcl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from reference.protocol.acls import Operation, PatternType, Permission, ResourceType
from reference.protocol.messages.access_control_entry_record import AccessControlEntryRecord

WILDCARD = "*"
"""Matches any name in a literal pattern, or any host."""

WILDCARD_PRINCIPAL = "User:*"
"""Matches any principal of any type."""


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One entry: it allows or denies a principal, from a host, an operation on the resources of a pattern."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def covers(self, name: str) -> bool:
        """Whether its pattern matches a resource of its type with this name."""
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (WILDCARD, name)

    def as_record(self, id: UUID) -> AccessControlEntryRecord:
        """The metadata record that adds the entry."""
        return AccessControlEntryRecord(
            id=id,
            resource_type=self.resource_type,
            resource_name=self.name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The ACL that a metadata record adds."""
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


Index = dict[tuple[int, str], dict[UUID, Acl]]
"""Resource type and pattern name -> the ACLs with that pattern."""


@dataclass(slots=True)
class AclTable:
    """All ACLs, by id and by pattern name. `changes` counts the changes of the table."""

    by_id: dict[UUID, Acl] = field(default_factory=dict[UUID, Acl])
    changes: int = field(default=0, compare=False)
    _literal: Index = field(default_factory=Index, compare=False, repr=False)
    _prefixed: Index = field(default_factory=Index, compare=False, repr=False)
    _prefix_lengths: Counter[int] = field(default_factory=Counter[int], compare=False, repr=False)
    """Length of a prefix -> the number of ACLs with such a prefix: a name is looked up by these lengths alone."""

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, id: UUID, acl: Acl) -> None:
        self.remove(id)
        self.by_id[id] = acl
        self._index_of(acl).setdefault((acl.resource_type, acl.name), {})[id] = acl
        if acl.pattern_type == PatternType.PREFIXED:
            self._prefix_lengths[len(acl.name)] += 1

    def remove(self, id: UUID) -> None:
        """Remove an ACL; an unknown id is ignored."""
        self.changes += 1
        acl = self.by_id.pop(id, None)
        if acl is not None:
            index, key = self._index_of(acl), (acl.resource_type, acl.name)
            index[key].pop(id)
            if not index[key]:
                del index[key]
            if acl.pattern_type == PatternType.PREFIXED:
                self._prefix_lengths[len(acl.name)] -= 1
                self._prefix_lengths += Counter()  # drops lengths without ACLs

    def clear(self) -> None:
        self.changes += 1
        for table in (self.by_id, self._literal, self._prefixed, self._prefix_lengths):
            table.clear()

    def of(self, resource_type: int, name: str) -> Iterator[Acl]:
        """The ACLs whose patterns match a resource: by its name, by each of its prefixes, by the wildcard.

        Kafka treats the wildcard as a literal name if the resource's name begins with it, and ignores wildcard ACLs for
        a group named `*a` (StandardAuthorizerData.checkSection).
        """
        names = (name,) if name.startswith(WILDCARD) else (name, WILDCARD)
        found: list[dict[UUID, Acl] | None] = [self._literal.get((resource_type, each)) for each in names]
        if self._prefixed:
            lengths = (length for length in self._prefix_lengths if length <= len(name))
            found += (self._prefixed.get((resource_type, name[:length])) for length in lengths)
        return (acl for acls in found if acls for acl in acls.values())

    def _index_of(self, acl: Acl) -> Index:
        return self._prefixed if acl.pattern_type == PatternType.PREFIXED else self._literal


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects ACLs; None and ANY match all.

    The pattern type MATCH selects ACLs that apply to the resource of that name; LITERAL and PREFIXED those with exactly
    this pattern (org.apache.kafka.common.resource.ResourcePatternFilter).
    """

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.name is None or self.name == acl.name:
            return True
        return self.pattern_type == PatternType.MATCH and acl.covers(self.name)

    @property
    def is_unknown(self) -> bool:
        """Whether the filter has a type, operation or permission that this release does not know."""
        kinds = (
            (ResourceType, self.resource_type),
            (PatternType, self.pattern_type),
            (Operation, self.operation),
            (Permission, self.permission),
        )
        return any(number not in [*kind] for kind, number in kinds)


def matching(acls: Iterable[Acl], wanted: AclFilter) -> list[Acl]:
    return [acl for acl in acls if wanted.matches(acl)]
