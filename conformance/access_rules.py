"""ACLs that a requirement sets for a while, and the resources that they name.

The suite has one principal, which can be anyone: rules are for `User:*`, on names that nothing else uses. A resource with
ACLs refuses every operation that they do not allow. So each denial comes with an ACL that allows all other operations.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from conformance.answers import error_name
from conformance.broker import Broker
from conformance.requirement import WITHOUT_ZOOKEEPER
from conformance.wire import Failed
from linearizability.client.errors import error_of
from linearizability.client.requests import Topic
from reference.protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_acls import CreateAclsRequest
from reference.protocol.messages.delete_acls import DeleteAclsRequest
from reference.protocol.messages.describe_acls import DescribeAclsRequest

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""The broker properties that these requirements need. A resource without ACLs is open to all operations."""

SINCE: dict[str, Any] = {"since": WITHOUT_ZOOKEEPER, "kraft": True, "configs": AUTHORIZED, "alone": True}
"""The keyword arguments that all requirements about ACLs share."""

ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALL, READ, WRITE, DESCRIBE = Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MASK = "KafkaApis.handleTopicMetadataRequest"

EVERYONE = "User:*"
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1

Rule = CreateAclsRequest.AclCreation


def rule(
    permission: Permission,
    operation: Operation,
    resource: ResourceType,
    name: str,
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = EVERYONE,
    host: str = "*",
) -> Rule:
    """One ACL of CreateAcls."""
    return Rule(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def but(operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME) -> list[Rule]:
    """The two ACLs that allow every operation on a resource, except this one."""
    return [
        rule(Permission.ALLOW, Operation.ALL, resource, name),
        rule(Permission.DENY, operation, resource, name),
    ]


@contextmanager
def rules(broker: Broker, wanted: Iterable[Rule]) -> Generator[None]:
    """Create ACLs for the duration of the block, on the broker that receives requests by default."""
    created = [*wanted]
    shown = [each for each in created if each.resource_type != ResourceType.CLUSTER]
    """Rules for the cluster may deny DescribeAcls itself."""
    results = broker.call(CreateAclsRequest(creations=created)).results
    codes = {result.error_code for result in results}
    try:
        if codes != {ErrorCode.NONE} or len(results) != len(created):
            reported = ", ".join(map(error_name, sorted(codes)))
            raise Failed(f"CreateAcls for {len(created)} ACLs was answered with {len(results)} results: {reported}")
        for each in shown:
            broker.eventually(
                lambda each=each: described(broker, each) == 1, f"DescribeAcls shows {each.resource_name}"
            )
        yield
    finally:
        broker.call(DeleteAclsRequest(filters=[filter_of(each) for each in created]))
        for each in shown:
            broker.eventually(lambda each=each: described(broker, each) == 0, f"{each.resource_name} has no ACLs again")


def filter_of(each: Rule) -> DeleteAclsRequest.DeleteAclsFilter:
    """The filter that matches this ACL alone."""
    return DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=each.resource_type,
        resource_name_filter=each.resource_name,
        pattern_type_filter=each.resource_pattern_type,
        principal_filter=each.principal,
        host_filter=each.host,
        operation=each.operation,
        permission_type=each.permission_type,
    )


def described(broker: Broker, each: Rule) -> int:
    """The number of ACLs that DescribeAcls returns for this one: 1 where it exists, else 0."""
    wanted = filter_of(each)
    fields = {field.name: getattr(wanted, field.name) for field in wanted.FIELDS}
    answer = broker.call(DescribeAclsRequest(**fields))
    if answer.error_code != ErrorCode.NONE:
        raise Failed(f"DescribeAcls was answered with {error_name(answer.error_code)}")
    return sum(len(resource.acls) for resource in answer.resources)


@dataclass(slots=True)
class Things:
    """A topic, a group and a transactional id that nothing else uses, and the addresses that serve them."""

    broker: Broker
    topic: Topic
    group: str
    id: str
    group_at: tuple[str, int]
    id_at: tuple[str, int]
    leader: tuple[str, int]

    @staticmethod
    def new(broker: Broker) -> Things:
        topic, group, id = broker.topic(), broker.unused_name("group"), broker.unused_name("txn")
        return Things(
            broker,
            topic,
            group,
            id,
            broker.coordinator(group, GROUP_COORDINATOR),
            broker.coordinator(id, TRANSACTION_COORDINATOR),
            broker.leader(topic),
        )

    def name_of(self, resource: ResourceType) -> str:
        """The resource name that an ACL for this resource type must carry."""
        return {
            ResourceType.TOPIC: self.topic.name,
            ResourceType.GROUP: self.group,
            ResourceType.TRANSACTIONAL_ID: self.id,
            ResourceType.CLUSTER: CLUSTER_NAME,
        }[resource]


def expect_refused(broker: Broker, ask: Callable[[], Any], code: ErrorCode) -> None:
    """Repeat a request until it is refused with `code`: a controller may learn of an ACL a moment after the broker does."""
    seen: set[int] = set()

    def refused() -> bool:
        seen.add(error_of(ask()))
        return code in seen

    try:
        broker.eventually(refused, f"{code.name}", within_s=5.0)
    except Failed:
        raise
    except Exception as late:
        raise Failed(f"answered with {', '.join(map(error_name, sorted(seen)))}, and not with {code.name}") from late
