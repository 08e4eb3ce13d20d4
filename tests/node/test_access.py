"""Every API that this node serves is in the table of needs, and is refused to a stranger on a node with an authorizer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from reference.authorizer.acl import Acl
from reference.authorizer.authorizer import Authorizer
from reference.controller.configs import Configuration
from reference.controller.delegation_tokens import TokenSettings, create_token
from reference.controller.image import MetadataImage
from reference.node.access import ASKED_WITHOUT_AUTHORIZER, Access, authorizer_of
from reference.node.access_steps import STEPS
from reference.node.apis import DECIDED_HANDLERS, broker_handlers, controller_handlers
from reference.node.delegation_tokens import describe_tokens
from reference.node.metadata import describe_topic_partitions
from reference.node.refusals import ITEMS, refused_items
from reference.node.release import BROKER, CONTROLLER, versions_of
from reference.node.requests import Client, Request
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType
from reference.protocol.apis import APIS
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from reference.protocol.messages.delegation_token_record import DelegationTokenRecord
from reference.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from reference.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from reference.protocol.messages.offset_fetch import OffsetFetchRequest
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.needs import NEEDS
from reference.protocol.primitives import NodeId, TimestampMs
from reference.protocol.schema import Message
from tests.node.three_nodes import calls_of

ANYTHING: Any = type("Anything", (), {"__getattr__": lambda self, name: self})()
SERVED = {*broker_handlers(ANYTHING), *controller_handlers(ANYTHING), *DECIDED_HANDLERS}
DESCRIBE_LOG_DIRS, FIRST_DESCRIBE_LOG_DIRS_WITH_ERROR = 35, 3
UNREFUSED = {3, 10, 16, 18, 38, 39, 40, 41, 60, 65, 66, 75}
"""APIs that refuse no client as a whole: they hide or refuse items. The controller checks the owner of a delegation
token, and a token for oneself needs no permission."""


def access(*acls: Acl, properties: Mapping[str, str] | None = None, ready: bool = True) -> Access:
    image = MetadataImage()
    image.apply(TopicRecord(name="t", topic_id=UUID(int=1)))
    for number, acl in enumerate(acls):
        image.acls.add(UUID(int=number), acl)
    given = properties or {}
    authorizer = authorizer_of({"authorizer.class.name": "A", **given}, image.acls)
    found = Access(Configuration(NodeId(1), given, image), authorizer, STEPS, lambda level, text: None)
    found.is_ready = ready
    return found


def request(key: int, version: int, principal: str = "User:stranger") -> Request:
    return Request(Client(1, "127.0.0.1", "SASL_SSL", principal=principal), key, version, 1, "client")


def acl(type_: ResourceType, name: str, operation: Operation, permission: Permission = Permission.ALLOW) -> Acl:
    return Acl(type_, name, PatternType.LITERAL, "User:stranger", "*", operation, permission)


def filled(key: int) -> Any:
    """A request of the API with one item in each array and no topic id."""
    return _filled(APIS[key].request)


def _filled(table: type[Message]) -> Any:
    values: dict[str, Any] = {}
    for field in table.FIELDS:
        if field.kind == "array" and isinstance(field.element, type):
            values[field.name] = [_filled(field.element)]
        elif field.kind == "array":
            values[field.name] = {"string": ["x"], "int32": [0]}.get(field.element, [])
        elif field.kind == "string":
            values[field.name] = "x"
        elif field.name == "resource_type":
            values[field.name] = 2
    return table(**values)


def test_every_served_api_has_a_row() -> None:
    assert set(NEEDS) >= SERVED


@pytest.mark.parametrize("key", sorted(SERVED - UNREFUSED - {1}))
def test_a_stranger_is_refused_in_every_version(key: int) -> None:
    lowest, highest = versions_of(key)
    for version in range(lowest, highest + 1):
        admission = access().admit(request(key, version), filled(key))
        assert admission.refusal is not None, f"version {version}"
        encoded = encode(admission.refusal, version)
        has_no_error = key == DESCRIBE_LOG_DIRS and version < FIRST_DESCRIBE_LOG_DIRS_WITH_ERROR
        assert has_no_error or any(code.to_bytes(2, "big") in bytes(encoded) for code in (29, 30, 31, 53)), version


def plain(response: Message) -> str:
    """The response without the operations that the client may do, which DescribeTopicPartitions always adds."""
    return re.sub(r"topic_authorized_operations=-?\d+", "", repr(response))


@pytest.mark.parametrize("key", sorted(SERVED))
def test_a_super_user_is_refused_nothing_and_sees_everything(key: int) -> None:
    for kind in (BROKER, CONTROLLER):
        body = filled(key)
        admission = access(properties={"super.users": "User:root"}).admit(
            request(key, versions_of(key)[1], "User:root"), body, kind
        )
        assert admission.refusal is None and admission.body == body
        assert plain(admission.amend(_filled(APIS[key].response))) == plain(_filled(APIS[key].response))


@pytest.mark.parametrize("key", sorted(ITEMS))
def test_the_result_of_each_item_names_it_and_has_the_error(key: int) -> None:
    response: Any = refused_items(key, filled(key), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    (result,) = getattr(response, ITEMS[key][1])
    assert "=29" in repr(result) or "TOPIC_AUTHORIZATION_FAILED" in repr(result)
    assert key in (30, 31) or "'x'" in repr(result)


@pytest.mark.parametrize("key", [1, 52, 53, 54, 58, 59, 60, 62, 63, 70])
def test_on_controllers_a_client_is_refused_as_a_whole(key: int) -> None:
    refused: Any = access().admit(request(key, versions_of(key)[1]), filled(key), CONTROLLER).refusal
    assert refused is not None and refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_before_the_acls_are_replayed_super_users_alone_are_admitted() -> None:
    allowing = {"allow.everyone.if.no.acl.found": "true", "super.users": "User:root; User:other"}
    vote = filled(52)
    for principal, is_refused in (("User:root", False), ("User:other", False), ("User:stranger", True)):
        admission = access(properties=allowing, ready=False).admit(request(52, 2, principal), vote, CONTROLLER)
        assert (admission.refusal is not None) == is_refused
    assert access(properties=allowing).admit(request(52, 2), vote, CONTROLLER).refusal is None


def test_before_the_acls_are_replayed_only_super_users_may_with_any_resource() -> None:
    found = access(properties={"allow.everyone.if.no.acl.found": "true"}, ready=False)
    asked = request(22, 4)
    assert not found.may_with_any(asked, Operation.WRITE, ResourceType.TOPIC)
    found.is_ready = True
    assert found.may_with_any(asked, Operation.WRITE, ResourceType.TOPIC)


def test_items_that_may_be_done_are_done_and_the_others_come_back_refused() -> None:
    topic, partition = OffsetCommitRequest.OffsetCommitRequestTopic, OffsetCommitRequest.OffsetCommitRequestPartition
    body = OffsetCommitRequest(
        group_id="g", topics=[topic(name=name, partitions=[partition(partition_index=4)]) for name in ("t", "u")]
    )
    mine = access(
        acl(ResourceType.GROUP, "g", Operation.READ),
        acl(ResourceType.TOPIC, "t", Operation.READ),
    )
    admission = mine.admit(request(8, 9), body)
    assert admission.refusal is None
    left: Any = admission.body
    assert [each.name for each in left.topics] == ["t"] and [each.name for each in body.topics] == ["t", "u"]
    response = admission.amend(OffsetCommitResponse())
    assert isinstance(response, OffsetCommitResponse)
    (refused,) = response.topics
    assert (refused.name, refused.partitions[0].partition_index) == ("u", 4)
    assert refused.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_all_topics_are_those_that_may_be_described_and_one_more_denial_hides_one() -> None:
    def seen(found: Access) -> set[str | None]:
        admission = found.admit(request(3, 12), MetadataRequest(topics=None))
        topics = [MetadataResponse.MetadataResponseTopic(name=name) for name in ("t", "u")]
        response = admission.amend(MetadataResponse(topics=topics))
        assert isinstance(response, MetadataResponse)
        return {topic.name for topic in response.topics}

    everything = acl(ResourceType.TOPIC, "*", Operation.READ)
    assert seen(access(everything)) == {"t", "u"}
    assert seen(access(everything, acl(ResourceType.TOPIC, "u", Operation.DESCRIBE, Permission.DENY))) == {"t"}
    assert seen(access()) == set()


@pytest.mark.parametrize("asked", [[], ["t"], ["u"]])
def test_a_wrong_cursor_is_refused_before_anything_is_hidden(asked: list[str]) -> None:
    """As in Kafka: not even the names of all topics come back, which the request did not name."""
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in asked]
    cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=-1)
    body = DescribeTopicPartitionsRequest(topics=topics, cursor=cursor)
    for who in (access(), access(acl(ResourceType.TOPIC, "t", Operation.DESCRIBE))):
        admission = who.admit(request(75, 0), body)
        assert admission.refusal is None and admission.body is body and not admission.amendments
    context: Any = SimpleNamespace(image=access().image)
    answered = describe_topic_partitions(context, request(75, 0), body, TimestampMs(1))
    assert answered is not None
    assert [(each.name, each.error_code) for each in answered.topics] == [
        (each, ErrorCode.INVALID_REQUEST) for each in asked
    ]


def test_a_topic_with_an_error_has_no_authorized_operations() -> None:
    wanted = MetadataRequest.MetadataRequestTopic(name="t")
    body = MetadataRequest(topics=[wanted], include_topic_authorized_operations=True)
    admission = access(acl(ResourceType.TOPIC, "*", Operation.READ)).admit(request(3, 10), body)
    answered = MetadataResponse.MetadataResponseTopic
    topics = [answered(name="t", error_code=ErrorCode.INVALID_REQUEST), answered(name="t")]
    response = admission.amend(MetadataResponse(topics=topics))
    assert isinstance(response, MetadataResponse)
    refused, described = (topic.topic_authorized_operations for topic in response.topics)
    assert refused == -(1 << 31) != described


def test_a_fetch_asks_for_each_topic_and_a_followers_for_the_cluster() -> None:
    found = access(acl(ResourceType.TOPIC, "t", Operation.READ))
    asked = request(1, 17)
    assert found.admit(asked, FetchRequest()).refusal is None
    assert found.may_fetch(asked, "t", is_follower=False)
    assert not found.may_fetch(asked, "u", is_follower=False)
    assert not found.may_fetch(asked, "t", is_follower=True)


def test_waiting_fetches_look_again_when_the_acls_have_changed_and_no_oftener() -> None:
    found = access(ready=False)
    woken: list[tuple[str, int]] = []
    quorum: Any = SimpleNamespace(leader=-1, high_watermark=0)
    purgatories: Any = SimpleNamespace(wake_fetches=lambda key, now: woken.append(key))
    found.metadata_applied(quorum, purgatories, {("t", 0)}, TimestampMs(1))
    assert not found.is_ready and not woken
    found.image.acls.add(UUID(int=9), acl(ResourceType.TOPIC, "t", Operation.READ))
    quorum.leader = 1
    for _ in range(2):
        found.metadata_applied(quorum, purgatories, {("t", 0)}, TimestampMs(2))
    assert found.is_ready and woken == [("t", 0)]


def test_refusals_are_logged_and_what_is_merely_hidden_is_not() -> None:
    lines: list[str] = []
    image = MetadataImage()
    image.apply(TopicRecord(name="secret", topic_id=UUID(int=1)))
    found = Access(
        Configuration(NodeId(1), {}, image), Authorizer(image.acls), STEPS, lambda level, text: lines.append(text)
    )
    found.is_ready = True
    found.admit(request(12, 4), filled(12))
    assert lines == [
        "Principal = User:stranger is Denied operation = READ from host = 127.0.0.1 on resource = GROUP:LITERAL:'x' "
        "for request = Heartbeat"
    ]
    found.admit(request(3, 12), MetadataRequest(topics=None)).amend(
        MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="secret")])
    )
    assert len(lines) == 1


def test_no_authorizer_admits_everything() -> None:
    found = access()
    found.authorizer = None
    for key in sorted(SERVED):
        body = filled(key)
        admission = found.admit(request(key, versions_of(key)[1]), body)
        assert admission.body is body and admission.refusal is None and not admission.amendments


def test_the_order_in_which_a_table_is_drawn_does_not_matter() -> None:
    """A denial decides in each order of the table."""
    acls = [
        acl(ResourceType.GROUP, "x", Operation.READ),
        acl(ResourceType.GROUP, "*", Operation.ALL),
        acl(ResourceType.GROUP, "x", Operation.READ, Permission.DENY),
    ]
    chance = Random(1)
    for _ in range(6):
        chance.shuffle(acls)
        assert access(*acls).admit(request(12, 4), filled(12)).refusal is not None


@pytest.mark.parametrize("key", sorted(ASKED_WITHOUT_AUTHORIZER))
@pytest.mark.parametrize(
    "changes", [{"listener": "PLAINTEXT"}, {"listener": "SSL", "principal": "User:ANONYMOUS"}, {"by_token": True}]
)
def test_token_requests_without_authentication_or_by_a_token_are_refused(key: int, changes: dict[str, Any]) -> None:
    asked = request(key, versions_of(key)[1])
    for name, value in changes.items():
        setattr(asked.client, name, value)
    found = access()
    for authorizer in (found.authorizer, None):
        found.authorizer = authorizer
        refusal: Any = found.admit(asked, filled(key)).refusal
        assert refusal.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_token_for_another_needs_create_tokens_on_that_user() -> None:
    body = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    refusal: Any = access().admit(request(38, 3), body).refusal
    assert refusal.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refusal.principal_name, refusal.token_requester_principal_name) == ("bob", "stranger")
    allowed = access(acl(ResourceType.USER, "User:bob", Operation.CREATE_TOKENS))
    assert allowed.admit(request(38, 3), body).refusal is None


def test_responses_about_tokens_are_of_their_version() -> None:
    asked = CreateDelegationTokenRequest()
    for version in range(1, 4):
        plain = request(38, version)
        plain.client.listener = "PLAINTEXT"
        refusal = access().admit(plain, asked).refusal
        assert refusal is not None and encode(refusal, version)
        settings = TokenSettings("secret", 1, 1)
        found = access()
        made = create_token(found.image, settings, "User:a", version, asked, lambda: "id", TimestampMs(1))
        assert encode(made.response, version)
        found.image.carried[DelegationTokenRecord, "id"] = made.records[0]
        context: Any = SimpleNamespace(
            configuration=Configuration(NodeId(1), {"delegation.token.secret.key": "x"}, found.image),
            image=found.image,
            access=found,
        )
        shown = describe_tokens(
            context, request(41, version, "User:a"), DescribeDelegationTokenRequest(owners=None), TimestampMs(1)
        )
        assert len(shown.tokens) == 1 and encode(shown, version)
        assert not describe_tokens(
            context, request(41, version), DescribeDelegationTokenRequest(owners=None), TimestampMs(1)
        ).tokens


NAMED: dict[str, Callable[[list[str]], Message]] = {
    "Metadata": lambda names: MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    ),
    "OffsetFetch": lambda names: OffsetFetchRequest(
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(
                group_id="g", topics=[OffsetFetchRequest.OffsetFetchRequestTopics(name=name) for name in names]
            )
        ]
    ),
    "DescribeTopicPartitions": lambda names: DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    ),
}


@pytest.mark.parametrize("api", NAMED)
def test_a_refused_topic_costs_the_same_in_a_large_request(api: str) -> None:
    """A Metadata request of 180 KB with 8,000 topics that the client may not see stopped a node for 41 seconds."""

    def cost_of(count: int) -> int:
        body = NAMED[api]([f"topic-{number}" for number in range(count)])
        asked = request(body.KEY, versions_of(body.KEY)[1])
        readers = access(acl(ResourceType.GROUP, "g", Operation.READ))
        return calls_of(lambda: readers.admit(asked, body), within="")

    assert cost_of(1_000) <= 11 * cost_of(100)
