"""Requests that a broker refuses without another node, as seen of three nodes of Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_configs import AlterConfigsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.messages.produce import ProduceRequest
from reference.protocol.schema import Message
from tests.node.three_nodes import IDS, ThreeNodes, calls_of
from tests.replication.replicas import batch

TOPIC, BROKER, LOGGER = 2, 4, 8


@pytest.fixture(scope="module")
def nodes() -> ThreeNodes:
    started = ThreeNodes()
    started.create("t", 3)
    return started


def altered(replaces: bool, *resources: tuple[int, str, str]) -> Message:
    """A change of one setting of each resource, to 10000."""
    if replaces:
        return AlterConfigsRequest(
            resources=[
                AlterConfigsRequest.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[AlterConfigsRequest.AlterableConfig(name=key, value="10000")],
                )
                for kind, name, key in resources
            ]
        )
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[IncrementalAlterConfigsRequest.AlterableConfig(name=key, value="10000")],
            )
            for kind, name, key in resources
        ]
    )


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("asked", IDS)
def test_a_broker_takes_its_own_settings_alone(nodes: ThreeNodes, asked: Any, replaces: bool) -> None:
    other = asked % 3 + 1
    own, others = (BROKER, str(asked), "log.retention.ms"), (BROKER, str(other), "log.retention.ms")
    answer: Any = nodes.call(asked, altered(replaces, others))
    sentence = f"Unexpected broker id, expected {asked}, but received {other}"
    assert [(each.error_code, each.error_message) for each in answer.responses] == [
        (ErrorCode.INVALID_REQUEST, sentence)
    ]
    answer = nodes.call(asked, altered(replaces, (TOPIC, "t", "retention.ms"), others, own))
    codes = {(each.resource_type, each.resource_name): each.error_code for each in answer.responses}
    assert codes == {
        (TOPIC, "t"): ErrorCode.NONE,
        (BROKER, str(asked)): ErrorCode.NONE,
        (BROKER, str(other)): ErrorCode.INVALID_REQUEST,
    }


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (bytes(batch(b"a")), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (bytes(batch(b"a")) * 2, ErrorCode.INVALID_RECORD),
        (bytes(batch(b"a"))[:40], ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
    ],
)
def test_records_that_are_not_one_batch_are_refused_by_each_broker(
    nodes: ThreeNodes, records: bytes, code: ErrorCode
) -> None:
    led = nodes.led(IDS[0], "t")
    index = next(index for index in range(3) if index not in led)
    data = ProduceRequest.PartitionProduceData(index=index, records=records)
    topic = ProduceRequest.TopicProduceData(topic_id=nodes.nodes[IDS[0]].image.topics["t"].id, partition_data=[data])
    answer: Any = nodes.call(IDS[0], ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[topic]))
    (result,) = answer.responses[0].partition_responses
    assert result.error_code == code
    assert (result.current_leader.leader_id >= 0) == (code is ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize("kind", [BROKER, LOGGER])
@pytest.mark.parametrize("name", ["\u00b2", "1" * 5_000, "\u0661", "-1", "one", ""])
def test_what_is_no_number_names_no_broker(nodes: ThreeNodes, kind: int, name: str) -> None:
    answer: Any = nodes.call(IDS[0], altered(False, (kind, name, "log.retention.ms")))
    is_default = (kind, name) == (BROKER, "")  # all brokers
    assert answer.responses[0].error_code == (ErrorCode.NONE if is_default else ErrorCode.INVALID_REQUEST)


def test_a_number_of_thousands_of_digits_is_too_large(nodes: ThreeNodes) -> None:
    request: Any = altered(False, (TOPIC, "t", "retention.ms"))
    request.resources[0].configs[0].value = "9" * 5_000
    answer: Any = nodes.call(IDS[0], request)
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG


def refusal_of(nodes: ThreeNodes, names: list[str]) -> tuple[int, list[str]]:
    """The cost of refusing a change of these brokers' settings, and the error messages."""
    answers: list[Any] = []
    request = altered(False, *((BROKER, name, "log.retention.ms") for name in names))
    cost = calls_of(lambda: answers.append(nodes.call(IDS[0], request)))
    assert {each.error_code for each in answers[0].responses} == {ErrorCode.INVALID_REQUEST}
    return cost, [each.error_message for each in answers[0].responses]


@pytest.mark.parametrize("of", ["others", "one"])
def test_a_refused_resource_costs_the_same_in_a_large_request(nodes: ThreeNodes, of: str) -> None:
    """A request of half a megabyte stopped a node for fifteen seconds, longer than a broker's session."""
    few, many = ([str(IDS[0] + (i if of == "others" else 0)) for i in range(1, n + 1)] for n in (100, 1_000))
    cost, sentences = refusal_of(nodes, many)
    assert cost <= 11 * refusal_of(nodes, few)[0]
    twice = "Each resource must appear at most once."
    assert all((sentence == twice) == (of == "one") for sentence in sentences)


def test_a_resource_that_is_named_twice_is_refused_before_its_broker_is_looked_at(nodes: ThreeNodes) -> None:
    """In each place, as by Kafka 4.3.1."""
    _, sentences = refusal_of(nodes, ["2", "", "3", "2", ""])
    twice, other = "Each resource must appear at most once.", "Unexpected broker id, expected 1, but received 3"
    assert sorted(sentences) == [*[twice] * 4, other]


def result_without_a_replica(nodes: ThreeNodes, topic: str, records: bytes, acks: int) -> Any:
    """The result of a Produce request to a broker that has no replica of the topic."""
    asked = next(each for each in IDS if (topic, 0) not in nodes.nodes[each].partitions)
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    wanted = ProduceRequest.TopicProduceData(topic_id=nodes.nodes[asked].image.topics[topic].id, partition_data=[data])
    answer: Any = nodes.call(asked, ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[wanted]))
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize(
    ("topic", "batches", "acks", "code"),
    [
        ("one", 1, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("one", 1, 2, ErrorCode.INVALID_REQUIRED_ACKS),
        ("one", 2, 1, ErrorCode.INVALID_RECORD),
        ("one", 2, 2, ErrorCode.INVALID_RECORD),
        ("__consumer_offsets", 1, 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__consumer_offsets", 1, 2, ErrorCode.INVALID_REQUIRED_ACKS),
        ("__consumer_offsets", 2, 2, ErrorCode.INVALID_RECORD),
    ],
)
def test_records_acks_and_the_topic_are_checked_before_the_leader(
    nodes: ThreeNodes, topic: str, batches: int, acks: int, code: ErrorCode
) -> None:
    """In this order, as by Kafka 4.3.1 (KafkaApis.handleProduceRequest; ReplicaManager.appendRecords, appendToLocalLog)."""
    if topic not in nodes.nodes[IDS[0]].image.topics:
        nodes.create(topic, 1, factor=1)
    result = result_without_a_replica(nodes, topic, bytes(batch(b"a")) * batches, acks)
    assert result.error_code == code
    assert (result.current_leader.leader_id >= 0) == (code == ErrorCode.NOT_LEADER_OR_FOLLOWER)
