"""ACL: the ACLs that a filter matches, for listing and for removal, and the ACLs that a cluster accepts."""

from __future__ import annotations

from typing import Any

from conformance.access_rules import ALL, ALLOW, DENY, GROUP, READ, SINCE, TOPIC, WRITE, Rule, filter_of, rule, rules
from conformance.answers import only
from conformance.broker import Broker
from conformance.requirement import WITHOUT_ZOOKEEPER, requirement
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_acls import CreateAclsRequest
from reference.protocol.messages.delete_acls import DeleteAclsRequest
from reference.protocol.messages.describe_acls import DescribeAclsRequest

OTHERS = "operator: kafka-acls shows or removes other ACLs than those that were asked for"
FILTERS = "AccessControlEntryFilter, ResourcePatternFilter; StandardAuthorizerData.acls"
UNUSED = ResourceType.DELEGATION_TOKEN
"""A resource type that no request in the suite's plaintext clusters needs: ACLs for it affect no client."""
ANYTHING: dict[str, Any] = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}
Entry = tuple[int, str, int, str, str, int, int]
"""An ACL: kind of resource, name, pattern, principal, host, operation, permission."""


def entry_of(each: Rule) -> Entry:
    return (
        each.resource_type,
        each.resource_name,
        each.resource_pattern_type,
        each.principal,
        each.host,
        each.operation,
        each.permission_type,
    )


