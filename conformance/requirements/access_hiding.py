"""ACL: responses leave out resources that the client may not see."""

from typing import Any

from conformance.access_rules import (
    ALLOW,
    CLUSTER,
    DESCRIBE,
    GROUP,
    MASK,
    READ,
    REFUSED,
    SINCE,
    TOPIC,
    WRITE,
    but,
    rule,
    rules,
)
from conformance.answers import only
from conformance.broker import Broker
from conformance.committed_offsets import committed, expect_committed
from conformance.requirement import requirement
from conformance.transaction_client import CLASSIC, TransactionalClient
from linearizability.client.requests import new_topic
from reference.protocol.acls import Operation, ResourceType
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from reference.protocol.messages.describe_transactions import DescribeTransactionsRequest
from reference.protocol.messages.list_groups import ListGroupsRequest
from reference.protocol.messages.list_transactions import ListTransactionsRequest
from reference.protocol.messages.metadata import MetadataRequest

OF_TOPICS = frozenset(
    {
        READ,
        WRITE,
        DESCRIBE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    }
)
"""The operations on topics (AclEntry.supportedOperations)."""

# ---- what is hidden


@requirement(
    "ACL-60",
    notices="security: a client learns of topics that an ACL hides from it",
    source=MASK,
    sentence="Metadata of all topics has no topic that the client may not describe.",
    accepted="another topic is there, the denied one is not",
    **SINCE,
)
def hidden_topics(broker: Broker) -> None:
    one, other = broker.topic(), broker.topic()
    with rules(broker, but(DESCRIBE, TOPIC, one.name)):
        names = {topic.name for topic in broker.metadata(None).topics}
    broker.expect_equal("the topics listed, of the two", names & {one.name, other.name}, {other.name})


@requirement(
    "ACL-61",
    notices="security: a client learns by an id the name of a topic that an ACL hides from it",
    source=MASK,
    sentence="Metadata by the id of a topic that may not be described has the error and the id, and no name.",
    accepted="TOPIC_AUTHORIZATION_FAILED, a null name, no partitions",
    apis={"Metadata": 12},
    **SINCE,
)
def hidden_name(broker: Broker) -> None:
    topic = broker.topic()
    id = broker.id_of(topic)
    with rules(broker, but(DESCRIBE, TOPIC, topic.name)):
        for name in (None, ""):  # Java sends an empty one
            named = MetadataRequest.MetadataRequestTopic(name=name, topic_id=id)
            found = only(broker.metadata([named]).topics, "topic")
            seen = found.error_code, found.name, found.topic_id, found.partitions
            broker.expect_equal("error, name, id, partitions", seen, (REFUSED, None, id, []))


@requirement(
    "ACL-62",
    notices="tool: Java's Admin shows operations that a client may not do",
    source="KIP-430; AuthHelper.authorizedOperations",
    sentence="The authorized operations of a topic are those that its ACLs allow.",
    accepted="with WRITE denied and all else allowed the bits of all seven others; with READ allowed alone those of READ and of "
    "DESCRIBE, which it implies",
    apis={"Metadata": 8},
    **SINCE,
)
def operations_of_topic(broker: Broker) -> None:
    topic = broker.topic()
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic.name)], include_topic_authorized_operations=True
    )
    for wanted, allowed in (
        (but(WRITE, TOPIC, topic.name), OF_TOPICS - {WRITE}),
        ([rule(ALLOW, READ, TOPIC, topic.name)], {READ, DESCRIBE}),
    ):
        with rules(broker, wanted):
            bits = only(broker.call(request).topics, "topic").topic_authorized_operations
        found = {operation.name for operation in OF_TOPICS if bits >> operation & 1}
        broker.expect_equal("the operations whose bits are set", found, {operation.name for operation in allowed})


@requirement(
    "ACL-63",
    notices="security: a client learns by a group's offsets of topics that an ACL hides from it",
    source="KafkaApis.fetchAllOffsetsForGroup",
    sentence="OffsetFetch of all offsets of a group has no topic that the client may not describe.",
    accepted="the other topic's offset is there, the denied one's is not",
    apis={"OffsetFetch": 2},
    **SINCE,
)
def hidden_offsets(broker: Broker) -> None:
    one, other, group = broker.topic(), broker.topic(), broker.unused_name("group")
    expect_committed(broker, group, {(one, 0): 1, (other, 0): 2})
    with rules(broker, but(DESCRIBE, TOPIC, one.name)):
        found = committed(broker, group, None, known=(one, other))
    broker.expect_equal("the topics with an offset", {topic.name for topic, _ in found.partitions}, {other.name})


