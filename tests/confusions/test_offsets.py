"""Which records a consumer loses or repeats, by the time and the manner of its commits."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from tests.confusions.applications import PATIENCE_S, Applications, gather, owned, share, take, take_messages, text
from tests.confusions.wire import Mishap, Wire

VALUES = ["a", "b", "c", "d"]

AUTO_COMMIT = {"enable.auto.commit": True}
STORED_WHEN_PROCESSED = AUTO_COMMIT | {"enable.auto.offset.store": False}


def test_auto_commit_before_processing_loses(applications: Applications, topic: str) -> None:
    applications.write(topic, VALUES)
    with applications.consumer("early", [topic], AUTO_COMMIT) as consumer:
        processed = take(consumer, 3)[:1]
    with applications.consumer("early", [topic], AUTO_COMMIT) as consumer:
        processed += take(consumer, 1)
    assert processed == ["a", "d"], "b and c were handed out, not processed, and committed"

    with applications.consumer("stored", [topic], STORED_WHEN_PROCESSED) as consumer:
        processed_message, *_ = take_messages(consumer, 3)
        consumer.store_offsets(processed_message)
    with applications.consumer("stored", [topic], STORED_WHEN_PROCESSED) as consumer:
        assert take(consumer, 3) == ["b", "c", "d"]


def test_commit_after_processing_repeats(applications: Applications, topic: str) -> None:
    applications.write(topic, VALUES)
    processed: list[str] = []
    results: dict[tuple[int | None, int | None], str] = {}
    for taken, commits in ((2, True), (1, False), (2, True)):
        with applications.consumer("late", [topic]) as consumer:
            for message in take_messages(consumer, taken):
                value = text(message.value())
                processed.append(value)
                results[message.partition(), message.offset()] = value
            if commits:
                consumer.commit(asynchronous=False)
    assert processed == ["a", "b", "c", "c", "d"]
    assert [*results.values()] == VALUES, "a result that is kept by its record's position is there once"


def test_a_commit_lost_at_a_rebalance_repeats(applications: Applications) -> None:
    def commit(consumer: Consumer, revoked: list[TopicPartition]) -> None:
        consumer.commit(offsets=consumer.position(revoked), asynchronous=False)

    assert seen_after_a_rebalance(applications, None) == ["a", "a", "b", "b", "last", "last"]
    assert seen_after_a_rebalance(applications, commit) == ["last", "last"]


def seen_after_a_rebalance(applications: Applications, on_revoke: Any) -> list[str]:
    """The records that two members get after a rebalance; the first had processed both partitions when the second joined."""
    topic = applications.new_topic(2)
    for partition in range(2):
        applications.write(topic, ["a", "b"], partition)
    group = f"rebalanced-{topic}"
    with applications.consumer(group) as first, applications.consumer(group) as second:
        first.subscribe([topic], **({"on_revoke": on_revoke} if on_revoke else {}))
        assert sorted(take(first, 4)) == ["a", "a", "b", "b"]
        second.subscribe([topic])
        found = gather([first, second], lambda _: all(len(each) == 1 for each in owned([first, second])))
        for partition in range(2):
            applications.write(topic, ["last"], partition)
        found += gather([first, second], lambda found: all("last" in mine for mine in found))
    return sorted(value for mine in found for value in mine)


def test_asynchronous_commits_overtake(unlucky: Applications, wire: Wire, topic: str) -> None:
    group = f"group-{topic}"
    reported: list[int] = []

    def note(error: KafkaError | None, places: list[TopicPartition]) -> None:
        assert error is None
        reported.append(places[0].offset)

    with unlucky.consumer(group, settings={"on_commit": note}) as consumer:
        overtaken = wire.befall(OffsetCommitRequest, Mishap.OVERTAKEN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=True)
        assert overtaken.met.wait(PATIENCE_S)
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=True)
        gather([consumer], lambda _: len(reported) == 2)
    assert reported == [3, 1]
    assert unlucky.committed(group, topic) == 1

    with unlucky.consumer(group) as consumer:
        wire.befall(OffsetCommitRequest, Mishap.REFUSED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for offset in (1, 3):
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    assert unlucky.committed(group, topic) == 3


def test_auto_offset_reset_latest_skips(applications: Applications, topic: str) -> None:
    applications.write(topic, VALUES)
    latest, earliest = {"auto.offset.reset": "latest"}, {"auto.offset.reset": "earliest"}
    with applications.consumer("late-comer", [topic], latest) as consumer:
        assert first_that_comes(applications, topic, consumer) not in VALUES
    with applications.consumer("reads-from-the-start", [topic], earliest) as consumer:
        assert take(consumer, 2) == ["a", "b"]
        consumer.commit(asynchronous=False)
    with applications.consumer("reads-from-the-start", [topic], latest) as consumer:
        assert take(consumer, 2) == ["c", "d"], "where there is a committed offset, nothing is reset"


def first_that_comes(applications: Applications, topic: str, consumer: Consumer) -> str:
    """The consumer's first record. It finds its position some time after it subscribed: write until it gets a record."""
    share([consumer], [1])
    for number in range(int(PATIENCE_S / 0.2)):
        applications.write(topic, [f"new-{number}"])
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            return text(message.value())
    pytest.fail("nothing came")


def test_a_new_group_reads_again(applications: Applications, topic: str) -> None:
    applications.write(topic, VALUES)
    for group in ("billing-1", "billing-2"):
        with applications.consumer(f"{group}-{topic}", [topic]) as consumer:
            assert take(consumer, 4) == VALUES
            consumer.commit(asynchronous=False)

    group = f"billing-1-{topic}"
    applications.write(topic, ["e"])
    with applications.consumer(group, [topic]) as consumer:
        assert take(consumer, 1) == ["e"]
    reset = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    applications.admin.alter_consumer_group_offsets([reset])[group].result(PATIENCE_S)
    with applications.consumer(group, [topic]) as consumer:
        assert take(consumer, 3) == ["c", "d", "e"]
