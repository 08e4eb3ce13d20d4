"""ACL: matching of ACLs, refused requests that must have no effect, and the APIs of ACLs themselves."""

from collections.abc import Callable
from typing import Any

from conformance.access_rules import (
    ALL,
    ALLOW,
    CLUSTER,
    DENY,
    READ,
    REFUSED,
    SINCE,
    TOPIC,
    TRANSACTION_COORDINATOR,
    WRITE,
    Rule,
    Things,
    but,
    described,
    expect_refused,
    filter_of,
    rule,
    rules,
)
from conformance.answers import AnswerParts, only
from conformance.batches import batch
from conformance.broker import Broker
from conformance.requirement import requirement
from conformance.requirements.access_control import describe_configs, fetch, list_offsets, produce
from conformance.transaction_client import CLASSIC, TransactionalClient
from linearizability.client.errors import error_of
from linearizability.client.requests import Topic, fetch_request, new_topic, produce_request
from reference.protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_acls import CreateAclsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_acls import DeleteAclsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.describe_acls import DescribeAclsRequest
from reference.protocol.messages.init_producer_id import InitProducerIdRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.primitives import NO_UUID

AUTHORIZER = "StandardAuthorizerData.findAclRule; documentation, Authorization and ACLs"


def expect_both(broker: Broker, refused: Any, allowed: Any) -> None:
    """Expect that the first request is refused and the second is not."""
    expect_refused(broker, refused, REFUSED)
    broker.expect_equal("the error of the allowed request", error_of(allowed()), ErrorCode.NONE)


# ---- which ACLs match


@requirement(
    "ACL-50",
    notices="security: an ACL for a team's prefix protects none of its topics, or those of other teams",
    source=f"KIP-290; {AUTHORIZER}",
    sentence="A prefixed ACL counts for the names that begin with its own, a literal one for its own name alone.",
    accepted="TOPIC_AUTHORIZATION_FAILED for the name and longer ones by the prefix; for the name alone by the literal",
    **SINCE,
)
def prefixes(broker: Broker) -> None:
    things = Things.new(broker)
    longer, other = broker.topic(name=f"{things.topic.name}-longer"), broker.topic()
    for pattern, code in ((PatternType.PREFIXED, REFUSED), (PatternType.LITERAL, ErrorCode.NONE)):
        wanted = [
            rule(ALLOW, ALL, TOPIC, things.topic.name, pattern=pattern),
            rule(DENY, WRITE, TOPIC, things.topic.name, pattern=pattern),
        ]
        with rules(broker, wanted):
            expect_both(broker, lambda: produce(things), lambda: produce_to(broker, other))
            broker.expect_equal(
                f"{pattern.name} ACLs, the error of Produce to a longer name",
                error_of(produce_to(broker, longer)),
                code,
            )


def produce_to(broker: Broker, topic: Topic) -> Any:
    request = produce_request({(topic, 0): batch(b"x")}, acks=1)
    return broker.call(request, to=broker.leader(topic))


@requirement(
    "ACL-51",
    notices="security: a client that an ACL denies gets access because another ACL was added later, or earlier",
    source=AUTHORIZER,
    sentence="An ACL that denies decides before those that allow, in whichever order they were created.",
    accepted="TOPIC_AUTHORIZATION_FAILED in both orders, also where the denial is by a prefix and the allowance literal",
    **SINCE,
)
def denials_first(broker: Broker) -> None:
    for order in (1, -1):
        things = Things.new(broker)
        name = things.topic.name
        literal = [rule(ALLOW, WRITE, TOPIC, name), rule(DENY, WRITE, TOPIC, name)][::order]
        by_prefix = [rule(ALLOW, ALL, TOPIC, name), rule(DENY, ALL, TOPIC, name[:-2], pattern=PatternType.PREFIXED)]
        for first, second in (literal, by_prefix[::order]):
            with rules(broker, [first]), rules(broker, [second]):
                expect_refused(broker, lambda things=things: produce(things), REFUSED)


