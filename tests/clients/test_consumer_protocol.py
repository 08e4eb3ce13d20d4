"""Consumers of the new protocol (group.protocol=consumer, KIP-848), as users run them. (CGH-05, CGH-09, CGH-10, CGH-14)"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from linearizability.targets import Target, open_target
from tests.tools.jvm import shared_tools

TIMEOUT_S = 60
PARTITIONS = 4
QUICK = {"group.consumer.heartbeat.interval.ms": "200", "group.consumer.min.heartbeat.interval.ms": "200"}
"""A heartbeat takes five seconds by default, and a rebalance several of them."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with open_target("reference:1", folder=tmp_path_factory.mktemp("consumer-protocol"), config=QUICK) as target:
        yield target


@pytest.fixture
def filled_topic(broker: Target, topic: str) -> str:
    """A topic with ten records in each partition."""
    topic = f"new-protocol-{topic}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])[topic].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10 * PARTITIONS):
        producer.produce(topic, value=str(number), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    return topic


class Member:
    """One consumer, which is polled as often as a test waits for something."""

    def __init__(self, broker: Target, group: str, topics: list[str], **config: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **config,
            }
        )
        self.consumer.subscribe(topics)
        self.values: list[str] = []

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None:
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            self.values.append(value.decode())

    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


def wait_for(members: list[Member], done: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < until, [member.owned() for member in members]
        for member in members:
            member.poll()


def test_members_come_and_go(broker: Target, filled_topic: str) -> None:
    group = f"group-of-{filled_topic}"
    everything = set(range(PARTITIONS))
    first = Member(broker, group, [filled_topic])
    wait_for([first], lambda: first.owned() == everything and len(first.values) == 10 * PARTITIONS)
    assert sorted(map(int, first.values)) == [*range(10 * PARTITIONS)]
    committed = first.consumer.commit(asynchronous=False)
    assert {(each.partition, each.offset) for each in committed} == {(each, 10) for each in everything}

    second = Member(broker, group, [filled_topic])
    both = [first, second]
    wait_for(both, lambda: len(first.owned()) == len(second.owned()) == 2)
    assert first.owned() | second.owned() == everything
    assert second.values == [], "it goes on after what was committed"

    first.consumer.close()
    wait_for([second], lambda: second.owned() == everything)
    second.consumer.close()


def test_a_pattern(broker: Target, filled_topic: str) -> None:
    member = Member(broker, f"pattern-of-{filled_topic}", [f"^{filled_topic[:-1]}[{filled_topic[-1]}]"])
    wait_for([member], lambda: member.owned() == set(range(PARTITIONS)))
    member.consumer.close()


def test_administrators_see_the_group(broker: Target, filled_topic: str) -> None:
    group = f"seen-{filled_topic}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    member = Member(broker, group, [filled_topic], **{"client.id": "watched"})
    wait_for([member], lambda: len(member.owned()) == PARTITIONS)
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(TIMEOUT_S).valid
    assert group in {each.group_id for each in listed}
    reported = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert (reported.state, reported.type, reported.partition_assignor) == (
        ConsumerGroupState.STABLE,
        ConsumerGroupType.CONSUMER,
        "uniform",
    )
    (seen,) = reported.members
    assert (seen.client_id, {each.partition for each in seen.assignment.topic_partitions}) == (
        "watched",
        set(range(PARTITIONS)),
    )
    member.consumer.close()
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)


def test_a_group_changes_its_protocol_when_it_is_empty(broker: Target, filled_topic: str) -> None:
    """CGH-17: what was committed stays."""
    group = f"changing-{filled_topic}"
    for protocol in ("classic", "consumer", "classic"):
        member = Member(broker, group, [filled_topic], **{"group.protocol": protocol})
        wait_for([member], lambda member=member: len(member.owned()) == PARTITIONS)
        if not member.consumer.committed([TopicPartition(filled_topic, 0)], timeout=TIMEOUT_S)[0].offset > 0:
            member.consumer.commit(offsets=[TopicPartition(filled_topic, 0, 7)], asynchronous=False)
        (committed,) = member.consumer.committed([TopicPartition(filled_topic, 0)], timeout=TIMEOUT_S)
        assert committed.offset == 7
        member.consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_changes_its_protocol_while_it_is_used(broker: Target, filled_topic: str, strategy: str) -> None:
    """CGH-17: member by member, there and back."""
    group, everything = f"mixed-{strategy}-{filled_topic}", set(range(PARTITIONS))
    old = {"group.protocol": "classic", "partition.assignment.strategy": strategy, "heartbeat.interval.ms": "200"}
    first = Member(broker, group, [filled_topic], **old)
    wait_for([first], lambda: first.owned() == everything)
    second = Member(broker, group, [filled_topic])
    both = [first, second]
    wait_for(
        both, lambda: len(first.owned()) == len(second.owned()) == 2 and first.owned() | second.owned() == everything
    )
    first.consumer.close()
    wait_for([second], lambda: second.owned() == everything)
    third = Member(broker, group, [filled_topic], **old)
    both = [second, third]
    wait_for(
        both, lambda: len(second.owned()) == len(third.owned()) == 2 and second.owned() | third.owned() == everything
    )
    second.consumer.close()
    wait_for([third], lambda: third.owned() == everything)
    third.consumer.close()


@pytest.mark.java
def test_java_s_consumer(broker: Target, filled_topic: str) -> None:
    ran = shared_tools().run(
        "kafka-console-consumer",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        filled_topic,
        "--from-beginning",
        "--max-messages",
        10 * PARTITIONS,
        "--timeout-ms",
        60_000,
        "--group",
        f"java-{filled_topic}",
        "--command-property",
        "group.protocol=consumer",
    )
    assert sorted(map(int, ran.well().split())) == [*range(10 * PARTITIONS)]
