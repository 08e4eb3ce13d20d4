"""ACL: further operations that an ACL for one operation allows or denies, and how long the ACLs of a name are kept."""

from __future__ import annotations

from typing import Any

from conformance.access_rules import (
    ALL,
    ALLOW,
    DENY,
    DESCRIBE,
    GROUP,
    READ,
    REFUSED,
    SINCE,
    TOPIC,
    WRITE,
    Things,
    but,
    expect_refused,
    rule,
    rules,
)
from conformance.answers import only
from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.requirements.access_control import (
    commit,
    delete_groups,
    describe_configs,
    describe_transactions,
    fetch,
    fetch_offsets,
    init,
    list_offsets,
    produce,
)
from conformance.requirements.access_rules import named, produce_to
from linearizability.client.errors import error_of
from linearizability.client.requests import Topic
from reference.protocol.acls import Operation, PatternType, ResourceType
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_topics import DeleteTopicsRequest

AUTHORIZER = "StandardAuthorizerData.findResult; documentation, Authorization and ACLs"
ID = ResourceType.TRANSACTIONAL_ID


def expect_allowed(broker: Broker, answer: Any, what: str) -> None:
    broker.expect_equal(what, error_of(answer), ErrorCode.NONE)


@requirement(
    "ACL-80",
    notices="client: a producer or an administrator has the ACLs that Kafka asks for, and cannot find its topic",
    source="StandardAuthorizerData.IMPLIES_DESCRIBE; documentation, Authorization and ACLs",
    sentence="ACLs that allow WRITE, DELETE or ALTER of a topic allow DESCRIBE of it too, and not READ; one that allows CREATE "
    "does not.",
    accepted="ListOffsets with each of the three, Fetch with none; TOPIC_AUTHORIZATION_FAILED for ListOffsets with CREATE",
    **SINCE,
)
def implied_by_others(broker: Broker) -> None:
    things = Things.new(broker)
    for operation in (WRITE, Operation.DELETE, Operation.ALTER):
        with broker.case(operation.name), rules(broker, [rule(ALLOW, operation, TOPIC, things.topic.name)]):
            expect_refused(broker, lambda: fetch(things), REFUSED)
            expect_allowed(broker, list_offsets(things), "ListOffsets")
    with broker.case("CREATE"), rules(broker, [rule(ALLOW, Operation.CREATE, TOPIC, things.topic.name)]):
        expect_refused(broker, lambda: list_offsets(things), REFUSED)


@requirement(
    "ACL-81",
    notices="security: who may read or describe a topic learns its configuration",
    source="StandardAuthorizerData.IMPLIES_DESCRIBE_CONFIGS",
    sentence="ACLs that allow READ, WRITE or DESCRIBE of a topic do not allow DESCRIBE_CONFIGS of it.",
    accepted="TOPIC_AUTHORIZATION_FAILED for DescribeConfigs, ListOffsets without error",
    **SINCE,
)
def configs_are_not_implied(broker: Broker) -> None:
    things = Things.new(broker)
    for operation in (READ, WRITE, DESCRIBE):
        with broker.case(operation.name), rules(broker, [rule(ALLOW, operation, TOPIC, things.topic.name)]):
            expect_refused(broker, lambda: describe_configs(things), REFUSED)
            expect_allowed(broker, list_offsets(things), "ListOffsets")


@requirement(
    "ACL-82",
    notices="client: a consumer is refused records that its ACLs let it read",
    source="StandardAuthorizerData.IMPLIES_DESCRIBE",
    sentence="An ACL that denies DESCRIBE of a topic denies neither READ nor WRITE of it.",
    accepted="TOPIC_AUTHORIZATION_FAILED for ListOffsets; Fetch and Produce without error",
    **SINCE,
)
def denied_describe(broker: Broker) -> None:
    things = Things.new(broker)
    with rules(broker, but(DESCRIBE, TOPIC, things.topic.name)):
        expect_refused(broker, lambda: list_offsets(things), REFUSED)
        expect_allowed(broker, fetch(things), "Fetch")
        expect_allowed(broker, produce(things), "Produce")


@requirement(
    "ACL-83",
    notices="security: a client that an ACL denies everything goes on reading or writing",
    source=AUTHORIZER,
    sentence="An ACL that denies ALL denies every operation, whatever other ACLs allow one by one.",
    accepted="TOPIC_AUTHORIZATION_FAILED for Produce, Fetch, ListOffsets and DescribeConfigs",
    **SINCE,
)
def denied_all(broker: Broker) -> None:
    things = Things.new(broker)
    name = things.topic.name
    allowed = [rule(ALLOW, each, TOPIC, name) for each in (READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS)]
    with rules(broker, allowed):
        for ask in (produce, fetch, list_offsets, describe_configs):
            expect_allowed(broker, ask(things), ask.__name__)
        with rules(broker, [rule(DENY, ALL, TOPIC, name)]):
            for ask in (produce, fetch, list_offsets, describe_configs):
                with broker.case(ask.__name__):
                    expect_refused(broker, lambda ask=ask: ask(things), REFUSED)