@requirement(
    "ACL-52",
    notices="security: a consumer's ACL lets it write, or a producer's ACL does not let it find its topic",
    source="StandardAuthorizerData.IMPLIES_DESCRIBE; documentation, Authorization and ACLs",
    sentence="An ACL that allows READ allows DESCRIBE too, and nothing else; one that denies READ denies nothing else.",
    accepted="with READ alone: ListOffsets and Fetch, no Produce; with READ denied: ListOffsets, no Fetch",
    **SINCE,
)
def implied_describe(broker: Broker) -> None:
    things = Things.new(broker)
    with rules(broker, [rule(ALLOW, READ, TOPIC, things.topic.name)]):
        expect_both(broker, lambda: produce(things), lambda: list_offsets(things))
        broker.expect_equal("the error of Fetch", error_of(fetch(things)), ErrorCode.NONE)
    with rules(broker, but(READ, TOPIC, things.topic.name)):
        expect_both(broker, lambda: fetch(things), lambda: list_offsets(things))


@requirement(
    "ACL-53",
    notices="tool: kafka-configs cannot show what it may change, or changes with an ACL for showing",
    source="StandardAuthorizerData.IMPLIES_DESCRIBE_CONFIGS",
    sentence="An ACL that allows ALTER_CONFIGS allows DESCRIBE_CONFIGS too, and not DESCRIBE.",
    accepted="DescribeConfigs is answered, ListOffsets is refused",
    **SINCE,
)
def implied_describe_configs(broker: Broker) -> None:
    things = Things.new(broker)
    with rules(broker, [rule(ALLOW, Operation.ALTER_CONFIGS, TOPIC, things.topic.name)]):
        expect_both(broker, lambda: list_offsets(things), lambda: describe_configs(things))


@requirement(
    "ACL-54",
    notices="security: an ACL for one host counts for clients of all, or one for all hosts for none",
    source=AUTHORIZER,
    sentence="An ACL counts for clients of its host alone.",
    accepted="no refusal by a denial for another host; a refusal where another host alone is allowed",
    **SINCE,
)
def hosts(broker: Broker) -> None:
    things = Things.new(broker)
    other_host, name = "192.0.2.1", things.topic.name
    allowing = [rule(ALLOW, ALL, TOPIC, name), rule(DENY, WRITE, TOPIC, name, host=other_host)]
    with rules(broker, allowing):
        broker.expect_equal(
            "the error of Produce with a denial for another host", error_of(produce(things)), ErrorCode.NONE
        )
    with rules(broker, [rule(ALLOW, ALL, TOPIC, name, host=other_host)]):
        expect_refused(broker, lambda: produce(things), REFUSED)


@requirement(
    "ACL-55",
    notices="security: everyone may do what an ACL allows one user to do",
    source=AUTHORIZER,
    sentence="A resource with an ACL is closed to each client that no ACL allows, whatever is allowed without ACLs.",
    accepted="TOPIC_AUTHORIZATION_FAILED where the one ACL allows another user",
    **SINCE,
)
def other_users(broker: Broker) -> None:
    things = Things.new(broker)
    with rules(broker, [rule(ALLOW, ALL, TOPIC, things.topic.name, principal="User:another-user")]):
        expect_refused(broker, lambda: produce(things), REFUSED)


# ---- a refused request has no effect, and does not affect other topics of its request


@requirement(
    "ACL-56",
    notices="security: a producer writes to a topic that an ACL closes, or cannot write to the others of its request",
    source="KafkaApis.handleProduceRequest",
    sentence="Produce to a topic that is denied writes nothing there, and is carried out for the other topics of the request.",
    accepted="TOPIC_AUTHORIZATION_FAILED and an unchanged log end for the one, success for the other",
    **SINCE,
)
def refused_topic_of_two(broker: Broker) -> None:
    one, other = broker.topic(), broker.topic()
    with rules(broker, but(WRITE, TOPIC, one.name)):
        request = produce_request({(one, 0): batch(b"x"), (other, 0): batch(b"y")}, acks=-1)
        answer = broker.call(request, to=broker.leader(one))
        broker.expect_equal(
            "the errors of Produce",
            sorted(each.error_code for topic in answer.responses for each in topic.partition_responses),
            [ErrorCode.NONE, REFUSED],
        )
        broker.expect_equal("the log end of the denied topic", broker.end_offset(one), 0)
        broker.expect_equal("the log end of the other", broker.end_offset(other), 1)