def found(broker: Broker, **filters: Any) -> list[Entry]:
    """The ACLs that DescribeAcls returns; a field without a filter matches everything."""
    answer = broker.call(DescribeAclsRequest(**(ANYTHING | filters)))
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="DescribeAcls")
    return sorted(
        (
            of.resource_type,
            of.resource_name,
            of.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for of in answer.resources
        for acl in of.acls
    )


def removed_by(broker: Broker, *filters: DeleteAclsRequest.DeleteAclsFilter) -> list[list[Entry]]:
    """For each filter the ACLs that DeleteAcls reports as removed."""
    results = broker.call(DeleteAclsRequest(filters=[*filters])).filter_results
    codes = [(each.error_code, *(acl.error_code for acl in each.matching_acls)) for each in results]
    broker.expect(all(not any(each) for each in codes), f"DeleteAcls has no error: {codes}")
    return [
        sorted(
            (a.resource_type, a.resource_name, a.pattern_type, a.principal, a.host, a.operation, a.permission_type)
            for a in each.matching_acls
        )
        for each in results
    ]


def entries(*wanted: Rule) -> list[Entry]:
    return sorted(map(entry_of, wanted))


# ---- filters


@requirement(
    "ACL-73",
    notices=OTHERS,
    source=FILTERS,
    sentence="A filter by principal, host, operation or permission finds the ACLs that have this very value.",
    accepted="of five ACLs for a name those with the value; all five without a filter by it",
    **SINCE,
)
def filters_of_entries(broker: Broker) -> None:
    name, user = broker.unused_name(), f"User:{broker.unused_name('user')}"
    usual = rule(ALLOW, READ, TOPIC, name)
    of_user = rule(ALLOW, READ, TOPIC, name, principal=user)
    of_host = rule(ALLOW, READ, TOPIC, name, host="192.0.2.1")
    of_all = rule(ALLOW, ALL, TOPIC, name)
    denial = rule(DENY, READ, TOPIC, name)
    made = [usual, of_user, of_host, of_all, denial]
    with rules(broker, made):
        for case, filters, wanted in (
            ("none", {}, made),
            ("principal", {"principal_filter": user}, [of_user]),
            ("every principal", {"principal_filter": "User:*"}, [usual, of_host, of_all, denial]),
            ("host", {"host_filter": "192.0.2.1"}, [of_host]),
            ("operation", {"operation": ALL}, [of_all]),
            ("permission", {"permission_type": DENY}, [denial]),
            ("two", {"principal_filter": user, "permission_type": DENY}, []),
        ):
            with broker.case(case):
                broker.expect_equal(
                    "the ACLs found", found(broker, resource_name_filter=name, **filters), entries(*wanted)
                )


@requirement(
    "ACL-74",
    notices="operator: kafka-acls shows which ACLs count for a topic, and leaves out the one that counts for all",
    source=f"KIP-290; {FILTERS}",
    sentence="A filter MATCH finds the ACLs for all names too; a filter LITERAL of `*` finds them alone.",
    accepted="the ACL for the name and the one for `*` by MATCH; the one for `*` by LITERAL, and not by LITERAL of the name",
    **SINCE,
)
def filters_and_wildcards(broker: Broker) -> None:
    name = broker.unused_name()
    exact, everywhere = rule(ALLOW, READ, UNUSED, name), rule(ALLOW, READ, UNUSED, "*")
    with rules(broker, [exact, everywhere]):
        for case, asked, pattern, wanted in (
            ("the name, MATCH", name, PatternType.MATCH, [exact, everywhere]),
            ("the name, LITERAL", name, PatternType.LITERAL, [exact]),
            ("*, LITERAL", "*", PatternType.LITERAL, [everywhere]),
        ):
            with broker.case(case):
                seen = found(
                    broker, resource_type_filter=UNUSED, resource_name_filter=asked, pattern_type_filter=pattern
                )
                broker.expect_equal("the ACLs found", seen, entries(*wanted))


@requirement(
    "ACL-75",
    notices=OTHERS,
    source=FILTERS,
    sentence="A filter by a name without a kind of resource finds the ACLs for everything of this name, each under its kind.",
    accepted="the ACLs for a topic, a group and a transactional id of one name; one of them by its kind",
    **SINCE,
)
def filters_of_kinds(broker: Broker) -> None:
    name = broker.unused_name()
    kinds = (TOPIC, GROUP, ResourceType.TRANSACTIONAL_ID)
    made = [rule(ALLOW, ALL, kind, name) for kind in kinds]
    with rules(broker, made):
        broker.expect_equal("the ACLs of every kind", found(broker, resource_name_filter=name), entries(*made))
        for kind, one in zip(kinds, made, strict=True):
            seen = found(broker, resource_type_filter=kind, resource_name_filter=name)
            broker.expect_equal(kind.name, seen, entries(one))


# ---- removals


@requirement(
    "ACL-76",
    notices="security: kafka-acls --remove takes away denials that were not named, or leaves allowances that were",
    source="AclControlManager.deleteAcls; AclApis.handleDeleteAcls",
    sentence="DeleteAcls removes all ACLs that a filter finds, names each of them, and leaves the others.",
    accepted="the two of a user are named and gone; the one of another user stays",
    **SINCE,
)
def removals(broker: Broker) -> None:
    name, user = broker.unused_name(), f"User:{broker.unused_name('user')}"
    gone = [rule(ALLOW, READ, TOPIC, name, principal=user), rule(DENY, WRITE, TOPIC, name, principal=user)]
    kept = rule(ALLOW, READ, TOPIC, name)
    with rules(broker, [*gone, kept]):
        by_user = filter_of(gone[0])
        by_user.operation, by_user.permission_type = Operation.ANY, Permission.ANY
        broker.expect_equal("the removed ACLs", removed_by(broker, by_user), [entries(*gone)])
        broker.eventually(lambda: found(broker, resource_name_filter=name) == entries(kept), "the other ACL is left")


@requirement(
    "ACL-77",
    notices=OTHERS,
    source="AclControlManager.deleteAcls",
    sentence="Each filter of a DeleteAcls is answered by the ACLs that it finds, also one that another filter finds too; a "
    "filter that finds none is no error.",
    accepted="the ACL named under both filters, no ACL under the third, error NONE(0) for each",
    **SINCE,
)
def removals_by_several_filters(broker: Broker) -> None:
    made, unmade = rule(ALLOW, READ, TOPIC, broker.unused_name()), rule(ALLOW, READ, TOPIC, broker.unused_name())
    with rules(broker, [made]):
        named = removed_by(broker, filter_of(made), filter_of(unmade), filter_of(made))
        broker.expect_equal("the removed ACLs by filter", named, [entries(made), [], entries(made)])


# ---- invalid ACLs


@requirement(
    "ACL-78",
    notices="operator: an ACL is taken that protects nothing, and its author does not learn of it",
    source="AclControlManager.validateNewAcl",
    sentence="CreateAcls refuses what only filters may say: ANY as operation, permission, kind of resource or pattern, and the "
    "pattern MATCH.",
    accepted="INVALID_REQUEST(42), or Kafka's UNKNOWN_SERVER_ERROR(-1), for each, and no ACL",
    **SINCE,
)
def acls_of_filters(broker: Broker) -> None:
    name = broker.unused_name()
    for case, wrong in (
        ("operation", rule(ALLOW, Operation.ANY, TOPIC, name)),
        ("permission", rule(Permission.ANY, READ, TOPIC, name)),
        ("kind of resource", rule(ALLOW, READ, ResourceType.ANY, name)),
        ("pattern ANY", rule(ALLOW, READ, TOPIC, name, pattern=PatternType.ANY)),
        ("pattern MATCH", rule(ALLOW, READ, TOPIC, name, pattern=PatternType.MATCH)),
    ):
        with broker.case(case):
            result = only(broker.call(CreateAclsRequest(creations=[wrong])).results, "result")
            broker.expect_error(result.error_code, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR)
    good = rule(ALLOW, READ, TOPIC, name)
    with rules(broker, [good]):  # by now the broker has handled all earlier requests
        broker.expect_equal("the ACLs of the name", found(broker, resource_name_filter=name), entries(good))


@requirement(
    "ACL-79",
    notices="security: an operator believes that ACLs protect a cluster where nothing acts upon them",
    source="AclApis.handleCreateAcls, handleDeleteAcls, handleDescribeAcls",
    sentence="Without an authorizer CreateAcls, DeleteAcls and DescribeAcls are refused.",
    accepted="SECURITY_DISABLED(54) for each",
    since=WITHOUT_ZOOKEEPER,
    kraft=True,
    apis={"CreateAcls": 0, "DeleteAcls": 0, "DescribeAcls": 0},
)
def without_authorizer(broker: Broker) -> None:
    made = rule(ALLOW, READ, TOPIC, broker.unused_name())
    with broker.case("CreateAcls"):
        answer = broker.call(CreateAclsRequest(creations=[made]))
        broker.expect_error(only(answer.results, "result").error_code, ErrorCode.SECURITY_DISABLED)
    with broker.case("DeleteAcls"):
        answer = broker.call(DeleteAclsRequest(filters=[filter_of(made)]))
        broker.expect_error(only(answer.filter_results, "result").error_code, ErrorCode.SECURITY_DISABLED)
    with broker.case("DescribeAcls"):
        answer = broker.call(DescribeAclsRequest(**ANYTHING))
        broker.expect_error(answer.error_code, ErrorCode.SECURITY_DISABLED)