@requirement(
    "ACL-64",
    notices="security: a client learns of topics that an ACL hides from it",
    source="DescribeTopicPartitionsRequestHandler",
    sentence="DescribeTopicPartitions of all topics has no topic that the client may not describe.",
    accepted="another topic is there, the denied one is not",
    apis={"DescribeTopicPartitions": 0},
    **SINCE,
)
def hidden_pages(broker: Broker) -> None:
    one, other = broker.topic(), broker.topic()
    with rules(broker, but(DESCRIBE, TOPIC, one.name)):
        seen: set[str] = set()
        request = DescribeTopicPartitionsRequest(topics=[])
        for _ in range(100):
            answer = broker.call(request)
            seen |= {topic.name for topic in answer.topics}
            if answer.next_cursor is None:
                break
            place = answer.next_cursor
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=place.topic_name, partition_index=place.partition_index
            )
            request = DescribeTopicPartitionsRequest(topics=[], cursor=cursor)
    broker.expect_equal("the topics listed, of the two", seen & {one.name, other.name}, {other.name})


@requirement(
    "ACL-65",
    notices="security: a client learns of transactional ids and topics that an ACL hides from it",
    source="KafkaApis.handleListTransactionsRequest, handleDescribeTransactionsRequest",
    sentence="ListTransactions leaves out ids that may not be described, DescribeTransactions the topics.",
    accepted="the id is listed without the ACL alone; of two topics the denied one is left out",
    apis={"ListTransactions": 0, "DescribeTransactions": 0},
    **SINCE,
)
def hidden_transactions(broker: Broker) -> None:
    one, other = broker.topic(), broker.topic()
    client = TransactionalClient(broker, CLASSIC)
    for topic in (one, other):
        client.write(topic, b"x")
    at = broker.coordinator(client.name, 1)

    def listed() -> bool:
        states = broker.call(ListTransactionsRequest(), to=at).transaction_states
        return client.name in {state.transactional_id for state in states}

    broker.expect(listed(), "the transaction is listed")
    with rules(broker, but(DESCRIBE, ResourceType.TRANSACTIONAL_ID, client.name)):
        broker.eventually(lambda: not listed(), "the transaction is not listed while an ACL denies it")
    with rules(broker, but(DESCRIBE, TOPIC, one.name)):
        answer = broker.call(DescribeTransactionsRequest(transactional_ids=[client.name]), to=at)
        state = only(answer.transaction_states, "transaction")
        broker.expect_equal("the topics of the transaction", {topic.topic for topic in state.topics}, {other.name})
    client.finish(committed=False)


@requirement(
    "ACL-66",
    notices="security: a client learns of groups that an ACL hides from it",
    source="KafkaApis.handleListGroupsRequest",
    sentence="Without DESCRIBE of the cluster, ListGroups has no group that the client may not describe.",
    accepted="with DESCRIBE of the cluster both groups are listed, without it the denied one is not",
    exclusive=True,
    **SINCE,
)
def hidden_groups(broker: Broker) -> None:
    topic, groups = broker.topic(), [broker.unused_name("group") for _ in range(2)]
    for group in groups:
        expect_committed(broker, group, {(topic, 0): 1})
    places = {broker.coordinator(group) for group in groups}

    def listed() -> set[str]:
        found = {each.group_id for at in places for each in broker.call(ListGroupsRequest(), to=at).groups}
        return found & {*groups}

    with rules(broker, but(DESCRIBE, GROUP, groups[0])):
        broker.expect_equal("the groups listed with DESCRIBE of the cluster", listed(), {*groups})
        with rules(broker, but(DESCRIBE, CLUSTER)):
            broker.eventually(
                lambda: listed() == {groups[1]}, "without DESCRIBE of the cluster the denied group is left out"
            )


@requirement(
    "ACL-67",
    notices="security: a client learns the configuration of a topic that an ACL hides from it",
    source="ControllerApis.createTopics; ReplicationControlManager.createTopic",
    sentence="CreateTopics does not show the configurations of the new topic to a client that may not describe them.",
    accepted="success, TopicConfigErrorCode TOPIC_AUTHORIZATION_FAILED, -1 partitions, no configurations",
    apis={"CreateTopics": 5},
    **SINCE,
)
def hidden_configs(broker: Broker) -> None:
    name = broker.unused_name()
    with rules(broker, but(Operation.DESCRIBE_CONFIGS, TOPIC, name)):
        made: Any = None

        def hidden() -> bool:
            nonlocal made
            request = CreateTopicsRequest(topics=[new_topic(name)], timeout_ms=10_000, validate_only=True)
            made = only(broker.call(request).topics, "topic")
            return made.topic_config_error_code == REFUSED

        broker.eventually(hidden, "TopicConfigErrorCode is TOPIC_AUTHORIZATION_FAILED")
        seen: tuple[Any, ...] = made.error_code, made.num_partitions, made.replication_factor, made.configs or []
        broker.expect_equal("error, partitions, replication factor, configurations", seen, (0, -1, -1, []))