@requirement(
    "ACL-57",
    notices="data: a producer with acks=0 goes on for ever writing to a topic that takes nothing from it",
    source="KafkaApis.handleProduceRequest, sendResponseCallback",
    sentence="A produce with acks=0 that is refused closes its connection, and writes nothing.",
    accepted="the connection is closed and the log end is unchanged",
    **SINCE,
)
def refused_without_acks(broker: Broker) -> None:
    topic = broker.topic()
    with rules(broker, but(WRITE, TOPIC, topic.name)):
        connection = broker.connect(broker.leader(topic))
        connection.send(produce_request({(topic, 0): batch(b"x")}, acks=0), broker.version_for(produce_request({})))
        broker.expect_closed(connection)
        broker.expect_equal("the log end", broker.end_offset(topic), 0)


@requirement(
    "ACL-58",
    notices="security: a consumer reads in one fetch with others a topic that an ACL closes to it",
    source="KafkaApis.handleFetchRequest",
    sentence="A fetch of a denied topic has no records, and those of the other topics of the request.",
    accepted="TOPIC_AUTHORIZATION_FAILED without records for the one, records of the other",
    **SINCE,
)
def fetch_of_two(broker: Broker) -> None:
    one, other = broker.topic(), broker.topic()
    for topic in (one, other):
        broker.append(topic, batch(b"x"))
    with rules(broker, but(READ, TOPIC, one.name)):
        request = fetch_request({(one, 0): 0, (other, 0): 0}, max_wait_ms=500, min_bytes=1)
        answer = broker.call(request, to=broker.leader(one))
        found = {topic.topic or topic.topic_id: only(topic.partitions, "partition") for topic in answer.responses}
        parts = [AnswerParts(found)[each.name if each.name in found else each.id] for each in (one, other)]
        broker.expect_equal("the errors of Fetch", [part.error_code for part in parts], [REFUSED, ErrorCode.NONE])
        broker.expect_equal("bytes of the denied topic", len(bytes(parts[0].records or b"")), 0)
        broker.expect(len(bytes(parts[1].records or b"")) > 0, "the other topic's records are there")


@requirement(
    "ACL-59",
    notices="client: a producer believes partitions to be in its transaction that are not",
    source="KafkaApis.handleAddPartitionsToTxnRequest",
    sentence="Where one topic of AddPartitionsToTxn is denied, none is added: the others get OPERATION_NOT_ATTEMPTED.",
    accepted="TOPIC_AUTHORIZATION_FAILED for the one, OPERATION_NOT_ATTEMPTED for the other; DescribeTransactions, where it is "
    "advertised, shows no partition",
    apis={"AddPartitionsToTxn": 0, "InitProducerId": 0},
    **SINCE,
)
def none_added(broker: Broker) -> None:
    topic, other = broker.topic(), broker.topic()
    client = TransactionalClient(broker, CLASSIC)
    broker.entrance = broker.coordinator(client.name, TRANSACTION_COORDINATOR)  # it must know the ACLs
    with rules(broker, but(WRITE, TOPIC, topic.name)):
        found = client.add_all({each.name: [0] for each in (topic, other)})
    wanted = {(topic.name, 0): REFUSED, (other.name, 0): ErrorCode.OPERATION_NOT_ATTEMPTED}
    broker.expect_equal("the errors of AddPartitionsToTxn", found, wanted)
    if client.is_described:
        broker.expect_equal("the partitions described", list(client.described().topics), [])


# ---- operations that an ACL of the cluster allows, too