@requirement(
    "ACL-84",
    notices="security: a client that may look at a group moves its offsets, or one that consumes cannot read its own",
    source="StandardAuthorizerData.IMPLIES_DESCRIBE; KafkaApis.handleOffsetCommitRequest",
    sentence="An ACL that allows READ of a group allows DESCRIBE of it, and not DELETE; one that allows DESCRIBE does not allow "
    "READ.",
    accepted="with READ: commits and their offsets, no deletion; with DESCRIBE: offsets, no commit",
    **SINCE,
)
def operations_of_groups(broker: Broker) -> None:
    things = Things.new(broker)
    with rules(broker, [rule(ALLOW, READ, GROUP, things.group)]):
        expect_refused(broker, lambda: delete_groups(things), ErrorCode.GROUP_AUTHORIZATION_FAILED)
        expect_allowed(broker, commit(things), "OffsetCommit")
        expect_allowed(broker, fetch_offsets(things), "OffsetFetch")
    with rules(broker, [rule(ALLOW, DESCRIBE, GROUP, things.group)]):
        expect_refused(broker, lambda: commit(things), ErrorCode.GROUP_AUTHORIZATION_FAILED)
        expect_allowed(broker, fetch_offsets(things), "OffsetFetch")


@requirement(
    "ACL-85",
    notices="security: a client that may look at a transactional id fences its producer",
    source="StandardAuthorizerData.IMPLIES_DESCRIBE; KafkaApis.handleInitProducerIdRequest",
    sentence="An ACL that allows WRITE of a transactional id allows DESCRIBE of it; one that allows DESCRIBE does not allow "
    "WRITE.",
    accepted="with WRITE: InitProducerId and DescribeTransactions; with DESCRIBE: the latter alone",
    apis={"DescribeTransactions": 0},
    **SINCE,
)
def operations_of_ids(broker: Broker) -> None:
    things = Things.new(broker)
    with rules(broker, [rule(ALLOW, WRITE, ID, things.id)]):
        broker.eventually(lambda: error_of(init(things)) == ErrorCode.NONE, "with WRITE there is a producer id")
        expect_allowed(broker, describe_transactions(things), "DescribeTransactions")
    with rules(broker, [rule(ALLOW, DESCRIBE, ID, things.id)]):
        expect_refused(broker, lambda: init(things), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        expect_allowed(broker, describe_transactions(things), "DescribeTransactions")


@requirement(
    "ACL-86",
    notices="security: a topic that is closed by name is open to all that an ACL for its prefix allows",
    source=f"KIP-290; {AUTHORIZER}",
    sentence="An ACL that denies a name decides before those that allow by a prefix; names of the prefix beside it stay allowed.",
    accepted="TOPIC_AUTHORIZATION_FAILED for the name, error NONE(0) for a longer one",
    **SINCE,
)
def denied_within_a_prefix(broker: Broker) -> None:
    things = Things.new(broker)
    name = things.topic.name
    longer = broker.topic(name=f"{name}-longer")
    with rules(
        broker, [rule(ALLOW, ALL, TOPIC, name[:-1], pattern=PatternType.PREFIXED), rule(DENY, WRITE, TOPIC, name)]
    ):
        expect_refused(broker, lambda: produce(things), REFUSED)
        expect_allowed(broker, produce_to(broker, longer), "Produce to a longer name")


@requirement(
    "ACL-87",
    notices="security: an ACL for all topics protects none of them",
    source=f"{AUTHORIZER}; ResourcePattern.WILDCARD_RESOURCE",
    sentence="A literal ACL for `*` counts for every name, also for those that have ACLs of their own.",
    accepted="TOPIC_AUTHORIZATION_FAILED by a denial for `*`, with and without an ACL that allows the name",
    exclusive=True,
    **SINCE,
)
def wildcards(broker: Broker) -> None:
    things = Things.new(broker)
    with rules(broker, but(WRITE, TOPIC, "*")):
        expect_refused(broker, lambda: produce(things), REFUSED)
        expect_allowed(broker, fetch(things), "Fetch")
        with rules(broker, [rule(ALLOW, WRITE, TOPIC, things.topic.name)]):
            broker.expect_equal(
                "the error of Produce with an ACL that allows the name", error_of(produce(things)), REFUSED
            )


@requirement(
    "ACL-88",
    notices="security: who deletes and creates a topic again is rid of the ACLs that closed it",
    source="KIP-11: ACLs are of names",
    sentence="ACLs of a topic's name hold before the topic exists, and for one that is created after it was deleted.",
    accepted="TOPIC_AUTHORIZATION_FAILED for a topic that is created after the ACL, and again for the next of its name",
    exclusive=True,
    **SINCE,
)
def names_keep_acls(broker: Broker) -> None:
    name = broker.unused_name()
    with rules(broker, but(WRITE, TOPIC, name)):
        for _ in range(2):
            topic = broker.topic(name=name)
            broker.expect_equal("the error of Produce", error_of(produce_to(broker, topic)), REFUSED)
            broker.expect_equal("the log end", broker.end_offset(topic), 0)
            delete(broker, topic)


def delete(broker: Broker, topic: Topic) -> None:
    broker.needs_deletion()
    version = min(5, broker.version_for(DeleteTopicsRequest))
    answer = broker.call(DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=10_000), version)
    broker.expect_error(only(answer.responses, "topic").error_code, ErrorCode.NONE, what="DeleteTopics")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.eventually(lambda: error_of(broker.metadata([named(topic)])) == unknown, "the topic is gone")
