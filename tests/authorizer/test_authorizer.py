"""The authorizer against a restatement of its rule that looks at every ACL."""

from __future__ import annotations

from uuid import UUID

import hypothesis.strategies as st
from hypothesis import given

from reference.authorizer.acl import Acl, AclTable
from reference.authorizer.authorizer import Asker, Authorizer
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType

NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "*a", ""])
PRINCIPALS = ["User:a", "User:b", "Group:a"]
HOSTS = ["h", "i"]
ALLOW, DENY = Permission.ALLOW, Permission.DENY

ACLS = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([*PRINCIPALS, "User:*"]),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from(Operation),
    st.sampled_from([DENY, ALLOW]),
)
ASKERS = st.builds(Asker, st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS))

DESCRIBED_BY = {"READ", "WRITE", "DELETE", "ALTER", "DESCRIBE", "ALL"}


def naive(acls: list[Acl], asker: Asker, operation: Operation, name: str, default: bool) -> bool:
    """The rule for topics in the words of its documentation."""

    def matches(acl: Acl) -> bool:
        if acl.resource_type != ResourceType.TOPIC:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return name[: len(acl.name)] == acl.name
        return acl.name == name or (acl.name == "*" and name[:1] != "*")

    def is_about(acl: Acl) -> bool:
        named = acl.principal == asker.principal or acl.principal == "User:*"
        return named and (acl.host == asker.host or acl.host == "*")

    matching = [acl for acl in acls if matches(acl)]
    if not matching:
        return default
    about = [acl for acl in matching if is_about(acl)]
    denied = {Operation(acl.operation).name for acl in about if acl.permission == DENY}
    allowed = {Operation(acl.operation).name for acl in about if acl.permission == ALLOW}
    if denied & {operation.name, "ALL"}:
        return False
    enough = {operation.name, "ALL"}
    if operation is Operation.DESCRIBE:
        enough = DESCRIBED_BY
    if operation is Operation.DESCRIBE_CONFIGS:
        enough |= {"ALTER_CONFIGS"}
    return bool(allowed & enough)


@given(st.lists(ACLS, max_size=6), ASKERS, st.sampled_from(Operation), NAMES, st.booleans())
def test_the_rule(acls: list[Acl], asker: Asker, operation: Operation, name: str, default: bool) -> None:
    table = AclTable()
    for number, acl in enumerate(acls):
        table.add(UUID(int=number), acl)
    authorizer = Authorizer(table, (), default)
    assert authorizer.authorize(asker, operation, ResourceType.TOPIC, name) == naive(
        acls, asker, operation, name, default
    )
    for number in range(1, len(acls)):
        table.remove(UUID(int=number))
    left = acls[:1]
    assert authorizer.authorize(asker, operation, ResourceType.TOPIC, name) == naive(
        left, asker, operation, name, default
    )


@given(st.lists(ACLS, max_size=4), ASKERS, st.sampled_from(Operation), NAMES)
def test_a_super_user_may_do_everything(acls: list[Acl], asker: Asker, operation: Operation, name: str) -> None:
    table = AclTable()
    for number, acl in enumerate(acls):
        table.add(UUID(int=number), acl)
    authorizer = Authorizer(table, [asker.principal])
    assert authorizer.authorize(asker, operation, ResourceType.TOPIC, name)
    assert authorizer.authorize_any(asker, operation, ResourceType.TOPIC)


@given(ACLS, ASKERS, NAMES)
def test_a_denial_is_never_outvoted(acl: Acl, asker: Asker, name: str) -> None:
    """Whatever allows the same, and in whichever order the two are added."""
    denial = Acl(ResourceType.TOPIC, "", PatternType.PREFIXED, "User:*", "*", Operation.ALL, DENY)
    for first, second in ((acl, denial), (denial, acl)):
        table = AclTable()
        table.add(UUID(int=1), first)
        table.add(UUID(int=2), second)
        assert not Authorizer(table, (), True).authorize(asker, Operation.READ, ResourceType.TOPIC, name)