@requirement(
    "ACL-68",
    notices="security: a client creates or deletes topics that an ACL keeps it from",
    source="ControllerApis.createTopics, deleteTopics",
    sentence="CreateTopics and DeleteTopics need CREATE and DELETE, of the cluster or of the topic.",
    accepted="TOPIC_AUTHORIZATION_FAILED without either; with one of them, whichever it is, none; a denied topic stays",
    exclusive=True,
    **SINCE,
)
def topics_by_cluster_or_name(broker: Broker) -> None:
    broker.needs_deletion()
    topic, spare, name = broker.topic(), broker.topic(), broker.unused_name()
    wanted = [rule(ALLOW, ALL, CLUSTER, CLUSTER_NAME)]
    wanted += [rule(DENY, each, CLUSTER, CLUSTER_NAME) for each in (Operation.CREATE, Operation.DELETE)]

    def create() -> Any:
        return broker.call(CreateTopicsRequest(topics=[new_topic(name)], timeout_ms=10_000, validate_only=True))

    def delete(topic: Topic, by_id: bool = False) -> Any:
        name, id = (None, topic.id) if by_id else (topic.name, NO_UUID)
        asked = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=id)
        return broker.call(DeleteTopicsRequest(topics=[asked], timeout_ms=10_000))

    denied = [*but(Operation.DELETE, TOPIC, topic.name), *but(Operation.DELETE, TOPIC, spare.name)]
    with rules(broker, [*but(Operation.CREATE, TOPIC, name), *denied]):
        broker.expect_equal("the error of CreateTopics with CREATE of the cluster", error_of(create()), ErrorCode.NONE)
        with rules(broker, wanted):
            expect_refused(broker, create, REFUSED)
            if topic.id == NO_UUID or broker.version_for(DeleteTopicsRequest) < 6:
                broker.skip("needs topic ids")
            for by_id in (True, False):
                broker.expect_error(error_of(delete(topic, by_id)), REFUSED)
        expect_soon(broker, lambda: delete(spare), "DeleteTopics with DELETE of the cluster")
    broker.expect_equal(
        "the error of Metadata for the denied topic", error_of(broker.metadata([named(topic)])), ErrorCode.NONE
    )
    allowed = [rule(ALLOW, each, TOPIC, name) for each in (Operation.CREATE, Operation.DESCRIBE_CONFIGS)]
    allowed.append(rule(ALLOW, Operation.DELETE, TOPIC, topic.name))
    with rules(broker, [*wanted, *allowed]):
        expect_soon(broker, create, "CreateTopics with CREATE of the topic")
        expect_soon(broker, lambda: delete(topic), "DeleteTopics with DELETE of the topic")


def expect_soon(broker: Broker, ask: Callable[[], Any], what: str) -> None:
    """Repeat a request until it succeeds: a controller may learn of an ACL a moment after the broker does."""
    broker.eventually(lambda: error_of(ask()) == ErrorCode.NONE, f"{what} is allowed")


def named(topic: Topic) -> MetadataRequest.MetadataRequestTopic:
    return MetadataRequest.MetadataRequestTopic(name=topic.name)


