"""The area ACL judges each permission in the table of needs, or a row here names the reason why it does not."""

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.access_rules import but, rules
from conformance.judging import AUTHORIZER, missing
from conformance.plan import plan
from conformance.requirement import catalogue, select
from conformance.requirements.access_control import CASES
from conformance.results import Lack
from conformance.subject import Subject
from conformance.wire import Failed
from reference.protocol.acls import Operation, ResourceType
from reference.protocol.apis import APIS
from reference.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from reference.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from reference.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from reference.protocol.needs import NEEDS, ON_CONTROLLERS
from reference.protocol.schema import Versions

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER

WITHOUT_CASE = {
    (19, TOPIC): "ACL-68",
    (20, TOPIC): "ACL-68",
    (23, TOPIC): "not judged: ClusterAction of the cluster does as well, and brokers without authentication need it",
    (32, GROUP): "not judged: configurations of groups came with 3.8",
    (33, GROUP): "not judged: configurations of groups came with 3.8",
    (44, GROUP): "not judged: configurations of groups came with 3.8",
    (38, ResourceType.USER): "SEC-24",
}
"""API key and kind of resource without a case of its own -> where it is judged, or why not."""


def test_every_need_of_a_named_thing_is_judged() -> None:
    cases = {(key, resource) for _, key, resource, _ in CASES}
    named = {(key, need.resource) for key, row in NEEDS.items() for need in row.needs if need.resource is not CLUSTER}
    assert named - cases == set(WITHOUT_CASE)
    assert not cases & set(WITHOUT_CASE)


def test_every_case_is_in_the_table_and_has_a_number_of_its_own() -> None:
    numbers = [number for number, *_ in CASES]
    assert len(set(numbers)) == len(numbers)
    for _, key, resource, _ in CASES:
        assert any(need.resource is resource for need in NEEDS[key].needs)


def test_versions_of_needs_can_be_read() -> None:
    for row in (*NEEDS.values(), *ON_CONTROLLERS.values()):
        for need in (*row.needs, *row.hides):
            assert Versions.parse(need.versions).lowest >= 0
            assert need.error


def test_brokers_of_a_cluster_are_not_started_with_an_authorizer() -> None:
    """Without authentication brokers are the principal that clients are, too."""
    entries = [entry for entry in select(["ACL"]) if AUTHORIZER in entry.requirement.needs.configs]
    for nodes, lacks in ((1, False), (3, True)):
        subject = Subject(bootstrap=[("h", 1)], kafka_version="4.3.1", target=SimpleNamespace(hooks=("restart",)))
        subject.nodes = nodes
        subject.api_versions = {key: api.releases["4.3.1"][:2] for key, api in APIS.items() if "4.3.1" in api.releases}
        found = {missing(entry.requirement, subject)[1] is Lack.NODES for entry in entries}
        assert found == {lacks}


def test_requirements_with_an_authorizer_have_a_start_of_their_own() -> None:
    groups = [group for group in plan(catalogue().values()) if AUTHORIZER in group.configs]
    assert len(groups) == 1
    assert {entry.requirement.area for entry in groups[0].entries} == {"ACL"}


def test_acls_that_were_made_in_part_are_removed() -> None:
    """ACLs that one requirement leaves behind would refuse the requests of others."""
    asked: list[Any] = []

    def call(request: Any) -> Any:
        asked.append(request)
        match request:
            case CreateAclsRequest():
                return CreateAclsResponse(results=[CreateAclsResponse.AclCreationResult()])
            case DescribeAclsRequest():
                return DescribeAclsResponse()
            case _:
                return DeleteAclsResponse()

    broker: Any = SimpleNamespace(call=call, eventually=lambda probe, what: probe())
    wanted = but(Operation.WRITE, ResourceType.TOPIC, "a-topic")
    with pytest.raises(Failed, match="2 ACLs was answered with 1 results"), rules(broker, wanted):
        raise AssertionError("one of the two was not made")
    removals = [request for request in asked if isinstance(request, DeleteAclsRequest)]
    assert [len(request.filters) for request in removals] == [2]