@requirement(
    "ACL-69",
    notices="security: a client without any right to write gets producer ids, which run out",
    source="KIP-679; KafkaApis.handleInitProducerIdRequest; Authorizer.authorizeByResourceType",
    sentence="InitProducerId without a transactional id needs WRITE of some topic, or IDEMPOTENT_WRITE of the cluster.",
    accepted="CLUSTER_AUTHORIZATION_FAILED without either; a producer id with one of them",
    exclusive=True,
    **SINCE,
)
def idempotent_producers(broker: Broker) -> None:
    def error() -> int:
        return error_of(init())

    def init() -> Any:
        return broker.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))

    everywhere = [rule(ALLOW, ALL, TOPIC, "*"), rule(DENY, WRITE, TOPIC, "*")]
    with rules(broker, everywhere):
        broker.expect_equal("the error of InitProducerId with IDEMPOTENT_WRITE of the cluster", error(), ErrorCode.NONE)
        with rules(broker, but(Operation.IDEMPOTENT_WRITE, CLUSTER)):
            expect_refused(broker, init, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with rules(broker, but(Operation.IDEMPOTENT_WRITE, CLUSTER)):
        broker.eventually(lambda: error() == ErrorCode.NONE, "with WRITE of topics there are producer ids")


# ---- the APIs of ACLs themselves


@requirement(
    "ACL-70",
    notices="operator: an ACL is taken that protects nothing, and its author does not learn of it",
    source="AclControlManager.validateNewAcl; AclApis.handleCreateAcls",
    sentence="CreateAcls refuses ACLs that cannot be, each by itself, and makes the others; the same one twice is one.",
    accepted="INVALID_REQUEST for an empty name and another cluster; one ACL that is described and removed",
    **SINCE,
)
def wrong_acls(broker: Broker) -> None:
    name = broker.unused_name()
    good = rule(ALLOW, READ, TOPIC, name)
    wrong = [
        rule(ALLOW, READ, TOPIC, ""),
        rule(ALLOW, READ, CLUSTER, "another"),
    ]
    answer = broker.call(CreateAclsRequest(creations=[good, *wrong, good]))
    codes = [result.error_code for result in answer.results]
    broker.expect_equal("the errors of CreateAcls", codes, [0, *[ErrorCode.INVALID_REQUEST] * len(wrong), 0])
    broker.eventually(lambda: described(broker, good) == 1, "the ACL is there, once")
    removed = only(broker.call(DeleteAclsRequest(filters=[filter_of(good)])).filter_results, "result")
    broker.expect_equal("the number of removed ACLs", len(removed.matching_acls), 1)
    broker.eventually(lambda: described(broker, good) == 0, "the ACL is gone")


@requirement(
    "ACL-71",
    notices="operator: kafka-acls shows or removes other ACLs than those that were asked for",
    source="KIP-290; ResourcePatternFilter",
    sentence="A filter LITERAL or PREFIXED finds these patterns of the name, ANY both, MATCH all that apply to the name.",
    accepted="of a literal, a prefixed and a shorter prefixed ACL: 1 by LITERAL, 1 by PREFIXED, 2 by ANY, 3 by MATCH",
    **SINCE,
)
def filters(broker: Broker) -> None:
    name = broker.unused_name()
    exact = rule(ALLOW, READ, TOPIC, name)
    prefixed = rule(ALLOW, READ, TOPIC, name, pattern=PatternType.PREFIXED)
    shorter = rule(ALLOW, READ, TOPIC, name[:-1], pattern=PatternType.PREFIXED)
    wider = [exact, prefixed, shorter]
    counts = {PatternType.LITERAL: 1, PatternType.PREFIXED: 1, PatternType.ANY: 2, PatternType.MATCH: 3}
    with rules(broker, wider):
        for pattern, count in counts.items():
            broker.expect_equal(f"ACLs by {pattern.name}", found_by(broker, exact, pattern), count)


def found_by(broker: Broker, like: Rule, pattern: PatternType) -> int:
    request = DescribeAclsRequest(
        resource_type_filter=like.resource_type,
        resource_name_filter=like.resource_name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    return sum(len(resource.acls) for resource in broker.call(request).resources)


@requirement(
    "ACL-72",
    notices="security: after a restart everyone may do what an ACL denied",
    source="KIP-801: ACLs are records of the metadata log",
    sentence="ACLs hold after a restart of the broker as before.",
    accepted="TOPIC_AUTHORIZATION_FAILED after the restart",
    hooks=("restart",),
    exclusive=True,
    deadline_s=60.0,
    **SINCE,
)
def after_a_restart(broker: Broker) -> None:
    things = Things.new(broker)
    with rules(broker, but(WRITE, TOPIC, things.topic.name)):
        expect_refused(broker, lambda: produce(things), REFUSED)
        broker.restart_leader(things.topic)
        expect_refused(broker, lambda: produce(things), REFUSED)
        broker.expect_equal("the log end", broker.end_offset(things.topic), 0)
